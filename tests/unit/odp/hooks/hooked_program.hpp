// SPDX-License-Identifier: BSD-3-Clause
// A program with the library's hooks, in a separate child process, for tests that change what a process may
// do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hang_limit.hpp"
#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test {

/// Returns the line of a failed requirement from a body of run_program().
#define REQUIRE(condition) \
  if (!(condition)) return __LINE__

inline constexpr int kLacks = -1;  ///< returned by a body if the machine lacks a prerequisite

/// Runs `body` in a child process, which has no other threads yet. A child that hangs is killed.
template <typename Body>
void run_program(Body body) {
  constexpr int kSkipped = 77;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(faultline::test::hang_seconds());
    const int line = body();
    if (line > 0) std::fprintf(stderr, "line %d: the requirement does not hold\n", line);
    std::fflush(nullptr);
    _exit(line == kLacks ? kSkipped : line != 0 ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped)
    GTEST_SKIP() << "this machine refuses a system call";
  EXPECT_FALSE(WIFSIGNALED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(status, 0);
}

/// A domain, an engine, and the accesses of a peer through its keys.
class HookedProgram {
 public:
  explicit HookedProgram(const DomainConfig& config) : domain_(make_domain(config)) {}
  /// Only the hooks report a call.
  [[nodiscard]] static DomainConfig without_monitor() {
    DomainConfig config;
    config.monitor_invalidations = false;
    config.realtime_pager = false;
    return config;
  }

  [[nodiscard]] MemoryDomain& domain() { return *domain_; }
  [[nodiscard]] EngineSession& session() { return *session_; }

  /// Registers a region over [at, at + bytes); its addresses are those of the program. Returns 0 if refused.
  [[nodiscard]] Key add_region(const void* at, size_t bytes, uint32_t more_access = kOnDemand) {
    const auto address = reinterpret_cast<uint64_t>(at);
    return domain_
        ->register_region({.domain = 1,
                           .address = address,
                           .length_bytes = bytes,
                           .iova = address,
                           .access = kLocalWrite | kRemoteWrite | kRemoteRead | more_access})
        .key;
  }
  Outcome peer_writes(Key key, void* at, size_t bytes, uint8_t value) {
    constexpr size_t kPacketBytes = 4096;
    const Target target{key, 1, kRemoteWrite};
    const std::vector<uint8_t> data(kPacketBytes, value);
    for (size_t done = 0; done < bytes; done += kPacketBytes) {
      const size_t length = std::min(kPacketBytes, bytes - done);
      const Outcome outcome =
          write_all(*session_, target, reinterpret_cast<uint64_t>(at) + done, std::span(data).first(length));
      if (outcome != Outcome::done) return outcome;
    }
    return Outcome::done;
  }
  /// Maps other memory at the place and writes through the old key as a peer. Returns whether the memory is
  /// unchanged.
  [[nodiscard]] bool is_gone(Key key, void* at, size_t bytes) {
    constexpr uint8_t kTheirs = 0xaa;
    void* const other =
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (other != at) return false;
    std::memset(other, kTheirs, bytes);
    bool untouched = true;
    for (size_t page = 0; page < bytes; page += 4096) {
      auto* const byte = static_cast<uint8_t*>(at) + page;
      if (peer_writes(key, byte, 64, 0x55) != Outcome::violation) untouched = false;
      if (*byte != kTheirs) untouched = false;
    }
    return untouched;
  }

 private:
  std::unique_ptr<MemoryDomain> domain_;
  std::unique_ptr<EngineSession> session_ = domain_->attach_engine();
};

/// Fills the process's descriptor table.
inline void use_up_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, 256);
  setrlimit(RLIMIT_NOFILE, &limit);
  while (dup(STDERR_FILENO) >= 0) {
  }
}

}  // namespace faultline::odp::test
