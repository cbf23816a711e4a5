// SPDX-License-Identifier: BSD-3-Clause
// The active side: runs one plan against a server and measures it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "apps/perf/exchange/exchange.hpp"
#include "apps/perf/plan/plan.hpp"
#include "apps/perf/plan/resources.hpp"

namespace faultline::perf {

[[nodiscard]] inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Length of a run and its progress reports.
struct RunControl {
  double seconds = 2.0;
  uint64_t iterations = 0;                    ///< instead of `seconds`, if not 0
  const std::atomic<bool>* stop = nullptr;    ///< ends the run early
  std::atomic<uint64_t>* messages = nullptr;  ///< updated during the run
  bool progress_lines = true;                 ///< print one line each second
};

/// Returns CLOCK_MONOTONIC in seconds, the clock of Result::began_s and ended_s.
[[nodiscard]] double monotonic_s();

/// What a bandwidth run has posted on one QP.
struct Stream {
  uint32_t next_slot = 0;
  std::atomic<uint32_t> outstanding{0};  ///< messages under way; one thread writes it, any reads it
  uint32_t posted_in_lap = 0;

  [[nodiscard]] uint32_t under_way() const { return outstanding.load(std::memory_order_relaxed); }
  void add(uint32_t messages) { outstanding.store(under_way() + messages, std::memory_order_relaxed); }
  void take(uint32_t messages) { outstanding.store(under_way() - messages, std::memory_order_relaxed); }
};

/// Client's end of one run: memory, QPs, and the server's address and rkey.
class ClientRun {
 public:
  /// `to_follow`: the number of further runs that the server prepares to alternate with this one.
  ClientRun(Exchange& exchange, const PerfDevice& device, const Plan& plan, size_t to_follow = 0);

  [[nodiscard]] Result run(const RunControl& control);
  /// Ends the run at the server and adds the counters of both sides.
  void finish(Result& result);

  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] const QpSet& qps() const { return *qps_; }
  [[nodiscard]] const Buffer& buffer() const { return *buffer_; }
  /// Returns the buffer to read back written bytes, or nullptr.
  [[nodiscard]] const Buffer* check_buffer() const { return check_.get(); }
  /// Returns the messages under way on a QP of a bandwidth run. Any thread may call it.
  [[nodiscard]] uint32_t outstanding(uint32_t qp) const { return streams_[qp].under_way(); }

 private:
  friend class BandwidthRun;
  friend class LatencyRun;

  [[nodiscard]] uint64_t remote_address(uint32_t qp, uint32_t slot) const {
    return remote_va_ + geometry_.offset_of(qp, slot);
  }
  /// Drops the pages that the operation writes to, and prefetches them with Touch::prefetch.
  void make_cold();

  Exchange& exchange_;
  const PerfDevice& device_;
  const Plan plan_;
  const Geometry geometry_;
  const Protection protection_;
  std::map<std::string, uint64_t> counters_before_;
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<Buffer> check_;  ///< buffer to read back written bytes
  std::unique_ptr<QpSet> qps_;
  uint64_t remote_va_ = 0;
  uint32_t remote_rkey_ = 0;
  std::vector<Stream> streams_;  ///< one for each QP
};

/// Messages and duration of one turn, from its first post to its last completion.
struct Turn {
  uint64_t messages = 0;
  double seconds = 0;
};

/// Posts chains of WRs over the slots of every QP, with `depth` messages under way.
class BandwidthRun {
 public:
  explicit BandwidthRun(ClientRun& run);
  void measure(const RunControl& control, Result& result);
  [[nodiscard]] Turn take_turn(double seconds);

 private:
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
  const bool laps_;  ///< each QP uses its slots once, then waits for all completions; otherwise continuously
  std::array<ibv_send_wr, Plan::kMaxBatch> chain_;
  std::array<ibv_sge, Plan::kMaxBatch> pieces_;
  std::span<Stream> streams_;
  bool posting_ = false;             ///< post again upon each completion
  uint64_t lap_first_sequence_ = 0;  ///< sequence number of the lap's first message on each QP
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
};

/// One message at a time: ping-pong, a READ's round trip, or post to completion if pages are cold.
class LatencyRun {
 public:
  explicit LatencyRun(ClientRun& run) : run_(run), plan_(run.plan_), geometry_(run.geometry_) {}
  void measure(const RunControl& control, Result& result);
  /// Warm: posts the first receive and runs untimed warm-up pings.
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
