// SPDX-License-Identifier: BSD-3-Clause
// What the processes of a crowd share outside of the wire: connection data, barriers, results.
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/mman.h>

namespace faultline::crowd {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "crowd: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

struct Report {
  uint64_t messages = 0;
  uint64_t timeouts = 0;  ///< local ACK timeouts, if the library counts them
  Time connected{};
  Time end{};
};

/// Barriers. The starting process takes part in the last one only.
enum class Phase : uint8_t { created, connected, leave };

/// In a file in memory that every process maps: its size depends on the number of processes.
class Board {
 public:
  static size_t bytes(size_t processes) {
    return sizeof(Board) + processes * (sizeof(Report) + sizeof(ibv_gid)) +
           processes * processes * sizeof(uint32_t);
  }
  static Board* map(int file, size_t processes) {
    void* const place = mmap(nullptr, bytes(processes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (place == MAP_FAILED) fail("mapping of the shared board");
    return static_cast<Board*>(place);
  }

  /// Once, before the other processes start.
  void prepare(uint32_t processes, uint32_t laps) {
    processes_ = processes;
    laps_ = laps;
    pthread_barrierattr_t shared;
    if (pthread_barrierattr_init(&shared) != 0 ||
        pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED) != 0)
      fail("a barrier's attributes");
    for (size_t phase = 0; phase < barriers_.size(); ++phase) {
      const bool last = phase == static_cast<size_t>(Phase::leave);
      if (pthread_barrier_init(&barriers_[phase], &shared, processes + (last ? 1 : 0)) != 0)
        fail("a barrier");
    }
    pthread_barrierattr_destroy(&shared);
  }

  void wait(Phase phase) { pthread_barrier_wait(&barriers_[static_cast<size_t>(phase)]); }

  [[nodiscard]] uint32_t laps() const { return laps_; }
  [[nodiscard]] Report& report(uint32_t self) { return reinterpret_cast<Report*>(this + 1)[self]; }
  [[nodiscard]] ibv_gid& gid(uint32_t self) { return reinterpret_cast<ibv_gid*>(&report(processes_))[self]; }
  /// QPN of the QP of `self` to `peer`.
  [[nodiscard]] uint32_t& qpn(uint32_t self, uint32_t peer) {
    return reinterpret_cast<uint32_t*>(&gid(processes_))[size_t{self} * processes_ + peer];
  }

 private:
  uint32_t processes_;
  uint32_t laps_;
  std::array<pthread_barrier_t, 3> barriers_;
};

}  // namespace faultline::crowd
