// SPDX-License-Identifier: BSD-3-Clause
// Records every packet of a run and its fate, for printing and comparison.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stack/transport/shared/types.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::sim {

using Frame = std::vector<uint8_t>;

enum class Verdict : uint8_t { delivered, lost, corrupted, duplicated, delayed, no_buffer, injected };

struct TraceEntry {
  TimeNs sent_ns = 0;
  bool from_a = true;
  bool looped = false;  ///< from the device to itself
  uint32_t number = 0;  ///< number of the packet in its direction, as in the masks
  Verdict verdict = Verdict::delivered;
  Frame frame;
};

class Trace {
 public:
  TraceEntry& add(TimeNs sent_ns, bool from_a, uint32_t number, const Frame& frame) {
    if (!keep) entries_.clear();
    return entries_.emplace_back(TraceEntry{sent_ns, from_a, false, number, Verdict::delivered, frame});
  }
  bool keep = true;  ///< keep all entries, not only the newest one
  void clear() { entries_.clear(); }
  [[nodiscard]] const std::vector<TraceEntry>& entries() const { return entries_; }

  /// Returns one line per packet without its time: "a> RC.SEND_FIRST 100 lost". A "!" after the PSN marks
  /// AckReq; an ACK shows its syndrome.
  [[nodiscard]] std::vector<std::string> lines() const;
  /// Returns the last `limit` packets with times and all fields.
  [[nodiscard]] std::string text(size_t limit) const;
  void write_pcap(const std::string& path) const;

 private:
  std::vector<TraceEntry> entries_;
};

[[nodiscard]] std::string line_of(const TraceEntry& entry);

}  // namespace faultline::sim
