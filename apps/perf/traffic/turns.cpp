// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/traffic/turns.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "apps/perf/traffic/client.hpp"

namespace faultline::perf {

namespace {

constexpr double kTurnSeconds = 0.005;

class Side {
 public:
  Side(Exchange& exchange, const PerfDevice& device, const Plan& plan, size_t number, size_t to_follow)
      : exchange_(exchange), number_(number), run_(exchange, device, plan, to_follow) {
    result_.plan = plan;
    if (plan.mode == Mode::bandwidth)
      bandwidth_.emplace(run_);
    else
      latency_.emplace(run_);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  void prepare(double seconds) {
    have_served();
    if (latency_) latency_->prepare();
    static_cast<void>(measured_turn(seconds));
    samples_ns_.clear();
    result_.messages = 0;
    result_.seconds = 0;
  }

  /// Returns the performance of the turn: messages per second, or 1 / (median latency in us).
  [[nodiscard]] double take_turn(double seconds) {
    have_served();
    return measured_turn(seconds);
  }

  [[nodiscard]] Result finish(double began_s, double ended_s) {
    have_served();
    result_.began_s = began_s;
    result_.ended_s = ended_s;
    result_.has_latency = latency_.has_value();
    if (latency_) result_.latency = Percentiles::of(samples_ns_);
    run_.finish(result_);
    return result_;
  }

 private:
  void have_served() { exchange_.ask({{"do", "turn"}, {"run", number_}}); }

  double measured_turn(double seconds) {
    std::vector<uint32_t> samples_ns;
    const Turn turn = bandwidth_ ? bandwidth_->take_turn(seconds) : latency_->take_turn(seconds, samples_ns);
    result_.messages += turn.messages;
    result_.seconds += turn.seconds;
    if (bandwidth_) return static_cast<double>(turn.messages) / turn.seconds;
    samples_ns_.insert(samples_ns_.end(), samples_ns.begin(), samples_ns.end());
    return 1 / Percentiles::of(samples_ns).p50_us;
  }

  Exchange& exchange_;
  const size_t number_;
  ClientRun run_;
  std::optional<BandwidthRun> bandwidth_;
  std::optional<LatencyRun> latency_;
  std::vector<uint32_t> samples_ns_;
  Result result_;
};

}  // namespace

std::array<Result, 2> run_in_turns(Exchange& exchange, const PerfDevice& device, const Plan& first,
                                   const Plan& second, double seconds) {
  Side a(exchange, device, first, 0, 1);
  Side b(exchange, device, second, 1, 0);
  const double turn_s = std::min(kTurnSeconds, seconds / 2);
  const auto quads = std::max<long>(1, std::lround(seconds / (2 * turn_s)));
  a.prepare(turn_s);
  b.prepare(turn_s);
  std::vector<double> ratios;
  const double began_s = monotonic_s();
  for (long quad = 0; quad < quads; ++quad) {
    const double outer = a.take_turn(turn_s);
    const double inner = b.take_turn(turn_s) * b.take_turn(turn_s);
    ratios.push_back(std::sqrt(outer * a.take_turn(turn_s) / inner));
  }
  const double ended_s = monotonic_s();
  std::array<Result, 2> results{a.finish(began_s, ended_s), b.finish(began_s, ended_s)};
  results[0].beside = Beside::of(second.region, std::move(ratios));
  return results;
}

}  // namespace faultline::perf
