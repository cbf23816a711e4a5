// SPDX-License-Identifier: BSD-3-Clause
// The shared memory of a memif link as a client of net_memif lays it out, for tests that write to it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pmd_glue/memif/memif_handshake.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::glue::tests {

/// Creates a file in memory of that size that cannot shrink, as a memif region requires.
inline UniqueFd make_region_file(uint64_t size_bytes, bool sealed = true) {
  UniqueFd file(memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(size_bytes)), 0);
  EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, sealed ? F_SEAL_SHRINK : 0), 0);
  return file;
}

class MemifPeer {
 public:
  static constexpr unsigned kLog2RingSize = 5;

  MemifPeer() : mapped_(*memif::Region::map(file_.get(), size_bytes(), why_)) {}

  [[nodiscard]] static uint32_t ring_size() { return 1U << kLog2RingSize; }
  [[nodiscard]] static uint64_t buffers() { return 2 * memif::ring_bytes(kLog2RingSize); }
  [[nodiscard]] static uint64_t size_bytes() { return buffers() + uint64_t{2} * ring_size() * 4608; }

  /// Returns the geometry for one more end of the link.
  [[nodiscard]] memif::Geometry geometry() {
    std::vector<memif::Region> regions;
    regions.push_back(*memif::Region::map(file_.get(), size_bytes(), why_));
    return {.regions = std::move(regions),
            .to_server = {.region = 0, .offset = 0, .log2_size = kLog2RingSize},
            .to_client = {.region = 0,
                          .offset = static_cast<uint32_t>(memif::ring_bytes(kLog2RingSize)),
                          .log2_size = kLog2RingSize}};
  }

  [[nodiscard]] uint8_t* base() const { return mapped_.base(); }
  [[nodiscard]] memif::RingHeader& to_server_header() const {
    return *reinterpret_cast<memif::RingHeader*>(base());
  }
  [[nodiscard]] memif::RingHeader& to_client_header() const {
    return *reinterpret_cast<memif::RingHeader*>(base() + memif::ring_bytes(kLog2RingSize));
  }
  [[nodiscard]] memif::Descriptor& to_server(uint32_t slot) const {
    return reinterpret_cast<memif::Descriptor*>(&to_server_header() + 1)[slot];
  }
  [[nodiscard]] memif::Descriptor& to_client(uint32_t slot) const {
    return reinterpret_cast<memif::Descriptor*>(&to_client_header() + 1)[slot];
  }

  /// Returns a descriptor with values at the bounds, near them, or at random.
  [[nodiscard]] static memif::Descriptor random_descriptor(std::mt19937& random) {
    const auto size = static_cast<uint32_t>(size_bytes());
    const auto anything = static_cast<uint32_t>(random());
    const std::array<uint32_t, 10> offsets{0,         1,          size - 1,   size,       size + 1,
                                           size - 60, 0x70000000, 0xf0000000, UINT32_MAX, anything};
    const std::array<uint32_t, 10> lengths{0, 1, 60, 61, 4608, 4609, 65535, size, UINT32_MAX, anything};
    return {.flags = static_cast<uint16_t>(random() % 8 == 0 ? random() : 0),
            .region = static_cast<uint16_t>(random() % 8 == 0 ? random() : 0),
            .length = lengths[random() % lengths.size()],
            .offset = offsets[random() % offsets.size()],
            .metadata = static_cast<uint32_t>(random())};
  }

 private:
  const char* why_ = nullptr;
  UniqueFd file_ = make_region_file(size_bytes());
  memif::Region mapped_;
};

}  // namespace faultline::glue::tests
