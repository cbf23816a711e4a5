// SPDX-License-Identifier: BSD-3-Clause
// Imports objects of another context of this process, identified by its command descriptor and the objects'
// handles (ibv_import_device(3), ibv_import_pd(3), ibv_import_mr(3), ibv_import_dm(3)). A context of another
// process cannot be imported, because an engine belongs to one process.
#include <sys/stat.h>

#include "stack/base/process/process_local.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

namespace {

struct OpenContexts {
  std::mutex mutex;
  Context* first = nullptr;
};

constinit ProcessLocal<OpenContexts> open_contexts;

/// Returns whether both contexts stem from one ibv_open_device.
bool same_file(const Context& a, const Context& b) {
  return a.file_device == b.file_device && a.file_inode == b.file_inode;
}

/// Calls `found(object)` on the object with that handle in any context of the same file, under that context's
/// lock. Returns false if there is none.
template <typename Object, typename Found>
bool find(const Context& like, Object* Context::*list, uint32_t handle, Found found) {
  OpenContexts* const open = open_contexts.find();
  if (open == nullptr) return false;
  const std::lock_guard lock(open->mutex);
  for (Context* context = open->first; context != nullptr; context = context->next_open) {
    if (!same_file(*context, like)) continue;
    const std::lock_guard objects(context->objects_lock);
    for (Object* object = context->*list; object != nullptr; object = object->next) {
      if (object->handle != handle) continue;
      found(*object);
      return true;
    }
  }
  return false;
}

}  // namespace

bool make_enrolment() {
  try {
    static_cast<void>(open_contexts.get());
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void enroll(Context& context) {
  struct stat file {};
  if (::fstat(context.context.cmd_fd, &file) == 0) {
    context.file_device = file.st_dev;
    context.file_inode = file.st_ino;
  }
  OpenContexts& open = open_contexts.get();
  const std::lock_guard lock(open.mutex);
  context.next_open = open.first;
  open.first = &context;
}

void strike(Context& context) {
  OpenContexts* const open = open_contexts.find();
  if (open == nullptr) return;  // the parent's context, in a forked child
  const std::lock_guard lock(open->mutex);
  Context** link = &open->first;
  while (*link != nullptr && *link != &context) link = &(*link)->next_open;
  if (*link != nullptr) *link = context.next_open;
}

FAULTLINE_VERB ibv_context* ibv_import_device(int cmd_fd) {
  struct stat file {};
  if (::fstat(cmd_fd, &file) != 0) return nullptr;
  VerbsDevice* device = nullptr;
  if (OpenContexts* const open = open_contexts.find(); open != nullptr) {
    const std::lock_guard lock(open->mutex);
    for (Context* context = open->first; context != nullptr && device == nullptr;
         context = context->next_open)
      if (context->file_device == file.st_dev && context->file_inode == file.st_ino) device = context->owner;
  }
  if (device == nullptr) return fail(EOPNOTSUPP);
  if (const int error = trouble_of("ibv_import_device", static_cast<ibv_device*>(device)); error != 0)
    return fail(error);
  return make_context(*device, cmd_fd);
}

FAULTLINE_VERB ibv_pd* ibv_import_pd(ibv_context* ibv_context_pointer, uint32_t handle) {
  if (!is_live(ibv_context_pointer)) return fail(EINVAL);
  if (const int error = trouble_of("ibv_import_pd", ibv_context_pointer); error != 0) return fail(error);
  Context& context = context_of(ibv_context_pointer);
  if (open_device_of(context) == nullptr) return nullptr;
  std::unique_ptr<Pd> pd(new (std::nothrow) Pd());
  if (pd == nullptr) return fail(ENOMEM);
  if (!find(context, &Context::pds, handle, [&](Pd& base) { pd->stand_for(base); })) return fail(EINVAL);
  pd->imported = true;
  return enlist(context, pd.release());
}

FAULTLINE_VERB void ibv_unimport_pd(ibv_pd* ibv_pd_pointer) {
  if (!is_live(ibv_pd_pointer)) return;
  Pd* const pd = &pd_of(ibv_pd_pointer);
  if (!pd->imported) return;
  Context& context = context_of(pd->context);
  // Programs destroy the PD's objects after unimporting it (pyverbs does). An unimported PD that is in use is
  // therefore kept until its base or its context is released.
  pd->imported = false;
  pd->abandoned = true;
  if (pd->references.load(std::memory_order_acquire) == 0) remove_pd(pd);
  release(context.live_objects);
}

void remove_abandoned(const Pd& base) {
  const auto next = [&base]() -> Pd* {
    OpenContexts* const open = open_contexts.find();
    if (open == nullptr) return nullptr;
    const std::lock_guard lock(open->mutex);
    for (Context* context = open->first; context != nullptr; context = context->next_open) {
      const std::lock_guard objects(context->objects_lock);
      for (Pd* pd = context->pds; pd != nullptr; pd = pd->next)
        if (pd->base == &base && pd->abandoned && pd->references.load(std::memory_order_acquire) == 0)
          return pd;
    }
    return nullptr;
  };
  while (Pd* const pd = next()) remove_pd(pd);
}

FAULTLINE_VERB ibv_mr* ibv_import_mr(ibv_pd* ibv_pd_pointer, uint32_t handle) {
  if (!is_live(ibv_pd_pointer)) return fail(EINVAL);
  if (const int error = trouble_of("ibv_import_mr", ibv_pd_pointer->context); error != 0) return fail(error);
  Pd& pd = pd_of(ibv_pd_pointer);
  std::unique_ptr<Mr> mr(new (std::nothrow) Mr());
  if (mr == nullptr) return fail(ENOMEM);
  const bool known = find(context_of(pd.context), &Context::mrs, handle, [&](Mr& original) {
    original.exported = true;
    mr->handle = original.handle;
    mr->lkey = original.lkey;
    mr->rkey = original.rkey;
    mr->length = original.length;
    mr->iova = original.iova;
    mr->access = original.access;
  });
  if (!known) return fail(EINVAL);
  mr->imported = true;
  mr->context = pd.context;
  mr->pd = &pd;
  pd.references.fetch_add(1, std::memory_order_relaxed);
  return mr.release();
}

FAULTLINE_VERB void ibv_unimport_mr(ibv_mr* ibv_mr_pointer) {
  if (!is_live(ibv_mr_pointer)) return;
  Mr* const mr = static_cast<Mr*>(ibv_mr_pointer);
  if (!mr->imported) return;
  release(pd_of(mr->pd).references);
  delete mr;
}

FAULTLINE_VERB ibv_dm* ibv_import_dm(ibv_context* ibv_context_pointer, uint32_t handle) {
  if (!is_live(ibv_context_pointer)) return fail(EINVAL);
  if (const int error = trouble_of("ibv_import_dm", ibv_context_pointer); error != 0) return fail(error);
  Context& context = context_of(ibv_context_pointer);
  std::shared_ptr<DeviceMemory> memory;
  if (!find(context, &Context::dms, handle, [&](Dm& original) { memory = original.shared; }))
    return fail(EINVAL);
  return make_dm(context, std::move(memory), true);
}

FAULTLINE_VERB void ibv_unimport_dm(ibv_dm* dm) {
  if (is_live(dm) && dm_of(dm).imported) remove_dm(dm_of(dm));
}

}  // namespace faultline::verbs
