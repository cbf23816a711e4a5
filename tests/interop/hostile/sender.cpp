// SPDX-License-Identifier: BSD-3-Clause
// Sends hostile frames from a packet socket, the same ones for the same seed, and says as one line of JSON
// how many of each kind they were and under which counters the target has to have them.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <stdexcept>
#include <thread>

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <nlohmann/json.hpp>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "apps/command_line/command_line.hpp"
#include "tests/interop/hostile/attacks.hpp"

namespace faultline::hostile {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kBurst = 16;

/// A packet socket that only sends.
class Wire {
 public:
  explicit Wire(const std::string& interface) : socket_(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)) {
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
    ifreq request{};
    interface.copy(request.ifr_name, IFNAMSIZ - 1);
    if (socket_ < 0 || to.sll_ifindex == 0 ||
        bind(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0 ||
        ioctl(socket_, SIOCGIFHWADDR, &request) != 0)
      throw std::runtime_error("cannot send on " + interface);
    std::copy_n(reinterpret_cast<const uint8_t*>(request.ifr_hwaddr.sa_data), mac_.bytes.size(),
                mac_.bytes.begin());
  }
  ~Wire() { close(socket_); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  [[nodiscard]] const wire::MacAddress& mac() const { return mac_; }

  void send(std::vector<Bytes>& frames) {
    std::array<mmsghdr, kBurst> messages{};
    std::array<iovec, kBurst> pieces{};
    for (size_t i = 0; i < frames.size(); ++i) {
      pieces[i] = {frames[i].data(), frames[i].size()};
      messages[i].msg_hdr.msg_iov = &pieces[i];
      messages[i].msg_hdr.msg_iovlen = 1;
    }
    for (size_t sent = 0; sent < frames.size();) {
      const int taken = sendmmsg(socket_, &messages[sent], static_cast<unsigned>(frames.size() - sent), 0);
      if (taken > 0)
        sent += static_cast<size_t>(taken);
      else if (errno != ENOBUFS && errno != EAGAIN && errno != EINTR)
        throw std::runtime_error(std::string("sendmmsg: ") + std::strerror(errno) + ", frame of " +
                                 std::to_string(frames[sent].size()) + " bytes");
    }
    frames.clear();
  }

 private:
  int socket_;
  wire::MacAddress mac_;
};

/// Those of the kinds that were asked for, each as often as its weight.
std::vector<const Attacks::Kind*> urn_of(const std::vector<std::string>& wanted) {
  std::vector<const Attacks::Kind*> urn;
  for (const Attacks::Kind& kind : Attacks::kinds())
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), kind.name) != wanted.end())
      urn.insert(urn.end(), kind.weight, &kind);
  if (urn.empty()) throw std::runtime_error("no such kind");
  return urn;
}

struct Plan {
  std::string interface, facts;
  uint64_t count = 1000, seed = 1, rate = 20'000;
  std::vector<std::string> kinds;
};

void run(const Plan& plan) {
  Wire link(plan.interface);
  Facts facts = read_facts(plan.facts);
  facts.own.mac = link.mac();
  Attacks attacks(facts, plan.seed);
  const std::vector<const Attacks::Kind*> urn = urn_of(plan.kinds);
  std::map<std::string, uint64_t> sent, expected;
  std::vector<Bytes> burst;
  const Clock::time_point start = Clock::now();
  for (uint64_t number = 0; number < plan.count; ++number) {
    const Attacks::Kind& kind = *urn[attacks.random(urn.size())];
    std::string predicted;
    burst.push_back(attacks.make(kind, predicted));
    ++sent[kind.name];
    ++expected[predicted];
    if (burst.size() < kBurst && number + 1 != plan.count) continue;
    link.send(burst);
    if (plan.rate != 0)
      std::this_thread::sleep_until(start + std::chrono::nanoseconds(number * 1'000'000'000 / plan.rate));
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::cout << nlohmann::json{{"frames", plan.count},
                              {"seconds", seconds},
                              {"sent", sent},
                              {"expected", expected}}
                   .dump()
            << std::endl;
}

}  // namespace
}  // namespace faultline::hostile

int main(int argc, char** argv) {
  faultline::hostile::Plan plan;
  faultline::CommandLine app("Sends hostile frames");
  app.add("--interface", plan.interface).require();
  app.add("--facts", plan.facts, "whom to attack, as live_stream says it").require();
  app.add("--count", plan.count, "frames");
  app.add("--seed", plan.seed);
  app.add("--rate", plan.rate, "frames a second; 0: as fast as they go");
  app.add("--kind", plan.kinds, "only this one; may be repeated");
  if (app.parse(argc, argv) != faultline::CommandLine::Outcome::parsed) return app.report();
  try {
    faultline::hostile::run(plan);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
