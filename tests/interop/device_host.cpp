// SPDX-License-Identifier: BSD-3-Clause
// Opens a device, resolves addresses, sends and receives frames at the bare port, and then leaves the device
// to the progress thread until SIGTERM. Prints its counters at the end.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <unistd.h>

#include "apps/command_line/command_line.hpp"
#include "stack/verbs/objects/backend.hpp"

namespace {

using namespace std::chrono_literals;
using namespace faultline;

volatile std::sig_atomic_t stop_requested = 0;
volatile std::sig_atomic_t stop_sending_requested = 0;
constexpr unsigned kTurnMilliseconds = 20;

bool resolve(verbs::DeviceBackend& device, const std::string& text) {
  wire::Gid gid;
  in_addr address{};
  if (inet_pton(AF_INET, text.c_str(), &address) == 1)
    gid = wire::Gid::from_ipv4(ntohl(address.s_addr));
  else if (inet_pton(AF_INET6, text.c_str(), gid.bytes.data()) != 1)
    return false;
  wire::MacAddress mac;
  const int error = device.resolve(gid, mac);
  if (error != 0) {
    std::printf("resolve %s: %s\n", text.c_str(), std::strerror(error));
    return false;
  }
  const auto& b = mac.bytes;
  std::printf("resolve %s: %02x:%02x:%02x:%02x:%02x:%02x\n", text.c_str(), b[0], b[1], b[2], b[3], b[4],
              b[5]);
  return true;
}

/// Sends frames until SIGUSR1. The link may be down meanwhile.
void send(verbs::DeviceBackend& device, size_t bytes) {
  std::printf("sends\n");
  std::fflush(stdout);
  while (stop_sending_requested == 0 && stop_requested == 0)
    if (device.measure_port_tx(bytes, kTurnMilliseconds) < 0) std::this_thread::sleep_for(1ms);
  std::printf("sent %lu\n", device.port_counters().tx_frames);
  std::fflush(stdout);
}

/// Receives so many frames.
void receive(verbs::DeviceBackend& device, uint64_t frames) {
  bool is_first = true;
  const uint64_t before = device.port_counters().rx_frames;
  uint64_t received = 0;
  while (received < frames && stop_requested == 0) {
    if (device.measure_port_rx(kTurnMilliseconds) < 0) std::this_thread::sleep_for(1ms);
    received = device.port_counters().rx_frames - before;
    if (received == 0 || !is_first) continue;
    is_first = false;
    std::printf("receives\n");
    std::fflush(stdout);
  }
  std::printf("received %lu\n", received);
  std::fflush(stdout);
}

void print_counters(verbs::DeviceBackend& device) {
  const verbs::PortCounters c = device.port_counters();
  std::printf(
      "rx_frames %lu tx_frames %lu arp_in %lu arp_out %lu nd_in %lu nd_out %lu icmp_in %lu icmp_out %lu "
      "wrong_vlan %lu wrong_address %lu other_dropped %lu linearized %lu tx_dropped %lu\n",
      c.rx_frames, c.tx_frames, c.arp_in, c.arp_out, c.nd_in, c.nd_out, c.icmp_in, c.icmp_out, c.wrong_vlan,
      c.wrong_address, c.other_dropped, c.linearized_frames, c.tx_dropped);
}

}  // namespace

int main(int argc, char** argv) {
  std::string config;
  std::string name;
  std::vector<std::string> addresses;
  size_t sent_bytes = 0;
  uint64_t received_frames = 0;
  std::string awaited;
  bool wait_for_link = false;
  bool stays = false;
  CommandLine app("Hosts one device");
  app.add("--config", config).require();
  app.add("--device", name).require();
  app.add("--wait-link", wait_for_link, "wait for the link");
  app.add("--await", awaited, "leave the device alone until this file is there");
  app.add("--resolve", addresses, "print the MAC address that frames to these addresses need");
  app.add("--send", sent_bytes, "send frames of so many bytes until SIGUSR1");
  app.add("--receive", received_frames, "receive so many frames");
  app.add("--stay", stays, "then leave the device alone until SIGTERM");
  if (app.parse(argc, argv) != CommandLine::Outcome::parsed) return app.report();

  std::signal(SIGTERM, [](int) { stop_requested = 1; });
  std::signal(SIGUSR1, [](int) { stop_sending_requested = 1; });
  verbs::configure(config);
  std::string error;
  const auto device = verbs::open_device(name, error);
  if (device == nullptr) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 2;
  }
  std::printf("open %s path_mtu %u\n", name.c_str(), device->description().max_path_mtu_bytes);
  std::fflush(stdout);

  if (wait_for_link) {
    while (!device->link_up() && stop_requested == 0) std::this_thread::sleep_for(1ms);
    std::printf("link up\n");
    std::fflush(stdout);
  }
  while (!awaited.empty() && access(awaited.c_str(), F_OK) != 0 && stop_requested == 0)
    std::this_thread::sleep_for(1ms);
  bool good = true;
  for (const std::string& address : addresses) good = resolve(*device, address) && good;
  std::fflush(stdout);
  if (sent_bytes != 0) send(*device, sent_bytes);
  if (received_frames != 0) receive(*device, received_frames);
  while (stays && stop_requested == 0) std::this_thread::sleep_for(10ms);
  print_counters(*device);
  return good ? 0 : 1;
}
