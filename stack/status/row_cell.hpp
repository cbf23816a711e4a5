// SPDX-License-Identifier: BSD-3-Clause
// A row that one writer changes while readers in other processes copy it: a seqlock (Boehm, Can Seqlocks Get
// Along With Programming Language Memory Models?, MSPC 2012).
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "stack/base/pause.hpp"

namespace faultline::status {

/// Memory of zeros is a cell that was never written. One writer at a time; a writer that dies in write()
/// leaves a cell that readers find torn.
template <typename Row>
class RowCell {
 public:
  static_assert(std::is_trivially_copyable_v<Row> && sizeof(Row) % sizeof(uint64_t) == 0);

  void write(const Row& row) {
    const auto words = std::bit_cast<Words>(row);
    const uint32_t sequence = sequence_.load(std::memory_order_relaxed);
    sequence_.store(sequence | 1, std::memory_order_relaxed);
    // Release and acquire on each word order it against the sequence. Fences would do the same, but
    // ThreadSanitizer does not know them.
    for (size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    sequence_.store((sequence | 1) + 1, std::memory_order_release);
  }

  /// Returns the row, or nullopt if the writer died within write() or was preempted there for long.
  [[nodiscard]] std::optional<Row> read() const {
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      const uint32_t before = sequence_.load(std::memory_order_acquire);
      if ((before & 1) == 0) {
        Words words;
        for (size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
        if (sequence_.load(std::memory_order_relaxed) == before) return std::bit_cast<Row>(words);
      }
      pause_cpu();
    }
    return std::nullopt;
  }

  /// Whether the row describes a live object. Written after the row, and cleared before its reuse.
  [[nodiscard]] bool is_used() const { return used_.load(std::memory_order_acquire) != 0; }
  void set_used(bool used) { used_.store(used ? 1 : 0, std::memory_order_release); }

 private:
  static constexpr size_t kWords = sizeof(Row) / sizeof(uint64_t);
  static constexpr int kMostAttempts = 1000;
  using Words = std::array<uint64_t, kWords>;

  std::atomic<uint32_t> sequence_{0};
  std::atomic<uint32_t> used_{0};
  std::array<std::atomic<uint64_t>, kWords> words_{};
};

}  // namespace faultline::status
