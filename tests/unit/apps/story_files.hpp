// SPDX-License-Identifier: BSD-3-Clause
// Capture files for tests: golden ones, and ones that a test writes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace faultline::story::test {

using Bytes = std::vector<uint8_t>;

[[nodiscard]] Bytes golden(const std::string& name);
/// The Ethernet frames of a golden capture.
[[nodiscard]] std::vector<Bytes> frames_of_golden(const std::string& name);

/// Writes pcapng and pcap in either byte order.
class CaptureWriter {
 public:
  explicit CaptureWriter(bool swap) : swap_(swap) {}

  struct InterfaceOptions {
    int resolution = -1;  ///< if_tsresol; -1: none
    int64_t offset_s = 0;
  };
  void section();
  void interface(uint16_t link, uint32_t snap_bytes, InterfaceOptions options = {-1, 0});
  void enhanced(uint32_t interface, uint64_t units, const Bytes& frame, uint32_t original_bytes,
                std::string_view comment = "");
  void simple(const Bytes& frame, uint32_t original_bytes);
  void block(uint32_t type, const Bytes& body);
  void pcap_header(bool nanoseconds, uint32_t link);
  void pcap_packet(uint32_t seconds, uint32_t fraction, const Bytes& frame, uint32_t original_bytes);
  [[nodiscard]] const Bytes& bytes() const { return bytes_; }

 private:
  template <typename Number>
  void put(Bytes& to, Number value) const;

  bool swap_;
  Bytes bytes_;
};

}  // namespace faultline::story::test
