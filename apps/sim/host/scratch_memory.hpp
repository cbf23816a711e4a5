// SPDX-License-Identifier: BSD-3-Clause
// The memory of a simulated host: every access is allowed and none moves a byte. The payload of a thousand
// hosts at line rate is gigabytes, and nothing in a simulation depends on it: frames have lengths, and the
// ICRC is left out. The transport core calls this interface as it calls that of real memory.
#pragma once

#include <cstdint>
#include <span>

#include "odp/regions/memory_access.hpp"

namespace faultline::fabric {

class ScratchMemory final : public odp::MemoryAccess {
 public:
  [[nodiscard]] odp::Outcome check(const odp::Target& /*target*/, uint64_t /*va*/,
                                   uint64_t /*length_bytes*/) override {
    return odp::Outcome::done;
  }
  [[nodiscard]] odp::Outcome probe(const odp::Target& /*target*/, uint64_t /*va*/,
                                   uint64_t /*length_bytes*/) override {
    return odp::Outcome::done;
  }
  [[nodiscard]] odp::Outcome write(const odp::Target& /*target*/, uint64_t /*va*/,
                                   std::span<const uint8_t> from) override {
    written_bytes_ += from.size();
    return odp::Outcome::done;
  }
  [[nodiscard]] odp::Outcome read(const odp::Target& /*target*/, uint64_t /*va*/,
                                  std::span<uint8_t> /*to*/) override {
    return odp::Outcome::done;
  }
  [[nodiscard]] odp::Outcome read_with_crc(const odp::Target& /*target*/, uint64_t /*va*/,
                                           std::span<uint8_t> /*to*/, uint32_t& /*crc*/) override {
    return odp::Outcome::done;
  }
  // No pattern uses atomics, flushes, windows or pages that are absent.
  [[nodiscard]] odp::Outcome atomic(const odp::Target& /*target*/, uint64_t /*va*/,
                                    const odp::AtomicRequest& /*request*/, uint64_t& /*original*/) override {
    return odp::Outcome::violation;
  }
  [[nodiscard]] odp::Outcome flush(const odp::Target& /*target*/, uint64_t /*va*/, uint64_t /*length_bytes*/,
                                   odp::FlushKind /*kind*/) override {
    return odp::Outcome::violation;
  }
  [[nodiscard]] bool range_of(odp::Key /*key*/, uint64_t& /*va*/, uint64_t& /*length_bytes*/) override {
    return false;
  }
  [[nodiscard]] odp::Outcome bind_window(const odp::WindowBinding& /*binding*/) override {
    return odp::Outcome::violation;
  }
  [[nodiscard]] odp::Outcome invalidate(odp::Key /*key*/, odp::ProtectionDomain /*domain*/, uint32_t /*qpn*/,
                                        bool /*remote*/) override {
    return odp::Outcome::violation;
  }
  [[nodiscard]] bool request_fault(const odp::FaultRequest& /*request*/) override { return false; }
  [[nodiscard]] size_t take_resolutions(std::span<odp::Resolution> /*out*/) override { return 0; }

  /// Payload that the host has received and accepted, each byte once: the goodput.
  [[nodiscard]] uint64_t written_bytes() const { return written_bytes_; }

 private:
  uint64_t written_bytes_ = 0;
};

}  // namespace faultline::fabric
