// SPDX-License-Identifier: BSD-3-Clause
// Management datagrams (IBA vol. 1, 13.4). They always have 256 bytes, so every field of a checked one is in
// bounds.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace faultline::wire {

inline constexpr uint32_t kMadBytes = 256;
inline constexpr uint32_t kMadHeaderBytes = 24;
inline constexpr uint32_t kCmMessageBytes = kMadBytes - kMadHeaderBytes;
inline constexpr uint32_t kManagementQpn = 1;  ///< QP1, the general services interface
/// The well-known Q_Key of QP1 (IBA 10.2.5).
inline constexpr uint32_t kManagementQkey = 0x80010000;

using MadBytes = std::array<uint8_t, kMadBytes>;

/// Attributes of the communication management class (IBA 16.7.2).
enum class CmAttribute : uint16_t {
  req = 0x10,
  mra = 0x11,
  rej = 0x12,
  rep = 0x13,
  rtu = 0x14,
  dreq = 0x15,
  drep = 0x16,
  sidr_req = 0x17,
  sidr_rep = 0x18
};

/// Reasons why a datagram is not a connection manager message; each is a drop counter.
enum class MadError : uint8_t {
  none,
  length,
  base_version,
  management_class,
  class_version,
  method,
  attribute,
  count_
};
[[nodiscard]] std::string_view name_of(MadError error);

/// A checked message of the communication management class. It points into the bytes that it was parsed from.
class CmMad {
 public:
  [[nodiscard]] static MadError parse(std::span<const uint8_t> bytes, CmMad& mad);

  [[nodiscard]] CmAttribute attribute() const { return attribute_; }
  [[nodiscard]] uint64_t transaction_id() const { return transaction_id_; }
  /// Bytes after the header.
  [[nodiscard]] std::span<const uint8_t, kCmMessageBytes> message() const {
    return std::span<const uint8_t, kMadBytes>(bytes_, kMadBytes).subspan<kMadHeaderBytes>();
  }

 private:
  const uint8_t* bytes_ = nullptr;
  CmAttribute attribute_ = CmAttribute::req;
  uint64_t transaction_id_ = 0;
};

/// Zeroes the datagram and writes the header of a communication management message. Returns the bytes after
/// the header.
std::span<uint8_t, kCmMessageBytes> write_cm_header(MadBytes& mad, CmAttribute attribute,
                                                    uint64_t transaction_id);

}  // namespace faultline::wire
