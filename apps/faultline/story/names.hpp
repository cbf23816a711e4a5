// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "apps/faultline/story/model.hpp"

namespace faultline::story {

[[nodiscard]] std::string_view name_of(EventKind kind);
[[nodiscard]] std::string_view name_of(StallCause cause);
[[nodiscard]] std::string_view name_of(Rule rule);
[[nodiscard]] std::string_view name_of(wire::Service service);

}  // namespace faultline::story
