// SPDX-License-Identifier: BSD-3-Clause
// Calls on completion channels, and the completion events that programs wait for.
#include "stack/verbs/objects/completion_channel.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

namespace {

CompletionChannel& channel_of(ibv_comp_channel* channel) {
  return *static_cast<CompletionChannel*>(channel);
}

}  // namespace

FAULTLINE_VERB ibv_comp_channel* ibv_create_comp_channel(ibv_context* ibv_context_pointer) {
  if (!is_live(ibv_context_pointer)) return fail(EINVAL);
  if (const int error = trouble_of("ibv_create_comp_channel", ibv_context_pointer); error != 0)
    return fail(error);
  Context& context = context_of(ibv_context_pointer);
  if (open_device_of(context) == nullptr) return nullptr;
  std::unique_ptr<CompletionChannel> channel(new (std::nothrow) CompletionChannel());
  if (channel == nullptr) return fail(ENOMEM);
  if (const int error = channel->open(); error != 0) return fail(error);
  channel->context = ibv_context_pointer;
  channel->fd = channel->descriptor();
  channel->refcnt = 0;
  context.live_objects.fetch_add(1, std::memory_order_relaxed);
  return channel.release();
}

FAULTLINE_VERB int ibv_destroy_comp_channel(ibv_comp_channel* ibv_channel_pointer) {
  if (!is_live(ibv_channel_pointer)) return refused(EINVAL);
  CompletionChannel* const channel = &channel_of(ibv_channel_pointer);
  if (channel->referenced()) return refused(EBUSY);
  if (const int error = trouble_of("ibv_destroy_comp_channel", channel->context); error != 0) return error;
  Context& context = context_of(channel->context);
  delete channel;
  release(context.live_objects);
  return 0;
}

FAULTLINE_VERB int ibv_get_cq_event(ibv_comp_channel* ibv_channel_pointer, ibv_cq** cq, void** cq_context) {
  if (!is_live(ibv_channel_pointer) || cq == nullptr || cq_context == nullptr) {
    errno = EINVAL;
    return -1;
  }
  if (const int error = trouble_of("ibv_get_cq_event", ibv_channel_pointer->context); error != 0) {
    errno = error;
    return -1;
  }
  // A reply often arrives within a few turns, which is much faster than waking a sleeping thread.
  constexpr int kTurnsBeforeSleep = 256;
  CompletionChannel& channel = channel_of(ibv_channel_pointer);
  OpenDevice& engine = *context_of(channel.context).started.load();
  Cq* found = channel.pop();
  for (int turn = 0; found == nullptr && turn < kTurnsBeforeSleep; ++turn) {
    engine.backend->drive();
    found = channel.pop();
  }
  if (found == nullptr) engine.backend->rest();
  while (found == nullptr) {
    if (const int error = channel.wait(); error != 0) {
      errno = error;
      return -1;
    }
    found = channel.pop();
  }
  *cq = ibv_cq_ex_to_cq(found);
  *cq_context = found->cq_context;
  return 0;
}

FAULTLINE_VERB void ibv_ack_cq_events(ibv_cq* cq, unsigned int count) {
  if (!is_live(cq)) return;
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += count;
  pthread_cond_signal(&cq->cond);
  pthread_mutex_unlock(&cq->mutex);
}

}  // namespace faultline::verbs
