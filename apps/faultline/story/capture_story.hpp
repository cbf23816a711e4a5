// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "apps/faultline/story/model.hpp"

namespace faultline::story {

/// Fills connections and events from a capture file. Returns "", or what is wrong with the file. A file that
/// ends within a block after at least one packet gets a note instead: a program that was killed leaves one.
[[nodiscard]] std::string read_capture_story(std::span<const uint8_t> file, Story& story);

}  // namespace faultline::story
