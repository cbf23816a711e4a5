// SPDX-License-Identifier: BSD-3-Clause
// Opens a device and does what it is told, for the tests in namespaces: leaves it to the progress thread for
// a while, resolves an address, measures the bare port. Prints its counters at the end.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <arpa/inet.h>

#include "stack/verbs/objects/backend.hpp"

namespace {

using namespace std::chrono_literals;
using namespace faultline;

volatile std::sig_atomic_t stop_requested = 0;

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
  double seconds = 0;
  size_t tx_bytes = 0;
  unsigned rx_milliseconds = 0;
  unsigned tx_milliseconds = 300;
  bool wait_for_link = false;
  CLI::App app("Hosts one device");
  app.add_option("--config", config)->required();
  app.add_option("--device", name)->required();
  app.add_flag("--wait-link", wait_for_link, "wait up to 10 s for the link");
  app.add_option("--resolve", addresses, "print the MAC address that frames to these addresses need");
  app.add_option("--measure-tx", tx_bytes, "send frames of so many bytes");
  app.add_option("--tx-ms", tx_milliseconds);
  app.add_option("--measure-rx", rx_milliseconds, "receive for so many milliseconds");
  app.add_option("--seconds", seconds, "then leave the device alone for so long, or until SIGTERM");
  CLI11_PARSE(app, argc, argv);

  std::signal(SIGTERM, [](int) { stop_requested = 1; });
  verbs::configure(config);
  std::string error;
  const auto device = verbs::open_device(name, error);
  if (device == nullptr) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 2;
  }
  std::printf("open %s path_mtu %u\n", name.c_str(), device->description().max_path_mtu_bytes);
  std::fflush(stdout);

  const auto started = std::chrono::steady_clock::now();
  if (wait_for_link) {
    while (!device->link_up() && std::chrono::steady_clock::now() - started < 10s)
      std::this_thread::sleep_for(1ms);
    std::printf("link %s\n", device->link_up() ? "up" : "down");
    std::fflush(stdout);
  }
  bool good = true;
  for (const std::string& address : addresses) good = resolve(*device, address) && good;
  if (tx_bytes != 0) std::printf("tx_mpps %.2f\n", device->measure_port_tx(tx_bytes, tx_milliseconds) / 1e6);
  if (rx_milliseconds != 0) std::printf("rx_mpps %.2f\n", device->measure_port_rx(rx_milliseconds) / 1e6);
  std::fflush(stdout);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (stop_requested == 0 && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(10ms);
  print_counters(*device);
  return good ? 0 : 1;
}
