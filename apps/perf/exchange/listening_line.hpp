// SPDX-License-Identifier: BSD-3-Clause
// The line of the server's stdout that a program which started it waits for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace faultline::perf {

/// Without the newline.
[[nodiscard]] std::string listening_line(uint16_t port);

/// The port of a line that has exactly the form of listening_line(); nullopt for any other line.
[[nodiscard]] std::optional<uint16_t> port_of_listening_line(std::string_view line);

}  // namespace faultline::perf
