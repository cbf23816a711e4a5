// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/mad/mad.hpp"

#include "stack/wire/packet/byte_order.hpp"

namespace faultline::wire {
namespace {

// The common header (IBA 13.4.2).
constexpr size_t kBaseVersionAt = 0;
constexpr size_t kClassAt = 1;
constexpr size_t kClassVersionAt = 2;
constexpr size_t kMethodAt = 3;
constexpr size_t kTransactionAt = 8;
constexpr size_t kAttributeAt = 16;

constexpr uint8_t kBaseVersion = 1;
constexpr uint8_t kCmClass = 7;         // 16.7
constexpr uint8_t kCmClassVersion = 2;  // 16.7.1
constexpr uint8_t kMethodSend = 3;

constexpr std::array<std::string_view, static_cast<size_t>(MadError::count_)> kErrorNames{
    "none", "length", "base version", "management class", "class version", "method", "attribute"};

}  // namespace

std::string_view name_of(MadError error) {
  return kErrorNames[static_cast<size_t>(error)];
}

MadError CmMad::parse(std::span<const uint8_t> bytes, CmMad& mad) {
  if (bytes.size() != kMadBytes) return MadError::length;
  if (bytes[kBaseVersionAt] != kBaseVersion) return MadError::base_version;
  if (bytes[kClassAt] != kCmClass) return MadError::management_class;
  if (bytes[kClassVersionAt] != kCmClassVersion) return MadError::class_version;
  if (bytes[kMethodAt] != kMethodSend) return MadError::method;
  const uint16_t attribute = load_be16(&bytes[kAttributeAt]);
  if (attribute < static_cast<uint16_t>(CmAttribute::req) ||
      attribute > static_cast<uint16_t>(CmAttribute::sidr_rep))
    return MadError::attribute;
  mad.bytes_ = bytes.data();
  mad.attribute_ = static_cast<CmAttribute>(attribute);
  mad.transaction_id_ = load_be64(&bytes[kTransactionAt]);
  return MadError::none;
}

std::span<uint8_t, kCmMessageBytes> write_cm_header(MadBytes& mad, CmAttribute attribute,
                                                    uint64_t transaction_id) {
  mad = {};
  mad[kBaseVersionAt] = kBaseVersion;
  mad[kClassAt] = kCmClass;
  mad[kClassVersionAt] = kCmClassVersion;
  mad[kMethodAt] = kMethodSend;
  store_be64(&mad[kTransactionAt], transaction_id);
  store_be16(&mad[kAttributeAt], static_cast<uint16_t>(attribute));
  return std::span(mad).subspan<kMadHeaderBytes>();
}

}  // namespace faultline::wire
