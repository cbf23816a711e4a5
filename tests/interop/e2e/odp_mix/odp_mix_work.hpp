// SPDX-License-Identifier: BSD-3-Clause
// How much a run of odp_mix has to do. It ends when it has: a run is as long as the machine makes it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace faultline::e2e::mix {

/// A run that has not done its work by then hangs.
inline constexpr uint64_t kMostNs = 600'000'000'000;

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
  /// `amount`: what the least of each kind is multiplied by.
  explicit Work(double amount) : amount_(amount) {}

  /// At least one has to be done, however small the amount.
  void add(const char* what, uint64_t done, double least);
  [[nodiscard]] bool is_enough() const;
  /// One line for each kind of work of which there was too little.
  void tell_missing(const char* who) const;

 private:
  struct Part {
    std::string what;
    uint64_t done;
    uint64_t least;
  };

  double amount_;
  std::vector<Part> parts_;
};

}  // namespace faultline::e2e::mix
