// SPDX-License-Identifier: BSD-3-Clause
#include "apps/sim/report/write_files.hpp"

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace faultline::fabric {
namespace {

std::string_view name_of(FlowState state) {
  constexpr std::array<std::string_view, 4> kNames{"waiting", "posted", "done", "failed"};
  return kNames[static_cast<size_t>(state)];
}

double gbps_of(uint64_t bytes, TimeNs time_ns) {
  return time_ns == 0 ? 0 : 8 * static_cast<double>(bytes) / static_cast<double>(time_ns);
}

void write_flows(const World& world, const std::string& directory, FileFormat format) {
  const std::vector<Node>& nodes = world.description().topology.nodes;
  TableFile file(
      directory, "flows", format,
      {"source", "destination", "connection", "bytes", "start_ns", "end_ns", "retransmits", "state"});
  for (const Flow& flow : world.flows()) {
    const Route& route = world.routes()[flow.connection];
    file.row({nodes[route.source].name, nodes[route.destination].name, uint64_t{flow.connection},
              uint64_t{flow.bytes}, flow.start_ns, flow.end_ns == kNever ? Cell() : Cell(flow.end_ns),
              uint64_t{flow.retransmits}, std::string(name_of(flow.state))});
  }
  file.close();
}

void write_ports(const World& world, const std::string& directory, FileFormat format) {
  TableFile file(directory, "ports", format,
                 {"port", "sent_frames", "sent_bytes", "sent_gbps", "queue_mean_bytes", "queue_p99_bytes",
                  "queue_max_bytes", "marks", "drops", "lost", "pauses", "paused_ns"});
  for (const Channel& channel : world.fabric().channels())
    file.row({port_name(world.description().topology, channel), channel.sent_frames, channel.sent_bytes,
              gbps_of(channel.sent_bytes, world.now_ns()), channel.lengths.mean_bytes(),
              channel.lengths.percentile_bytes(0.99), channel.lengths.most_bytes(), channel.marked_frames,
              channel.dropped_frames, channel.lost_frames, channel.pauses, ns_of(channel.paused_ps)});
  file.close();
}

void write_hosts(const World& world, const std::string& directory, FileFormat format) {
  TableFile file(
      directory, "hosts", format,
      {"host", "received_bytes", "goodput_gbps", "tx_packets", "rx_packets", "retransmitted_packets",
       "timeouts", "probes_sent", "cnps_sent", "cnps_received", "pacing_waits"});
  for (size_t i = 0; i < world.hosts().size(); ++i) {
    const Host& host = *world.hosts()[i];
    const transport::CoreCounters counters = host.core().counters();
    file.row({world.description().topology.nodes[i].name, host.received_bytes(),
              gbps_of(host.received_bytes(), world.now_ns()), counters.tx_packets, counters.rx_packets,
              counters.retransmitted_packets, counters.timeouts, counters.probes_sent, counters.cnps_sent,
              counters.cnps_received, counters.pacing_waits});
  }
  file.close();
}

void write_queues(const World& world, const std::string& directory, FileFormat format) {
  TableFile file(directory, "queues", format, {"time_ns", "port", "bytes"});
  const std::span<const Channel> channels = world.fabric().channels();
  for (const QueueSample& sample : world.samples())
    file.row(
        {sample.time_ns, port_name(world.description().topology, channels[sample.channel]), sample.bytes});
  file.close();
}

void write_summary(const Summary& summary, const std::string& directory) {
  const std::string path = directory + "/summary.json";
  std::ofstream file(path, std::ios::trunc);
  file << json_of(summary).dump(2) << '\n';
  file.close();
  if (!file) throw std::system_error(errno, std::generic_category(), path);
}

}  // namespace

void write_files(const World& world, const Summary& summary, const std::string& directory,
                 FileFormat format) {
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed) throw std::system_error(failed, directory);
  write_flows(world, directory, format);
  write_ports(world, directory, format);
  write_hosts(world, directory, format);
  if (world.description().sample_ns != 0) write_queues(world, directory, format);
  write_summary(summary, directory);
}

}  // namespace faultline::fabric
