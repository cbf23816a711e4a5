// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/plan/options.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include <CLI/CLI.hpp>

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

/// Reports CLI11's errors as one line with the program's name at its start.
void parse_or_exit(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    std::exit(0);
  } catch (const CLI::ParseError& error) {
    std::string line = error.what();
    std::replace(line.begin(), line.end(), '\n', ' ');
    refuse(line);
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

  CLI::App device(
      "faultline-perf: measures RDMA on Faultline devices.\n"
      "  server: faultline-perf --config F --server\n"
      "  client: faultline-perf --config F --client HOST -- --op write --size 64\n"
      "What is measured is said behind \"--\"; `faultline-perf -- --help` lists it.");
  device.add_flag("--demo", options.demo,
                  "server and client in one run, joined by memif: no configuration needed");
  device.add_flag("--server", options.server, "wait for a client and serve what it asks for");
  device.add_flag("--both", options.both,
                  "server and client in this process, on the configuration's first and second device");
  device.add_option("--client", options.client_of, "host of the server, for the TCP exchange");
  device.add_option("--config", options.config_path, "the devices (TOML); default $FAULTLINE_CONFIG");
  device.add_option("--device", options.device, "device of the configuration; default its first");
  device.add_option("--port", options.tcp_port,
                    "TCP port of the exchange; 0 (server): any free one, printed");
  device.add_option("--listen", options.listen_address, "server: address to listen on; default any");
  device.add_flag("--keep-serving", options.keep_serving, "server: take one client after another");
  device.add_flag("--capabilities", options.capabilities,
                  "print what on-demand paging does for each transport and operation");
  parse_or_exit(device, split, argv);

  TestOptions& test = options.test;
  CLI::App app("faultline-perf test options");
  std::string sizes = "64";
  std::vector<std::string> ops;
  std::vector<std::string> regions;
  app.add_option("--op", ops, "write, write_imm, read, send, ud_send; several as a list")
      ->delimiter(',')
      ->check(CLI::IsMember(kOps));
  // Their own description has the numbers of the enumerators as characters, and 0 would end the help.
  const auto modes = CLI::Transformer(kModes).description("");
  const auto touches = CLI::Transformer(kTouches).description("");
  app.add_option("--mode", test.mode, "bw or lat")->transform(modes);
  app.add_option("--size", sizes, "message bytes: 64, 64,4k or a sweep 64:64k");
  app.add_option("--qps", test.qps, "queue pairs")->check(CLI::Range(1U, kMaxQps));
  app.add_option(
         "--depth", test.depth,
         "messages under way per QP; default 128, of more than 4 KiB as many as hold 512 KiB, at least 8")
      ->check(CLI::Range(1U, kMaxDepth));
  app.add_option("--mtu", test.mtu_bytes, "path MTU")
      ->check(CLI::IsMember(std::vector<uint32_t>(kMtusBytes.begin(), kMtusBytes.end())));
  app.add_option("--ack-timeout", test.ack_timeout,
                 "4.096 us * 2^N without an answer, then a packet is sent again; default 17, 0: never")
      ->check(CLI::Range(0U, unsigned{kMaxAckTimeout}));
  app.add_option(
         "--region", regions,
         "pinned or odp; both as a list: side by side in short turns, --seconds of each, and their ratio")
      ->delimiter(',')
      ->check(CLI::IsMember(kRegions));
  app.add_option("--touch", test.touch, "warm, cold or prefetch")->transform(touches);
  app.add_option("--idle-ms", test.idle_ms,
                 "lat: time each message after so long without any, the server asleep")
      ->check(CLI::Range(1U, kMaxIdleMs));
  app.add_flag("--verify", test.verify, "compare every byte");
  app.add_option("--seconds", test.seconds, "length of each measurement")
      ->check(CLI::Range(kMinSeconds, kMaxSeconds));
  app.add_option("--iters", test.iterations, "messages of each measurement, instead of --seconds");
  app.add_option("--json", test.json_path, "write the results to this file");
  app.add_flag("--limits", test.limits, "measure the raw port and copy+CRC too and print the ratios");
  app.add_flag("-i", test.interactive, "a prompt: help lists its commands");
  if (split < argc) parse_or_exit(app, argc - split, argv + split);
  test.seconds_given = app.count("--seconds") != 0;
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
