// SPDX-License-Identifier: BSD-3-Clause
// What an engine does with a memory session, for tests: enter, try, request a fault on a miss, wait for the
// resolution, try again.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>

#include <sys/mman.h>

#include "odp/regions/memory_domain.hpp"
#include "tests/hang_limit.hpp"

namespace faultline::odp::test {

/// Creates a domain as a program does: it refuses memory that neither hooks nor userfaultfd guard.
inline std::unique_ptr<MemoryDomain> make_guarded_domain(const DomainConfig& config = {}) {
  std::string error;
  auto domain = MemoryDomain::create(config, error);
  if (domain == nullptr) throw std::runtime_error(error);
  return domain;
}
/// Most of these test programs have no hooks. They also register memory that userfaultfd cannot watch, such
/// as memory that the test pages itself.
inline std::unique_ptr<MemoryDomain> make_domain(DomainConfig config = {}) {
  config.allow_unguarded = true;
  return make_guarded_domain(config);
}

/// Returns a low address for a test's memory. The kernel places no mappings there, so a hole stays a hole
/// until the test fills it. (Page maps are mappings too, and the kernel prefers holes.) The range is below
/// the sanitizers' shadow memory. The kernel chooses the address of large mappings. Addresses wrap around, so
/// that tests can be repeated.
inline void* low_address(size_t bytes) {
  constexpr uint64_t kFirst = 0x1000'0000;
  constexpr uint64_t kEnd = 0x7000'0000;
  constexpr uint64_t kGap = 1 << 20;
  static std::atomic<uint64_t> next{0};
  if (bytes > (kEnd - kFirst) / 2) return nullptr;
  for (;;) {
    const uint64_t address = kFirst + next.fetch_add((bytes + 2 * kGap - 1) / kGap * kGap) % (kEnd - kFirst);
    if (address + bytes <= kEnd) return reinterpret_cast<void*>(address);
  }
}

/// Anonymous memory that the destructor unmaps, unless the test has unmapped it.
class Mapping {
 public:
  explicit Mapping(size_t pages, int protection = PROT_READ | PROT_WRITE)
      : bytes_(pages * 4096),
        data_(static_cast<uint8_t*>(mmap(low_address(bytes_), bytes_, protection,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(data_, bytes_); }

  [[nodiscard]] uint8_t* data() const { return data_; }
  [[nodiscard]] uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }
  [[nodiscard]] size_t size() const { return bytes_; }

 private:
  size_t bytes_;
  uint8_t* data_;
};

/// Prefetches one range for reading or, if the target has write access, for writing.
inline int advise(MemoryDomain& domain, const Target& target, uint64_t va, uint64_t length_bytes, bool wait) {
  const PrefetchRange range{target.key, va, length_bytes};
  return domain.prefetch(target.domain, {&range, 1},
                         target.need == kLocalRead ? PrefetchKind::read : PrefetchKind::write, wait);
}

/// Waits for one resolution.
inline Resolution next_resolution(EngineSession& session) {
  std::array<Resolution, 1> resolution;
  for (;;) {
    session.enter();
    if (session.take_resolutions(resolution) == 1) return resolution[0];
    session.leave();
    std::this_thread::yield();
  }
}

using faultline::test::eventually;

/// Runs `attempt` (one access) until it is not a miss, with page faults through the fault queue.
template <typename Attempt>
Outcome until_settled(EngineSession& session, const FaultRequest& fault, Attempt attempt) {
  for (;;) {
    session.enter();
    const Outcome outcome = attempt();
    if (outcome != Outcome::miss) {
      session.leave();
      return outcome;
    }
    if (session.serve_fault(fault)) {
      session.leave();
      continue;
    }
    while (!session.request_fault(fault)) std::this_thread::yield();
    session.leave();
    if (next_resolution(session).outcome == Outcome::violation) {
      session.leave();
      return Outcome::violation;
    }
  }
}

inline Outcome write_all(EngineSession& session, const Target& target, uint64_t va,
                         std::span<const uint8_t> bytes) {
  return until_settled(session, {target, va, bytes.size(), {7}},
                       [&] { return session.write(target, va, bytes); });
}
inline Outcome read_all(EngineSession& session, const Target& target, uint64_t va, std::span<uint8_t> bytes) {
  return until_settled(session, {target, va, bytes.size(), {8}},
                       [&] { return session.read(target, va, bytes); });
}

}  // namespace faultline::odp::test
