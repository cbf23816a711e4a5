// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/prompt/show.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>

#include <arpa/inet.h>

namespace faultline::perf {

namespace {

using Counters = std::map<std::string, uint64_t>;

bool wants_all(const std::string& what, const Arguments& arguments) {
  if (arguments.empty()) return false;
  if (arguments.size() == 1 && arguments.front() == "all") return true;
  throw Mistake(what + ": \"" + arguments.front() + "\" is not known; it takes all or nothing");
}

void need_none(const std::string& what, const Arguments& arguments) {
  if (!arguments.empty())
    throw Mistake(what + ": \"" + arguments.front() + "\" is not known; it takes no argument");
}

void print_counter(const std::string& name, uint64_t value) {
  std::printf("  %-40s %llu\n", name.c_str(), static_cast<unsigned long long>(value));
}

/// Prints the counters whose names begin with `prefix`; those that are 0 only if `all`. Returns their number.
size_t print_counters(const Counters& counters, const std::string& prefix, bool all) {
  size_t printed = 0;
  for (const auto& [name, value] : counters) {
    if (!name.starts_with(prefix) || (value == 0 && !all)) continue;
    print_counter(name, value);
    ++printed;
  }
  return printed;
}

std::string text_of(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(AF_INET6, gid.raw, text, sizeof text) != nullptr ? text : "-";
}

const char* text_of(ibv_qp_state state) {
  switch (state) {
    case IBV_QPS_RESET:
      return "RESET";
    case IBV_QPS_INIT:
      return "INIT";
    case IBV_QPS_RTR:
      return "RTR";
    case IBV_QPS_RTS:
      return "RTS";
    case IBV_QPS_SQD:
      return "SQD";
    case IBV_QPS_SQE:
      return "SQE";
    case IBV_QPS_ERR:
      return "ERR";
    default:
      return "?";
  }
}

void show_qp(Bench& bench, const Arguments& arguments) {
  need_none("show qp", arguments);
  bench.need_run("show qp");
  const ClientRun& run = bench.run.run();
  const QpSet& qps = run.qps();
  const std::string peer = text_of(qps.remote_gid());
  std::printf("%8s %-4s %-5s %8s %-24s %11s %6s\n", "QP", "type", "state", "peer QP", "peer address",
              "outstanding", "depth");
  for (uint32_t i = 0; i < qps.count(); ++i) {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr initial{};
    if (const int error = ibv_query_qp(qps.qp(i), &attributes, IBV_QP_STATE | IBV_QP_DEST_QPN, &initial);
        error != 0)
      throw Mistake(std::string("show qp: ibv_query_qp: ") + std::strerror(error) +
                    "; stop, then start anew");
    const bool datagrams = initial.qp_type == IBV_QPT_UD;
    const uint32_t peer_qpn = datagrams ? qps.remote_qpn(i) : attributes.dest_qp_num;
    // A latency run has one message under way at most, and counts none.
    const bool counted = run.plan().mode == Mode::bandwidth;
    const std::string outstanding = counted ? std::to_string(run.outstanding(i)) : "-";
    std::printf("%8u %-4s %-5s %8u %-24s %11s %6u\n", qps.qp(i)->qp_num, datagrams ? "UD" : "RC",
                text_of(attributes.qp_state), peer_qpn, peer.c_str(), outstanding.c_str(), run.plan().depth);
  }
}

void print_region(const char* name, const Buffer& buffer) {
  std::printf("%-9s 0x%-16llx %12llu 0x%08x 0x%08x\n", name,
              static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(buffer.data())),
              static_cast<unsigned long long>(buffer.bytes()), buffer.lkey(), buffer.rkey());
  static_cast<void>(print_counters(buffer.counters(), "", false));
}

void show_mr(Bench& bench, const Arguments& arguments) {
  need_none("show mr", arguments);
  bench.need_run("show mr");
  const ClientRun& run = bench.run.run();
  std::printf("%-9s %-18s %12s %-10s %-10s\n", "region", "address", "bytes", "lkey", "rkey");
  print_region("messages", run.buffer());
  if (run.check_buffer() != nullptr) print_region("verify", *run.check_buffer());
}

void show_odp(Bench& bench, const Arguments& arguments) {
  const bool all = wants_all("show odp", arguments);
  if (print_counters(bench.session.device().counters(), "odp.", all) == 0)
    std::printf("  every odp counter is 0\n");
}

void show_port(Bench& bench, const Arguments& arguments) {
  const bool all = wants_all("show port", arguments);
  const PerfDevice& device = bench.session.device();
  ibv_port_attr port{};
  if (const int error = ibv_query_port(device.context(), kPort, &port); error != 0)
    throw Mistake(std::string("show port: ibv_query_port: ") + std::strerror(error) +
                  "; quit, then connect anew");
  std::printf("  %-40s %s\n", "device", ibv_get_device_name(device.context()->device));
  std::printf("  %-40s %s\n", "state", ibv_port_state_str(port.state));
  std::printf("  %-40s %s\n", "GID 0", text_of(device.gid()).c_str());
  std::printf("  %-40s %u\n", "largest MTU of the port, bytes", 128U << port.max_mtu);
  std::printf("  %-40s %u\n", "largest MTU of both ports, bytes", bench.session.max_mtu_bytes());
  static_cast<void>(print_counters(device.counters(), "port.", all));
}

void show_counters(Bench& bench, const Arguments& arguments) {
  const bool all = wants_all("show counters", arguments);
  std::string group;
  for (const auto& [name, value] : bench.session.device().counters()) {
    if (value == 0 && !all) continue;
    const std::string prefix = name.substr(0, name.find('.'));
    if (prefix != group) std::printf("%s\n", prefix.c_str());
    group = prefix;
    print_counter(name, value);
  }
}

void show_stats(Bench& bench, const Arguments& arguments) {
  need_none("show stats", arguments);
  if (bench.run.exists())
    print_counter("messages so far", bench.run.messages());
  else
    print_counter("messages of the last run", bench.last_messages);
  const Counters counters = bench.session.device().counters();
  for (const char* prefix : {"transport.", "drop.", "port."})
    static_cast<void>(print_counters(counters, prefix, false));
}

template <typename Number>
Number argument(const std::string& text, Number least, Number most, const char* what) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || !(number >= least && number <= most))
    throw Mistake("show rates: \"" + text + "\" is no " + what);
  return number;
}

void show_rates(Bench& bench, const Arguments& arguments) {
  if (arguments.size() > 2) throw Mistake("show rates: too many arguments; it takes [SECONDS] [COUNT]");
  const double seconds = arguments.empty() ? 1.0
                                           : argument(arguments[0], kMinSeconds, kMaxSeconds,
                                                      "interval; it takes 0.01 to 86400 seconds");
  const uint64_t count =
      arguments.size() < 2 ? 0 : argument(arguments[1], uint64_t{1}, UINT64_MAX, "count; it takes 1 or more");
  bench.need_run("show rates");
  const bool limited = bench.length.seconds > 0 || bench.length.iterations != 0;
  if (count == 0 && !bench.on_terminal && !limited)
    throw Mistake("show rates: without a terminal nothing ends them; give a count, such as show rates 1 10");
  const auto size_bytes = static_cast<double>(bench.run.run().plan().size_bytes);
  std::printf("%10s %14s %10s\n", "seconds", "messages/s", "GB/s");
  uint64_t messages = bench.run.messages();
  double at_s = monotonic_s();
  for (uint64_t shown = 0; count == 0 || shown < count; ++shown) {
    std::fflush(stdout);
    if (bench.run.wait(seconds, bench.on_terminal) != Woken::time) return;
    const uint64_t messages_now = bench.run.messages();
    const double now_s = monotonic_s();
    const double rate = static_cast<double>(messages_now - messages) / (now_s - at_s);
    std::printf("%10.2f %14.0f %10.3f\n", now_s - bench.run.began_s(), rate, rate * size_bytes / 1e9);
    messages = messages_now;
    at_s = now_s;
  }
}

void show_config(Bench& bench, const Arguments& arguments) {
  need_none("show config", arguments);
  const Settings now = settings_of(bench);
  for (const Setting& setting : settings())
    std::printf("  %-10s %s\n", setting.name, setting.get(now).c_str());
}

constexpr std::array kViews{
    View{"qp", "", "queue pairs of the run: state, peer, messages under way", false, show_qp},
    View{"mr", "", "memory regions of the run, and their counters that are not 0", false, show_mr},
    View{"odp", "[all]", "counters of on-demand paging that are not 0; all: every one", true, show_odp},
    View{"port", "[all]", "state of the port, and its counters that are not 0", true, show_port},
    View{"counters", "[all]", "every counter of the device that is not 0, by group", true, show_counters},
    View{"stats", "", "messages of the run; counters of transport, drops and port that are not 0", false,
         show_stats},
    View{"rates", "[SECONDS] [COUNT]", "rates of each interval, until COUNT, the run's end or Enter", false,
         show_rates},
    View{"config", "", "settings of the next run", false, show_config},
};

}  // namespace

std::span<const View> views() {
  return kViews;
}

const View* view_of(const std::string& name) {
  const auto found = std::ranges::find_if(kViews, [&](const View& view) { return view.name == name; });
  return found == kViews.end() ? nullptr : &*found;
}

Settings settings_of(const Bench& bench) {
  return {bench.session.options(), bench.length, bench.session.max_mtu_bytes()};
}

}  // namespace faultline::perf
