// SPDX-License-Identifier: BSD-3-Clause
// Two devices of a configuration that talk to each other without end, every byte compared, while they are
// asked on stdin how they are:
//   live_stream CONFIG
// says one line of JSON first: what a spoofer who knows everything would know; then one for each line in:
//   report    rounds and seconds so far, the first device's counters, the process's memory, ...
//   connect   makes and ends a connection through the connection manager
//   resume    uses the QP pair that has been idle since the start
//   quit
// A wrong byte, or silence, is a line that begins with WRONG, and exit status 1.
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>

#include <arpa/inet.h>
#include <malloc.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <unistd.h>

#include "stack/wire/link/link.hpp"
#include "tests/interop/hostile/connections.hpp"
#include "tests/interop/hostile/flow.hpp"

namespace faultline::hostile {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

std::string text_of(const wire::MacAddress& mac) {
  std::array<char, 18> text{};
  std::snprintf(text.data(), text.size(), "%02x:%02x:%02x:%02x:%02x:%02x", mac.bytes[0], mac.bytes[1],
                mac.bytes[2], mac.bytes[3], mac.bytes[4], mac.bytes[5]);
  return text.data();
}

std::string text_of(const wire::Gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(AF_INET6, gid.bytes.data(), text.data(), text.size());
  return text.data();
}

json facts_of(verbs::DeviceBackend& device) {
  const verbs::DeviceDescription& description = device.description();
  return {{"mac", text_of(description.mac)},
          {"ipv4", text_of(description.gids[0])},
          {"ipv6", text_of(description.gids[1])},
          {"guid", wire::eui64(description.mac)}};
}

/// `here`: at the device that is attacked. The memory is what the peer's requests may reach.
json facts_of(const char* name, const End& here, const End& there, const Memory* memory) {
  json facts{{"name", name},
             {"service", here.type == IBV_QPT_RC   ? "rc"
                         : here.type == IBV_QPT_UC ? "uc"
                                                   : "ud"},
             {"qpn", here.qp->qp_num},
             {"peer_qpn", there.qp->qp_num},
             {"request_psn", there.psn},
             {"answer_psn", here.psn}};
  if (memory != nullptr) {
    facts["rkey"] = memory->region->rkey;
    facts["va"] = reinterpret_cast<uint64_t>(memory->bytes.data());
    facts["bytes"] = memory->bytes.size();
  }
  return facts;
}

json counters_of(const Side& side) {
  std::array<faultline_counter, 1024> counters;
  const int count = faultline_query_counters(side.context, counters.data(), counters.size());
  json all = json::object();
  for (int i = 0; i < count; ++i)
    all[counters[static_cast<size_t>(i)].name] = counters[static_cast<size_t>(i)].value;
  return all;
}

/// What all of the process's threads have of the allocator.
uint64_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

std::shared_ptr<verbs::DeviceBackend> open(const char* name) {
  std::string error;
  std::shared_ptr<verbs::DeviceBackend> device = verbs::open_device(name, error);
  if (device == nullptr) wrong("open", error.c_str());
  return device;
}

class Stream {
 public:
  explicit Stream(const std::string& config)
      : attacked_("attacked", config, 0),
        peer_("peer", "", 1),
        attacked_device_(open(ibv_get_device_name(attacked_.context->device))),
        peer_device_(open(ibv_get_device_name(peer_.context->device))),
        asks_("asks", attacked_, peer_),
        serves_("serves", peer_, attacked_),
        idle_("idle", peer_, attacked_),
        victim_("victim", peer_, attacked_),
        messages_("messages", peer_, attacked_, IBV_QPT_UC),
        datagrams_("datagrams", peer_, attacked_, IBV_QPT_UD),
        connections_(attacked_device_, peer_device_) {}

  [[nodiscard]] json facts() {
    json facts{{"target", facts_of(*attacked_device_)}, {"peer", facts_of(*peer_device_)}};
    facts["pid"] = getpid();
    facts["qkey"] = datagrams_.qkey();
    facts["services"] = {kSlowService, kQuickService};
    facts["qps"] = {facts_of("asks", asks_.requester, asks_.responder, nullptr),
                    facts_of("serves", serves_.responder, serves_.requester, &serves_.target),
                    facts_of("idle", idle_.responder, idle_.requester, &idle_.target),
                    facts_of("victim", victim_.responder, victim_.requester, &victim_.target),
                    facts_of("messages", messages_.receiver, messages_.sender, nullptr),
                    facts_of("datagrams", datagrams_.receiver, datagrams_.sender, nullptr)};
    return facts;
  }

  void round() {
    asks_.round();
    serves_.round();
    messages_.round();
    datagrams_.round();
    ++rounds_;
  }

  [[nodiscard]] json report() {
    const cm::ManagerCounters cm = connections_.counters();
    json drops = json::object();
    for (size_t i = 0; i < cm.drops.size(); ++i)
      drops[std::string(cm::name_of(static_cast<cm::DropReason>(i)))] = cm.drops[i];
    uint64_t malformed = 0;
    for (const uint64_t count : cm.mad_errors) malformed += count;
    return {{"rounds", rounds_},
            {"seconds", std::chrono::duration<double>(Clock::now() - start_).count()},
            {"messages", {{"sent", messages_.sent}, {"received", messages_.received}}},
            {"datagrams", {{"sent", datagrams_.sent}, {"received", datagrams_.received}}},
            {"target", counters_of(attacked_)},
            {"peer_tx_frames", peer_.counter("port.tx_frames")},
            {"cm",
             {{"received", cm.received},
              {"sent", cm.sent},
              {"malformed", malformed},
              {"drops", drops},
              {"overruns", connections_.overruns()},
              {"held", connections_.held()},
              {"most_held", connections_.most_held()}}},
            {"victim", victim_.responder.state() == IBV_QPS_ERR ? "error" : "alive"},
            {"heap_bytes", heap_bytes()}};
  }

  /// False at the end.
  bool obey(const std::string& line) {
    if (line == "quit") return false;
    json answer;
    if (line == "report") {
      answer = report();
    } else if (line == "connect") {
      answer = {{"connected", connections_.try_once()}};
    } else if (line == "resume") {
      idle_.round();
      answer = {{"resumed", true}};
    } else {
      wrong("command", line.c_str());
    }
    std::cout << answer.dump() << std::endl;
    return true;
  }

 private:
  Side attacked_, peer_;
  std::shared_ptr<verbs::DeviceBackend> attacked_device_, peer_device_;
  ReliableFlow asks_, serves_, idle_, victim_;
  UnreliableFlow messages_, datagrams_;
  Connections connections_;
  uint64_t rounds_ = 0;
  const Clock::time_point start_ = Clock::now();
};

int run(const std::string& config) {
  Stream stream(config);
  std::cout << stream.facts().dump() << std::endl;
  for (;;) {
    stream.round();
    pollfd in{STDIN_FILENO, POLLIN, 0};
    if (poll(&in, 1, 0) == 0) continue;
    std::string line;
    if (!std::getline(std::cin, line) || !stream.obey(line)) return 0;
  }
}

}  // namespace
}  // namespace faultline::hostile

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "live_stream CONFIG\n");
    return 2;
  }
  return faultline::hostile::run(argv[1]);
}
