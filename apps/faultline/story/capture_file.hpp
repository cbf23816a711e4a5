// SPDX-License-Identifier: BSD-3-Clause
// Reads capture files: pcapng (draft-ietf-opsawg-pcapng) and classic pcap (draft-ietf-opsawg-pcap), of both
// byte orders. Every length in the file is checked.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace faultline::story {

/// LINKTYPE values of https://www.tcpdump.org/linktypes.html.
enum class LinkType : uint16_t {
  ethernet = 1,
  raw_ip = 101,
  linux_cooked = 113,
  ipv4 = 228,
  ipv6 = 229,
  linux_cooked_2 = 276
};

struct CapturedFrame {
  uint64_t time_ns = 0;  ///< CLOCK_REALTIME of the host that captured
  LinkType link = LinkType::ethernet;
  std::span<const uint8_t> bytes;
  uint32_t original_bytes = 0;  ///< on the wire; more than `bytes` has if the capture cut the frame
};

struct CaptureEnd {
  std::string error;       ///< "" if the file was read to its end
  bool truncated = false;  ///< the error is only that the file ends within a block
};

/// True if the file begins as a capture does.
[[nodiscard]] bool is_capture(std::span<const uint8_t> file);

/// Passes each frame of the file to `take`, in the file's order.
[[nodiscard]] CaptureEnd read_capture(std::span<const uint8_t> file,
                                      const std::function<void(const CapturedFrame&)>& take);

}  // namespace faultline::story
