// SPDX-License-Identifier: BSD-3-Clause
// The redirection table (RETA) of a NIC's receive side scaling: from the low bits of a packet's hash to a
// receive queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace faultline::glue {

class RssTable {
 public:
  /// Reads the table of a started port; nullopt if the NIC has none or does not show it. `key_bytes`: length
  /// of the hash key; 0: unknown.
  [[nodiscard]] static std::optional<RssTable> read(uint16_t port, uint16_t entry_count, uint8_t key_bytes);

  // --- any thread ---
  [[nodiscard]] size_t entry_count() const { return queues_.size(); }
  /// Returns the key of the Toeplitz hash; empty if the NIC does not show it.
  [[nodiscard]] const std::vector<uint8_t>& key() const { return key_; }
  /// True if the hash includes UDP ports.
  [[nodiscard]] bool hashes_ports() const { return hashes_ports_; }

  // --- one thread: it opens the port, or is the progress thread after that ---
  /// Returns the queue of each entry.
  [[nodiscard]] const std::vector<uint16_t>& queues() const { return queues_; }
  /// Points one entry to a queue. Returns 0 or a negative errno.
  [[nodiscard]] int point(size_t entry, uint16_t queue);
  /// Writes all entries again, after the NIC has lost them. Returns 0 or a negative errno.
  [[nodiscard]] int write() const;
  /// Returns whether each of `queue_count` queues has its share of the entries, rounded down.
  [[nodiscard]] bool is_spread_over(uint16_t queue_count) const;
  /// Gives the entries to `queue_count` queues in turn. Returns 0 or a negative errno.
  [[nodiscard]] int spread_over(uint16_t queue_count);

 private:
  RssTable(uint16_t port, std::vector<uint16_t> queues) : port_(port), queues_(std::move(queues)) {}

  void read_hash(uint8_t key_bytes);

  uint16_t port_;
  std::vector<uint16_t> queues_;
  std::vector<uint8_t> key_;
  bool hashes_ports_ = false;
};

}  // namespace faultline::glue
