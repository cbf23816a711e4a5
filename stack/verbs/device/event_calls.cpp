// SPDX-License-Identifier: BSD-3-Clause
// Calls on asynchronous events.
#include <cerrno>

#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

FAULTLINE_VERB int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  int error = is_live(context) && event != nullptr ? trouble_of("ibv_get_async_event", context) : EINVAL;
  if (error == 0) {
    Context& own = context_of(context);
    // A waiting program expects port events, which only a running engine raises. ibv_asyncwatch creates no
    // object, so start the engine here.
    const bool deaf = own.events.would_wait() && open_device_of(own) == nullptr;
    error = deaf ? errno : own.events.take(*event);
  }
  if (error == 0) {
    note_delivery(context, *event);
    return 0;
  }
  errno = error;
  return -1;
}

namespace {

template <typename Object>
void acknowledge(Object* object, uint32_t Object::*completed) {
  if (!is_live(object)) return;
  pthread_mutex_lock(&object->mutex);
  ++(object->*completed);
  pthread_cond_signal(&object->cond);
  pthread_mutex_unlock(&object->mutex);
}

}  // namespace

FAULTLINE_VERB void ibv_ack_async_event(ibv_async_event* event) {
  if (event == nullptr) return;
  switch (element_of(event->event_type)) {
    case EventElement::cq:
      return acknowledge(event->element.cq, &ibv_cq::async_events_completed);
    case EventElement::qp:
      return acknowledge(event->element.qp, &ibv_qp::events_completed);
    case EventElement::srq:
      return acknowledge(event->element.srq, &ibv_srq::events_completed);
    case EventElement::port_or_device:
      return;  // no destroyable object
  }
}

}  // namespace faultline::verbs
