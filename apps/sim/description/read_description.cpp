// SPDX-License-Identifier: BSD-3-Clause
#include "apps/sim/description/read_description.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <unordered_map>

#include <spdlog/fmt/fmt.h>

#include "apps/sim/description/read_congestion.hpp"
#include "apps/sim/description/read_topology.hpp"
#include "stack/toml/checked_table.hpp"

namespace faultline::fabric {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 40;
constexpr uint64_t kMostTimeNs = 1'000'000'000'000;
constexpr uint32_t kMostMessageBytes = 1U << 31;  // IBA 9.7.7.1.3 limits a message to 2^31 bytes
constexpr size_t kMostTraceRows = 50'000'000;

SwitchParameters read_switches(CheckedTable& root) {
  CheckedTable reader = root.table("switch");
  SwitchParameters switches;
  reader.read("queue_bytes", switches.queue_bytes, 10'000, kMostBytes);
  reader.read("buffer_bytes", switches.buffer_bytes, 10'000, kMostBytes);
  switches.marks = reader.has("kmin_bytes") || reader.has("kmax_bytes") || reader.has("pmax");
  reader.read("kmin_bytes", switches.kmin_bytes, 0, kMostBytes);
  reader.read("kmax_bytes", switches.kmax_bytes, 0, kMostBytes);
  switches.pmax = reader.ratio("pmax");
  if (switches.marks) {
    for (const char* key : {"kmin_bytes", "kmax_bytes", "pmax"})
      reader.require(key, "marks need kmin_bytes, kmax_bytes and pmax");
    if (switches.kmax_bytes < switches.kmin_bytes) reader.fail("kmax_bytes", "is below kmin_bytes");
  }
  switches.pauses = reader.has("pause_on_bytes") || reader.has("pause_off_bytes");
  reader.read("pause_on_bytes", switches.pause_on_bytes, 1, kMostBytes);
  reader.read("pause_off_bytes", switches.pause_off_bytes, 0, kMostBytes);
  if (switches.pauses) {
    for (const char* key : {"pause_on_bytes", "pause_off_bytes"})
      reader.require(key, "PFC needs pause_on_bytes and pause_off_bytes");
    if (switches.pause_off_bytes >= switches.pause_on_bytes)
      reader.fail("pause_off_bytes", "must be below pause_on_bytes");
  }
  reader.read("reroute_ns", switches.reroute_ns, 0, kMostTimeNs);
  reader.finish();
  return switches;
}

HostParameters read_host(CheckedTable& root) {
  CheckedTable reader = root.table("host");
  HostParameters host;
  constexpr std::array<uint32_t, 5> kMtus{256, 512, 1024, 2048, 4096};
  uint32_t mtu = 1024;
  reader.read("mtu", mtu, 256, 4096);
  const auto found = std::ranges::find(kMtus, mtu);
  if (found == kMtus.end()) reader.fail("mtu", "must be 256, 512, 1024, 2048 or 4096");
  host.mtu = static_cast<transport::PathMtu>(found - kMtus.begin() + 1);
  reader.read("nic_frames", host.nic_frames, 1, 4096);
  reader.read("turn_ns", host.turn_ns, 1, 1'000'000);
  reader.read("window_packets", host.window_packets, 1, 65'536);
  reader.read("timeout", host.timeout, 0, 31);
  reader.read("retry_count", host.retry_count, 0, 7);
  reader.read("selective_ack", host.selective_ack);
  reader.finish();
  return host;
}

void read_incast(CheckedTable& reader, const Topology& topology, TrafficParameters& traffic) {
  const uint32_t hosts = traffic.hosts == 0 ? topology.hosts : traffic.hosts;
  traffic.senders = hosts - 1;
  reader.read("senders", traffic.senders, 1, hosts - 1);
  const std::string receiver = reader.text("receiver");
  if (receiver.empty()) return;
  for (traffic.receiver = 0; traffic.receiver < hosts; ++traffic.receiver)
    if (topology.nodes[traffic.receiver].name == receiver) return;
  reader.fail("receiver", fmt::format("\"{}\" is none of the hosts that take part", receiver));
}

bool is_allreduce(PatternKind kind) {
  return kind == PatternKind::ring_allreduce || kind == PatternKind::tree_allreduce;
}

void read_pattern(CheckedTable& reader, const std::string& path, const Topology& topology,
                  TrafficParameters& traffic) {
  switch (traffic.pattern) {
    case PatternKind::incast:
      return read_incast(reader, topology, traffic);
    case PatternKind::tree_allreduce:
      reader.read("chunk_bytes", traffic.chunk_bytes, 1, kMostMessageBytes);
      return;
    case PatternKind::trace: {
      const std::string file = reader.required_text("trace", "flows.csv");
      const auto folder = std::filesystem::path(path).parent_path();
      traffic.trace = read_trace((folder / file).string(), topology);
      return;
    }
    case PatternKind::permutation:
    case PatternKind::all_to_all:
    case PatternKind::ring_allreduce:
      return;
  }
}

TrafficParameters read_traffic(CheckedTable& root, const std::string& path, const Topology& topology) {
  CheckedTable reader = root.table("traffic");
  TrafficParameters traffic;
  constexpr std::array<std::string_view, 6> kPatterns{"permutation",    "incast",         "all-to-all",
                                                      "ring-allreduce", "tree-allreduce", "trace"};
  traffic.pattern = static_cast<PatternKind>(reader.choice("pattern", kPatterns, -1));
  constexpr std::array<std::string_view, 4> kOperations{"write", "write_imm", "send", "read"};
  // An allreduce goes on when a message has arrived, which the receiver must notice.
  const bool notices = is_allreduce(traffic.pattern);
  if (notices) traffic.operation = Operation::write_imm;
  reader.read("operation", traffic.operation, kOperations);
  if (notices && (traffic.operation == Operation::write || traffic.operation == Operation::read))
    reader.fail("operation", "must be write_imm or send: the receiver of an allreduce sees each arrival");
  if (traffic.pattern != PatternKind::trace) {
    if (topology.hosts < 2) reader.fail("pattern", "needs two hosts or more");
    traffic.hosts = topology.hosts;
    reader.read("hosts", traffic.hosts, 2, topology.hosts);
    reader.read("message_bytes", traffic.message_bytes, 1, kMostMessageBytes);
    reader.read("messages", traffic.messages, 0, 1'000'000'000);
    reader.read("spread_ns", traffic.spread_ns, 0, kMostTimeNs);
  }
  reader.read("connections", traffic.connections, 1, 4096);
  reader.read("outstanding", traffic.outstanding, 1, 4096);
  read_pattern(reader, path, topology, traffic);
  reader.finish();
  return traffic;
}

/// Returns the rate of the fastest link of a host.
uint64_t host_bytes_per_s(const Topology& topology) {
  uint64_t fastest = 0;
  for (const Link& link : topology.links)
    if (topology.is_host(link.a) || topology.is_host(link.b)) fastest = std::max(fastest, link.bits_per_s);
  return fastest / 8;
}

CheckedFile checked(const std::string& path) {
  return {"faultline-sim", path, raise_as<DescriptionError>};
}

/// Takes the text up to the next comma, without blanks around it.
std::string_view take_field(std::string_view& line) {
  const size_t comma = line.find(',');
  std::string_view field = line.substr(0, comma);
  line = comma == std::string_view::npos ? std::string_view() : line.substr(comma + 1);
  while (field.starts_with(' ')) field.remove_prefix(1);
  while (field.ends_with(' ') || field.ends_with('\r')) field.remove_suffix(1);
  return field;
}

template <typename Number>
bool parse_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::vector<TraceRow> read_trace(const std::string& path, const Topology& topology) {
  std::ifstream file(path);
  if (!file) checked(path).fail(0, std::strerror(errno));
  std::unordered_map<std::string_view, uint32_t> hosts;
  for (uint32_t host = 0; host < topology.hosts; ++host) hosts.emplace(topology.nodes[host].name, host);
  std::vector<TraceRow> rows;
  std::string text;
  for (uint32_t number = 1; std::getline(file, text); ++number) {
    if (text.empty() || text[0] == '#') continue;
    const auto fail = [&](std::string_view message) { checked(path).fail(number, message); };
    std::string_view line = text;
    TraceRow row;
    if (!parse_number(take_field(line), row.start_ns) || row.start_ns > kMostTimeNs)
      fail("time_ns: must be a whole number; a row is time_ns,source,destination,bytes");
    for (uint32_t* const end : {&row.source, &row.destination}) {
      const std::string_view name = take_field(line);
      const auto found = hosts.find(name);
      if (found == hosts.end()) fail(fmt::format("\"{}\" is not a host", name));
      *end = found->second;
    }
    if (row.source == row.destination) fail("source and destination are the same host");
    if (!parse_number(take_field(line), row.bytes) || row.bytes == 0 || row.bytes > kMostMessageBytes)
      fail(fmt::format("bytes: must be a whole number from 1 to {}", kMostMessageBytes));
    if (!line.empty()) fail("has more than four fields; a row is time_ns,source,destination,bytes");
    rows.push_back(row);
    if (rows.size() > kMostTraceRows) fail(fmt::format("more than {} rows", kMostTraceRows));
  }
  std::ranges::stable_sort(rows, {}, &TraceRow::start_ns);
  return rows;
}

Description read_description(const std::string& path) {
  const CheckedFile file = checked(path);
  const toml::table table = file.parse();
  CheckedTable root(file, &table);
  Description description;
  root.read("seed", description.seed);
  root.read("duration_ns", description.duration_ns, 1, kMostTimeNs);
  root.read("sample_ns", description.sample_ns, 0, kMostTimeNs);
  description.topology = read_topology(root);
  description.failures = read_failures(root, description.topology);
  description.switches = read_switches(root);
  description.host = read_host(root);
  description.congestion = read_congestion(root, host_bytes_per_s(description.topology));
  description.traffic = read_traffic(root, path, description.topology);
  root.finish();
  return description;
}

}  // namespace faultline::fabric
