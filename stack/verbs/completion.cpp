// SPDX-License-Identifier: BSD-3-Clause
// Completion queues, by polling.
#include <algorithm>

#include <endian.h>

#include "stack/verbs/limits.hpp"
#include "stack/verbs/objects.hpp"

namespace faultline::verbs {

namespace {

void fill(ibv_wc& wc, const transport::Completion& completion) {
  wc.wr_id = completion.wr_id;
  wc.status = static_cast<ibv_wc_status>(completion.status);
  wc.opcode = static_cast<ibv_wc_opcode>(completion.opcode);
  wc.vendor_err = completion.vendor_error;
  wc.byte_len = completion.byte_length;
  if ((completion.flags & transport::kWithInvalidate) != 0)
    wc.invalidated_rkey = completion.immediate_or_rkey;
  else
    wc.imm_data = htobe32(completion.immediate_or_rkey);
  wc.qp_num = completion.qpn;
  wc.src_qp = completion.source_qpn;
  wc.wc_flags = completion.flags;
  wc.pkey_index = 0;
  wc.slid = 0;
  wc.sl = 0;
  wc.dlid_path_bits = 0;
}

}  // namespace

FAULTLINE_VERB ibv_cq* ibv_create_cq(ibv_context* ibv_context_pointer, int entries, void* cq_context,
                                     ibv_comp_channel* channel, int comp_vector) {
  if (channel != nullptr) return fail(EOPNOTSUPP);
  if (entries < 1 || static_cast<uint32_t>(entries) > kMaxCqe) return fail(EINVAL);
  if (comp_vector < 0 || comp_vector >= ibv_context_pointer->num_comp_vectors) return fail(EINVAL);
  Context& context = context_of(ibv_context_pointer);
  Engine* const engine = engine_of(context);
  if (engine == nullptr) return nullptr;
  std::unique_ptr<Cq> cq;
  try {
    cq = std::make_unique<Cq>(static_cast<uint32_t>(entries));
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
  if (!acquire(engine->cqs, kMaxCqs)) return fail(ENOMEM);
  cq->context = ibv_context_pointer;
  cq->channel = nullptr;
  cq->cq_context = cq_context;
  cq->handle = 0;
  cq->cqe = entries;
  cq->comp_events_completed = 0;
  cq->async_events_completed = 0;
  pthread_mutex_init(&cq->mutex, nullptr);
  pthread_cond_init(&cq->cond, nullptr);
  cq->engine = engine;
  cq->event_source.element.element.cq = cq.get();
  context.live_objects.fetch_add(1, std::memory_order_relaxed);
  return cq.release();
}

FAULTLINE_VERB int ibv_destroy_cq(ibv_cq* ibv_cq_pointer) {
  Cq* const cq = &cq_of(ibv_cq_pointer);
  if (cq->references.load(std::memory_order_acquire) != 0) return EBUSY;
  Context& context = context_of(cq->context);
  // ibv_get_async_event(3): "destroying an object will wait for all affiliated events to be acknowledged".
  const uint32_t delivered = context.events.withdraw(cq->event_source);
  pthread_mutex_lock(&cq->mutex);
  while (cq->async_events_completed != delivered) pthread_cond_wait(&cq->cond, &cq->mutex);
  pthread_mutex_unlock(&cq->mutex);
  pthread_cond_destroy(&cq->cond);
  pthread_mutex_destroy(&cq->mutex);
  release(cq->engine->cqs);
  delete cq;
  release(context.live_objects);
  return 0;
}

int poll_cq(ibv_cq* ibv_cq_pointer, int entries, ibv_wc* wc) {
  if (entries <= 0) return 0;
  Cq& cq = cq_of(ibv_cq_pointer);
  // Not under the lock: an engine turn can be long, and other threads may find completions meanwhile.
  if (cq.empty()) {
    cq.engine->backend->drive();
    if (cq.empty())
      return cq.overrun() ? -1 : 0;  // ibv_poll_cq(3): "in case of a CQ overrun the CQ cannot be used"
  }
  constexpr size_t kBatch = 16;
  // Not an array of completions: its elements would be initialised on every poll.
  alignas(transport::Completion) std::array<std::byte, kBatch * sizeof(transport::Completion)> storage;
  const std::span batch(reinterpret_cast<transport::Completion*>(storage.data()), kBatch);
  const auto wanted = static_cast<uint32_t>(entries);
  uint32_t taken = 0;
  const std::lock_guard lock(cq.poll_lock);
  while (taken < wanted) {
    const uint32_t room = std::min<uint32_t>(wanted - taken, kBatch);
    const uint32_t got = cq.poll(batch.first(room));
    for (uint32_t i = 0; i < got; ++i) fill(wc[taken + i], batch[i]);
    taken += got;
    if (got < room) break;
  }
  return static_cast<int>(taken);
}

int req_notify_cq(ibv_cq* /*cq*/, int /*solicited_only*/) {
  return 0;  // without a completion channel there is nobody to notify
}

}  // namespace faultline::verbs
