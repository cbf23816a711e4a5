// SPDX-License-Identifier: BSD-3-Clause
// Every packet of a run and what became of it, to print and to compare with.
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
  uint32_t number = 0;  ///< of the packet in its direction, as in the masks
  Verdict verdict = Verdict::delivered;
  Frame frame;
};

class Trace {
 public:
  TraceEntry& add(TimeNs sent_ns, bool from_a, uint32_t number, const Frame& frame) {
    if (!keep) entries_.clear();
    return entries_.emplace_back(TraceEntry{sent_ns, from_a, false, number, Verdict::delivered, frame});
  }
  bool keep = true;  ///< all of it, not the newest entry alone
  void clear() { entries_.clear(); }
  [[nodiscard]] const std::vector<TraceEntry>& entries() const { return entries_; }

  /// One line a packet without its time: "a> RC.SEND_FIRST 100 lost". AckReq is a "!" behind the PSN; an ACK
  /// says its syndrome.
  [[nodiscard]] std::vector<std::string> lines() const;
  /// The last `limit` packets with times and all fields.
  [[nodiscard]] std::string text(size_t limit) const;
  void write_pcap(const std::string& path) const;

 private:
  std::vector<TraceEntry> entries_;
};

[[nodiscard]] std::string line_of(const TraceEntry& entry);

}  // namespace faultline::sim
