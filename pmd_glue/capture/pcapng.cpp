// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/capture/pcapng.hpp"

#include <cstring>
#include <limits>

namespace faultline::glue::pcapng {
namespace {

constexpr uint32_t kSectionHeader = 0x0a0d0d0a;
constexpr uint32_t kInterfaceDescription = 1;
constexpr uint32_t kEnhancedPacket = 6;
constexpr uint32_t kByteOrderMagic = 0x1a2b3c4d;
constexpr uint16_t kEthernet = 1;  // LINKTYPE_ETHERNET

enum class Option : uint16_t {
  end = 0,
  comment = 1,
  if_name = 2,
  if_description = 3,
  epb_flags = 2,
  shb_userappl = 4,
  if_tsresol = 9
};

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

/// Writes one block; after a part that did not fit, nothing more.
class Block {
 public:
  Block(std::span<uint8_t> to, uint32_t type) : to_(to) {
    add(type);
    add(uint32_t{0});  // the length, which finish() knows
  }

  template <typename Number>
  void add(Number value) {
    if (!has_room(sizeof value)) return;
    std::memcpy(to_.data() + at_, &value, sizeof value);
    at_ += sizeof value;
  }

  /// Adds bytes and zeros up to a multiple of 4 bytes.
  void add_padded(std::span<const uint8_t> bytes) {
    const size_t padding_bytes = (kAlignment - bytes.size() % kAlignment) % kAlignment;
    if (!has_room(bytes.size()) || !has_room(bytes.size() + padding_bytes)) return;
    if (!bytes.empty()) std::memcpy(to_.data() + at_, bytes.data(), bytes.size());
    std::memset(to_.data() + at_ + bytes.size(), 0, padding_bytes);
    at_ += bytes.size() + padding_bytes;
  }

  void add_option(Option code, std::span<const uint8_t> value) {
    if (value.size() > std::numeric_limits<uint16_t>::max()) fits_ = false;
    add(static_cast<uint16_t>(code));
    add(static_cast<uint16_t>(value.size()));
    add_padded(value);
  }
  void add_text(Option code, std::string_view text) {
    if (!text.empty()) add_option(code, bytes_of(text));
  }

  /// Ends the options and the block; returns its length, or 0.
  [[nodiscard]] size_t finish() {
    add(static_cast<uint16_t>(Option::end));
    add(uint16_t{0});
    const size_t length_bytes = at_ + sizeof(uint32_t);
    if (length_bytes > std::numeric_limits<uint32_t>::max()) return 0;
    const auto length = static_cast<uint32_t>(length_bytes);
    add(length);
    if (!fits_) return 0;
    std::memcpy(to_.data() + sizeof(uint32_t), &length, sizeof length);
    return length_bytes;
  }

 private:
  static constexpr size_t kAlignment = 4;

  bool has_room(size_t more_bytes) {
    fits_ = fits_ && more_bytes <= to_.size() - at_;
    return fits_;
  }

  const std::span<uint8_t> to_;
  size_t at_ = 0;  // at most to_.size()
  bool fits_ = true;
};

}  // namespace

size_t write_section_header(std::span<uint8_t> to, std::string_view program) {
  constexpr uint16_t kMajor = 1, kMinor = 0;
  constexpr uint64_t kUnknownLength = UINT64_MAX;
  Block block(to, kSectionHeader);
  block.add(kByteOrderMagic);
  block.add(kMajor);
  block.add(kMinor);
  block.add(kUnknownLength);
  block.add_text(Option::shb_userappl, program);
  return block.finish();
}

size_t write_interface(std::span<uint8_t> to, std::string_view name, std::string_view description) {
  constexpr uint8_t kNanoseconds = 9;  // a negative power of 10
  constexpr uint32_t kWholePackets = 0;
  Block block(to, kInterfaceDescription);
  block.add(kEthernet);
  block.add(uint16_t{0});
  block.add(kWholePackets);
  block.add_text(Option::if_name, name);
  block.add_text(Option::if_description, description);
  block.add_option(Option::if_tsresol, {&kNanoseconds, 1});
  return block.finish();
}

size_t write_packet(std::span<uint8_t> to, const Packet& packet) {
  if (packet.bytes.size() > std::numeric_limits<uint32_t>::max()) return 0;
  Block block(to, kEnhancedPacket);
  block.add(uint32_t{0});  // the interface
  block.add(static_cast<uint32_t>(packet.time_ns >> 32));
  block.add(static_cast<uint32_t>(packet.time_ns));
  block.add(static_cast<uint32_t>(packet.bytes.size()));
  block.add(packet.original_bytes);
  block.add_padded(packet.bytes);
  const auto flags = static_cast<uint32_t>(packet.direction);
  block.add_option(Option::epb_flags, {reinterpret_cast<const uint8_t*>(&flags), sizeof flags});
  block.add_text(Option::comment, packet.comment);
  return block.finish();
}

}  // namespace faultline::glue::pcapng
