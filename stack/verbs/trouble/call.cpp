// SPDX-License-Identifier: BSD-3-Clause
#include "stack/verbs/trouble/call.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include "stack/trouble/calls.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/effects.hpp"

namespace faultline::verbs {
namespace {

using Kind = trouble::ObjectKind;

uint32_t device_index(const ibv_context* context) {
  return trouble::director()->device(device_of(context->device).description.name);
}

uint64_t handle_of(const ibv_cq* cq) {
  return cq_of(const_cast<ibv_cq*>(cq)).handle;
}

template <typename T>
trouble::Object object_of(Kind kind, const T* owner, uint64_t handle) {
  return trouble::director()->object(kind, device_index(owner->context), handle);
}

template <typename T>
void forget(Kind kind, const T* owner, uint64_t handle) {
  if (trouble::Director* const director = trouble::director())
    director->forget(kind, device_index(owner->context), handle);
}

}  // namespace

Concerned concerned_by(const ibv_device* device) {
  const VerbsDevice& own = device_of(const_cast<ibv_device*>(device));
  return {{Kind::device, trouble::director()->device(own.description.name), 0}};
}

Concerned concerned_by(const ibv_context* context) {
  return {{Kind::device, device_index(context), 0}};
}

Concerned concerned_by(const ibv_qp* qp) {
  return {object_of(Kind::qp, qp, qp->qp_num), qp->send_cq != nullptr ? qp->send_cq : qp->recv_cq, qp->srq};
}

Concerned concerned_by(const ibv_cq* cq) {
  return {object_of(Kind::cq, cq, handle_of(cq)), const_cast<ibv_cq*>(cq)};
}

Concerned concerned_by(const ibv_srq* srq) {
  return {object_of(Kind::srq, srq, srq->handle), nullptr, const_cast<ibv_srq*>(srq)};
}

Concerned concerned_by(const ibv_mr* mr) {
  return {object_of(Kind::mr, mr, mr->lkey)};
}

void note_end(const ibv_qp* qp) {
  forget(Kind::qp, qp, qp->qp_num);
}

void note_end(const ibv_cq* cq) {
  forget(Kind::cq, cq, trouble::director() != nullptr ? handle_of(cq) : 0);
}

void note_end(const ibv_srq* srq) {
  forget(Kind::srq, srq, srq->handle);
}

void note_end(const ibv_mr* mr) {
  forget(Kind::mr, mr, mr->lkey);
}

const trouble::Action* decide(trouble::EventKind kind, std::string_view name, const Concerned& concerned,
                              uint64_t bytes, const EventRegion& region) {
  return decide(
      {.kind = kind, .name = name, .object = {}, .bytes = bytes, .region = region.key, .va = region.va},
      concerned);
}

const trouble::Action* decide(trouble::Event event, const Concerned& concerned) {
  std::vector<const trouble::Action*> effects;
  event.object = concerned.object;
  event.thread = thread_number();
  event.effects = &effects;
  if (concerned.cq != nullptr) event.concerns |= trouble::kConcernsCq;
  if (concerned.srq != nullptr) event.concerns |= trouble::kConcernsSrq;
  const trouble::Action* const action = trouble::director()->decide(event);
  for (const trouble::Action* const effect : effects) execute(*effect, concerned);
  return action;
}

namespace {

/// Returns the error of a call, after the time that the scenario adds to it.
int outcome_of_call(const trouble::Action* action) {
  if (action == nullptr) return 0;
  if (action->kind == trouble::Action::Kind::delay_call)
    std::this_thread::sleep_for(std::chrono::nanoseconds(action->duration_ns));
  return static_cast<int>(action->number);
}

}  // namespace

int decide_call(std::string_view call, const Concerned& concerned, uint64_t bytes) {
  if (concerned.object.kind != Kind::process && trouble::director()->is_gone(concerned.object.device) &&
      !trouble::works_without_device(call))
    return refused(EIO);
  return refused(outcome_of_call(decide(trouble::EventKind::call, call, concerned, bytes)));
}

bool is_hidden(std::string_view device) {
  trouble::Director* const director = trouble::director();
  if (director == nullptr) return false;
  const uint32_t index = director->device(device);
  if (director->is_gone(index)) return true;
  const bool is_absent = decide(trouble::EventKind::list, {}, {{Kind::device, index, 0}}) != nullptr;
  // The same decision may have removed the device.
  return is_absent || director->is_gone(index);
}

bool is_link_in_trouble(std::string_view device) {
  trouble::Director* const director = trouble::director();
  return director != nullptr && director->is_link_down(director->device(device));
}

void note_delivery(const ibv_context* context, const ibv_async_event& event) {
  const auto concerned = [&]() -> Concerned {
    switch (element_of(event.event_type)) {
      case EventElement::cq:
        return concerned_by(event.element.cq);
      case EventElement::qp:
        return concerned_by(event.element.qp);
      case EventElement::srq:
        return concerned_by(event.element.srq);
      case EventElement::port_or_device:
        break;
    }
    return concerned_by(context);
  };
  if (trouble::director() != nullptr)
    static_cast<void>(decide(trouble::EventKind::async_event,
                             trouble::async_event_name(static_cast<uint32_t>(event.event_type)),
                             concerned()));
}

namespace {

const trouble::Action* decide_on_channel(trouble::EventKind kind, std::string_view name,
                                         const std::function<void(uint32_t)>& raise) {
  std::vector<const trouble::Action*> effects;
  const trouble::Action* const action = trouble::director()->decide({.kind = kind,
                                                                     .name = name,
                                                                     .object = {},
                                                                     .thread = thread_number(),
                                                                     .concerns = trouble::kConcernsCm,
                                                                     .effects = &effects});
  for (const trouble::Action* const effect : effects) raise(effect->number);
  return action;
}

}  // namespace

int trouble_of_cm(std::string_view call, const std::function<void(uint32_t)>& raise) {
  if (trouble::director() == nullptr) return 0;
  return outcome_of_call(decide_on_channel(trouble::EventKind::call, call, raise));
}

void note_cm_delivery(uint32_t type, const std::function<void(uint32_t)>& raise) {
  if (trouble::director() == nullptr) return;
  static_cast<void>(decide_on_channel(trouble::EventKind::cm_event, trouble::cm_event_name(type), raise));
}

uint32_t thread_number() {
  static std::atomic<uint32_t> next{0};
  static thread_local const uint32_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace faultline::verbs
