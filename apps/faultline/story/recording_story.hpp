// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "apps/faultline/story/model.hpp"

namespace faultline::story {

/// True if the file begins as a recording does.
[[nodiscard]] bool is_recording(std::span<const uint8_t> file);

/// Fills connections and events from a recording, also while its program writes it. The device's own end is
/// the first of each connection. Returns "", or what is wrong with the file.
[[nodiscard]] std::string read_recording_story(std::span<const uint8_t> file, Story& story);

}  // namespace faultline::story
