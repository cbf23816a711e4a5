// SPDX-License-Identifier: BSD-3-Clause
// Completion queues: create, resize, modify, arm, destroy. poll.cpp implements polling.
#include <thread>

#include "stack/record/recorded_call.hpp"
#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

namespace {

constexpr uint64_t kKnownWcFlags = uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
constexpr uint32_t kKnownFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

/// Returns 0 or an errno.
int check(const ibv_context* context, const ibv_cq_init_attr_ex& init) {
  if (init.channel != nullptr && !is_live(init.channel)) return EINVAL;
  if (init.cqe < 1 || init.cqe > kMaxCqe) return EINVAL;
  if (init.comp_vector >= static_cast<uint32_t>(context->num_comp_vectors)) return EINVAL;
  return init.channel != nullptr && init.channel->context != context ? EINVAL : 0;
}

Cq* create_on(OpenDevice* engine, ibv_context* ibv_context_pointer, const ibv_cq_init_attr_ex& init) {
  if (const int error = trouble_of("ibv_create_cq", ibv_context_pointer); error != 0) return fail(error);
  Context& context = context_of(ibv_context_pointer);
  Pd* const parent_domain = init.parent_domain == nullptr ? nullptr : &pd_of(init.parent_domain);
  std::unique_ptr<ProgramMemory> ring_memory;
  std::unique_ptr<Cq> cq;
  try {
    ring_memory = ProgramMemory::of(parent_domain, RingKind::completions);
    if (ring_memory != nullptr) ring_memory->reserve(Cq::bytes_for(init.cqe), Cq::kAlignmentBytes);
    cq = std::make_unique<Cq>(init.cqe,
                              ring_memory != nullptr ? ring_memory.get() : std::pmr::new_delete_resource());
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
  if (!acquire(engine->cqs, kMaxCqs)) return fail(ENOMEM);
  cq->context = ibv_context_pointer;
  cq->channel = init.channel;
  cq->cq_context = init.cq_context;
  cq->cqe = static_cast<int>(init.cqe);
  init_waiting(*cq);
  cq->engine = engine;
  cq->event_source.element.element.cq = ibv_cq_ex_to_cq(cq.get());
  cq->has_channel = cq->is_noted = init.channel != nullptr;
  cq->several_cores = engine->backend->core_count() > 1;
  cq->ignores_overrun = (init.flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0;
  cq->single_threaded = (init.flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
  cq->with_wallclock = (init.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0;
  cq->ring_memory = std::move(ring_memory);
  cq->parent_domain = parent_domain;
  cq->handle = engine->last_cq_handle.fetch_add(1, std::memory_order_relaxed) + 1;
  note_creation(ibv_cq_ex_to_cq(cq.get()));
  cq->published.publish(engine->backend->status(), {.created_ns = engine->backend->now(),
                                                    .handle = cq->handle,
                                                    .entries = init.cqe,
                                                    .has_channel = cq->has_channel ? 1U : 0U});
  if (parent_domain != nullptr) parent_domain->references.fetch_add(1, std::memory_order_relaxed);
  set_poll_functions(*cq);
  if (cq->has_channel) static_cast<CompletionChannel*>(cq->channel)->add_reference();
  context.live_objects.fetch_add(1, std::memory_order_relaxed);
  return cq.release();
}

Cq* create(ibv_context* context, const ibv_cq_init_attr_ex& init) {
  if (!is_live(context)) return fail(EINVAL);
  const int refused = check(context, init);
  // A refused call does not start the device.
  OpenDevice* const engine =
      refused == 0 ? open_device_of(context_of(context)) : context_of(context).started.load();
  if (engine == nullptr) return refused == 0 ? nullptr : fail(refused);
  record::RecordedCall call(engine->backend->controls(), record::ControlCall::create_cq);
  call.row.entries = init.cqe;
  Cq* const cq = refused == 0 ? create_on(engine, context, init) : fail(refused);
  if (cq != nullptr)
    call.row.object = cq->handle;
  else
    call.end(errno);
  return cq;
}

}  // namespace

FAULTLINE_VERB ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cq_context,
                                     ibv_comp_channel* channel, int comp_vector) {
  if (entries < 1 || comp_vector < 0) return fail(EINVAL);
  ibv_cq_init_attr_ex init{};
  init.cqe = static_cast<uint32_t>(entries);
  init.cq_context = cq_context;
  init.channel = channel;
  init.comp_vector = static_cast<uint32_t>(comp_vector);
  return ibv_cq_ex_to_cq(create(context, init));
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* init) {
  if (init == nullptr) return fail(EINVAL);
  constexpr uint32_t kKnownMask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  if ((init->comp_mask & ~kKnownMask) != 0) return fail(EOPNOTSUPP);
  if ((init->wc_flags & ~kKnownWcFlags) != 0) return fail(EOPNOTSUPP);
  ibv_cq_init_attr_ex wanted = *init;
  if ((init->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) == 0) wanted.flags = 0;
  if ((wanted.flags & ~kKnownFlags) != 0) return fail(EINVAL);
  if ((init->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) == 0) {
    wanted.parent_domain = nullptr;
  } else {
    // ibv_create_cq_ex(3) requires "a parent domain", so a plain PD is refused.
    if (!is_live(wanted.parent_domain) || wanted.parent_domain->context != context) return fail(EINVAL);
    if (!pd_of(wanted.parent_domain).is_parent) return fail(EINVAL);
  }
  return create(context, wanted);
}

FAULTLINE_VERB int ibv_destroy_cq(ibv_cq* ibv_cq_pointer) {
  if (!is_live(ibv_cq_pointer)) return refused(EINVAL);
  Cq* const cq = &cq_of(ibv_cq_pointer);
  const std::shared_ptr<DeviceBackend> backend = cq->engine->backend;
  record::RecordedCall call(backend->controls(), record::ControlCall::destroy_cq);
  call.row.object = cq->handle;
  if (cq->references.load(std::memory_order_acquire) != 0) return refused(call.end(EBUSY));
  if (const int error = trouble_of("ibv_destroy_cq", ibv_cq_pointer); error != 0) return call.end(error);
  note_end(ibv_cq_pointer);
  Context& context = context_of(cq->context);
  if (cq->moderated.load(std::memory_order_relaxed))
    cq->engine->on_every_owner([cq](transport::Core& core) { core.forget_cq(*cq); });
  // ibv_get_async_event(3): "destroying an object will wait for all affiliated events to be acknowledged".
  // The same holds for completion events (ibv_get_cq_event(3)).
  const uint32_t delivered = context.events.withdraw(cq->event_source);
  auto* const channel = static_cast<CompletionChannel*>(cq->channel);
  const uint32_t completion_events = channel == nullptr ? 0 : channel->withdraw(*cq);
  end_waiting(*cq, [&] {
    return cq->async_events_completed == delivered && cq->comp_events_completed == completion_events;
  });
  if (channel != nullptr) channel->drop_reference();
  release(cq->engine->cqs);
  Pd* const parent_domain = cq->parent_domain;
  std::unique_ptr<ProgramMemory> ring_memory = std::move(cq->ring_memory);
  delete cq;
  ring_memory.reset();
  if (parent_domain != nullptr) release(parent_domain->references);
  release(context.live_objects);
  return 0;
}

namespace {

/// Completes what was posted before, as a device does meanwhile. One turn may not suffice: a port may refuse
/// frames for a moment. The limit is for a device with steady traffic, which always has work.
void complete_due(const Cq& cq) {
  constexpr unsigned kMostTurns = 64;
  DeviceBackend& backend = *cq.engine->backend;
  for (unsigned turns = 0; turns < kMostTurns; ++turns) {
    backend.run_turns();
    bool has_work = false;
    cq.engine->on_every_owner([&](const transport::Core& core) { has_work |= core.has_work(backend.now()); });
    if (!has_work) return;
    std::this_thread::yield();
  }
}

}  // namespace

FAULTLINE_VERB int ibv_resize_cq(ibv_cq* ibv_cq_pointer, int entries) {
  if (!is_live(ibv_cq_pointer) || entries < 1 || static_cast<uint32_t>(entries) > kMaxCqe)
    return refused(EINVAL);
  if (const int error = trouble_of("ibv_resize_cq", ibv_cq_pointer); error != 0) return error;
  Cq& cq = cq_of(ibv_cq_pointer);
  if (entries < cq.cqe) complete_due(cq);
  const std::lock_guard no_polls(cq.poll_lock);
  int error = 0;
  auto resize = [&] { error = cq.resize(static_cast<uint32_t>(entries)); };
  if (cq.several_cores)
    resize();
  else
    cq.engine->on_owner(0, resize);
  if (error == 0) {
    cq.cqe = entries;
    cq.published.update([&](status::CqRow& row) { row.entries = static_cast<uint32_t>(entries); });
  }
  return refused(error);
}

int modify_cq(ibv_cq* ibv_cq_pointer, ibv_modify_cq_attr* attributes) {
  constexpr TimeNs kNsPerUs = 1000;
  if (!is_live(ibv_cq_pointer) || attributes == nullptr) return refused(EINVAL);
  if (attributes->attr_mask == 0 || (attributes->attr_mask & ~uint32_t{IBV_CQ_ATTR_MODERATE}) != 0)
    return refused(EINVAL);
  if (const int error = trouble_of("ibv_modify_cq", ibv_cq_pointer); error != 0) return error;
  Cq& cq = cq_of(ibv_cq_pointer);
  cq.moderated.store(true, std::memory_order_relaxed);
  cq.moderate(attributes->moderate.cq_count, kNsPerUs * attributes->moderate.cq_period);
  return 0;
}

void look_at_waiting(Cq& cq) {
  while (!cq.poll_lock.try_lock()) {
    // The lock's holder may be a batch of this thread. Sequential consistency ensures that either end_poll
    // sees owed_look and raises the event, or this load sees that the batch has ended.
    if (cq.in_batch.load(std::memory_order_seq_cst)) return;
    std::this_thread::yield();
  }
  const Cq::Look look = cq.owed_look.exchange(Cq::Look::none, std::memory_order_relaxed);
  if (look != Cq::Look::none && cq.take_armed_by_waiting(look == Cq::Look::solicited))
    static_cast<CompletionChannel*>(cq.channel)->raise(cq);
  cq.poll_lock.unlock();
}

int req_notify_cq_in_trouble(ibv_cq* cq, int solicited_only) {
  if (const int error = trouble_of("ibv_req_notify_cq", cq); error != 0) return error;
  return req_notify_cq(cq, solicited_only);
}

int req_notify_cq(ibv_cq* ibv_cq_pointer, int solicited_only) {
  Cq& cq = cq_of(ibv_cq_pointer);
  if (!cq.has_channel) return 0;  // no channel to notify
  cq.arm(solicited_only != 0);
  cq.owed_look.store(solicited_only != 0 ? Cq::Look::solicited : Cq::Look::any, std::memory_order_seq_cst);
  look_at_waiting(cq);
  // A program that arms a CQ is about to sleep, on the channel or on a poll of its descriptor.
  cq.engine->backend->rest();
  return 0;
}

}  // namespace faultline::verbs
