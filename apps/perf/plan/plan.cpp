// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/plan/plan.hpp"

#include <cstdio>

namespace faultline::perf {

namespace {

constexpr uint64_t kGrhBytes = 40;
constexpr uint64_t kCacheLineBytes = 64;
constexpr uint64_t kLapBytes = uint64_t{64} << 20;

uint64_t rounded_up(uint64_t bytes, uint64_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace

Geometry Plan::geometry() const {
  Geometry geometry;
  geometry.message_bytes = size_bytes;
  geometry.header_bytes = datagrams() ? kGrhBytes : 0;
  geometry.qps = qps;
  if (touch == Touch::warm) {
    geometry.slot_bytes = rounded_up(size_bytes + geometry.header_bytes, kCacheLineBytes);
    geometry.slots = std::max(depth, receive_depth());
  } else {
    geometry.slot_bytes = rounded_up(size_bytes + geometry.header_bytes, kPageBytes);
    const uint64_t laps = std::max<uint64_t>(1, kLapBytes / (geometry.slot_bytes * depth * qps));
    geometry.slots = std::max(static_cast<uint32_t>(laps) * depth, receive_depth());
  }
  geometry.slots = static_cast<uint32_t>(rounded_up(geometry.slots, depth));
  return geometry;
}

nlohmann::json to_json(const Plan& plan) {
  return {{"op", name_of(plan.op)},
          {"mode", name_of(plan.mode)},
          {"size", plan.size_bytes},
          {"qps", plan.qps},
          {"depth", plan.depth},
          {"mtu", plan.mtu_bytes},
          {"ack_timeout", plan.ack_timeout},
          {"region", name_of(plan.region)},
          {"touch", name_of(plan.touch)},
          {"verify", plan.verify},
          {"idle_ms", plan.idle_ms}};
}

Plan plan_from(const nlohmann::json& text) {
  Plan plan;
  const auto op = text.at("op").get<std::string>();
  for (const Op candidate : {Op::write, Op::write_imm, Op::read, Op::send, Op::ud_send})
    if (op == name_of(candidate)) plan.op = candidate;
  plan.mode = text.at("mode") == name_of(Mode::latency) ? Mode::latency : Mode::bandwidth;
  plan.size_bytes = text.at("size").get<uint64_t>();
  plan.qps = text.at("qps").get<uint32_t>();
  plan.depth = text.at("depth").get<uint32_t>();
  plan.mtu_bytes = text.at("mtu").get<uint32_t>();
  plan.ack_timeout = text.at("ack_timeout").get<uint8_t>();
  plan.region = text.at("region") == name_of(RegionKind::pinned) ? RegionKind::pinned : RegionKind::odp;
  for (const Touch candidate : {Touch::warm, Touch::cold, Touch::prefetch})
    if (text.at("touch") == name_of(candidate)) plan.touch = candidate;
  plan.verify = text.at("verify").get<bool>();
  plan.idle_ms = text.at("idle_ms").get<uint32_t>();
  return plan;
}

Percentiles Percentiles::of(std::vector<uint32_t>& samples_ns) {
  Percentiles result;
  if (samples_ns.empty()) return result;
  std::sort(samples_ns.begin(), samples_ns.end());
  const auto at = [&](double share) {
    const auto index = static_cast<size_t>(share * static_cast<double>(samples_ns.size() - 1));
    return static_cast<double>(samples_ns[index]) / 1e3;
  };
  result.p50_us = at(0.5);
  result.p99_us = at(0.99);
  result.p999_us = at(0.999);
  return result;
}

Beside Beside::of(RegionKind region, std::vector<double> ratios) {
  Beside beside{.region = region, .quads = ratios.size()};
  if (ratios.empty()) return beside;
  std::sort(ratios.begin(), ratios.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(ratios.size() - 1);
    const auto below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, ratios.size() - 1);
    return ratios[below] + (place - static_cast<double>(below)) * (ratios[above] - ratios[below]);
  };
  beside.p10 = at(0.1);
  beside.p50 = at(0.5);
  beside.p90 = at(0.9);
  return beside;
}

nlohmann::json to_json(const Result& result) {
  nlohmann::json json = to_json(result.plan);
  json["messages"] = result.messages;
  json["seconds"] = result.seconds;
  json["window_s"] = {result.began_s, result.ended_s};
  json["messages_per_second"] = result.messages_per_second();
  json["gb_per_second"] = result.gb_per_second();
  if (result.plan.datagrams()) json["received"] = result.received;
  if (result.has_latency)
    json["latency_us"] = {
        {"p50", result.latency.p50_us}, {"p99", result.latency.p99_us}, {"p999", result.latency.p999_us}};
  if (result.has_added) json["fault_added_us"] = {{"p50", result.added_p50_us}, {"p99", result.added_p99_us}};
  if (result.beside)
    json["beside"] = {
        {"region", name_of(result.beside->region)},
        {"quads", result.beside->quads},
        {"ratio", {{"p10", result.beside->p10}, {"p50", result.beside->p50}, {"p90", result.beside->p90}}}};
  json["wrong_bytes"] = result.wrong_bytes;
  json["faults"] = result.faults;
  json["rnr_naks"] = result.rnr_naks;
  json["retransmissions"] = result.retransmissions;
  json["timeouts"] = result.timeouts;
  if (result.raw_port_packets_per_second > 0) {
    json["limits"] = {
        {"raw_port_packets_per_second", result.raw_port_packets_per_second},
        {"copy_crc_gb_per_second", result.copy_crc_gb_per_second},
        {"packets_to_raw_port", result.packets_per_second() / result.raw_port_packets_per_second},
        {"gb_to_copy_crc", result.gb_per_second() / result.copy_crc_gb_per_second}};
  }
  return json;
}

std::string table_header(const std::vector<Result>& results) {
  std::string line =
      "op         mode     size   qps depth   mtu region touch      messages/s      GB/s    p50 us    p99 us "
      " p99.9 us"
      "    faults      RNRs   retrans  verified";
  const bool limits = std::any_of(results.begin(), results.end(), [](const Result& result) {
    return result.raw_port_packets_per_second > 0;
  });
  if (limits) line += "  raw port pkt/s   ratio  copy+CRC GB/s   ratio";
  return line;
}

std::string table_row(const Result& result) {
  const Plan& plan = result.plan;
  char text[320];
  int length =
      std::snprintf(text, sizeof text, "%-10s %-4s %8llu %5u %5u %5u %-6s %-8s %12.0f %9.3f ",
                    name_of(plan.op), name_of(plan.mode), static_cast<unsigned long long>(plan.size_bytes),
                    plan.qps, plan.depth, plan.mtu_bytes, name_of(plan.region), name_of(plan.touch),
                    result.messages_per_second(), result.gb_per_second());
  std::string line(text, static_cast<size_t>(length));
  if (result.has_latency)
    length = std::snprintf(text, sizeof text, "%9.2f %9.2f %9.2f ", result.latency.p50_us,
                           result.latency.p99_us, result.latency.p999_us);
  else
    length = std::snprintf(text, sizeof text, "%9s %9s %9s ", "-", "-", "-");
  line.append(text, static_cast<size_t>(length));
  length = std::snprintf(text, sizeof text, "%9llu %9llu %9llu  %8s",
                         static_cast<unsigned long long>(result.faults),
                         static_cast<unsigned long long>(result.rnr_naks),
                         static_cast<unsigned long long>(result.retransmissions),
                         !plan.verify ? "-" : (result.wrong_bytes == 0 ? "yes" : "WRONG"));
  line.append(text, static_cast<size_t>(length));
  if (result.raw_port_packets_per_second > 0) {
    length =
        std::snprintf(text, sizeof text, "  %14.0f  %6.3f  %13.2f  %6.3f", result.raw_port_packets_per_second,
                      result.packets_per_second() / result.raw_port_packets_per_second,
                      result.copy_crc_gb_per_second, result.gb_per_second() / result.copy_crc_gb_per_second);
    line.append(text, static_cast<size_t>(length));
  }
  return line;
}

void print_table(const std::vector<Result>& results) {
  std::printf("%s\n", table_header(results).c_str());
  for (const Result& result : results) {
    std::printf("%s\n", table_row(result).c_str());
    if (result.has_added)
      std::printf("  a cold page adds p50 %.2f us, p99 %.2f us to the warm latency of the same run\n",
                  result.added_p50_us, result.added_p99_us);
    if (result.beside)
      std::printf("  %s beside %s, in turns: %.3f (p10 %.3f, p90 %.3f of %zu quads)\n",
                  name_of(result.plan.region), name_of(result.beside->region), result.beside->p50,
                  result.beside->p10, result.beside->p90, result.beside->quads);
    if (result.plan.datagrams() && result.received != result.messages)
      std::printf("  %llu of %llu datagrams arrived\n", static_cast<unsigned long long>(result.received),
                  static_cast<unsigned long long>(result.messages));
  }
}

}  // namespace faultline::perf
