// SPDX-License-Identifier: BSD-3-Clause
// The active side: runs one plan against a server and measures it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "apps/perf/exchange/exchange.hpp"
#include "apps/perf/plan/plan.hpp"
#include "apps/perf/plan/resources.hpp"

namespace faultline::perf {

/// How long a run goes on, and what is told while it does.
struct RunControl {
  double seconds = 2.0;
  uint64_t iterations = 0;                    ///< instead of seconds, where not 0
  const std::atomic<bool>* stop = nullptr;    ///< ends it early
  std::atomic<uint64_t>* messages = nullptr;  ///< kept current
  bool progress_lines = true;                 ///< one each second
};

/// As results tell it: when something began, when it ended.
[[nodiscard]] double monotonic_s();

/// The client's end of one run: memory, QPs, and what the server said of its own.
class ClientRun {
 public:
  /// `to_follow`: how many more runs the server is to have beside this one.
  ClientRun(Exchange& exchange, const Device& device, const Plan& plan, size_t to_follow = 0);

  [[nodiscard]] Result run(const RunControl& control);
  /// Ends the run at the server too, and adds what both sides counted.
  void finish(Result& result);

 private:
  friend class BandwidthRun;
  friend class LatencyRun;

  [[nodiscard]] uint64_t remote_address(uint32_t qp, uint32_t slot) const {
    return remote_va_ + geometry_.offset_of(qp, slot);
  }
  /// Has the pages that the operation lands on dropped, and prefetched where the plan says so.
  void make_cold();

  Exchange& exchange_;
  const Device& device_;
  const Plan plan_;
  const Geometry geometry_;
  const Protection protection_;
  std::map<std::string, uint64_t> counters_before_;
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<Buffer> check_;  ///< for reading back what was written
  std::unique_ptr<QpSet> qps_;
  uint64_t remote_va_ = 0;
  uint32_t remote_rkey_ = 0;
};

/// What a turn came to, from its first message to the completion of its last.
struct Turn {
  uint64_t messages = 0;
  double seconds = 0;
};

/// Chains of WRs round the slots of every QP, `depth` under way.
class BandwidthRun {
 public:
  explicit BandwidthRun(ClientRun& run);
  void measure(const RunControl& control, Result& result);
  [[nodiscard]] Turn take_turn(double seconds);

 private:
  struct Stream {
    uint32_t next_slot = 0;
    uint32_t outstanding = 0;
    uint32_t posted_in_lap = 0;
  };
  [[nodiscard]] bool has_room(uint32_t qp) const;
  void post_chain(uint32_t qp);
  void fill();
  void reap();
  void drain();
  void number_lap(uint64_t first_sequence);
  [[nodiscard]] uint64_t check_lap(uint64_t first_sequence);
  [[nodiscard]] uint64_t read_back(uint64_t first_sequence);

  ClientRun& run_;
  const Plan& plan_;
  const Geometry& geometry_;
  const bool laps_;  ///< each QP goes once round its slots, then all waits; otherwise round and round
  std::array<ibv_send_wr, Plan::kMaxBatch> chain_;
  std::array<ibv_sge, Plan::kMaxBatch> pieces_;
  std::vector<Stream> streams_;
  bool posting_ = false;             ///< what completes is posted anew
  uint64_t lap_first_sequence_ = 0;  ///< of the lap's first message of each QP
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
};

/// One message at a time: ping-pong, a READ's round trip, or post to completion where pages are cold.
class LatencyRun {
 public:
  explicit LatencyRun(ClientRun& run) : run_(run), plan_(run.plan_), geometry_(run.geometry_) {}
  void measure(const RunControl& control, Result& result);
  /// Warm: what comes before the first message is timed.
  void prepare();
  [[nodiscard]] Turn take_turn(double seconds, std::vector<uint32_t>& samples_ns);

 private:
  void post(uint32_t slot, bool signaled, uint32_t remote_slot);
  void wait_for_completion(ibv_wc_opcode opcode);
  void post_receive();
  void ping();
  [[nodiscard]] uint32_t timed_ping();
  [[nodiscard]] uint32_t time_one(uint32_t slot);
  void measure_warm(const RunControl& control, Result& result);
  void measure_cold(const RunControl& control, Result& result);
  void measure_after_idle(const RunControl& control, Result& result);

  ClientRun& run_;
  const Plan& plan_;
  const Geometry& geometry_;
  uint8_t mark_ = 1;
  uint32_t unsignaled_ = 0;
};

}  // namespace faultline::perf
