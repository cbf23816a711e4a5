// SPDX-License-Identifier: BSD-3-Clause
// XRC domains, shared by XRC targets and XRC SRQs. A domain with an inode is the same for all contexts of
// this process that open it. Processes cannot share a domain, because an engine and its QPs belong to one
// process.
#include <fcntl.h>
#include <sys/stat.h>

#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

namespace {

XrcDomain* find(const OpenDevice& engine, const struct stat& inode) {
  for (XrcDomain* domain = engine.xrc_domains; domain != nullptr; domain = domain->next)
    if (domain->has_inode && domain->device == inode.st_dev && domain->inode == inode.st_ino) return domain;
  return nullptr;
}

/// Adds a domain, under xrc_mutex. Returns nullptr if memory is short.
XrcDomain* add(OpenDevice& engine, const struct stat* inode) {
  auto* const domain = new (std::nothrow) XrcDomain;
  if (domain == nullptr) return nullptr;
  domain->number = ++engine.last_xrc_domain;
  domain->core_index = engine.place();
  if (inode != nullptr) {
    domain->has_inode = true;
    domain->device = inode->st_dev;
    domain->inode = inode->st_ino;
  }
  domain->next = engine.xrc_domains;
  engine.xrc_domains = domain;
  return domain;
}

void remove(OpenDevice& engine, XrcDomain* domain) {
  XrcDomain** link = &engine.xrc_domains;
  while (*link != domain) link = &(*link)->next;
  *link = domain->next;
  delete domain;
}

/// Opens or creates the domain that the flags request (ibv_open_xrcd(3)). Returns 0 or an errno.
int open_domain(OpenDevice& engine, int fd, int flags, XrcDomain*& domain) {
  struct stat inode {};
  const bool has_inode = fd != -1;
  if (has_inode && ::fstat(fd, &inode) != 0) return errno;
  const bool create = (flags & O_CREAT) != 0;
  if (!has_inode && !create) return EINVAL;
  const std::lock_guard lock(engine.xrc_mutex);
  domain = has_inode ? find(engine, inode) : nullptr;
  if (domain != nullptr && create && (flags & O_EXCL) != 0) return EINVAL;
  if (domain == nullptr) {
    // Linux returns EAGAIN if the domain does not exist and O_CREAT is not set (ib_uverbs_open_xrcd).
    if (!create) return EAGAIN;
    domain = add(engine, has_inode ? &inode : nullptr);
    if (domain == nullptr) return ENOMEM;
  }
  ++domain->opened;
  return 0;
}

}  // namespace

ibv_xrcd* open_xrcd(ibv_context* ibv_context_pointer, ibv_xrcd_init_attr* init) {
  constexpr uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if (!is_live(ibv_context_pointer) || init == nullptr) return fail(EINVAL);
  if (init->comp_mask != kNeeded || (init->oflags & ~(O_CREAT | O_EXCL)) != 0) return fail(EINVAL);
  if (const int error = trouble_of("ibv_open_xrcd", ibv_context_pointer); error != 0) return fail(error);
  Context& context = context_of(ibv_context_pointer);
  OpenDevice* const engine = open_device_of(context);
  if (engine == nullptr) return nullptr;
  std::unique_ptr<Xrcd> xrcd(new (std::nothrow) Xrcd());
  if (xrcd == nullptr || !acquire(engine->xrcds, kMaxXrcds)) return fail(ENOMEM);
  if (const int error = open_domain(*engine, init->fd, init->oflags, xrcd->domain); error != 0) {
    release(engine->xrcds);
    return fail(error);
  }
  xrcd->context = ibv_context_pointer;
  context.live_objects.fetch_add(1, std::memory_order_relaxed);
  return xrcd.release();
}

int close_xrcd(ibv_xrcd* ibv_xrcd_pointer) {
  if (!is_live(ibv_xrcd_pointer)) return refused(EINVAL);
  Xrcd* const xrcd = &xrcd_of(ibv_xrcd_pointer);
  if (xrcd->references.load(std::memory_order_acquire) != 0) return refused(EBUSY);
  if (const int error = trouble_of("ibv_close_xrcd", xrcd->context); error != 0) return error;
  Context& context = context_of(xrcd->context);
  OpenDevice& engine = *context.started.load();
  {
    const std::lock_guard lock(engine.xrc_mutex);
    if (--xrcd->domain->opened == 0) remove(engine, xrcd->domain);
  }
  release(engine.xrcds);
  delete xrcd;
  release(context.live_objects);
  return 0;
}

}  // namespace faultline::verbs
