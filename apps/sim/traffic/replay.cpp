// SPDX-License-Identifier: BSD-3-Clause
#include "apps/sim/traffic/replay.hpp"

#include <map>
#include <utility>

namespace faultline::fabric {

Replay::Replay(const TrafficParameters& traffic) {
  struct Pair {
    uint32_t first = 0;  ///< its first connection
    uint32_t flows = 0;
  };
  std::map<std::pair<uint32_t, uint32_t>, Pair> pairs;
  for (const TraceRow& row : traffic.trace) {
    const auto [at, is_new] = pairs.try_emplace({row.source, row.destination});
    Pair& pair = at->second;
    if (is_new) {
      pair.first = static_cast<uint32_t>(routes_.size());
      routes_.insert(routes_.end(), traffic.connections,
                     {.source = row.source, .destination = row.destination});
    }
    rows_.push_back({.start_ns = row.start_ns,
                     .connection = pair.first + pair.flows++ % traffic.connections,
                     .bytes = row.bytes});
  }
}

void Replay::on_time(TimeNs now, Starter& starter) {
  for (; next_ != rows_.size() && rows_[next_].start_ns <= now; ++next_)
    starter.start({.connection = rows_[next_].connection, .tag = static_cast<uint32_t>(next_)},
                  rows_[next_].bytes);
}

}  // namespace faultline::fabric
