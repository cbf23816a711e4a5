// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/traffic/session.hpp"

#include <cstdio>
#include <fstream>

#include <faultline/faultline.h>

#include "apps/perf/traffic/turns.hpp"

namespace faultline::perf {

namespace {

constexpr unsigned kLimitMilliseconds = 500;
constexpr int kLinkMs = 10'000;
constexpr size_t kHeaderBytes = 14 + 20 + 8 + 12 + 4;  // Ethernet, IPv4, UDP, BTH, ICRC
constexpr size_t kRethBytes = 16;

/// Returns the size of the frames that carry most of a message of this plan.
size_t frame_bytes_of(const Plan& plan) {
  const bool small = plan.size_bytes <= plan.mtu_bytes;
  const bool reth = small && (plan.op == Op::write || plan.op == Op::write_imm);
  return kHeaderBytes + (reth ? kRethBytes : 0) + std::min<size_t>(plan.size_bytes, plan.mtu_bytes);
}

}  // namespace

ClientSession::ClientSession(Exchange& exchange, const PerfDevice& device, const TestOptions& options)
    : exchange_(exchange), device_(device), options_(options) {
  device.wait_for_link(kLinkMs);
  const nlohmann::json hello = exchange.ask({{"do", "hello"}, {"version", 1}});
  if (hello.at("version") != 1) throw ExchangeError("the server speaks another version of this exchange");
  max_mtu_bytes_ = std::min(device.max_mtu_bytes(), hello.at("mtu").get<uint32_t>());
  static_cast<void>(mtu_bytes());
}

uint32_t ClientSession::mtu_bytes() const {
  if (options_.mtu_bytes == 0) return max_mtu_bytes_;
  if (options_.mtu_bytes > max_mtu_bytes_)
    throw ConfigError("--mtu: " + std::to_string(options_.mtu_bytes) +
                      " is more than both ports carry: at most " + std::to_string(max_mtu_bytes_));
  return options_.mtu_bytes;
}

Plan ClientSession::first_plan() const {
  return plan_for(options_.ops.front(), options_.sizes_bytes.front(), options_.regions.front());
}

void ClientSession::say_bye() {
  exchange_.send({{"do", "bye"}});
}

Plan ClientSession::plan_for(Op op, uint64_t size_bytes, RegionKind region) const {
  Plan plan;
  plan.op = op;
  plan.mode = options_.mode;
  plan.size_bytes = size_bytes;
  plan.qps = options_.qps;
  if (options_.mode == Mode::latency)
    plan.depth = 1;
  else
    plan.depth = options_.depth != 0 ? options_.depth : Plan::depth_for(size_bytes);
  plan.mtu_bytes = mtu_bytes();
  plan.ack_timeout = options_.ack_timeout;
  plan.region = region;
  plan.touch = options_.touch;
  plan.idle_ms = options_.idle_ms;
  plan.verify = options_.verify;
  if (op == Op::ud_send && size_bytes > plan.mtu_bytes)
    throw ConfigError("--size: a datagram holds at most the path MTU, " + std::to_string(plan.mtu_bytes) +
                      " bytes");
  return plan;
}

Result ClientSession::run_plan(const Plan& plan, const RunControl& control) {
  ClientRun run(exchange_, device_, plan);
  return run.run(control);
}

/// Measures the raw port and copy+CRC on this machine now, as reference for the results.
void ClientSession::measure_limits(Result& result) {
  exchange_.ask({{"do", "limits"}, {"milliseconds", 2 * kLimitMilliseconds}});
  const double sent =
      faultline_measure_port_tx(device_.context(), frame_bytes_of(result.plan), kLimitMilliseconds);
  const double arrived = exchange_.receive().at("packets_per_second").get<double>();
  if (sent < 0 || arrived < 0) throw VerbsError("the raw port cannot be measured on this port");
  result.raw_port_packets_per_second = arrived;
  result.copy_crc_gb_per_second =
      faultline_measure_copy_crc(std::min<size_t>(result.plan.size_bytes, result.plan.mtu_bytes), 100);
}

bool ClientSession::run_batch() {
  std::vector<Result> results;
  RunControl control;
  control.seconds = options_.seconds;
  control.iterations = options_.iterations;
  bool right = true;
  for (const Op op : options_.ops) {
    for (const uint64_t size_bytes : options_.sizes_bytes) {
      if (options_.regions.size() == 2) {
        const auto both = run_in_turns(exchange_, device_, plan_for(op, size_bytes, options_.regions[0]),
                                       plan_for(op, size_bytes, options_.regions[1]), control.seconds);
        results.insert(results.end(), both.begin(), both.end());
        continue;
      }
      Result limits;
      limits.plan = plan_for(op, size_bytes, options_.regions.front());
      if (options_.limits) measure_limits(limits);
      Result result = run_plan(limits.plan, control);
      result.raw_port_packets_per_second = limits.raw_port_packets_per_second;
      result.copy_crc_gb_per_second = limits.copy_crc_gb_per_second;
      right &= result.wrong_bytes == 0;
      results.push_back(result);
    }
  }
  say_bye();
  print_table(results);
  if (!options_.json_path.empty()) {
    nlohmann::json list = nlohmann::json::array();
    for (const Result& result : results) list.push_back(to_json(result));
    std::ofstream file(options_.json_path);
    file << nlohmann::json{{"results", list}}.dump(2) << "\n";
    if (!file) throw VerbsError("cannot write " + options_.json_path);
  }
  if (!right) std::fprintf(stderr, "faultline-perf: bytes arrived wrong\n");
  return right;
}

}  // namespace faultline::perf
