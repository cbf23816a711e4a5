// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/memif/memif_handshake.hpp"

#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace faultline::glue::memif {
namespace {

template <typename Body>
Body body_as(std::span<const uint8_t> bytes) {
  Body body;
  static_assert(sizeof body <= kMessageBytes - sizeof(MessageType));
  std::memcpy(&body, bytes.data(), sizeof body);
  return body;
}

}  // namespace

std::optional<Region> Region::map(int fd, uint64_t size_bytes, const char*& why) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    why = "shares a region that is not sealed against truncation (F_SEAL_SHRINK)";
    return std::nullopt;
  }
  struct stat status {};
  if (fstat(fd, &status) != 0 || status.st_size < 0 || static_cast<uint64_t>(status.st_size) < size_bytes) {
    why = "shares a region that is shorter than it says";
    return std::nullopt;
  }
  void* const base = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    why = "shares a region that cannot be mapped";
    return std::nullopt;
  }
  return Region(static_cast<uint8_t*>(base), size_bytes);
}

Region::~Region() {
  if (base_ != nullptr) munmap(base_, size_bytes_);
}

Region::Region(Region&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), size_bytes_(other.size_bytes_) {}

const char* Handshake::on_receive(std::span<const uint8_t> message, std::span<const int> descriptors) {
  if (refused_) return "has been refused already";
  const char* why = "sends a message of a wrong length";
  if (message.size() == kMessageBytes) {
    const auto type = body_as<MessageType>(message);
    const std::span<const uint8_t> body = message.subspan(sizeof type);
    const bool brings_one = type == MessageType::add_region || type == MessageType::add_ring;
    if (descriptors.size() != (brings_one ? 1U : 0U))
      why = "sends a message with a wrong number of descriptors";
    else if (role_ == Role::server)
      why = on_receive_as_server(type, body, descriptors);
    else
      why = on_receive_as_client(type, body, descriptors);
  }
  refused_ = why != nullptr;
  return why;
}

const char* Handshake::on_receive_as_server(MessageType type, std::span<const uint8_t> body,
                                            std::span<const int> descriptors) {
  if (type == MessageType::disconnect || type == MessageType::ack) return nullptr;
  if (!greeted_) {
    if (type != MessageType::init) return "does not begin with INIT";
    greeted_ = true;
    const auto init = body_as<Init>(body);
    return init.version == kVersion && init.id == 0 && init.mode == 0 ? nullptr
                                                                      : "asks for another kind of link";
  }
  if (connecting_) return "sends a message that a link that is up has no use for";
  switch (type) {
    case MessageType::add_region:
      return add_region(body, descriptors);
    case MessageType::add_ring:
      return add_ring(body, descriptors);
    case MessageType::connect:
      connecting_ = true;
      return to_server_ && to_client_ ? nullptr : "connects without a ring for each direction";
    default:
      return "sends a message that is not a client's";
  }
}

const char* Handshake::on_receive_as_client(MessageType type, std::span<const uint8_t> body,
                                            std::span<const int> /*descriptors*/) {
  switch (type) {
    case MessageType::disconnect:
    case MessageType::ack:
      return nullptr;
    case MessageType::hello: {
      if (std::exchange(greeted_, true)) return "greets twice";
      const auto hello = body_as<Hello>(body);
      return hello.max_log2_ring_size != 0 ? nullptr : "offers rings without room";
    }
    case MessageType::connected:
      return connecting_ && !std::exchange(connected_, true) ? nullptr : "connects at a wrong time";
    default:
      return "sends a message that is not a server's";
  }
}

// net_memif's own messages: one region and two rings.
void Handshake::on_send(std::span<const uint8_t> message, std::span<const int> descriptors) {
  if (role_ != Role::client || message.size() != kMessageBytes || refused_) return;
  const auto type = body_as<MessageType>(message);
  const std::span<const uint8_t> body = message.subspan(sizeof type);
  if (type == MessageType::add_region && descriptors.size() == 1)
    refused_ = add_region(body, descriptors) != nullptr;
  else if (type == MessageType::add_ring)
    refused_ = add_ring(body, descriptors) != nullptr;
  else if (type == MessageType::connect)
    connecting_ = true;
}

const char* Handshake::add_region(std::span<const uint8_t> body, std::span<const int> descriptors) {
  const auto added = body_as<AddRegion>(body);
  if (added.index != regions_.size()) return "numbers its regions wrongly";
  if (regions_.size() == kMaxRegions) return "shares too many regions";
  if (added.size_bytes == 0 || added.size_bytes > kMaxRegionBytes) return "shares a region of a wrong size";
  const char* why = nullptr;
  std::optional<Region> region = Region::map(descriptors.front(), added.size_bytes, why);
  if (!region) return why;
  regions_.push_back(std::move(*region));
  region_descriptors_.push_back(descriptors.front());
  return nullptr;
}

const char* Handshake::add_ring(std::span<const uint8_t> body, std::span<const int> /*descriptors*/) {
  const auto added = body_as<AddRing>(body);
  std::optional<RingPlace>& ring = (added.flags & kRingToServer) != 0 ? to_server_ : to_client_;
  if (added.index != 0 || ring) return "adds more than one ring for a direction";
  if (added.log2_size == 0 || added.log2_size > kMaxLog2RingSize) return "adds a ring of a wrong size";
  if (added.region >= regions_.size()) return "adds a ring in a region that it does not share";
  constexpr uint32_t kAlignmentBytes = 8;
  if (added.offset % kAlignmentBytes != 0 ||
      added.offset + ring_bytes(added.log2_size) > regions_[added.region].size_bytes())
    return "adds a ring that does not lie within its region";
  ring = RingPlace{.region = added.region, .offset = added.offset, .log2_size = added.log2_size};
  return nullptr;
}

std::optional<Geometry> Handshake::take_geometry() {
  if (refused_ || !connecting_ || regions_.empty() || !to_server_ || !to_client_) return std::nullopt;
  if (role_ == Role::client && !connected_) return std::nullopt;
  return Geometry{.regions = std::move(regions_), .to_server = *to_server_, .to_client = *to_client_};
}

}  // namespace faultline::glue::memif
