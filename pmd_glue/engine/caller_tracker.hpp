// SPDX-License-Identifier: BSD-3-Clause
// Detects programs that poll again at once after a completion. A peer mostly waits for such a program's next
// message, which is then transmitted before the ACK, since no thread waits for the ACK. A program that
// computes after a completion would leave the ACK unsent until the progress thread finds it. So the last
// returns decide.
#pragma once

#include <algorithm>
#include <cstdint>

namespace faultline::glue {

class CallerTracker {
 public:
  // The time of some messages; too short for a peer's retransmission timer to notice.
  static constexpr uint64_t kAtOnceNs = 20'000;
  // The same on a port of sockets: a turn's system calls, in which the kernel may run the peer's receive
  // path, often take longer than kAtOnceNs.
  static constexpr uint64_t kAtOnceBySocketNs = 200'000;
  // At most one ACK in so many is late. A program that lost its CPU once is prompt again after as many
  // returns.
  static constexpr uint32_t kReturns = 128;

  explicit CallerTracker(uint64_t at_once_ns = kAtOnceNs) : at_once_ns_(at_once_ns) {}

  /// True if the last kReturns returns were all within that time.
  [[nodiscard]] bool is_prompt() const { return returns_ == kReturns; }

  /// The program receives a completion.
  void note_completion_returned(uint64_t now_ns) { given_ns_ = now_ns; }
  /// The program polls again.
  void note_return(uint64_t now_ns) {
    if (given_ns_ == 0) return;
    returns_ = now_ns - given_ns_ <= at_once_ns_ ? std::min(returns_ + 1, kReturns) : 0;
    given_ns_ = 0;
  }

 private:
  const uint64_t at_once_ns_;
  uint64_t given_ns_ = 0;  ///< 0: the program has polled since
  uint32_t returns_ = 0;
};

}  // namespace faultline::glue
