// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/plan/options.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "apps/command_line/command_line.hpp"

namespace faultline::perf {

namespace {

constexpr uint64_t kMaxMessageBytes = uint64_t{1} << 30;

const std::map<std::string, Op> kOps{{"write", Op::write},
                                     {"write_imm", Op::write_imm},
                                     {"read", Op::read},
                                     {"send", Op::send},
                                     {"ud_send", Op::ud_send}};
const std::map<std::string, Mode> kModes{{"bw", Mode::bandwidth}, {"lat", Mode::latency}};
const std::map<std::string, RegionKind> kRegions{{"pinned", RegionKind::pinned}, {"odp", RegionKind::odp}};
const std::map<std::string, Touch> kTouches{
    {"warm", Touch::warm}, {"cold", Touch::cold}, {"prefetch", Touch::prefetch}};

template <typename Value>
std::vector<std::string> names_of(const std::map<std::string, Value>& values) {
  std::vector<std::string> names;
  for (const auto& [name, value] : values) names.push_back(name);
  return names;
}

template <typename Value>
const char* key_of(const std::map<std::string, Value>& names, Value value) {
  for (const auto& [name, candidate] : names)
    if (candidate == value) return name.c_str();
  return "?";
}

[[noreturn]] void refuse(const std::string& line) {
  std::fprintf(stderr, "faultline-perf: %s\n", line.c_str());
  std::exit(2);
}

uint64_t parse_size(const std::string& text) {
  const std::optional<uint64_t> size_bytes = size_from(text);
  if (!size_bytes)
    refuse("--size: \"" + text +
           "\" is not a number of bytes from 1 to 1G (64, 4k, 1m, a list 64,4k or a sweep 64:64k)");
  return *size_bytes;
}

/// Parses "64", "64,4k,1m" or "64:64k" (each size twice the previous one).
std::vector<uint64_t> parse_sizes(const std::string& text) {
  std::vector<uint64_t> sizes;
  if (const size_t colon = text.find(':'); colon != std::string::npos) {
    const uint64_t last = parse_size(text.substr(colon + 1));
    for (uint64_t size = parse_size(text.substr(0, colon)); size <= last; size *= 2) sizes.push_back(size);
    if (sizes.empty()) refuse("--size: the sweep " + text + " is empty: the smaller size goes first");
    return sizes;
  }
  size_t start = 0;
  while (start <= text.size()) {
    const size_t comma = std::min(text.find(',', start), text.size());
    sizes.push_back(parse_size(text.substr(start, comma - start)));
    start = comma + 1;
  }
  return sizes;
}

/// Reports a mistake as one line with the program's name at its start.
void parse_or_exit(CommandLine& line, int argc, char** argv) {
  switch (line.parse(argc, argv)) {
    case CommandLine::Outcome::parsed:
      return;
    case CommandLine::Outcome::help:
      std::exit(line.report());
    case CommandLine::Outcome::mistake:
      refuse(line.mistake());
  }
}

void check(const Options& options) {
  if (options.demo || options.capabilities) return;
  if (int{options.server} + int{options.both} + int{!options.client_of.empty()} != 1)
    refuse(
        "say one of --server, --client HOST and --both (or --demo: two processes, joined in one run, no "
        "configuration needed)");
  if (options.server && options.test.interactive)
    refuse("-i goes with --client or --both: the client decides what runs");
  if (const std::string line = conflict_of(options.test); !line.empty()) refuse(line);
}

}  // namespace

const std::map<std::string, Op>& ops_by_name() {
  return kOps;
}
const std::map<std::string, Mode>& modes_by_name() {
  return kModes;
}
const std::map<std::string, RegionKind>& regions_by_name() {
  return kRegions;
}
const std::map<std::string, Touch>& touches_by_name() {
  return kTouches;
}

const char* name_of(Op op) {
  return key_of(kOps, op);
}
const char* name_of(Mode mode) {
  return key_of(kModes, mode);
}
const char* name_of(RegionKind kind) {
  return key_of(kRegions, kind);
}
const char* name_of(Touch touch) {
  return key_of(kTouches, touch);
}

std::optional<uint64_t> size_from(const std::string& text) {
  char* end = nullptr;
  uint64_t value = std::strtoull(text.c_str(), &end, 10);
  const uint64_t number = value;
  switch (*end) {
    case 'k':
    case 'K':
      value <<= 10;
      ++end;
      break;
    case 'm':
    case 'M':
      value <<= 20;
      ++end;
      break;
    case 'g':
    case 'G':
      value <<= 30;
      ++end;
      break;
    default:
      break;
  }
  const bool right = !text.empty() && text[0] >= '0' && text[0] <= '9' && *end == '\0';
  if (!right || number == 0 || number > kMaxMessageBytes || value > kMaxMessageBytes) return std::nullopt;
  return value;
}

std::string conflict_of(const TestOptions& test) {
  for (const Op op : test.ops) {
    if (op == Op::ud_send && test.mode == Mode::bandwidth && test.touch == Touch::cold)
      return "--touch cold does not go with ud_send: a datagram that waits for a page may be lost";
  }
  if (test.regions != std::vector{RegionKind::odp} && test.touch != Touch::warm)
    return "--touch cold and prefetch go with --region odp: pinned memory never faults";
  if (test.regions.size() > 2) return "--region: two kinds of memory take turns, not more";
  if (test.regions.size() == 2 &&
      (test.verify || test.iterations != 0 || test.idle_ms != 0 || test.interactive || test.limits))
    return "--region: two kinds of memory take turns by time, without --verify, --iters, --idle-ms, --limits "
           "and -i";
  if (test.interactive && (test.limits || !test.json_path.empty()))
    return "-i prints results of runs alone: leave out --json and --limits";
  const auto brings_bytes = [](Op op) { return op == Op::read; };
  if (test.mode == Mode::latency && test.verify &&
      (test.touch != Touch::cold || !std::all_of(test.ops.begin(), test.ops.end(), brings_bytes)))
    return "--mode lat compares bytes of cold reads alone: --verify goes with --op read --touch cold, or "
           "with "
           "--mode bw";
  if (test.idle_ms != 0 && (test.mode != Mode::latency || test.touch != Touch::warm ||
                            !std::all_of(test.ops.begin(), test.ops.end(),
                                         [](Op op) { return op == Op::write || op == Op::read; })))
    return "--idle-ms has the server's program asleep: it goes with --mode lat, --touch warm and --op write "
           "or "
           "read";
  if (test.mode == Mode::latency && test.qps != 1) return "--mode lat measures one QP: leave --qps at 1";
  return {};
}

Options parse_options(int argc, char** argv) {
  Options options;
  int split = 1;
  while (split < argc && std::strcmp(argv[split], "--") != 0) ++split;

  CommandLine device(
      "faultline-perf: measures RDMA on Faultline devices.\n"
      "  server: faultline-perf --config F --server\n"
      "  client: faultline-perf --config F --client HOST -- --op write --size 64\n"
      "What is measured is said behind \"--\"; `faultline-perf -- --help` lists it.");
  device.add("--demo", options.demo,
             "server and client in one run, joined by memif: no configuration needed");
  device.add("--server", options.server, "wait for a client and serve what it asks for");
  device.add("--both", options.both,
             "server and client in this process, on the configuration's first and second device");
  device.add("--client", options.client_of, "host of the server, for the TCP exchange");
  device.add("--config", options.config_path, "the devices (TOML); default $FAULTLINE_CONFIG");
  device.add("--device", options.device, "device of the configuration; default its first");
  device.add("--port", options.tcp_port, "TCP port of the exchange; 0 (server): any free one, printed");
  device.add("--listen", options.listen_address, "server: address to listen on; default any");
  device.add("--keep-serving", options.keep_serving, "server: take one client after another");
  device.add("--capabilities", options.capabilities,
             "print what on-demand paging does for each transport and operation");
  parse_or_exit(device, split, argv);

  TestOptions& test = options.test;
  CommandLine app("faultline-perf test options");
  std::string sizes = "64";
  std::vector<std::string> ops;
  std::vector<std::string> regions;
  std::string mode, touch;
  std::vector<std::string> mtus;
  for (const uint32_t mtu_bytes : kMtusBytes) mtus.push_back(std::to_string(mtu_bytes));
  app.add("--op", ops, "write, write_imm, read, send, ud_send; several as a list")
      .as_list()
      .one_of(names_of(kOps));
  app.add("--mode", mode, "bw or lat").one_of(names_of(kModes));
  app.add("--size", sizes, "message bytes: 64, 64,4k or a sweep 64:64k");
  app.add("--qps", test.qps, "queue pairs").in_range(1U, kMaxQps);
  app.add("--depth", test.depth,
          "messages under way per QP; default 128, of more than 4 KiB as many as hold 512 KiB, at least 8")
      .in_range(1U, kMaxDepth);
  app.add("--mtu", test.mtu_bytes, "path MTU").one_of(mtus);
  app.add("--ack-timeout", test.ack_timeout,
          "4.096 us * 2^N without an answer, then a packet is sent again; default 17, 0: never")
      .in_range(0U, unsigned{kMaxAckTimeout});
  app.add("--region", regions,
          "pinned or odp; both as a list: side by side in short turns, --seconds of each, and their ratio")
      .as_list()
      .one_of(names_of(kRegions));
  app.add("--touch", touch, "warm, cold or prefetch").one_of(names_of(kTouches));
  app.add("--idle-ms", test.idle_ms, "lat: time each message after so long without any, the server asleep")
      .in_range(1U, kMaxIdleMs);
  app.add("--verify", test.verify, "compare every byte");
  const auto seconds =
      app.add("--seconds", test.seconds, "length of each measurement").in_range(kMinSeconds, kMaxSeconds);
  app.add("--iters", test.iterations, "messages of each measurement, instead of --seconds");
  app.add("--json", test.json_path, "write the results to this file");
  app.add("--limits", test.limits, "measure the raw port and copy+CRC too and print the ratios");
  app.add("-i", test.interactive, "a prompt: help lists its commands");
  if (split < argc) parse_or_exit(app, argc - split, argv + split);
  test.seconds_given = seconds.count() != 0;
  if (!mode.empty()) test.mode = kModes.at(mode);
  if (!touch.empty()) test.touch = kTouches.at(touch);
  if (!ops.empty()) {
    test.ops.clear();
    for (const std::string& op : ops) test.ops.push_back(kOps.at(op));
  }
  if (!regions.empty()) {
    test.regions.clear();
    for (const std::string& region : regions) test.regions.push_back(kRegions.at(region));
  }
  test.sizes_bytes = parse_sizes(sizes);
  check(options);
  return options;
}

}  // namespace faultline::perf
