// SPDX-License-Identifier: BSD-3-Clause
// Protection domains, thread domains, and parent domains, which combine the two.
#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

FAULTLINE_VERB ibv_pd* ibv_alloc_pd(ibv_context* ibv_context_pointer) {
  if (!is_live(ibv_context_pointer)) return fail(EINVAL);
  if (const int error = trouble_of("ibv_alloc_pd", ibv_context_pointer); error != 0) return fail(error);
  Context& context = context_of(ibv_context_pointer);
  OpenDevice* const engine = open_device_of(context);
  if (engine == nullptr) return nullptr;
  std::unique_ptr<Pd> pd(new (std::nothrow) Pd());
  if (pd == nullptr || !acquire(engine->pds, kMaxPds)) return fail(ENOMEM);
  do {
    pd->domain = engine->last_domain.fetch_add(1, std::memory_order_relaxed) + 1;
  } while (pd->domain == 0);
  pd->published.publish(engine->backend->status(),
                        {.created_ns = engine->backend->now(), .handle = pd->domain});
  return enlist(context, pd.release());
}

Pd* enlist(Context& context, Pd* pd) {
  pd->context = &context.context;
  pd->handle = pd->domain;
  context.live_objects.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(context.objects_lock);
  link(context.pds, *pd);
  return pd;
}

void remove_pd(Pd* pd) {
  Context& context = context_of(pd->context);
  {
    const std::lock_guard lock(context.objects_lock);
    unlink(context.pds, *pd);
  }
  if (pd->base == nullptr)
    release(context.started.load()->pds);
  else
    release(pd->base->references);
  if (pd->thread_domain != nullptr) release(pd->thread_domain->references);
  delete pd;
}

FAULTLINE_VERB int ibv_dealloc_pd(ibv_pd* ibv_pd_pointer) {
  if (!is_live(ibv_pd_pointer)) return refused(EINVAL);
  Pd* const pd = &pd_of(ibv_pd_pointer);
  if (pd->references.load(std::memory_order_acquire) != 0) remove_abandoned(*pd);
  if (pd->references.load(std::memory_order_acquire) != 0) return refused(EBUSY);
  if (const int error = trouble_of("ibv_dealloc_pd", pd->context); error != 0) return error;
  Context& context = context_of(pd->context);
  remove_pd(pd);
  release(context.live_objects);
  return 0;
}

/// A thread domain promises that only one thread at a time uses its objects. The locks are then uncontended
/// and cheap, so they are kept.
ibv_td* alloc_td(ibv_context* ibv_context_pointer, ibv_td_init_attr* init) {
  if (!is_live(ibv_context_pointer) || init == nullptr || init->comp_mask != 0) return fail(EINVAL);
  if (const int error = trouble_of("ibv_alloc_td", ibv_context_pointer); error != 0) return fail(error);
  auto* const td = new (std::nothrow) Td();
  if (td == nullptr) return fail(ENOMEM);
  td->context = ibv_context_pointer;
  context_of(ibv_context_pointer).live_objects.fetch_add(1, std::memory_order_relaxed);
  return td;
}

int dealloc_td(ibv_td* ibv_td_pointer) {
  if (!is_live(ibv_td_pointer)) return refused(EINVAL);
  Td* const td = static_cast<Td*>(ibv_td_pointer);
  if (td->references.load(std::memory_order_acquire) != 0) return refused(EBUSY);
  if (const int error = trouble_of("ibv_dealloc_td", td->context); error != 0) return error;
  Context& context = context_of(td->context);
  delete td;
  release(context.live_objects);
  return 0;
}

/// ibv_alloc_parent_domain(3): "completely interchangeable with the struct ibv_pd used to create it".
ibv_pd* alloc_parent_domain(ibv_context* ibv_context_pointer, ibv_parent_domain_init_attr* init) {
  // ..._ALLOW_CC_UNPROTECTED_ALLOC of rdma-core 64: on a host whose memory is not confidential there is
  // nothing to do.
  constexpr uint32_t kAllowsUnprotected = 1U << 2;
  constexpr uint32_t kKnown =
      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT | kAllowsUnprotected;
  if (!is_live(ibv_context_pointer) || init == nullptr || !is_live(init->pd)) return fail(EINVAL);
  if ((init->comp_mask & ~kKnown) != 0) return fail(EINVAL);
  if (init->pd->context != ibv_context_pointer) return fail(EINVAL);
  if (init->td != nullptr && !is_live(init->td)) return fail(EINVAL);
  if (init->td != nullptr && init->td->context != ibv_context_pointer) return fail(EINVAL);
  const bool allocates = (init->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0;
  if (allocates && (init->alloc == nullptr || init->free == nullptr)) return fail(EINVAL);
  if (const int error = trouble_of("ibv_alloc_parent_domain", ibv_context_pointer); error != 0)
    return fail(error);
  Pd& base = pd_of(init->pd);
  auto* const pd = new (std::nothrow) Pd();
  if (pd == nullptr) return fail(ENOMEM);
  pd->is_parent = true;
  pd->stand_for(base);
  if (allocates) {
    pd->allocators.alloc = init->alloc;
    pd->allocators.free = init->free;
    if ((init->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) != 0)
      pd->allocators.context = init->pd_context;
  }
  if (init->td != nullptr) {
    pd->thread_domain = static_cast<Td*>(init->td);
    pd->thread_domain->references.fetch_add(1, std::memory_order_relaxed);
  }
  return enlist(context_of(ibv_context_pointer), pd);
}

}  // namespace faultline::verbs
