// SPDX-License-Identifier: BSD-3-Clause
// Where verbs calls meet a scenario (stack/trouble): each call asks whether it fails. Without a scenario that
// is one load and one branch; calls of the data path have functions of their own, which a device gets only
// with a scenario.
#pragma once

#include <string_view>

#include <infiniband/verbs.h>

#include "stack/trouble/director.hpp"

namespace faultline::verbs {

/// Objects of the director.
[[nodiscard]] trouble::Object trouble_object(const ibv_context* context);
[[nodiscard]] trouble::Object trouble_object(const ibv_qp* qp);
[[nodiscard]] trouble::Object trouble_object(const ibv_cq* cq);
[[nodiscard]] trouble::Object trouble_object(const ibv_mr* mr);

/// Notes the object in the order of creation.
template <typename T>
void note_creation(const T* object) {
  if (trouble::director() != nullptr && object != nullptr) static_cast<void>(trouble_object(object));
}
/// The object's number is not used again.
void note_end(const ibv_qp* qp);
void note_end(const ibv_cq* cq);
void note_end(const ibv_mr* mr);

/// As trouble_of(), with a scenario.
[[nodiscard]] int decide_call(std::string_view call, const trouble::Object& object, uint64_t bytes);

/// Returns the errno with which the scenario makes the call fail; 0: the call proceeds. `object` is live.
template <typename T>
[[nodiscard]] int trouble_of(std::string_view call, const T* object, uint64_t bytes = 0) {
  if (trouble::director() == nullptr) [[likely]]
    return 0;
  return decide_call(call, trouble_object(object), bytes);
}
/// The same, of a call without an object.
[[nodiscard]] inline int trouble_of(std::string_view call) {
  return trouble::director() == nullptr ? 0 : decide_call(call, {}, 0);
}

}  // namespace faultline::verbs
