// SPDX-License-Identifier: BSD-3-Clause
#include "apps/sim/report/summary.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <vector>

#include <spdlog/fmt/fmt.h>

namespace faultline::fabric {
namespace {

constexpr std::array<std::string_view, 3> kAlgorithms{"none", "dcqcn", "swift"};

Times times_of(std::vector<uint64_t> all_ns) {
  Times times;
  if (all_ns.empty()) return times;
  std::ranges::sort(all_ns);
  const auto at = [&](size_t percent) { return all_ns[(all_ns.size() - 1) * percent / 100]; };
  const uint64_t sum = std::accumulate(all_ns.begin(), all_ns.end(), uint64_t{0});
  times.mean_ns = static_cast<double>(sum) / static_cast<double>(all_ns.size());
  times.p50_ns = at(50);
  times.p99_ns = at(99);
  times.max_ns = all_ns.back();
  return times;
}

void add_flows(const World& world, Summary& summary) {
  std::vector<uint64_t> completion_ns;
  for (const Flow& flow : world.flows()) {
    if (flow.state == FlowState::failed) ++summary.flows_failed;
    if (flow.state == FlowState::done) completion_ns.push_back(flow.end_ns - flow.start_ns);
  }
  summary.flows = world.flows().size();
  summary.flows_done = completion_ns.size();
  summary.completion = times_of(std::move(completion_ns));
}

void add_hosts(const World& world, Summary& summary) {
  uint64_t receivers = 0;
  summary.host_least_gbps = 1e9;
  for (const auto& host : world.hosts()) {
    const transport::CoreCounters counters = host->core().counters();
    summary.retransmits += counters.retransmitted_packets;
    summary.timeouts += counters.timeouts;
    summary.cnps += counters.cnps_sent;
    if (host->received_bytes() == 0) continue;
    ++receivers;
    const double gbps = 8 * static_cast<double>(host->received_bytes()) / static_cast<double>(world.now_ns());
    summary.goodput_gbps += gbps;
    summary.host_least_gbps = std::min(summary.host_least_gbps, gbps);
    summary.host_most_gbps = std::max(summary.host_most_gbps, gbps);
  }
  if (receivers == 0)
    summary.host_least_gbps = 0;
  else
    summary.host_mean_gbps = summary.goodput_gbps / static_cast<double>(receivers);
}

void add_ports(const World& world, Summary& summary) {
  const Topology& topology = world.description().topology;
  const Channel* longest = nullptr;
  uint64_t used = 0;
  double sum_bytes = 0;
  for (const Channel& channel : world.fabric().channels()) {
    summary.paused_ns += ns_of(channel.paused_ps);
    if (topology.is_host(channel.from) || channel.sent_frames == 0) continue;
    ++used;
    sum_bytes += channel.lengths.mean_bytes();
    if (longest == nullptr || channel.lengths.mean_bytes() > longest->lengths.mean_bytes())
      longest = &channel;
  }
  if (longest == nullptr) return;
  summary.switch_ports_mean_bytes = sum_bytes / static_cast<double>(used);
  summary.longest_port = port_name(topology, *longest);
  summary.longest_mean_bytes = longest->lengths.mean_bytes();
  summary.longest_p99_bytes = longest->lengths.percentile_bytes(0.99);
  summary.longest_max_bytes = longest->lengths.most_bytes();
}

}  // namespace

std::string port_name(const Topology& topology, const Channel& channel) {
  return fmt::format("{}->{}", topology.nodes[channel.from].name, topology.nodes[channel.to].name);
}

Summary summarize(const World& world) {
  const Description& description = world.description();
  Summary summary;
  summary.seed = description.seed;
  summary.algorithm = kAlgorithms[static_cast<size_t>(description.congestion.algorithm)];
  summary.hosts = description.topology.hosts;
  summary.switches = description.topology.nodes.size() - description.topology.hosts;
  summary.links = description.topology.links.size();
  summary.connections = world.routes().size();
  summary.virtual_ns = world.now_ns();
  summary.rounds = world.rounds();
  summary.events = world.events();
  summary.fabric = world.fabric().counters();
  summary.frames_inside = world.fabric().frames_inside();
  summary.bytes_inside = world.fabric().bytes_inside();
  add_flows(world, summary);
  add_hosts(world, summary);
  add_ports(world, summary);
  return summary;
}

std::string text_of(const Summary& s) {
  const FabricCounters& f = s.fabric;
  std::string text = fmt::format(
      "fabric      {} hosts, {} switches, {} links; {} connections; congestion control: {}; seed {}\n"
      "time        {:.3f} ms of virtual time, {} events\n"
      "flows       {} started, {} done, {} failed\n",
      s.hosts, s.switches, s.links, s.connections, s.algorithm, s.seed,
      static_cast<double>(s.virtual_ns) / 1e6, s.events, s.flows, s.flows_done, s.flows_failed);
  text += fmt::format(
      "completion  mean {:.1f} us, median {:.1f} us, 99 % {:.1f} us, longest {:.1f} us\n"
      "goodput     {:.3f} Gb/s; a receiver: least {:.3f}, mean {:.3f}, most {:.3f} Gb/s\n",
      s.completion.mean_ns / 1e3, static_cast<double>(s.completion.p50_ns) / 1e3,
      static_cast<double>(s.completion.p99_ns) / 1e3, static_cast<double>(s.completion.max_ns) / 1e3,
      s.goodput_gbps, s.host_least_gbps, s.host_mean_gbps, s.host_most_gbps);
  if (s.rounds != 0) text += fmt::format("allreduce   {} rounds\n", s.rounds);
  text += fmt::format(
      "transport   {} packets sent again, {} timeouts, {} CNPs\n"
      "frames      {} sent, {} delivered, {} dropped, {} under way at the end\n"
      "drops       {} by full queues, {} by failed links, {} without a route\n"
      "congestion  {} marks, {} pauses, {:.3f} ms paused\n",
      s.retransmits, s.timeouts, s.cnps, f.injected_frames, f.delivered_frames, f.dropped_frames(),
      s.frames_inside, f.full_drops, f.failure_drops, f.no_route_drops, f.marks, f.pauses,
      static_cast<double>(s.paused_ns) / 1e6);
  if (!s.longest_port.empty())
    text += fmt::format(
        "queue       mean of switch ports {:.0f} bytes; longest at {}: mean {:.0f}, 99 % {}, most {} bytes\n",
        s.switch_ports_mean_bytes, s.longest_port, s.longest_mean_bytes, s.longest_p99_bytes,
        s.longest_max_bytes);
  return text;
}

nlohmann::ordered_json json_of(const Summary& s) {
  const FabricCounters& f = s.fabric;
  return {{"seed", s.seed},
          {"congestion", s.algorithm},
          {"hosts", s.hosts},
          {"switches", s.switches},
          {"links", s.links},
          {"connections", s.connections},
          {"virtual_ns", s.virtual_ns},
          {"events", s.events},
          {"flows", {{"started", s.flows}, {"done", s.flows_done}, {"failed", s.flows_failed}}},
          {"completion_ns",
           {{"mean", s.completion.mean_ns},
            {"p50", s.completion.p50_ns},
            {"p99", s.completion.p99_ns},
            {"max", s.completion.max_ns}}},
          {"rounds", s.rounds},
          {"goodput_gbps",
           {{"all", s.goodput_gbps},
            {"least", s.host_least_gbps},
            {"mean", s.host_mean_gbps},
            {"most", s.host_most_gbps}}},
          {"retransmits", s.retransmits},
          {"timeouts", s.timeouts},
          {"cnps", s.cnps},
          {"frames",
           {{"sent", f.injected_frames},
            {"delivered", f.delivered_frames},
            {"dropped", f.dropped_frames()},
            {"inside", s.frames_inside}}},
          {"bytes",
           {{"sent", f.injected_bytes},
            {"delivered", f.delivered_bytes},
            {"dropped", f.dropped_bytes},
            {"inside", s.bytes_inside}}},
          {"drops", {{"full", f.full_drops}, {"failure", f.failure_drops}, {"no_route", f.no_route_drops}}},
          {"marks", f.marks},
          {"pauses", f.pauses},
          {"paused_ns", s.paused_ns},
          {"switch_ports_mean_bytes", s.switch_ports_mean_bytes},
          {"longest_queue",
           {{"port", s.longest_port},
            {"mean_bytes", s.longest_mean_bytes},
            {"p99_bytes", s.longest_p99_bytes},
            {"max_bytes", s.longest_max_bytes}}}};
}

}  // namespace faultline::fabric
