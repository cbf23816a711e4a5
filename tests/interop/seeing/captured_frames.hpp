// SPDX-License-Identifier: BSD-3-Clause
// Counts the frames in a capture file (pcapng) that is being written.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

namespace faultline::e2e {

class CapturedFrames {
 public:
  explicit CapturedFrames(const std::string& path) : file_(path, std::ios::binary) {}

  /// Whether the file exists.
  [[nodiscard]] bool is_open() const { return file_.is_open(); }

  /// Reads on from the last complete block.
  uint64_t count() {
    struct {
      uint32_t type;
      uint32_t bytes;
    } head;
    constexpr uint32_t kEnhancedPacket = 6;
    file_.clear();
    file_.seekg(0, std::ios::end);
    const auto end = static_cast<uint64_t>(file_.tellg());
    while (next_ + sizeof head <= end) {
      char raw[sizeof head];
      file_.seekg(static_cast<std::streamoff>(next_));
      if (!file_.read(raw, sizeof raw)) break;
      std::memcpy(&head, raw, sizeof raw);
      if (head.bytes < sizeof head || next_ + head.bytes > end) break;
      next_ += head.bytes;
      frames_ += head.type == kEnhancedPacket ? 1 : 0;
    }
    return frames_;
  }

 private:
  std::ifstream file_;
  uint64_t next_ = 0;    ///< offset of the first block that is not counted
  uint64_t frames_ = 0;  ///< before it
};

}  // namespace faultline::e2e
