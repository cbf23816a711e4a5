// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/netlink/message.hpp"

#include <algorithm>
#include <cstring>

namespace faultline::abi {
namespace {

constexpr size_t kAlignment = 4;  // NLMSG_ALIGNTO, NLA_ALIGNTO

constexpr size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) & ~(kAlignment - 1);
}

}  // namespace

std::optional<NetlinkRequest> NetlinkRequest::read(std::span<const uint8_t> bytes, size_t& length,
                                                   size_t family_bytes) {
  NetlinkRequest request;
  if (bytes.size() < sizeof request.header_) return std::nullopt;
  std::memcpy(&request.header_, bytes.data(), sizeof request.header_);
  const size_t own = request.header_.nlmsg_len;
  if (own < sizeof request.header_ || own > bytes.size()) return std::nullopt;
  length = std::min(aligned(own), bytes.size());
  request.bytes_ = bytes.first(own);
  request.read_attributes(bytes.first(own).subspan(std::min(own, sizeof request.header_ + family_bytes)));
  return request;
}

void NetlinkRequest::read_attributes(std::span<const uint8_t> bytes) {
  // Fewer bytes than a header at the end are padding, as for the kernel's nla_parse().
  while (bytes.size() >= sizeof(nlattr)) {
    nlattr attribute;
    std::memcpy(&attribute, bytes.data(), sizeof attribute);
    well_formed_ = attribute.nla_len >= sizeof attribute && attribute.nla_len <= bytes.size();
    if (!well_formed_) return;
    const uint16_t type = attribute.nla_type & NLA_TYPE_MASK;
    // The last of several counts.
    if (type < attributes_.size())
      attributes_[type] = bytes.first(attribute.nla_len).subspan(sizeof attribute);
    bytes = bytes.subspan(std::min(aligned(attribute.nla_len), bytes.size()));
  }
}

std::optional<uint32_t> NetlinkRequest::u32(uint16_t attribute) const {
  uint32_t value = 0;
  if (!has(attribute) || attributes_[attribute].size() != sizeof value) return std::nullopt;
  std::memcpy(&value, attributes_[attribute].data(), sizeof value);
  return value;
}

std::optional<std::string_view> NetlinkRequest::text(uint16_t attribute) const {
  if (!has(attribute)) return std::nullopt;
  const std::span<const uint8_t> bytes = attributes_[attribute];
  const auto end = std::find(bytes.begin(), bytes.end(), uint8_t{0});
  if (end == bytes.end()) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(bytes.data()),
                          static_cast<size_t>(end - bytes.begin()));
}

NetlinkMessage::NetlinkMessage(uint16_t type, uint16_t flags, uint32_t sequence, uint32_t port) {
  append_value(nlmsghdr{
      .nlmsg_len = 0, .nlmsg_type = type, .nlmsg_flags = flags, .nlmsg_seq = sequence, .nlmsg_pid = port});
}

void NetlinkMessage::append(std::span<const uint8_t> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

void NetlinkMessage::pad() {
  bytes_.resize(aligned(bytes_.size()));
}

void NetlinkMessage::put_bytes(uint16_t attribute, std::span<const uint8_t> bytes) {
  append_value(
      nlattr{.nla_len = static_cast<uint16_t>(sizeof(nlattr) + bytes.size()), .nla_type = attribute});
  append(bytes);
  pad();
}

void NetlinkMessage::put_text(uint16_t attribute, std::string_view text) {
  append_value(
      nlattr{.nla_len = static_cast<uint16_t>(sizeof(nlattr) + text.size() + 1), .nla_type = attribute});
  append({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  bytes_.push_back(0);
  pad();
}

size_t NetlinkMessage::begin_nested(uint16_t attribute) {
  const size_t begin = size();
  append_value(nlattr{.nla_len = 0, .nla_type = attribute});
  return begin;
}

void NetlinkMessage::end_nested(size_t begin) {
  const auto length = static_cast<uint16_t>(size() - begin);
  std::memcpy(bytes_.data() + begin, &length, sizeof length);
}

void NetlinkMessage::add_flags(uint16_t flags) {
  nlmsghdr header;
  std::memcpy(&header, bytes_.data(), sizeof header);
  header.nlmsg_flags |= flags;
  std::memcpy(bytes_.data(), &header, sizeof header);
}

NetlinkBytes NetlinkMessage::finish() {
  const auto length = static_cast<uint32_t>(size());
  std::memcpy(bytes_.data(), &length, sizeof length);
  return std::move(bytes_);
}

}  // namespace faultline::abi
