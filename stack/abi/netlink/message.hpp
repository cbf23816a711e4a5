// SPDX-License-Identifier: BSD-3-Clause
// Messages of netlink(7) with RDMA attributes: reads those of a program, which may be malformed, and writes
// the answers. Pure. Not libmnl: the drop-in is part of every preloaded program, and gets no further library.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>

namespace faultline::abi {

// Of newer headers of the kernel, in include/uapi/rdma/rdma_netlink.h.
inline constexpr uint16_t kStatGetStatus = 24;       // RDMA_NLDEV_CMD_STAT_GET_STATUS
inline constexpr uint16_t kStatHwcounterIndex = 94;  // RDMA_NLDEV_ATTR_STAT_HWCOUNTER_INDEX
inline constexpr size_t kNetlinkAttributes = 128;    // above each number that a program sends
inline constexpr size_t kMostMessageBytes = 3840;    // libmnl's buffer has 4096 bytes

/// A message with its attributes at the outermost level.
class NetlinkRequest {
 public:
  /// Takes the first message of `bytes` and sets `length` to its aligned length. Returns nullopt if `bytes`
  /// has no whole message. The request refers to `bytes`. `family_bytes`: the length of the header between
  /// netlink's and the attributes, in families that have one.
  [[nodiscard]] static std::optional<NetlinkRequest> read(std::span<const uint8_t> bytes, size_t& length,
                                                          size_t family_bytes = 0);

  [[nodiscard]] const nlmsghdr& header() const { return header_; }
  [[nodiscard]] std::span<const uint8_t> bytes() const { return bytes_; }
  /// False if an attribute is cut off or shorter than its own header.
  [[nodiscard]] bool is_well_formed() const { return well_formed_; }
  [[nodiscard]] bool is_dump() const { return (header_.nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP; }
  /// Number of the client, RDMA_NL_NLDEV and others; and of its command.
  [[nodiscard]] uint16_t client() const { return RDMA_NL_GET_CLIENT(header_.nlmsg_type); }
  [[nodiscard]] uint16_t command() const { return RDMA_NL_GET_OP(header_.nlmsg_type); }

  [[nodiscard]] bool has(uint16_t attribute) const {
    return attribute < attributes_.size() && attributes_[attribute].data() != nullptr;
  }
  /// Empty if the attribute is missing.
  [[nodiscard]] std::span<const uint8_t> value(uint16_t attribute) const {
    return attribute < attributes_.size() ? attributes_[attribute] : std::span<const uint8_t>();
  }
  /// Returns the header of the family; what the message lacks of it is zero.
  template <typename Header>
  [[nodiscard]] Header family_header() const {
    Header header{};
    const auto payload = bytes_.subspan(sizeof header_);
    std::memcpy(&header, payload.data(), std::min(payload.size(), sizeof header));
    return header;
  }
  /// Returns nullopt if the attribute is missing or has another length.
  [[nodiscard]] std::optional<uint32_t> u32(uint16_t attribute) const;
  /// Returns the text up to its zero, or nullopt if the attribute is missing or has no zero.
  [[nodiscard]] std::optional<std::string_view> text(uint16_t attribute) const;

 private:
  void read_attributes(std::span<const uint8_t> bytes);

  nlmsghdr header_{};
  std::span<const uint8_t> bytes_;
  std::array<std::span<const uint8_t>, kNetlinkAttributes> attributes_{};
  bool well_formed_ = true;
};

using NetlinkBytes = std::vector<uint8_t>;

/// Builds one message.
class NetlinkMessage {
 public:
  NetlinkMessage(uint16_t type, uint16_t flags, uint32_t sequence, uint32_t port);

  void put_bytes(uint16_t attribute, std::span<const uint8_t> bytes);
  void put_u8(uint16_t attribute, uint8_t value) { put_bytes(attribute, {&value, 1}); }
  void put_u32(uint16_t attribute, uint32_t value) { put_value(attribute, value); }
  void put_u64(uint16_t attribute, uint64_t value) { put_value(attribute, value); }
  /// Adds the zero that ends the text.
  void put_text(uint16_t attribute, std::string_view text);

  /// Calls fill() and puts its attributes into one attribute.
  template <typename Fill>
  void put_nested(uint16_t attribute, Fill fill) {
    const size_t begin = begin_nested(attribute);
    fill();
    end_nested(begin);
  }
  [[nodiscard]] size_t begin_nested(uint16_t attribute);
  void end_nested(size_t begin);

  /// Appends bytes without a header, as the payload of an error.
  void append(std::span<const uint8_t> bytes);
  /// Appends zeros up to the alignment of attributes.
  void pad();
  template <typename Value>
  void append_value(const Value& value) {
    append({reinterpret_cast<const uint8_t*>(&value), sizeof value});
  }

  [[nodiscard]] size_t size() const { return bytes_.size(); }
  /// Removes what was added after the message had `size` bytes.
  void shrink(size_t size) { bytes_.resize(size); }
  void add_flags(uint16_t flags);
  /// Returns the bytes with the length in the header.
  [[nodiscard]] NetlinkBytes finish();

 private:
  template <typename Value>
  void put_value(uint16_t attribute, Value value) {
    put_bytes(attribute, {reinterpret_cast<const uint8_t*>(&value), sizeof value});
  }

  NetlinkBytes bytes_;
};

}  // namespace faultline::abi
