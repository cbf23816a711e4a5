// SPDX-License-Identifier: BSD-3-Clause
// The line on the server's stdout that announces its port. A program that starts the server waits for the
// line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace faultline::perf {

/// Returns the line without the newline.
[[nodiscard]] std::string listening_line(uint16_t port);

/// Returns the port of a line that has exactly the form of listening_line(); nullopt for any other line.
[[nodiscard]] std::optional<uint16_t> port_of_listening_line(std::string_view line);

}  // namespace faultline::perf
