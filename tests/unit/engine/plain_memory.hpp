// SPDX-License-Identifier: BSD-3-Clause
// The memory of one engine: a single resident region, so that no access waits for a page.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "odp/regions/memory_domain.hpp"
#include "stack/wire/packet/icrc.hpp"

namespace faultline::glue::test {

class PlainMemory final : public odp::EngineSession {
 public:
  static constexpr odp::Key kKey = 0x1234;
  static constexpr odp::ProtectionDomain kDomain = 1;
  static constexpr uint64_t kVa = 0x10000;

  explicit PlainMemory(size_t length_bytes) : bytes(length_bytes) {}

  std::vector<uint8_t> bytes;
  bool is_online = false;  ///< between enter() and leave()

  unsigned entered = 0;  ///< calls of enter()
  bool has_faults = false;
  std::vector<odp::Key> paged_out;

  void enter() override {
    is_online = true;
    ++entered;
  }
  void leave() override { is_online = false; }
  void page_out(odp::Key key, uint64_t /*va*/) override { paged_out.push_back(key); }
  [[nodiscard]] bool has_outstanding_faults() const override { return has_faults; }
  [[nodiscard]] bool should_yield() const override { return false; }

  [[nodiscard]] odp::Outcome check(const odp::Target& target, uint64_t va, uint64_t length_bytes) override {
    if (length_bytes == 0) return odp::Outcome::done;
    const bool within = target.key == kKey && target.domain == kDomain && va >= kVa &&
                        length_bytes <= bytes.size() && va - kVa <= bytes.size() - length_bytes;
    return within ? odp::Outcome::done : odp::Outcome::violation;
  }
  [[nodiscard]] odp::Outcome probe(const odp::Target& target, uint64_t va, uint64_t length_bytes) override {
    return check(target, va, length_bytes);
  }
  [[nodiscard]] odp::Outcome write(const odp::Target& target, uint64_t va,
                                   std::span<const uint8_t> from) override {
    const odp::Outcome outcome = check(target, va, from.size());
    if (outcome == odp::Outcome::done && !from.empty()) std::copy(from.begin(), from.end(), at(va));
    return outcome;
  }
  [[nodiscard]] odp::Outcome read(const odp::Target& target, uint64_t va, std::span<uint8_t> to) override {
    const odp::Outcome outcome = check(target, va, to.size());
    if (outcome == odp::Outcome::done && !to.empty()) std::copy_n(at(va), to.size(), to.begin());
    return outcome;
  }
  [[nodiscard]] odp::Outcome read_with_crc(const odp::Target& target, uint64_t va, std::span<uint8_t> to,
                                           uint32_t& crc) override {
    const odp::Outcome outcome = read(target, va, to);
    if (outcome == odp::Outcome::done) crc = wire::icrc_update(crc, to);
    return outcome;
  }

  // No test uses these operations.
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

 private:
  [[nodiscard]] std::vector<uint8_t>::iterator at(uint64_t va) {
    return bytes.begin() + static_cast<ptrdiff_t>(va - kVa);
  }
};

}  // namespace faultline::glue::test
