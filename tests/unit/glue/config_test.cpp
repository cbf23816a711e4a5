// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/config/config.hpp"

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <spdlog/fmt/fmt.h>

#include "pmd_glue/config/port_kinds.hpp"
#include "pmd_glue/config/wire_config.hpp"
#include "tests/unit/glue/config_texts.hpp"

namespace faultline::glue::config_test {
namespace {

TEST(Config, TakesDefaultsForAllThatIsOptional) {
  const Config config = parse_config(kDevice, "f.toml");
  EXPECT_FALSE(config.eal.huge_pages);
  EXPECT_EQ(config.eal.memory_mib, 256U);
  EXPECT_EQ(config.domain.pin_budget_bytes, uint64_t{1} << 30);
  EXPECT_EQ(config.core.park_deadline_ns, 2'000'000U);
  EXPECT_FALSE(config.domain.allow_unguarded);
  EXPECT_FALSE(config.domain.refuse_unpinned_classic);
  EXPECT_EQ(config.log_level, "warn");
  EXPECT_EQ(config.log_file, "");
  ASSERT_EQ(config.devices.size(), 1U);
  const DeviceConfig& device = config.devices[0];
  ASSERT_EQ(device.addresses.size(), 1U);
  EXPECT_EQ(device.addresses[0], (IpNetwork{wire::Gid::from_ipv4(0xc6120001), 96 + 24}));
  EXPECT_TRUE(device.routes.empty());
  EXPECT_FALSE(vlan_tag_of(device).present);
  EXPECT_EQ(device.dscp, 0U);
  EXPECT_EQ(device.mac, (wire::MacAddress{{0x02, 0x46, 198, 18, 0, 1}}));
  EXPECT_FALSE(device.mtu_bytes.has_value());
  EXPECT_EQ(device.device_memory_bytes, 1U << 20);
  EXPECT_EQ(device.progress, Progress::automatic);
  EXPECT_EQ(core_count_of(device), 1U);
  EXPECT_TRUE(device.chaos.harmless());
  EXPECT_TRUE(device.port.is_server);
  EXPECT_EQ(device.port.ring_size, 1024U);
}

TEST(Config, ReadsEveryKey) {
  const Config config = parse_config(R"(
[eal]
huge_pages = true
memory_mib = 512
lcores = "0"
extra_args = ["--log-level=debug"]
[odp]
pin_budget_mib = 2
monitor = false
allow_unguarded = true
unpinned_classic = "refuse"
realtime_pager = false
park_deadline_us = 3
answer_deadline_us = 9
unreliable_deadline_us = 11
stall = "rnr"
pager_threads = 2
implicit_children = 100
watch_files = false
park_packets_per_qp = 4
park_packets_total = 5
rnr_timer_code = 6
[transport]
window_packets = 7
ack_every_packets = 8
udp_checksum = true
selective_ack = false
early_probe = false
credits = false
rxe_flush_icrc = true
icrc = true
reorder_packets_per_qp = 9
[transport.congestion]
algorithm = "dcqcn"
cnp_interval_us = 10
[transport.congestion.dcqcn]
gain_divisor = 16
additive_mbit_per_s = 80
[transport.congestion.swift]
target_delay_us = 11
scaling_range_us = 12
beta_percent = 70
min_mbit_per_s = 2
[log]
level = "debug"
file = "run-%p.log"
[[device]]
name = "a"
ip = ["2001:2::1/64", "198.18.0.8/24"]
gateway = ["198.18.0.254", "fe80::1"]
vlan = 100
vlan_priority = 3
dscp = 26
mac = "02:46:4C:00:00:0a"
mtu = 1500
progress = "dedicated"
lcore = 0
vendor_id = 1
vendor_part_id = 2
firmware = "16.35.1"
device_memory_kib = 3
min_ack_timeout_ms = 500
capture = "x.pcapng"
[device.port]
kind = "ring"
wire = "w0"
side = "b"
[[device.route]]
to = "198.19.0.0/16"
via = "198.18.0.253"
[device.chaos]
loss = 0.01
reorder = 0.02
duplicate = 0.03
corrupt = 1
ecn_mark = 0.5
delay_us = 100
delay_jitter_us = 20
fault_delay_us = 30
fault_failure = 0.25
direction = "rx"
seed = 99
[[device]]
name = "b"
ip = "198.18.0.9"
[device.port]
kind = "pci"
address = "0000:3b:00.1,vectorized=1,speed=10"
)",
                                     "f.toml");
  EXPECT_TRUE(config.eal.huge_pages);
  EXPECT_EQ(config.eal.lcores, std::vector<unsigned>{0});
  EXPECT_EQ(config.eal.extra_args, std::vector<std::string>{"--log-level=debug"});
  EXPECT_EQ(config.log_level, "debug");
  EXPECT_EQ(config.log_file, "run-%p.log");
  EXPECT_EQ(config.domain.pin_budget_bytes, uint64_t{2} << 20);
  EXPECT_FALSE(config.domain.monitor_invalidations);
  EXPECT_TRUE(config.domain.allow_unguarded);
  EXPECT_TRUE(config.domain.refuse_unpinned_classic);
  EXPECT_FALSE(config.domain.realtime_pager);
  EXPECT_EQ(config.core.park_deadline_ns, 3000U);
  EXPECT_EQ(config.core.answer_deadline_ns, 9000U);
  EXPECT_EQ(config.core.unreliable_deadline_ns, 11'000U);
  EXPECT_EQ(config.core.stall, transport::Stall::rnr);
  EXPECT_EQ(config.domain.pager_threads, 2U);
  EXPECT_EQ(config.domain.implicit_children, 100U);
  EXPECT_FALSE(config.domain.userfault_async);
  EXPECT_EQ(config.core.park_packets_per_qp, 4U);
  EXPECT_EQ(config.core.park_packets_total, 5U);
  EXPECT_EQ(config.core.fault_rnr_timer, 6U);
  EXPECT_EQ(config.core.window_packets, 7U);
  EXPECT_EQ(config.core.ack_every_packets, 8U);
  EXPECT_TRUE(config.udp_checksum);
  EXPECT_FALSE(config.core.selective_ack);
  EXPECT_FALSE(config.core.early_probe);
  EXPECT_FALSE(config.core.credits);
  EXPECT_TRUE(config.core.rxe_flush_icrc);
  EXPECT_TRUE(config.icrc);
  EXPECT_EQ(config.core.reorder_packets_per_qp, 9U);
  const transport::CongestionConfig& congestion = config.core.congestion;
  EXPECT_EQ(congestion.algorithm, transport::CongestionAlgorithm::dcqcn);
  EXPECT_EQ(congestion.cnp_interval_ns, 10'000U);
  EXPECT_DOUBLE_EQ(congestion.dcqcn.gain, 1.0 / 16);
  EXPECT_EQ(congestion.dcqcn.additive_bytes_per_s, 10'000'000U);
  EXPECT_EQ(congestion.dcqcn.increase_timer_ns, 55'000U);
  EXPECT_EQ(congestion.swift.target_delay_ns, 11'000U);
  EXPECT_EQ(congestion.swift.scaling_range_ns, 12'000U);
  EXPECT_DOUBLE_EQ(congestion.swift.beta, 0.7);
  EXPECT_EQ(congestion.swift.min_bytes_per_s, 250'000U);
  const DeviceConfig& a = config.devices[0];
  ASSERT_EQ(a.addresses.size(), 2U);
  EXPECT_FALSE(a.addresses[0].gid.is_ipv4());
  EXPECT_EQ(a.addresses[0].prefix_bits, 64);
  EXPECT_EQ(a.addresses[1], (IpNetwork{wire::Gid::from_ipv4(0xc6120008), 96 + 24}));
  ASSERT_EQ(a.routes.size(), 3U);
  EXPECT_EQ(a.routes[0], (Route{*parse_network("0.0.0.0/0"), wire::Gid::from_ipv4(0xc61200fe)}));
  EXPECT_EQ(a.routes[1].to, *parse_network("::/0"));
  EXPECT_EQ(a.routes[2], (Route{*parse_network("198.19.0.0/16"), wire::Gid::from_ipv4(0xc61200fd)}));
  EXPECT_TRUE(vlan_tag_of(a).present);
  EXPECT_EQ(vlan_tag_of(a).tci, 3 << 13 | 100);
  EXPECT_EQ(a.dscp, 26);
  EXPECT_EQ(a.min_ack_timeout_ns, 500'000'000U);
  EXPECT_FALSE(a.chaos.harmless());
  EXPECT_EQ(a.chaos.link.loss, 0.01);
  EXPECT_EQ(a.chaos.link.reorder, 0.02);
  EXPECT_EQ(a.chaos.link.duplicate, 0.03);
  EXPECT_EQ(a.chaos.link.corrupt, 1);
  EXPECT_EQ(a.chaos.link.ecn_mark, 0.5);
  EXPECT_EQ(a.chaos.link.delay_ns, 100'000U);
  EXPECT_EQ(a.chaos.link.delay_jitter_ns, 20'000U);
  EXPECT_EQ(a.chaos.link.seed, 99U);
  EXPECT_EQ(a.chaos.faults.delay_ns, 30'000U);
  EXPECT_EQ(a.chaos.faults.failure, 0.25);
  EXPECT_EQ(a.chaos.faults.seed, 99U);
  EXPECT_TRUE(a.chaos.receive);
  EXPECT_FALSE(a.chaos.transmit);
  EXPECT_EQ(a.mac.bytes[5], 0x0a);
  EXPECT_EQ(a.mtu_bytes, 1500U);
  EXPECT_EQ(a.progress, Progress::dedicated);
  EXPECT_EQ(a.lcores, std::vector<unsigned>{0});
  EXPECT_EQ(core_count_of(a), 1U);
  EXPECT_EQ(a.vendor_part_id, 2U);
  EXPECT_EQ(a.firmware, "16.35.1");
  EXPECT_EQ(a.device_memory_bytes, 3U << 10);
  EXPECT_EQ(a.capture, "x.pcapng");
  EXPECT_TRUE(a.port.side_b);
  EXPECT_EQ(config.devices[1].port.address, "0000:3b:00.1,vectorized=1,speed=10");
}

struct Mistake {
  std::string text;
  std::string line;  ///< the whole error
};

class ConfigMistake : public testing::TestWithParam<Mistake> {};

TEST(Config, TheIcrcCanBeLeftOutBetweenProcessesOfOneMachine) {
  const Config config = parse_config(
      "[transport]\nicrc = false\n[[device]]\nname = \"d\"\nip = \"198.18.0.1\"\n[device.port]\n"
      "kind = \"ring\"\nwire = \"w0\"\nside = \"a\"\n",
      "f.toml");
  EXPECT_FALSE(config.icrc);
  EXPECT_TRUE(parse_config(kDevice, "f.toml").icrc);
}

TEST_P(ConfigMistake, IsOneLineThatNamesThePlaceTheKeyAndWhatWouldBeRight) {
  EXPECT_EQ(error_of(GetParam().text), "faultline: f.toml:" + GetParam().line);
}

INSTANTIATE_TEST_SUITE_P(
    Root, ConfigMistake,
    testing::Values(
        Mistake{"", "1: device: is missing; add at least one [[device]]"},
        Mistake{"device = 3", "1: device: must be written as [[device]]"},
        Mistake{std::string(kDevice) + "\n[odpp]\n", "9: odpp: unknown key; did you mean \"odp\"?"},
        Mistake{"eal = 1", "1: eal: must be a table, [eal]"},
        Mistake{"[eal]\nhuge_pages = 1\n", "2: eal.huge_pages: must be true or false"},
        Mistake{"[eal]\nmemory_mib = 1\n", "2: eal.memory_mib: must be a whole number from 64 to 1048576"},
        Mistake{"[eal]\nmemory_mib = \"256\"\n",
                "2: eal.memory_mib: must be a whole number from 64 to 1048576"},
        Mistake{"[eal]\nlcores = \"0-\"\n",
                "2: eal.lcores: \"0-\" is not a list of CPUs such as \"0-1\" or \"0,2\""},
        Mistake{"[eal]\nlcores = \"3-1\"\n",
                "2: eal.lcores: \"3-1\" is not a list of CPUs such as \"0-1\" or \"0,2\""},
        Mistake{"[eal]\nlcores = \"1023\"\n", "2: eal.lcores: this process may not run on CPU 1023"},
        Mistake{"[eal]\nextra_args = [1]\n", "2: eal.extra_args: must be a list of strings"},
        Mistake{"[eal]\nmemory = 1\n", "2: eal.memory: unknown key; did you mean \"memory_mib\"?"},
        Mistake{"[odp]\nrnr_timer_code = 32\n", "2: odp.rnr_timer_code: must be a whole number from 0 to 31"},
        Mistake{"[odp]\npark_packets_per_qp = -1\n",
                "2: odp.park_packets_per_qp: must be a whole number from 0 to 4096"},
        Mistake{"[odp]\nmonitor = \"yes\"\n", "2: odp.monitor: must be true or false"},
        Mistake{"[transport]\nwindow_packets = 0\n",
                "2: transport.window_packets: must be a whole number from 1 to 65536"},
        Mistake{"[transport]\nudp_checksum = 0\n", "2: transport.udp_checksum: must be true or false"},
        Mistake{"[transport]\nicrc = 0\n", "2: transport.icrc: must be true or false"},
        Mistake{
            "[transport]\nicrc = false\n[[device]]\nname = \"d\"\nip = \"198.18.0.1\"\n[device.port]\n"
            "kind = \"af_packet\"\ninterface = \"veth0\"\n",
            "2: transport.icrc: false only goes with ports of kind memif and ring, and d is on af_packet"},
        Mistake{"[transport]\nicrc = false\n[[device]]\nname = \"d\"\nip = \"198.18.0.1\"\n[device.port]\n"
                "kind = \"ring\"\nwire = \"w0\"\nside = \"a\"\n[device.chaos]\ncorrupt = 0.1\n",
                "2: transport.icrc: false would take what the chaos of d corrupts for good"},
        Mistake{"[log]\nlevel = \"loud\"\n",
                "2: log.level: \"loud\" is not one of trace, debug, info, warn, err, critical, off"}));

INSTANTIATE_TEST_SUITE_P(
    Device, ConfigMistake,
    testing::Values(
        Mistake{"[[device]]\nip = \"198.18.0.1\"\n",
                "1: device.name: is missing; give one, such as \"faultline0\""},
        Mistake{"[[device]]\nname = \"a b\"\n", "2: device.name: must be 1 to 24 letters, digits, _ or -"},
        Mistake{"[[device]]\nname = 1\n", "2: device.name: must be a string in quotes"},
        Mistake{"[[device]]\nname = \"\"\n", "2: device.name: must not be empty"},
        Mistake{"[[device]]\nname = \"d\"\n",
                "1: device.ip: is missing; give one, such as \"198.18.0.1/24\""},
        Mistake{"[[device]]\nname = \"d\"\nip = \"198.18.0.256\"\n",
                "3: device.ip: \"198.18.0.256\" is not a unicast address such as \"198.18.0.1/24\" or "
                "\"2001:2::1/64\""},
        Mistake{"[[device]]\nname = \"d\"\nip = \"198.18.0.1/33\"\n",
                "3: device.ip: \"198.18.0.1/33\" is not a unicast address such as \"198.18.0.1/24\" or "
                "\"2001:2::1/64\""},
        Mistake{"[[device]]\nname = \"d\"\nip = \"224.0.0.1\"\n",
                "3: device.ip: \"224.0.0.1\" is not a unicast address such as \"198.18.0.1/24\" or "
                "\"2001:2::1/64\""},
        Mistake{with_device_key("mac = \"03:00:00:00:00:01\""),
                "4: device.mac: \"03:00:00:00:00:01\" is not a unicast MAC address such as "
                "\"02:46:4c:00:00:01\""},
        Mistake{with_device_key("mtu = 100"), "4: device.mtu: must be a whole number from 344 to 9000"},
        Mistake{with_device_key("mtu = 1501"), "4: device.mtu: a tap port carries at most 1500"},
        Mistake{with_device_key("mtu = 1500.5"), "4: device.mtu: must be a whole number from 344 to 9000"},
        Mistake{with_device_key("progress = \"busy\""),
                "4: device.progress: \"busy\" is not one of auto, dedicated, inline"},
        Mistake{with_device_key("lcore = 0"), "4: device.lcore: only goes with progress = \"dedicated\""},
        Mistake{with_device_key("progress = \"dedicated\"\nlcore = 1023"),
                "5: device.lcore: this process may not run on CPU 1023"},
        Mistake{with_device_key("lcores = [0]"), "4: device.lcores: only goes with progress = \"dedicated\""},
        Mistake{with_device_key("progress = \"dedicated\"\nlcore = 0\nlcores = [0]"),
                "6: device.lcores: stands instead of lcore, not beside it"},
        Mistake{with_device_key("progress = \"dedicated\"\nlcores = []"),
                "5: device.lcores: must be 1 to 16 CPUs"},
        Mistake{with_device_key("progress = \"dedicated\"\nlcores = [0, 0]"),
                "5: device.lcores: CPU 0 is there twice"},
        Mistake{with_device_key("progress = \"dedicated\"\nlcores = [0, 1023]"),
                "5: device.lcores: this process may not run on CPU 1023"},
        Mistake{with_device_key("progress = \"dedicated\"\nlcores = [0.5]"),
                "5: device.lcores: must be a list of whole numbers from 0 to 1023"},
        Mistake{with_device_key("progress = \"dedicated\"\nlcores = 2"),
                "5: device.lcores: must be a list of whole numbers from 0 to 1023"},
        Mistake{with_device_key("vendor_id = 16777216"),
                "4: device.vendor_id: must be a whole number from 0 to 16777215"},
        Mistake{with_device_key("firmware = \"" + std::string(64, '1') + "\""),
                "4: device.firmware: must be at most 63 bytes"},
        Mistake{with_device_key("min_ack_timeout_ms = 60001"),
                "4: device.min_ack_timeout_ms: must be a whole number from 0 to 60000"},
        Mistake{with_device_key("capture = true"), "4: device.capture: must be a string in quotes"},
        Mistake{with_device_key("mut = 1500"), "4: device.mut: unknown key; did you mean \"mtu\"?"},
        // The unknown key is reported before the key that is missing because of it.
        Mistake{"[[device]]\nname = \"d\"\nipp = \"198.18.0.1\"\n[device.port]\nkind = \"tap\"\n",
                "3: device.ipp: unknown key; did you mean \"ip\"?"},
        Mistake{"[[device]]\nname = \"d\"\nip = \"198.18.0.1\"\n[device.prot]\nkind = \"tap\"\n",
                "4: device.prot: unknown key; did you mean \"port\"?"},
        Mistake{with_device_key("socket = \"/x\""),
                "4: device.socket: unknown key here; it belongs to [device.port]"},
        Mistake{with_device_key("colour = 1\nhue = 2"),
                "4: device.colour: unknown key; known here: name, ip, mac, mtu, vlan, vlan_priority, dscp, "
                "gateway, "
                "route, progress, lcore, lcores, vendor_id, vendor_part_id, firmware, active_width, "
                "active_speed, "
                "device_memory_kib, min_ack_timeout_ms, capture, publish, port, chaos"},
        Mistake{with_device_key("active_width = 3"),
                "4: device.active_width: must be 1, 2, 4, 8 or 12 lanes"},
        Mistake{with_device_key("active_speed = \"fast\""),
                "4: device.active_speed: \"fast\" is not one of SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR"},
        Mistake{"[[device]]\nname = \"d\"\nip = \"198.18.0.1\"\n",
                "1: device.port: is missing; add a table [device.port] with a kind"},
        Mistake{"[[device]]\nname = \"d\"\nip = \"198.18.0.1\"\nport = 1\n",
                "4: device.port: must be a table, [device.port]"}));

INSTANTIATE_TEST_SUITE_P(
    Addresses, ConfigMistake,
    testing::Values(
        Mistake{"[[device]]\nname = \"d\"\nip = []\n", "3: device.ip: must not be empty"},
        Mistake{"[[device]]\nname = \"d\"\nip = \"198.18.0.0/24\"\n",
                "3: device.ip: \"198.18.0.0/24\" is the address of a network, not of a host in it"},
        Mistake{"[[device]]\nname = \"d\"\nip = \"198.18.0.255/24\"\n",
                "3: device.ip: \"198.18.0.255/24\" is the address of a network, not of a host in it"},
        Mistake{"[[device]]\nname = \"d\"\nip = \"2001:2::/64\"\n",
                "3: device.ip: \"2001:2::/64\" is the address of a network, not of a host in it"},
        Mistake{"[[device]]\nname = \"d\"\nip = [1]\n", "3: device.ip: must be a list of strings"},
        Mistake{"[[device]]\nname = \"d\"\nip = [\"198.18.0.1\", \"198.18.0.1/24\"]\n",
                "3: device.ip: \"198.18.0.1/24\" is there twice"},
        Mistake{
            "[[device]]\nname = \"d\"\nip = \"::1\"\n",
            "3: device.ip: \"::1\" is not a unicast address such as \"198.18.0.1/24\" or \"2001:2::1/64\""},
        Mistake{"[[device]]\nname = \"d\"\nip = \"198.18.0.1/0\"\n",
                "3: device.ip: \"198.18.0.1/0\" is not a unicast address such as \"198.18.0.1/24\" or "
                "\"2001:2::1/64\""},
        Mistake{with_device_key("vlan = 4095"), "4: device.vlan: must be a whole number from 1 to 4094"},
        Mistake{with_device_key("vlan_priority = 1"), "4: device.vlan_priority: only goes with vlan"},
        Mistake{with_device_key("vlan = 1\nvlan_priority = 8"),
                "5: device.vlan_priority: must be a whole number from 0 to 7"},
        Mistake{with_device_key("dscp = 64"), "4: device.dscp: must be a whole number from 0 to 63"},
        Mistake{with_device_key("gateway = \"198.18.0.254/24\""),
                "4: device.gateway: \"198.18.0.254/24\" is not an address such as \"198.18.0.254\""},
        Mistake{with_device_key("gateway = \"198.18.1.254\""),
                "4: device.gateway: \"198.18.1.254\" is not another host on a network of this device"},
        Mistake{with_device_key("gateway = \"198.18.0.1\""),
                "4: device.gateway: \"198.18.0.1\" is not another host on a network of this device"},
        Mistake{with_device_key("route = 1"), "4: device.route: must be written as [[device.route]]"},
        Mistake{with_device_key("[[device.route]]\nto = \"198.19.0.0\"\nvia = \"198.18.0.254\""),
                "5: device.route.to: \"198.19.0.0\" is not a network such as \"198.19.0.0/16\""},
        Mistake{
            with_device_key("[[device.route]]\nto = \"198.19.0.0/16\"\nvia = \"2001:2::1\""),
            "6: device.route.via: \"2001:2::1\" is not an address of the same family as \"198.19.0.0/16\""},
        Mistake{with_device_key("[[device.route]]\nto = \"198.19.0.0/16\"\nvia = \"198.18.9.1\""),
                "6: device.route.via: \"198.18.9.1\" is not another host on a network of this device"},
        Mistake{with_device_key("[[device.route]]\nto = \"198.19.0.0/16\""),
                "4: device.route.via: is missing; give one, such as \"198.18.0.254\""},
        Mistake{with_device_key("[[device.route]]\nto = \"198.19.0.0/16\"\nvia = \"198.18.0.2\"\ndev = 1"),
                "7: device.route.dev: unknown key; known here: to, via"}));

INSTANTIATE_TEST_SUITE_P(
    Chaos, ConfigMistake,
    testing::Values(
        Mistake{with_chaos("loss = 1.5"), "8: device.chaos.loss: must be a ratio from 0 to 1, such as 0.01"},
        Mistake{with_chaos("corrupt = -0.1"),
                "8: device.chaos.corrupt: must be a ratio from 0 to 1, such as 0.01"},
        Mistake{with_chaos("reorder = nan"),
                "8: device.chaos.reorder: must be a ratio from 0 to 1, such as 0.01"},
        Mistake{with_chaos("ecn_mark = \"1%\""),
                "8: device.chaos.ecn_mark: must be a ratio from 0 to 1, such as 0.01"},
        Mistake{with_chaos("delay_us = 0.5"),
                "8: device.chaos.delay_us: must be a whole number from 0 to 10000000"},
        Mistake{with_chaos("direction = \"in\""),
                "8: device.chaos.direction: \"in\" is not one of both, rx, tx"},
        Mistake{with_chaos("losss = 1"), "8: device.chaos.losss: unknown key; did you mean \"loss\"?"}));

INSTANTIATE_TEST_SUITE_P(
    Port, ConfigMistake,
    testing::Values(
        Mistake{with_port("kind = \"foo\"\n"),
                "5: device.port.kind: \"foo\" is not one of memif, ring, tap, af_packet, af_xdp, pci, wire, "
                "vhost, virtio_user, udp"},
        Mistake{with_port("role = \"server\"\n"),
                "4: device.port.kind: is missing; give one of memif, ring, tap, af_packet, af_xdp, pci, "
                "wire, vhost, virtio_user, udp"},
        Mistake{with_port("kind = \"memif\"\nrole = \"master\"\n"),
                "6: device.port.role: \"master\" is not one of server, client"},
        Mistake{with_port("kind = \"memif\"\nrole = \"server\"\n"),
                "4: device.port.socket: is missing; give one, such as \"/run/user/1000/faultline.sock\""},
        Mistake{with_port("kind = \"memif\"\nrole = \"server\"\nsocket = \"x,y\"\n"),
                "7: device.port.socket: must be a path with a directory, without a comma, of at most 107 "
                "characters"},
        Mistake{with_port("kind = \"memif\"\nrole = \"server\"\nsocket = \"/x\"\nring_size = 1000\n"),
                "8: device.port.ring_size: must be a power of two from 32 to 16384"},
        Mistake{with_port("kind = \"memif\"\nrole = \"server\"\nsocket = \"/x\"\ninterface = \"fl0\"\n"),
                "8: device.port.interface: unknown key; known here: kind, role, socket, ring_size"},
        Mistake{with_port("kind = \"vhost\"\nrole = \"guest\"\n"),
                "6: device.port.role: \"guest\" is not one of server, client"},
        Mistake{with_port("kind = \"vhost\"\n"),
                "4: device.port.socket: is missing; give one, such as \"/run/user/1000/vm.sock\""},
        Mistake{with_port("kind = \"virtio_user\"\nsocket = \"/x\"\nqueues = 17\n"),
                "7: device.port.queues: must be a whole number from 1 to 16"},
        Mistake{with_port("kind = \"virtio_user\"\nsocket = \"/x\"\nring_size = 256\n"),
                "7: device.port.ring_size: unknown key; known here: kind, role, socket, queues"},
        Mistake{with_port("kind = \"ring\"\nwire = \"w0\"\nside = \"c\"\n"),
                "7: device.port.side: \"c\" is not one of a, b"},
        Mistake{with_port("kind = \"ring\"\nside = \"a\"\n"),
                "4: device.port.wire: is missing; give one, such as \"w0\""},
        Mistake{with_port("kind = \"tap\"\n"),
                "4: device.port.interface: is missing; give one, such as \"fl0\""},
        Mistake{with_port("kind = \"af_packet\"\ninterface = \"a-name-too-long-for-it\"\n"),
                "6: device.port.interface: \"a-name-too-long-for-it\" is not the name of a network interface "
                "(at most 15 "
                "characters)"},
        Mistake{with_port("kind = \"pci\"\naddress = \"01:00.0\"\n"),
                "6: device.port.address: \"01:00.0\" is not a PCI address such as \"0000:01:00.0\""},
        Mistake{with_port("kind = \"pci\"\naddress = \"0000:01:00.0,vectorized\"\n"),
                "6: device.port.address: \"0000:01:00.0,vectorized\": the PMD's arguments are not such as "
                "\"0000:01:00.0,key=value\""},
        Mistake{with_port("kind = \"pci\"\naddress = \"0000:01:00.0,\"\n"),
                "6: device.port.address: \"0000:01:00.0,\": the PMD's arguments are not such as "
                "\"0000:01:00.0,key=value\""}));

TEST(Config, ReadsBothEndsOfVhostUser) {
  const auto port_of = [](const std::string& keys) {
    return parse_config(with_port(keys), "f.toml").devices.at(0).port;
  };
  const PortConfig vm = port_of("kind = \"vhost\"\nsocket = \"/x\"\n");
  EXPECT_EQ(vm.kind, PortKind::vhost);
  EXPECT_TRUE(vm.is_server);
  EXPECT_EQ(vm.queues, 1U);
  EXPECT_FALSE(port_of("kind = \"vhost\"\nrole = \"client\"\nsocket = \"/x\"\n").is_server);
  const PortConfig container = port_of("kind = \"virtio_user\"\nsocket = \"/x\"\nqueues = 2\n");
  EXPECT_EQ(container.kind, PortKind::virtio_user);
  EXPECT_FALSE(container.is_server);
  EXPECT_EQ(container.queues, 2U);
  EXPECT_TRUE(port_of("kind = \"virtio_user\"\nrole = \"server\"\nsocket = \"/x\"\n").is_server);
}

std::string with_wire(const std::string& keys, const std::string& of_device = "") {
  return "[[device]]\nname = \"d\"\n" + of_device + "[device.port]\nkind = \"wire\"\n" + keys;
}

INSTANTIATE_TEST_SUITE_P(
    Wire, ConfigMistake,
    testing::Values(
        Mistake{with_wire("wire = \"a wire\"\n"),
                "5: device.port.wire: must be 1 to 32 letters, digits, _ or -"},
        Mistake{with_wire("wire = \"\"\n"), "5: device.port.wire: must not be empty"},
        Mistake{with_wire("wire = 1\n"), "5: device.port.wire: must be a string in quotes"},
        Mistake{with_wire("side = \"a\"\n"), "5: device.port.side: only goes with wire"},
        Mistake{with_wire("share = true\n"), "5: device.port.share: only goes with wire"},
        Mistake{with_wire("wire = \"w0\"\nside = \"ab\"\n"),
                "6: device.port.side: \"ab\" is not one letter, a to z"},
        Mistake{with_wire("wire = \"w0\"\nip = \"2001:2::1\"\n"),
                "6: device.port.ip: \"2001:2::1\" is not an IPv4 address such as \"198.18.0.7\""},
        Mistake{with_wire("wire = \"w0\"\nside = \"a\"\nip = \"198.18.0.1\"\n"),
                "7: device.port.ip: stands instead of side, not beside it"},
        Mistake{with_wire("wire = \"w0\"\nshare = 1\n"), "6: device.port.share: must be true or false"},
        Mistake{with_wire("wire = \"w0\"\nsocket = \"/x\"\n"),
                "6: device.port.socket: unknown key; known here: kind, wire, side, ip, share"},
        Mistake{with_wire("wire = \"w0\"\n", "ip = \"198.18.0.1\"\n"),
                "3: device.ip: is what the wire gives out; [device.port] may ask for an ip or a side"},
        Mistake{with_wire("wire = \"w0\"\n", "mac = \"02:46:4c:00:00:01\"\n"),
                "3: device.mac: is what the wire gives out; [device.port] may ask for an ip or a side"},
        Mistake{with_wire("wire = \"w0\"\n", "gateway = \"198.18.0.254\"\n"),
                "3: device.gateway: is what the wire gives out; [device.port] may ask for an ip or a side"}));

TEST(Config, ReadsASeatOnAWire) {
  const auto seat_of = [](const std::string& keys) {
    return parse_config(with_wire(keys), "f.toml").devices.at(0).port.request;
  };
  const WireRequest side = seat_of("wire = \"w0\"\nside = \"c\"\nshare = true\n");
  EXPECT_EQ(side.wire, "w0");
  EXPECT_EQ(side.ipv4, 0xc6120003U);
  EXPECT_TRUE(side.shared);
  EXPECT_EQ(seat_of("wire = \"w0\"\nip = \"198.18.0.7\"\n").ipv4, 0xc6120007U);
  EXPECT_EQ(seat_of("wire = \"w0\"\n").ipv4, 0U);
  EXPECT_EQ(seat_of("").wire, "");
}

std::string seat_error_of(Config config, const char* request) {
  try {
    static_cast<void>(attach(config, request));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Config, SaysWhichOfTwoPlacesNamesTheWire) {
  EXPECT_EQ(seat_error_of(parse_config(with_wire(""), "f.toml"), nullptr),
            "faultline: f.toml: device.port.wire: is missing; give one, or start the program with "
            "faultline-run --wire NAME --config FILE");
  EXPECT_EQ(seat_error_of(parse_config(with_wire("wire = \"w0\"\n"), "f.toml"), "w0"),
            "faultline: f.toml: beside --wire (or $FAULTLINE_WIRE) there must be one device of [device.port] "
            "kind = \"wire\" that names no wire; there are 0");
  EXPECT_EQ(seat_error_of(parse_config(with_wire(""), "f.toml"), "w0,side=ab"),
            "faultline: wire \"w0,side=ab\": a side is one letter, a to z");
  EXPECT_EQ(seat_error_of(parse_config(kDevice, "f.toml"), nullptr), "no error");
}

TEST(Config, TheExamplesAreRightAndCoverEveryKindOfPort) {
  std::set<PortKind> kinds;
  for (const auto& file : std::filesystem::directory_iterator(FAULTLINE_CONFIGS)) {
    if (file.is_directory()) continue;
    const Config config = load_config(file.path());
    for (const DeviceConfig& device : config.devices) kinds.insert(device.port.kind);
  }
  EXPECT_EQ(kinds.size(), port_kinds().size());
}

TEST(Config, NamesDevicesThatClash) {
  const std::string first(kDevice);
  EXPECT_EQ(error_of(first + first), "faultline: f.toml:1: device: two devices are named \"faultline0\"");
  std::string second = first;
  second.replace(second.find("faultline0"), 10, "faultline1");
  EXPECT_EQ(error_of(first + second),
            "faultline: f.toml:1: device: faultline0 and faultline1 have the same ip");
  second.replace(second.find("198.18.0.1"), 10, "198.18.0.2");
  EXPECT_EQ(error_of(first + second),
            "faultline: f.toml:1: device: faultline0 and faultline1 have the same socket");
}

TEST(Config, NamesTheLineOfASyntaxError) {
  EXPECT_EQ(error_of("[eal]\nmemory_mib = = 3\n").rfind("faultline: f.toml:2: ", 0), 0U);
}

TEST(Config, NamesAFileThatIsNotThere) {
  try {
    static_cast<void>(load_config("/nonexistent/f.toml"));
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "faultline: /nonexistent/f.toml: cannot read the configuration: No such file or directory");
  }
}

std::string error_of_file(const std::string& path) {
  try {
    static_cast<void>(load_config(path));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Config, NamesAFileThatCannotBeRead) {
  EXPECT_EQ(error_of_file("/proc/self/mem"),
            "faultline: /proc/self/mem: cannot read the configuration: Input/output error");
}

TEST(Config, NamesAFolderAndAnEmptyFile) {
  const std::string folder = testing::TempDir();
  EXPECT_EQ(error_of_file(folder), "faultline: " + folder + ": is a folder; name a TOML file");
  const std::string file = folder + "empty.toml";
  std::ofstream(file) << " \n";
  EXPECT_EQ(error_of_file(file), "faultline: " + file + ": is empty; add at least one [[device]]");
  std::filesystem::remove(file);
}

TEST(Config, TakesTheOnlyAddressesOfASmallNetwork) {
  for (const char* ip : {"198.18.0.0/31", "198.18.0.1/31", "198.18.0.0/32", "198.18.0.7", "2001:2::/127"})
    EXPECT_EQ(error_of(fmt::format("[[device]]\nname = \"d\"\nip = \"{}\"\n[device.port]\nkind = \"tap\"\n"
                                   "interface = \"fl0\"\n",
                                   ip)),
              "no error");
}

}  // namespace
}  // namespace faultline::glue::config_test
