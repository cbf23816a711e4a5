// SPDX-License-Identifier: BSD-3-Clause
// Errors of the paths to the peers of a UDP socket: routers and hosts report them by ICMP, and the kernel
// keeps them for the socket (IP_RECVERR, ip(7)). One error then fails the socket's next call, whichever peer
// that is for. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "stack/base/spin_lock.hpp"
#include "stack/base/token_bucket.hpp"
#include "stack/wire/packet/headers.hpp"

namespace faultline::glue {

class PathErrors {
 public:
  explicit PathErrors(const wire::Gid& own) : own_(own) {}

  /// Asks the kernel to keep the errors of a socket of own's family. Returns false with errno set.
  [[nodiscard]] static bool request(int fd, bool ipv6);

  /// Takes the errors that the kernel has kept: a call that failed by one may succeed then.
  void take(int fd);
  /// A packet was not sent, because the kernel knows that its path holds shorter ones only.
  void note_too_long() { too_long_.fetch_add(1, std::memory_order_relaxed); }

  /// Packets that were longer than their path holds.
  [[nodiscard]] uint64_t too_long() const { return too_long_.load(std::memory_order_relaxed); }
  /// Reports that a packet did not reach a socket of its peer.
  [[nodiscard]] uint64_t unreachable() const { return unreachable_.load(std::memory_order_relaxed); }

 private:
  /// A fault that the log has.
  struct Fault {
    wire::Gid peer;
    uint32_t mtu_bytes = 0;  ///< 0: unreachable
    friend bool operator==(const Fault&, const Fault&) = default;
  };
  void log(const Fault& fault);

  const wire::Gid own_;
  SpinLock lock_;                   ///< one core may receive while another transmits
  std::array<Fault, 16> logged_{};  ///< the latest
  size_t next_logged_ = 0;
  TokenBucket lines_{1, 16};
  std::atomic<uint64_t> too_long_{0};
  std::atomic<uint64_t> unreachable_{0};
};

}  // namespace faultline::glue
