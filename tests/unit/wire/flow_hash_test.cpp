// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/link/flow_hash.hpp"

#include <array>

#include <gtest/gtest.h>

#include "tests/unit/wire/meaning.hpp"
#include "tests/unit/wire/reference_packet.hpp"

namespace faultline::wire::test::flow_hash_test {
namespace {

// Key and results of "Verifying the RSS Hash Calculation" (Microsoft, Windows Driver Kit).
constexpr std::array<uint8_t, 40> kKey{0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
                                       0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
                                       0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
                                       0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

struct Known {
  std::vector<uint8_t> tuple;  ///< source, destination, source port, destination port
  uint32_t by_addresses;
  uint32_t by_ports;
};

const std::array<Known, 4> kKnown{{
    {{66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6}, 0x323e8fc2, 0x51ccc178},
    {{199, 92, 111, 2, 65, 69, 140, 83, 0x37, 0x96, 0x12, 0x83}, 0xd718262a, 0xc626b0ea},
    {{24, 19, 198, 95, 12, 22, 207, 184, 0x32, 0x62, 0x94, 0x88}, 0xd2d0a5de, 0x5c2b394a},
    // 3ffe:2501:200:1fff::7 port 2794 to 3ffe:2501:200:3::1 port 1766
    {{0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0,    7,    0x3f, 0xfe,
      0x25, 0x01, 0x02, 0x00, 0,    3,    0,    0,    0, 0, 0, 0, 0, 1, 0x0a, 0xea, 0x06, 0xe6},
     0x2cc18cd5,
     0x40207d3d},
}};

TEST(FlowHash, IsThePublishedToeplitzHash) {
  for (const Known& known : kKnown) {
    const std::span<const uint8_t> all(known.tuple);
    EXPECT_EQ(toeplitz_hash(kKey, all), known.by_ports);
    EXPECT_EQ(toeplitz_hash(kKey, all.first(all.size() - 4)), known.by_addresses);
  }
}

// The key's bits end before the input's: no read beyond it.
TEST(FlowHash, TakesAShortKey) {
  EXPECT_EQ(toeplitz_hash({}, kKnown[0].tuple), 0U);
  EXPECT_EQ(toeplitz_hash(std::span(kKey).first(16), kKnown[0].tuple), 0x51ccc178U);
}

TEST(FlowHash, FindsAddressesAndPortsInAFrame) {
  for (const PathHeader& path : {ipv4_path(), ipv6_path(), with_vlan(ipv4_path()), with_vlan(ipv6_path())}) {
    const bool ipv6 = !path.source_gid.is_ipv4();
    const Frame frame = build(path, sample_fields(Opcode::rc_send_only), sample_payload(77));
    const size_t ip_at = path.has_vlan ? 18 : 14;
    const size_t at = ip_at + (ipv6 ? 8 : 12);
    const size_t address_bytes = ipv6 ? 32 : 8;
    const std::span<const uint8_t> bytes(frame);
    EXPECT_EQ(flow_hash(frame, kKey, true), toeplitz_hash(kKey, bytes.subspan(at, address_bytes + 4)));
    EXPECT_EQ(flow_hash(frame, kKey, false), toeplitz_hash(kKey, bytes.subspan(at, address_bytes)));
    EXPECT_FALSE(flow_hash(bytes.first(at + address_bytes + 3), kKey, true));
    EXPECT_FALSE(flow_hash(bytes.first(13), kKey, true));
  }
}

}  // namespace
}  // namespace faultline::wire::test::flow_hash_test
