// SPDX-License-Identifier: BSD-3-Clause
// Whether a program that is given a completion comes back at once. Who does is waited for by a peer, mostly:
// what it posts then goes out before the acknowledgement of what it was given, which nobody waits for. Who
// goes away to compute would leave the acknowledgement behind until the housekeeper finds it. So what the
// last returns were like decides.
#pragma once

#include <algorithm>
#include <cstdint>

namespace faultline::glue {

class ReturnPace {
 public:
  // Some messages' time; what a peer's retransmission timer does not see.
  static constexpr uint64_t kAtOnceNs = 20'000;
  // Of so many acknowledgements one at most is late for it. Who only lost the CPU now and then is not
  // distrusted for long.
  static constexpr uint32_t kReturns = 128;

  /// The last returns were all at once.
  [[nodiscard]] bool is_prompt() const { return returns_ == kReturns; }

  /// The program is given a completion.
  void note_given(uint64_t now_ns) { given_ns_ = now_ns; }
  /// The program is back.
  void note_return(uint64_t now_ns) {
    if (given_ns_ == 0) return;
    returns_ = now_ns - given_ns_ <= kAtOnceNs ? std::min(returns_ + 1, kReturns) : 0;
    given_ns_ = 0;
  }

 private:
  uint64_t given_ns_ = 0;  ///< 0: it is back since
  uint32_t returns_ = 0;
};

}  // namespace faultline::glue
