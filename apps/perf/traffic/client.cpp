// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/traffic/client.hpp"

#include <chrono>
#include <cstring>

#include "apps/perf/traffic/pattern.hpp"

namespace faultline::perf {

double monotonic_s() {
  // libstdc++'s steady clock is CLOCK_MONOTONIC.
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
ClientRun::ClientRun(Exchange& exchange, const PerfDevice& device, const Plan& plan, size_t to_follow)
    : exchange_(exchange),
      device_(device),
      plan_(plan),
      geometry_(plan_.geometry()),
      protection_(device),
      streams_(plan.qps) {
  counters_before_ = device.counters();
  buffer_ = std::make_unique<Buffer>(protection_, geometry_.total_bytes(), plan_.region);
  buffer_->touch();
  if (plan_.verify && (plan_.op == Op::write || plan_.op == Op::write_imm))
    check_ = std::make_unique<Buffer>(protection_, geometry_.total_bytes(), plan_.region);
  const bool ping_pong = plan_.mode == Mode::latency;
  qps_ = std::make_unique<QpSet>(protection_, plan_.datagrams() ? IBV_QPT_UD : IBV_QPT_RC, plan_.qps,
                                 std::max(plan_.depth, 64U), ping_pong ? 64 : 1, plan_.reads_under_way());
  const nlohmann::json answer = exchange_.ask({{"do", "run"},
                                               {"plan", to_json(plan_)},
                                               {"to_follow", to_follow},
                                               {"qps", to_json(qps_->endpoints())},
                                               {"gid", to_json(device.gid())},
                                               {"va", reinterpret_cast<uint64_t>(buffer_->data())},
                                               {"rkey", buffer_->rkey()}});
  remote_va_ = answer.at("va").get<uint64_t>();
  remote_rkey_ = answer.at("rkey").get<uint32_t>();
  qps_->connect(endpoints_from(answer.at("qps")), gid_from(answer.at("gid")), plan_.mtu_bytes,
                plan_.ack_timeout);
}

void ClientRun::make_cold() {
  if (plan_.op == Op::read) {
    buffer_->drop();
    if (plan_.touch == Touch::prefetch) buffer_->prefetch();
  } else {
    exchange_.ask({{"do", "drop"}, {"prefetch", plan_.touch == Touch::prefetch}});
  }
}

Result ClientRun::run(const RunControl& control) {
  Result result;
  result.plan = plan_;
  result.began_s = monotonic_s();
  if (plan_.mode == Mode::bandwidth)
    BandwidthRun(*this).measure(control, result);
  else
    LatencyRun(*this).measure(control, result);
  result.ended_s = monotonic_s();
  finish(result);
  return result;
}

void ClientRun::finish(Result& result) {
  const nlohmann::json answer = exchange_.ask({{"do", "end"}});
  result.received = answer.at("received").get<uint64_t>();
  result.wrong_bytes += answer.at("wrong_bytes").get<uint64_t>();
  const nlohmann::json& remote = answer.at("counters");
  auto local = device_.counters();
  const auto both = [&](const char* name) {
    return local[name] - counters_before_[name] + remote.value(name, uint64_t{0});
  };
  result.faults = both("odp.num_page_faults");
  result.rnr_naks = both("transport.rnr_naks_received");
  result.retransmissions = both("transport.retransmitted_packets");
  result.timeouts = both("transport.timeouts");
}

}  // namespace faultline::perf
