// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: any bytes as ARP, neighbour discovery and echo requests to a device with addresses of
// both kinds, in and out of a VLAN. What it answers must be sound, and its neighbour cache stays within its
// bounds.
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <vector>

#include "pmd_glue/link/address_table.hpp"
#include "pmd_glue/link/neighbours.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/fuzz_port.hpp"

namespace faultline::fuzz {
namespace {

struct Tally {
  ~Tally() { std::fprintf(stderr, "packets %llu\n", static_cast<unsigned long long>(packets)); }
  uint64_t packets = 0;
} tally;

/// In a block of exactly its length.
struct Exact {
  explicit Exact(std::span<const uint8_t> from) : bytes(new uint8_t[from.size() + 1]), size(from.size()) {
    std::copy(from.begin(), from.end(), bytes.get());
  }
  std::unique_ptr<uint8_t[]> bytes;
  size_t size;
  [[nodiscard]] std::span<uint8_t> span() { return {bytes.get(), size}; }
};

void run(FuzzInput& input) {
  const wire::MacAddress mac{{2, 0x46, 0x4c, 0, 0, 1}};
  const std::array<glue::IpNetwork, 2> addresses{*glue::parse_address("198.18.0.1/24"),
                                                 *glue::parse_address("2001:2::1/64")};
  wire::VlanTag vlan;
  const glue::AddressTable own(mac, vlan, addresses, {});
  glue::NeighbourCache cache(own);
  TimeNs now = 1;
  while (!input.empty()) {
    const uint8_t how = input.byte();
    now += uint64_t{input.byte()} << (how & 31);
    Exact frame(input.bytes(1 + input.below(300)));
    ++tally.packets;
    std::array<uint8_t, wire::kMaxLinkFrameBytes> reply{};
    size_t answered = 0;
    switch (how >> 6) {
      case 0:
        answered = cache.on_arp(frame.span(), now, reply);
        break;
      case 1: {
        wire::NeighbourMessage message;
        if (wire::parse_neighbour_message(frame.span(), message))
          answered = cache.on_neighbour_message(message, now, reply);
        break;
      }
      case 2: {
        const size_t bytes = wire::answer_echo(frame.span(), mac, own.gids());
        require(bytes <= frame.size, "an echo reply is no longer than the request");
        break;
      }
      default: {
        wire::Gid gid;
        const std::span<const uint8_t> bytes = frame.span();
        std::copy_n(bytes.begin(), std::min(bytes.size(), gid.bytes.size()), gid.bytes.begin());
        if ((how & 32) != 0) gid = wire::Gid::from_ipv4(0xc6120000U | gid.bytes[0]);
        cache.resolve(gid, now);
        wire::MacAddress neighbour;
        static_cast<void>(cache.lookup(gid, now, neighbour));
        bool ipv6 = false;
        for (int i = 0; i < 8 && cache.poll(now, reply, ipv6) != 0; ++i) {
        }
      }
    }
    require(answered <= reply.size(), "an answer fits its room");
  }
}

}  // namespace
}  // namespace faultline::fuzz

extern "C" [[gnu::visibility("default")]] int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  faultline::fuzz::FuzzInput input(data, bytes);
  faultline::fuzz::run(input);
  return 0;
}
