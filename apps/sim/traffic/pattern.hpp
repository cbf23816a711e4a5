// SPDX-License-Identifier: BSD-3-Clause
// A pattern of traffic: which hosts are connected, and which flow begins when. A flow is one message.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "apps/sim/description/description.hpp"
#include "stack/chaos/random.hpp"

namespace faultline::fabric {

/// A connection; several may join the same two hosts.
struct Route {
  uint32_t source = 0;
  uint32_t destination = 0;
};

/// A message of a connection, as a pattern sees it.
struct FlowKey {
  uint32_t connection = 0;  ///< index in the pattern's routes()
  uint32_t tag = 0;         ///< the pattern's own
};

/// Starts flows on behalf of a pattern.
class Starter {
 public:
  virtual ~Starter() = default;
  /// Starts a flow at the current time. It waits at its host while its connection has all the work requests
  /// that may be outstanding.
  virtual void start(const FlowKey& key, uint32_t bytes) = 0;
};

class Pattern {
 public:
  virtual ~Pattern() = default;

  [[nodiscard]] const std::vector<Route>& routes() const { return routes_; }
  /// Returns when on_time() must be called; kNever: no more.
  [[nodiscard]] virtual TimeNs next_ns() const = 0;
  /// Starts the flows that are due.
  virtual void on_time(TimeNs now, Starter& starter) = 0;
  /// The sender has the completion of a flow.
  virtual void on_sent(const FlowKey& /*key*/, Starter& /*starter*/) {}
  /// The receiver has the completion of a flow; only for operations that it notices.
  virtual void on_delivered(const FlowKey& /*key*/, Starter& /*starter*/) {}
  /// Number of rounds that all hosts have finished, of an allreduce.
  [[nodiscard]] virtual uint64_t rounds() const { return 0; }

 protected:
  std::vector<Route> routes_;
};

/// Makes the pattern that `traffic` states.
[[nodiscard]] std::unique_ptr<Pattern> make_pattern(const TrafficParameters& traffic, uint32_t hosts,
                                                    chaos::Random random);

}  // namespace faultline::fabric
