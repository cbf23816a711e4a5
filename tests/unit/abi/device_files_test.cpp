// SPDX-License-Identifier: BSD-3-Clause
// Entries below /sys and /dev, in the kernel's format.
#include "stack/abi/tree/device_files.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <gtest/gtest.h>

#include "stack/verbs/objects/counter_list.hpp"

namespace faultline::abi {
namespace {

class DeviceFilesTest : public testing::Test {
 protected:
  DeviceFilesTest() {
    description_.name = "faultline3";
    description_.vendor_id = 0x02c9;
    description_.vendor_part_id = 4119;
    description_.gids = {wire::Gid::from_ipv4(0xc6120001), wire::Gid{}};
    description_.gids[1].bytes = {0x20, 0x01, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    const std::array<uint8_t, 8> guid{0x02, 0x46, 0x4c, 0xff, 0xfe, 0, 0, 1};
    std::memcpy(&facts_.guid_be, guid.data(), guid.size());
    facts_.description = &description_;
    facts_.index = 1;
    facts_.verbs_name = "uverbs1";
    facts_.version = "1.2.3";
    facts_.port.state = IBV_PORT_ACTIVE;
    facts_.port.phys_state = 5;
    facts_.port.active_width = 2;
    facts_.port.active_speed = 32;
  }
  [[nodiscard]] DeviceFiles files() const { return DeviceFiles({&facts_, 1}); }
  [[nodiscard]] std::string text(const std::string& path) const {
    const DeviceFiles all = files();
    const Node* const node = all.find(path);
    if (node == nullptr) return "(none)";
    if (node->kind == NodeKind::empty_row) return "(empty row)";
    return node->kind == NodeKind::file ? node->text : "(no file)";
  }

  verbs::DeviceDescription description_;
  DeviceFacts facts_;
};

TEST_F(DeviceFilesTest, HaveTheKernelsForms) {
  const std::string device = "/sys/class/infiniband/faultline3";
  EXPECT_EQ(text(device + "/node_guid"), "0246:4cff:fe00:0001\n");
  EXPECT_EQ(text(device + "/node_type"), "1: CA\n");
  EXPECT_EQ(text(device + "/fw_ver"), "1.2.3\n");
  EXPECT_EQ(text(device + "/device/vendor"), "0x02c9\n");
  EXPECT_EQ(text(device + "/device/device"), "0x1017\n");
  EXPECT_EQ(text(device + "/device/numa_node"), "-1\n");
  EXPECT_EQ(text(device + "/ports/1/state"), "4: ACTIVE\n");
  EXPECT_EQ(text(device + "/ports/1/phys_state"), "5: LinkUp\n");
  EXPECT_EQ(text(device + "/ports/1/rate"), "100 Gb/sec (4X EDR)\n");
  EXPECT_EQ(text(device + "/ports/1/link_layer"), "Ethernet\n");
  EXPECT_EQ(text(device + "/ports/1/pkeys/0"), "0xffff\n");
  EXPECT_EQ(text(device + "/ports/1/gids/0"), "0000:0000:0000:0000:0000:ffff:c612:0001\n");
  EXPECT_EQ(text(device + "/ports/1/gids/1"), "2001:0002:0000:0000:0000:0000:0000:0001\n");
  EXPECT_EQ(text(device + "/ports/1/gids/2"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
  EXPECT_EQ(text(device + "/ports/1/gid_attrs/types/1"), "RoCE v2\n");
  EXPECT_EQ(text(device + "/ports/1/gid_attrs/types/2"), "(empty row)");
  EXPECT_EQ(files().find(device + "/ports/1/gid_attrs/types")->names,
            files().find(device + "/ports/1/gids")->names);
  EXPECT_EQ(text("/sys/class/infiniband_verbs/uverbs1/ibdev"), "faultline3\n");
  EXPECT_EQ(text("/sys/class/infiniband_verbs/uverbs1/dev"), "231:193\n");
  EXPECT_EQ(text("/sys/class/infiniband_verbs/abi_version"), "6\n");
  EXPECT_EQ(text("/sys/class/misc/rdma_cm/abi_version"), "4\n");
}

TEST_F(DeviceFilesTest, FollowThePort) {
  const std::string port = "/sys/class/infiniband/faultline3/ports/1";
  facts_.port.state = IBV_PORT_DOWN;
  facts_.port.phys_state = 3;
  facts_.port.active_width = 1;
  facts_.port.active_speed = 1;
  EXPECT_EQ(text(port + "/state"), "1: DOWN\n");
  EXPECT_EQ(text(port + "/phys_state"), "3: Disabled\n");
  EXPECT_EQ(text(port + "/rate"), "2.5 Gb/sec (1X SDR)\n");
}

TEST_F(DeviceFilesTest, NameAnInterfaceOnlyWhereThereIsOne) {
  const std::string device = "/sys/class/infiniband/faultline3";
  EXPECT_EQ(files().find(device + "/device/net"), nullptr);
  EXPECT_EQ(text(device + "/ports/1/gid_attrs/ndevs/0"), "(empty row)");
  facts_.interface = "fl0";
  EXPECT_EQ(files().find(device + "/device/net")->names, std::vector<std::string>{"fl0"});
  EXPECT_EQ(text(device + "/ports/1/gid_attrs/ndevs/0"), "fl0\n");
  EXPECT_EQ(text(device + "/ports/1/gid_attrs/ndevs/2"), "(empty row)");
  EXPECT_EQ(files().find("/sys/class/net"), nullptr);
}

TEST_F(DeviceFilesTest, HaveAnInterfaceThatTheKernelLacks) {
  facts_.own_interface = OwnInterface{.name = "wire0",
                                      .index = 268435457,
                                      .device = description_.name,
                                      .mac = {{0x02, 0x46, 0xc6, 0x12, 0, 1}},
                                      .mtu_bytes = 4500,
                                      .speed_mbps = 100'000,
                                      .is_up = true,
                                      .addresses = {},
                                      .routes = {}};
  facts_.interface = "wire0";
  const std::string own = "/sys/class/net/wire0";
  EXPECT_EQ(files().find("/sys/class/net")->names, std::vector<std::string>{"wire0"});
  EXPECT_EQ(text(own + "/address"), "02:46:c6:12:00:01\n");
  EXPECT_EQ(text(own + "/ifindex"), "268435457\n");
  EXPECT_EQ(text(own + "/mtu"), "4500\n");
  EXPECT_EQ(text(own + "/operstate"), "up\n");
  EXPECT_EQ(text(own + "/carrier"), "1\n");
  EXPECT_EQ(text(own + "/flags"), "0x1043\n");  // up, broadcast, running, multicast
  EXPECT_EQ(text(own + "/speed"), "100000\n");
  EXPECT_EQ(text(own + "/type"), "1\n");
  EXPECT_EQ(files().find(own + "/device/infiniband")->names, std::vector<std::string>{"faultline3"});
  EXPECT_EQ(files().follow(own + "/device/infiniband_verbs/uverbs1/ibdev").path,
            "/sys/class/infiniband_verbs/uverbs1/ibdev");
  for (const std::string& hardware :
       {own + "/device", std::string("/sys/class/infiniband/faultline3/device")})
    EXPECT_EQ(files().follow(hardware + "/net/wire0").link, own);
  EXPECT_EQ(files().find("/sys/class/infiniband/faultline3/device/net")->names,
            std::vector<std::string>{"wire0"});
  facts_.own_interface->is_up = false;
  EXPECT_EQ(text(own + "/operstate"), "down\n");
  EXPECT_EQ(text(own + "/carrier"), "0\n");
  EXPECT_EQ(text(own + "/flags"), "0x1003\n");
}

TEST_F(DeviceFilesTest, HaveTheCountersWhereTheseWereRead) {
  const std::string port = "/sys/class/infiniband/faultline3/ports/1";
  EXPECT_TRUE(files().find(port + "/counters")->names.empty());
  EXPECT_TRUE(files().find(port + "/hw_counters")->names.empty());
  const auto with = [](uint64_t value) {
    std::vector<NamedCounter> counters;
    for (const auto& counter : verbs::counter_texts()) counters.push_back({counter.name, value});
    return counters;
  };
  facts_.counters = with(0);
  EXPECT_EQ(text(port + "/counters/port_xmit_data"), "0\n");
  EXPECT_EQ(text(port + "/hw_counters/transport.tx_bytes"), "0\n");
  facts_.counters = with(12);
  EXPECT_EQ(text(port + "/counters/port_xmit_data"), "3\n");
  EXPECT_EQ(text(port + "/hw_counters/out_of_sequence"), "12\n");
  EXPECT_EQ(text(port + "/hw_counters/transport.tx_bytes"), "12\n");
  EXPECT_EQ(text("/sys/class/net/wire0/statistics/tx_bytes"), "(none)")
      << "the device has no interface of ours";
  facts_.own_interface.emplace().name = "wire0";
  for (const char* name : {"rx_bytes", "rx_packets", "tx_bytes", "tx_packets", "rx_missed_errors"})
    EXPECT_EQ(text(std::string("/sys/class/net/wire0/statistics/") + name), "12\n") << name;
  EXPECT_EQ(text("/sys/class/net/wire0/statistics/collisions"), "0\n");
}

TEST_F(DeviceFilesTest, ListsEveryEntryInItsFolder) {
  const DeviceFiles all = files();
  EXPECT_EQ(all.find("/sys/class/infiniband")->names, std::vector<std::string>{"faultline3"});
  EXPECT_EQ(all.find("/dev/infiniband")->names, (std::vector<std::string>{"rdma_cm", "uverbs1"}));
  EXPECT_EQ(all.find("/sys/class/infiniband/faultline3/ports")->names, std::vector<std::string>{"1"});
  EXPECT_EQ(all.find("/sys/class/infiniband/faultline3/ports/1/gids")->names.size(), 16U);
  EXPECT_EQ(all.find("/dev/infiniband/uverbs1")->kind, NodeKind::verbs_device);
  EXPECT_EQ(all.find("/sys/class"), nullptr);
  EXPECT_EQ(all.find("/sys/class/infiniband/none"), nullptr);
}

TEST_F(DeviceFilesTest, LeadByLinksToTheClasses) {
  facts_.interface = "fl0";
  const DeviceFiles all = files();
  const std::string device = "/sys/class/infiniband/faultline3";
  const std::string link = device + "/device/infiniband/faultline3";
  EXPECT_EQ(all.find(link)->kind, NodeKind::link);
  EXPECT_EQ(all.find(link + "/node_type"), nullptr) << "find() follows no link";

  const DeviceFiles::Place end = all.follow(link);
  EXPECT_EQ(end.path, device);
  EXPECT_EQ(end.node, all.find(device));
  EXPECT_EQ(end.link, device);
  const DeviceFiles::Place behind = all.follow(link + "/device/infiniband_verbs/uverbs1/dev");
  EXPECT_EQ(behind.path, "/sys/class/infiniband_verbs/uverbs1/dev");
  EXPECT_EQ(behind.node->text, "231:193\n");
  EXPECT_EQ(behind.link, "") << "the file itself is no link";
  EXPECT_EQ(all.follow(device + "/device/net/fl0").node->kind, NodeKind::directory)
      << "an interface of the host";
}

TEST_F(DeviceFilesTest, SayWhyThereIsNoEntry) {
  const DeviceFiles all = files();
  const std::string device = "/sys/class/infiniband/faultline3";
  const auto error = [&](const std::string& path) {
    const DeviceFiles::Place place = all.follow(path);
    EXPECT_EQ(place.node == nullptr, place.error != 0);
    return place.error;
  };
  EXPECT_EQ(error(device + "/fw_ver"), 0);
  EXPECT_EQ(error(device + "/fw_ver/x"), ENOTDIR);
  EXPECT_EQ(error(device + "/none"), ENOENT);
  EXPECT_EQ(error(device + "/none/x"), ENOENT);
  EXPECT_EQ(error(device + "/device/infiniband/none"), ENOENT);
  std::string path = device;
  for (int links = 0; links < 40; ++links) path += "/device/infiniband/faultline3";
  EXPECT_EQ(error(path), 0);
  EXPECT_EQ(error(path + "/node_type"), 0);
  EXPECT_EQ(error(path + "/device/infiniband/faultline3"), ELOOP);
}

TEST(OwnPath, IsOneOfOurTrees) {
  for (const char* path :
       {"/sys/class/infiniband", "/sys/class/infiniband/x/ports", "/dev/infiniband/rdma_cm",
        "/sys/class/infiniband_verbs/uverbs0", "/sys/class/misc/rdma_cm/abi_version", "/sys/class/net",
        "/sys/class/net/lo", "/sys/devices/virtual/net/wire0", "/proc/net/dev"})
    EXPECT_EQ(own_path(path), path);
  for (const char* path : {"/proc/self/net/dev", "/proc/thread-self/net/dev"})
    EXPECT_EQ(own_path(path), "/proc/net/dev");
  for (const char* path : {"", "infiniband", "/", "/sys/class/network", "/sys/class/infiniband_other",
                           "/sys/class/infinibandx/y", "/home/infiniband", "/sys/class/misc", "/dev/null",
                           "/sys/class/infiniband/../block", "/dev/infiniband/../null", "/proc/1/net/dev",
                           "/proc/net/dev/x", "/srv/net/dev", "/proc/net/dev_mcast"})
    EXPECT_EQ(own_path(path), std::nullopt) << path;
}

TEST(OwnPath, IsNormalized) {
  EXPECT_EQ(own_path("//sys/./class//infiniband/a/../b/"), "/sys/class/infiniband/b");
  EXPECT_EQ(own_path("/../sys/class/infiniband"), "/sys/class/infiniband");
}

}  // namespace
}  // namespace faultline::abi
