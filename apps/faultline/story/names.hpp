// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "apps/faultline/story/model.hpp"

namespace faultline::story {

[[nodiscard]] std::string_view name_of(EventKind kind);
[[nodiscard]] std::string_view name_of(StallCause cause);
[[nodiscard]] std::string_view name_of(Rule rule);
[[nodiscard]] std::string_view name_of(wire::Service service);
[[nodiscard]] std::string_view name_of(record::ControlCall call);
/// `state`: an ibv_qp_state.
[[nodiscard]] std::string_view name_of_qp_state(uint8_t state);
/// `access`: ibv_access_flags.
[[nodiscard]] std::string text_of_access(uint32_t access);
/// A control call with what it is about, and the error's name if it failed.
[[nodiscard]] std::string text_of(const record::ControlRow& row);

}  // namespace faultline::story
