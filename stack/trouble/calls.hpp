// SPDX-License-Identifier: BSD-3-Clause
// The calls and events that a scenario knows, by the names that programs use.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace faultline::trouble {

/// The calls of verbs at which a scenario decides. A call that several functions make has one name: each kind
/// of registration is ibv_reg_mr.
[[nodiscard]] std::span<const std::string_view> verbs_calls();
/// True if a call of verbs or rdma_cm has this name; a `*` at its end stands for the rest.
[[nodiscard]] bool is_known_call(std::string_view pattern);

/// True of a call that releases what the program has: it does not fail on any device.
[[nodiscard]] bool is_release(std::string_view call);
/// True of a call that works on a device that is gone: it releases, or returns what has happened before.
[[nodiscard]] bool works_without_device(std::string_view call);

/// "IBV_EVENT_PORT_ERR" of an ibv_event_type; "" of a number that is none.
[[nodiscard]] std::string_view async_event_name(uint32_t type);
/// "RDMA_CM_EVENT_ESTABLISHED" of an rdma_cm_event_type; "" of a number that is none.
[[nodiscard]] std::string_view cm_event_name(uint32_t type);
/// True if an event has this name; a `*` at its end stands for the rest.
[[nodiscard]] bool is_async_event(std::string_view pattern);
[[nodiscard]] bool is_cm_event(std::string_view pattern);

/// True if `name` is the pattern, or begins with what is before the pattern's `*`. Each fits an empty one.
[[nodiscard]] bool fits(std::string_view pattern, std::string_view name);

}  // namespace faultline::trouble
