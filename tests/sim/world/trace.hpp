// SPDX-License-Identifier: BSD-3-Clause
// Records every packet of a run and its fate, for printing and comparison.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stack/transport/shared/types.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::sim {

using Frame = std::vector<uint8_t>;

enum class Verdict : uint8_t { delivered, lost, corrupted, duplicated, delayed, no_buffer, injected };

struct TraceEntry {
  TimeNs sent_ns = 0;
  uint16_t link = 0;    ///< index of its direction in Trace::names
  bool looped = false;  ///< from the device to itself
  uint32_t number = 0;  ///< number of the packet in its direction, as in the masks
  Verdict verdict = Verdict::delivered;
  Frame frame;

  /// Of two hosts: a sent the packet.
  [[nodiscard]] bool from_a() const { return link == 0; }
};

class Trace {
 public:
  TraceEntry& add(TimeNs sent_ns, uint16_t link, uint32_t number, const Frame& frame) {
    if (!keep) entries_.clear();
    return entries_.emplace_back(TraceEntry{sent_ns, link, false, number, Verdict::delivered, frame});
  }
  bool keep = true;                            ///< keep all entries, not only the newest one
  std::vector<std::string> names{"a>", "b>"};  ///< of the directions; "a>" sends what host a transmits
  void clear() { entries_.clear(); }
  [[nodiscard]] const std::vector<TraceEntry>& entries() const { return entries_; }

  /// Returns one line per packet without its time: "a> RC.SEND_FIRST 100 lost". A "!" after the PSN marks
  /// AckReq; an ACK shows its syndrome.
  [[nodiscard]] std::vector<std::string> lines() const;
  /// Returns the last `limit` packets with times and all fields.
  [[nodiscard]] std::string text(size_t limit) const;
  void write_pcap(const std::string& path) const;
  /// Returns a digest of all packets, their times and fates: equal in two equal runs.
  [[nodiscard]] uint64_t digest() const;

 private:
  [[nodiscard]] std::string line_of(const TraceEntry& entry) const;
  std::vector<TraceEntry> entries_;
};

/// Adds bytes to a 64-bit FNV-1a digest.
[[nodiscard]] uint64_t digest_of(std::span<const uint8_t> bytes, uint64_t digest);
inline constexpr uint64_t kEmptyDigest = 0xcbf29ce484222325;

}  // namespace faultline::sim
