// SPDX-License-Identifier: BSD-3-Clause
// How much a run of odp_mix has done, and the least that it has to do: a run that moved next to nothing has
// found nothing wrong either.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace faultline::e2e::mix {

/// A run goes on for so long after its end until it has done the least.
inline constexpr uint64_t kMoreTimeNs = 30'000'000'000;

/// The peer counts, the owner reads.
struct PeerWork {
  std::atomic<uint64_t> writes{0};
  std::atomic<uint64_t> reads{0};
  std::atomic<uint64_t> adds{0};
  std::atomic<uint64_t> bytes_verified{0};  ///< that READs brought
  std::atomic<uint64_t> access_errors{0};
};

class Work {
 public:
  explicit Work(double seconds) : seconds_(seconds) {}

  /// At least one has to be done, however short the run.
  void add(const char* what, uint64_t done, double least_a_second);
  [[nodiscard]] bool is_enough() const;
  /// One line for each kind of work of which there was too little.
  void tell_missing(const char* who) const;

 private:
  struct Part {
    std::string what;
    uint64_t done;
    uint64_t least;
  };

  double seconds_;
  std::vector<Part> parts_;
};

}  // namespace faultline::e2e::mix
