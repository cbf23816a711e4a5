// SPDX-License-Identifier: BSD-3-Clause
// Where verbs calls meet a scenario (stack/trouble): each call asks whether it fails. Without a scenario that
// is one load and one branch; calls of the data path have functions of their own, which a device gets only
// with a scenario.
#pragma once

#include <functional>
#include <string_view>

#include <infiniband/verbs.h>

#include "stack/trouble/director.hpp"

namespace faultline::verbs {

/// What a call or a request concerns: its object, and the queues that actions of a scenario may change.
struct Concerned {
  trouble::Object object;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
};

/// Objects of the director, with a scenario. Those of a QP: its send CQ, or else its receive CQ, and its SRQ.
[[nodiscard]] Concerned concerned_by(const ibv_device* device);
[[nodiscard]] Concerned concerned_by(const ibv_context* context);
[[nodiscard]] Concerned concerned_by(const ibv_qp* qp);
[[nodiscard]] Concerned concerned_by(const ibv_cq* cq);
[[nodiscard]] Concerned concerned_by(const ibv_srq* srq);
[[nodiscard]] Concerned concerned_by(const ibv_mr* mr);

/// Notes the object in the order of creation.
template <typename T>
void note_creation(const T* object) {
  if (trouble::director() != nullptr && object != nullptr) static_cast<void>(concerned_by(object));
}
/// The object's number is not used again.
void note_end(const ibv_qp* qp);
void note_end(const ibv_cq* cq);
void note_end(const ibv_srq* srq);
void note_end(const ibv_mr* mr);

/// The memory region that an event is about.
struct EventRegion {
  uint32_t key = 0;  ///< 0: none
  uint64_t va = 0;   ///< in the region
};

/// Asks the scenario, which exists, on a thread of the program, and executes its actions on queues. Returns
/// the action for the event itself; nullptr: none. No lock of a completion queue is held.
[[nodiscard]] const trouble::Action* decide(trouble::EventKind kind, std::string_view name,
                                            const Concerned& concerned, uint64_t bytes = 0,
                                            const EventRegion& region = {});
/// The same, of an event with other facts; its object, thread, concern of queues and effects are set here.
[[nodiscard]] const trouble::Action* decide(trouble::Event event, const Concerned& concerned);

/// As trouble_of(), with a scenario.
[[nodiscard]] int decide_call(std::string_view call, const Concerned& concerned, uint64_t bytes);

/// Returns the errno with which the scenario makes the call fail, and sets errno; 0: the call proceeds.
/// `object` is live.
template <typename T>
[[nodiscard]] int trouble_of(std::string_view call, const T* object, uint64_t bytes = 0) {
  if (trouble::director() == nullptr) [[likely]]
    return 0;
  return decide_call(call, concerned_by(object), bytes);
}
/// The same, of a call without an object.
[[nodiscard]] inline int trouble_of(std::string_view call) {
  return trouble::director() == nullptr ? 0 : decide_call(call, {}, 0);
}

/// True if the scenario lets the device's list lack it. Asked for each list.
[[nodiscard]] bool is_hidden(std::string_view device);
/// True if the scenario has taken the device's link down.
[[nodiscard]] bool is_link_in_trouble(std::string_view device);
/// Tells the scenario of an asynchronous event that the program gets.
void note_delivery(const ibv_context* context, const ibv_async_event& event);

/// As trouble_of(), of a call on a channel of rdma_cm. `raise` puts an rdma_cm_event_type into the channel.
[[nodiscard]] int trouble_of_cm(std::string_view call, const std::function<void(uint32_t)>& raise);
/// Tells the scenario of an event of rdma_cm that the program gets.
void note_cm_delivery(uint32_t type, const std::function<void(uint32_t)>& raise);

/// The program's threads have numbers in the order of their first calls.
[[nodiscard]] uint32_t thread_number();

}  // namespace faultline::verbs
