// SPDX-License-Identifier: BSD-3-Clause
// For each entry of a NIC's redirection table, the core that owns most of the entry's frames, as one
// receiving core sees them (the majority vote of Boyer and Moore). That core's thread counts; the progress
// thread reads and clears. A count that meets a clear may be lost.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace faultline::glue {

class FlowVotes {
 public:
  struct Vote {
    uint32_t owner = 0;
    uint32_t weight = 0;  ///< frames of the owner beyond those of others, at most kMostWeight
  };
  static constexpr uint32_t kMostWeight = 4096;

  explicit FlowVotes(size_t entries) : votes_(entries) {}
  [[nodiscard]] size_t entry_count() const { return votes_.size(); }

  void count(uint32_t hash, uint32_t owner) {
    std::atomic<uint64_t>& word = votes_[hash % votes_.size()];
    Vote vote = unpack(word.load(std::memory_order_relaxed));
    if (vote.weight == 0)
      vote = {owner, 1};
    else if (vote.owner != owner)
      --vote.weight;
    else if (vote.weight < kMostWeight)
      ++vote.weight;
    word.store(uint64_t{vote.owner} << 32 | vote.weight, std::memory_order_relaxed);
  }
  [[nodiscard]] Vote read(size_t entry) const {
    return unpack(votes_[entry].load(std::memory_order_relaxed));
  }
  void clear(size_t entry) { votes_[entry].store(0, std::memory_order_relaxed); }

 private:
  static Vote unpack(uint64_t word) {
    return {static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word)};
  }
  std::vector<std::atomic<uint64_t>> votes_;
};

}  // namespace faultline::glue
