// SPDX-License-Identifier: BSD-3-Clause
// The parameters that both ends of a memif link negotiate before frames flow. net_memif (DPDK 22.11) trusts
// the peer. But a region may be shorter than announced, a ring may lie beyond its region, and a message may
// arrive in a wrong state. So each message is checked here before net_memif reads it. A refused message ends
// the link.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pmd_glue/memif/memif_format.hpp"

namespace faultline::glue::memif {

/// A memory region of the link, mapped while the object lives. Its file must be sealed against truncation
/// (F_SEAL_SHRINK, fcntl(2)): an access to a truncated page would raise SIGBUS.
class Region {
 public:
  /// Maps a region. Returns nullopt with the reason in `why` if the file does not match the message.
  [[nodiscard]] static std::optional<Region> map(int fd, uint64_t size_bytes, const char*& why);
  ~Region();
  Region(Region&& other) noexcept;
  Region& operator=(Region&&) = delete;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  [[nodiscard]] uint8_t* base() const { return base_; }
  [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }

 private:
  Region(uint8_t* base, uint64_t size_bytes) : base_(base), size_bytes_(size_bytes) {}
  uint8_t* base_;
  uint64_t size_bytes_;
};

/// Position of a ring within a region.
struct RingPlace {
  uint16_t region;
  uint32_t offset;
  unsigned log2_size;
};

/// The memory layout of a link that is up.
struct Geometry {
  std::vector<Region> regions;
  RingPlace to_server;
  RingPlace to_client;
};

class Handshake {
 public:
  enum class Role : uint8_t { server, client };

  explicit Handshake(Role role) : role_(role) {}

  /// Checks a message from the peer with its descriptors, which the caller keeps. Returns nullptr if the
  /// message is valid, or else the reason.
  [[nodiscard]] const char* on_receive(std::span<const uint8_t> message, std::span<const int> descriptors);
  /// Notes a message that this end is about to send.
  void on_send(std::span<const uint8_t> message, std::span<const int> descriptors);

  /// Returns the negotiated layout, once; nullopt if a part is missing.
  [[nodiscard]] std::optional<Geometry> take_geometry();

  /// Descriptors of the regions that the client has added.
  [[nodiscard]] const std::vector<int>& region_descriptors() const { return region_descriptors_; }

 private:
  // An offset within a region has 32 bits. DPDK's client and libmemif's share one or two regions.
  static constexpr uint64_t kMaxRegionBytes = uint64_t{1} << 32;
  static constexpr size_t kMaxRegions = 16;

  [[nodiscard]] const char* on_receive_as_server(MessageType type, std::span<const uint8_t> body,
                                                 std::span<const int> descriptors);
  [[nodiscard]] const char* on_receive_as_client(MessageType type, std::span<const uint8_t> body,
                                                 std::span<const int> descriptors);
  [[nodiscard]] const char* add_region(std::span<const uint8_t> body, std::span<const int> descriptors);
  [[nodiscard]] const char* add_ring(std::span<const uint8_t> body, std::span<const int> descriptors);

  const Role role_;
  bool greeted_ = false;
  bool connecting_ = false;
  bool connected_ = false;
  bool refused_ = false;
  std::vector<Region> regions_;
  std::vector<int> region_descriptors_;
  std::optional<RingPlace> to_server_, to_client_;
};

}  // namespace faultline::glue::memif
