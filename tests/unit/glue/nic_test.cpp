// SPDX-License-Identifier: BSD-3-Clause
// The driver of kind pci on a model NIC: one test for each limit or refusal of a PMD.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <rte_mbuf.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/ports/pci_device.hpp"
#include "pmd_glue/ports/port.hpp"
#include "pmd_glue/ports/rss_table.hpp"
#include "tests/unit/glue/model_nic.hpp"

namespace faultline::test::nic_test {
namespace {

namespace fs = std::filesystem;

constexpr wire::MacAddress kNicMac{{0x02, 0x46, 0x4d, 0, 0, 9}};

class PciPort : public testing::Test {
 protected:
  void SetUp() override {
    config.path = "nic.toml";
    config.eal.memory_mib = 256;
    std::string failure;
    ASSERT_TRUE(glue::start_eal(config, failure)) << failure;
    device.name = "nic0";
    device.mac = {{0x02, 0x46, 0xc6, 0x12, 0, 1}};
    device.port.kind = glue::PortKind::pci;
  }

  std::unique_ptr<glue::EthernetPort> open(const ModelNic& nic) {
    device.port.address = nic.name();
    config.devices = {device};
    error.clear();
    return glue::EthernetPort::open(config, device, error);
  }

  glue::Config config;
  glue::DeviceConfig device;
  std::string error;
};

TEST_F(PciPort, KeepsTheNicsOwnAddressUnlessTheFileSetsOne) {
  const ModelNic nic({});
  const auto port = open(nic);
  ASSERT_NE(port, nullptr) << error;
  EXPECT_EQ(port->own_mac(), kNicMac);
  EXPECT_EQ(nic.mac_sets, 0U);
  EXPECT_FALSE(nic.is_promiscuous);
  EXPECT_TRUE(nic.is_allmulticast);
}

TEST_F(PciPort, SetsTheAddressOfTheFile) {
  const ModelNic nic({});
  device.has_configured_mac = true;
  const auto port = open(nic);
  ASSERT_NE(port, nullptr) << error;
  EXPECT_FALSE(port->own_mac());
  EXPECT_EQ(nic.mac_sets, 1U);
  EXPECT_EQ(nic.mac.addr_bytes[5], 1);
}

TEST_F(PciPort, SetsNothingThatIsAlreadySo) {
  ModelNic nic({.has_mac_set = false, .has_promiscuous = false});
  nic.is_allmulticast = true;
  device.mac = kNicMac;
  device.has_configured_mac = true;
  EXPECT_NE(open(nic), nullptr) << error;
}

// ena, gve and mana have none of the three operations.
TEST_F(PciPort, OpensWithoutOperationsOnAddresses) {
  const ModelNic nic({.has_mac_set = false, .has_promiscuous = false, .has_allmulticast = false});
  testing::internal::CaptureStderr();
  const auto port = open(nic);
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_NE(port, nullptr) << error;
  EXPECT_EQ(port->own_mac(), kNicMac);
  EXPECT_NE(log.find("receives no multicast"), std::string::npos) << log;
  EXPECT_EQ(std::ranges::count(log, '\n'), 1) << log;
}

TEST_F(PciPort, RefusesAnAddressThatTheNicCannotTake) {
  const ModelNic nic({.has_mac_set = false, .has_promiscuous = false});
  device.has_configured_mac = true;
  EXPECT_EQ(open(nic), nullptr);
  EXPECT_NE(error.find("device.mac: the NIC receives for 02:46:4d:00:00:09 alone"), std::string::npos)
      << error;
}

TEST_F(PciPort, ReceivesForAnotherAddressInPromiscuousMode) {
  const ModelNic nic({.has_mac_set = false});
  device.has_configured_mac = true;
  EXPECT_NE(open(nic), nullptr) << error;
  EXPECT_TRUE(nic.is_promiscuous);
}

// virtio-net drops each VLAN that is not in its filter.
TEST_F(PciPort, AddsItsVlanToTheFilter) {
  const ModelNic nic({.rx_offloads = RTE_ETH_RX_OFFLOAD_VLAN_FILTER});
  device.vlan_id = 100;
  EXPECT_NE(open(nic), nullptr) << error;
  EXPECT_EQ(nic.vlans, std::set<uint16_t>{100});
  EXPECT_FALSE(nic.is_promiscuous);
}

TEST_F(PciPort, LeavesTheFilterOffWithoutAVlan) {
  const ModelNic nic({.rx_offloads = RTE_ETH_RX_OFFLOAD_VLAN_FILTER});
  EXPECT_NE(open(nic), nullptr) << error;
  EXPECT_EQ(nic.conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_VLAN_FILTER, 0U);
}

TEST_F(PciPort, ReceivesItsVlanInPromiscuousModeIfTheFilterRefuses) {
  device.vlan_id = 100;
  {
    const ModelNic nic({.rx_offloads = RTE_ETH_RX_OFFLOAD_VLAN_FILTER, .has_vlan_filter_call = false});
    EXPECT_NE(open(nic), nullptr) << error;
    EXPECT_TRUE(nic.is_promiscuous);
  }
  const ModelNic neither({.rx_offloads = RTE_ETH_RX_OFFLOAD_VLAN_FILTER,
                          .has_promiscuous = false,
                          .has_vlan_filter_call = false});
  EXPECT_EQ(open(neither), nullptr);
  EXPECT_NE(error.find("device.vlan: the NIC does not receive VLAN 100"), std::string::npos) << error;
}

TEST_F(PciPort, RespectsTheLimitsOfRings) {
  const ModelNic small({.rx_limits{.most = 256, .least = 256, .alignment = 1},
                        .tx_limits{.most = 512, .least = 64, .alignment = 32}});
  EXPECT_NE(open(small), nullptr) << error;
  EXPECT_EQ(small.rx_descriptors, 256);
  EXPECT_EQ(small.tx_descriptors, 512);
  const ModelNic large({.rx_limits{.most = 4096, .least = 2048, .alignment = 8}});
  EXPECT_NE(open(large), nullptr) << error;
  EXPECT_EQ(large.rx_descriptors, 2048);
}

TEST_F(PciPort, AsksForTheHashFieldsThatTheNicHas) {
  device.lcores = {0, 1};
  const ModelNic nic({.hash_fields = RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV4_TCP});
  EXPECT_NE(open(nic), nullptr) << error;
  EXPECT_EQ(nic.conf.rx_adv_conf.rss_conf.rss_hf, RTE_ETH_RSS_NONFRAG_IPV4_UDP);
  EXPECT_EQ(nic.queues, 2);
}

// ENA lists its fields and refuses to set them.
TEST_F(PciPort, KeepsTheNicsHashIfItRefusesTheFields) {
  device.lcores = {0, 1};
  const ModelNic nic({.refuses_hash_fields = true});
  const auto port = open(nic);
  ASSERT_NE(port, nullptr) << error;
  EXPECT_EQ(nic.conf.rxmode.mq_mode, RTE_ETH_MQ_RX_RSS);
  EXPECT_EQ(nic.conf.rx_adv_conf.rss_conf.rss_hf, 0U);
  EXPECT_EQ(port->receive_queues(), 2);
}

TEST_F(PciPort, OpensWithoutRss) {
  device.lcores = {0, 1};
  {
    const ModelNic refuses({.refuses_rss = true});
    const auto port = open(refuses);
    ASSERT_NE(port, nullptr) << error;
    EXPECT_EQ(refuses.conf.rxmode.mq_mode, RTE_ETH_MQ_RX_NONE);
  }
  const ModelNic without({.hash_fields = 0, .reta_size = 0, .has_reta_query = false});
  EXPECT_NE(open(without), nullptr) << error;
}

TEST_F(PciPort, SharesTheQueuesThatTheNicHas) {
  device.lcores = {0, 1};
  const ModelNic nic({.max_queues = 1});
  const auto port = open(nic);
  ASSERT_NE(port, nullptr) << error;
  EXPECT_EQ(port->receive_queues(), 1);
  EXPECT_EQ(nic.conf.rxmode.mq_mode, RTE_ETH_MQ_RX_NONE);
}

// Some NICs take a redirection table only after the start.
TEST_F(PciPort, SpreadsATableThatBeginsWithOneQueue) {
  device.lcores = {0, 1};
  for (const uint16_t entries : {uint16_t{64}, uint16_t{128}, uint16_t{512}}) {
    const ModelNic nic({.reta_size = entries, .spreads_by_default = false});
    EXPECT_NE(open(nic), nullptr) << error;
    EXPECT_EQ(std::ranges::count(nic.reta, 0), entries / 2);
    EXPECT_EQ(std::ranges::count(nic.reta, 1), entries / 2);
    EXPECT_EQ(nic.reta_updates, 1U);
  }
}

TEST_F(PciPort, RestoresFilterAndTableAfterARestart) {
  device.lcores = {0, 1};
  device.vlan_id = 100;
  const ModelNic nic({.rx_offloads = RTE_ETH_RX_OFFLOAD_VLAN_FILTER});
  const auto port = open(nic);
  ASSERT_NE(port, nullptr) << error;
  ASSERT_EQ(nic.reta[5], 1);
  ASSERT_EQ(port->flow_table()->point(5, 0), 0);
  port->reconnect();
  EXPECT_TRUE(port->started());
  EXPECT_EQ(nic.vlans, std::set<uint16_t>{100});
  EXPECT_EQ(nic.reta[5], 0);
  EXPECT_EQ(nic.reta[7], 1);
}

TEST_F(PciPort, LeavesASpreadTableAsItIs) {
  device.lcores = {0, 1};
  const ModelNic nic({});
  EXPECT_NE(open(nic), nullptr) << error;
  EXPECT_EQ(nic.reta_updates, 0U);
}

TEST_F(PciPort, RefusesAnMtuBeyondTheNicsLimits) {
  device.mtu_bytes = 4500;
  {
    const ModelNic nic({.max_mtu = 3000, .max_frame_bytes = 3018});
    EXPECT_EQ(open(nic), nullptr);
    EXPECT_NE(error.find("device.mtu: the port takes at most 3000"), std::string::npos) << error;
  }
  // Some PMDs list the frame's length only.
  const ModelNic nic({.max_mtu = UINT16_MAX, .max_frame_bytes = 2018});
  EXPECT_EQ(open(nic), nullptr);
  EXPECT_NE(error.find("device.mtu: the port takes at most 2000"), std::string::npos) << error;
}

// Without scattered receive a PMD refuses frames longer than a buffer.
TEST_F(PciPort, OpensWithJumboFramesWithoutScatteredReceive) {
  device.mtu_bytes = 9000;
  const ModelNic nic({.rx_offloads = 0});
  EXPECT_NE(open(nic), nullptr) << error;
  EXPECT_GE(nic.conf.rxmode.mtu, 4500U);
}

TEST_F(PciPort, AsksForScatteredReceiveOnlyIfAFrameMayBeLongerThanABuffer) {
  for (const uint32_t mtu_bytes : {1500U, 9000U}) {
    device.mtu_bytes = mtu_bytes;
    const ModelNic nic({});
    EXPECT_NE(open(nic), nullptr) << error;
    EXPECT_EQ((nic.conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_SCATTER) != 0, mtu_bytes == 9000) << mtu_bytes;
  }
}

TEST_F(PciPort, AsksForTheChecksumsThatTheNicHas) {
  config.udp_checksum = true;
  const ModelNic nic({.tx_offloads = RTE_ETH_TX_OFFLOAD_UDP_CKSUM});
  const auto port = open(nic);
  ASSERT_NE(port, nullptr) << error;
  EXPECT_FALSE(port->offloads_ipv4_checksum());
  EXPECT_TRUE(port->offloads_udp_checksum());
}

TEST_F(PciPort, AsksForBothChecksumsOfANicThatHasBoth) {
  config.udp_checksum = true;
  const ModelNic nic({});
  const auto port = open(nic);
  ASSERT_NE(port, nullptr) << error;
  EXPECT_TRUE(port->offloads_ipv4_checksum());
  EXPECT_TRUE(port->offloads_udp_checksum());
}

// The request to the PMD costs more than the IPv4 checksum.
TEST_F(PciPort, DoesNotAskForIpv4ChecksumsAlone) {
  const ModelNic nic({});
  const auto port = open(nic);
  ASSERT_NE(port, nullptr) << error;
  EXPECT_FALSE(port->offloads_ipv4_checksum());
  EXPECT_EQ(nic.conf.txmode.offloads, 0U);
}

TEST_F(PciPort, TakesThePmdsArgumentsAfterTheAddress) {
  const ModelNic nic({});
  device.port.address = nic.name() + ",vectorized=1";
  config.devices = {device};
  EXPECT_NE(glue::EthernetPort::open(config, device, error), nullptr) << error;
}

TEST_F(PciPort, NamesTheAddressThatIsNotThere) {
  device.port.address = "ffff:ff:1f.7";
  EXPECT_FALSE(glue::expects_link(device.port));
  EXPECT_EQ(glue::EthernetPort::open(config, device, error), nullptr);
  EXPECT_EQ(error, "faultline: nic.toml: nic0: device.port.address: there is no PCI device ffff:ff:1f.7");
}

// igb and ixgbe count in KiB, rounded down.
TEST_F(PciPort, HasBuffersThatHoldAFrameInWholeKibibytes) {
  const ModelNic nic({});
  EXPECT_NE(open(nic), nullptr) << error;
  EXPECT_GE(nic.buffer_bytes / 1024 * 1024, wire::kMaxFrameBytes);
}

// A NIC that completes transmissions late takes no more frames until then, and loses none.
TEST_F(PciPort, TakesFramesAgainAfterLateCompletions) {
  ModelNic nic({});
  const auto port = open(nic);
  ASSERT_NE(port, nullptr) << error;
  rte_mempool* const pool = port->pool();
  const unsigned free_before = rte_mempool_avail_count(pool);
  const auto send = [&] {
    rte_mbuf* frame = rte_pktmbuf_alloc(pool);
    const bool taken = port->transmit(0, {&frame, 1}) == 1;
    if (!taken) rte_pktmbuf_free(frame);
    return taken;
  };
  unsigned taken = 0;
  while (send()) ++taken;
  EXPECT_GT(taken, 0U);
  EXPECT_EQ(rte_mempool_avail_count(pool), free_before - taken);
  EXPECT_EQ(nic.complete_transmissions(), taken);
  EXPECT_TRUE(send());
  EXPECT_EQ(nic.complete_transmissions(), 1U);
  EXPECT_EQ(rte_mempool_avail_count(pool), free_before);
}

TEST_F(PciPort, PlacesItsQueuesOnTheNicsNode) {
  const ModelNic nic({.socket = 0});
  EXPECT_NE(open(nic), nullptr) << error;
  EXPECT_EQ(nic.sockets, std::set<unsigned>{0});
}

/// Folders of a kernel with one PCI device.
class PciDevice : public testing::Test {
 protected:
  static constexpr std::string_view kAddress = "0000:01:00.0";
  void SetUp() override {
    char pattern[] = "/tmp/faultline-test-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    root = pattern;
    folders = {.devices = root / "devices", .groups = root / "vfio", .vmbus = root / "vmbus"};
    fs::create_directories(folders.devices / kAddress);
    fs::create_directories(folders.groups);
    fs::create_symlink("../../groups/12", folders.devices / kAddress / "iommu_group");
  }
  void TearDown() override { fs::remove_all(root); }
  void bind(const std::string& driver) const {
    fs::remove(folders.devices / kAddress / "driver");
    fs::create_symlink("../../drivers/" + driver, folders.devices / kAddress / "driver");
  }
  [[nodiscard]] std::string reason(size_t bytes = 4096) const {
    return glue::why_not_usable(kAddress, {bytes, module_drivers}, folders).value_or("");
  }

  fs::path root;
  glue::PciFolders folders;
  std::vector<std::string> module_drivers;
};

TEST_F(PciDevice, MustBeBoundToADriverForUserSpace) {
  EXPECT_EQ(
      reason(),
      "0000:01:00.0 is bound to no driver; bind it to vfio-pci (dpdk-devbind.py -b vfio-pci 0000:01:00.0)");
  EXPECT_FALSE(glue::is_bound_to_user_space(kAddress, folders));
  bind("igb");
  EXPECT_EQ(reason(),
            "0000:01:00.0 is bound to igb; bind it to vfio-pci (dpdk-devbind.py -b vfio-pci 0000:01:00.0)");
  EXPECT_FALSE(glue::is_bound_to_user_space(kAddress, folders));
  bind("uio_pci_generic");
  EXPECT_EQ(reason(), "");
  EXPECT_TRUE(glue::is_bound_to_user_space(kAddress, folders));
  bind("vfio-pci");
  EXPECT_TRUE(glue::is_bound_to_user_space(kAddress, folders));
}

// mlx5's kernel driver keeps the NIC. Its PMD is in a module of the switch.
TEST_F(PciDevice, SharesWithAKernelDriverOnlyInTheSwitch) {
  bind("mlx5_core");
  EXPECT_EQ(reason(),
            "0000:01:00.0 is bound to mlx5_core, whose PMD only faultline-switch has; start faultline-switch "
            "--uplink pci:0000:01:00.0, or use a port of kind af_packet or af_xdp");
  EXPECT_FALSE(glue::is_bound_to_user_space(kAddress, folders));
  module_drivers = {"mlx5_core"};
  EXPECT_EQ(reason(), "");
  bind("mana");
  EXPECT_NE(reason().find("bound to mana"), std::string::npos) << reason();
}

// netvsc's bus would give a program every VMBus device that is bound to uio_hv_generic.
TEST_F(PciDevice, IsOnVmbusOnlyInTheSwitch) {
  constexpr std::string_view kUuid = "635a7ae3-091e-4410-ad59-667c4f8c04c3";
  const auto why = [&] { return glue::why_not_usable(kUuid, {0, module_drivers}, folders).value_or(""); };
  EXPECT_EQ(why(), "there is no VMBus device 635a7ae3-091e-4410-ad59-667c4f8c04c3");
  fs::create_directories(folders.vmbus / kUuid);
  fs::create_symlink("../../drivers/hv_netvsc", folders.vmbus / kUuid / "driver");
  EXPECT_NE(why().find("is bound to hv_netvsc; bind it to uio_hv_generic"), std::string::npos) << why();
  fs::remove(folders.vmbus / kUuid / "driver");
  fs::create_symlink("../../drivers/uio_hv_generic", folders.vmbus / kUuid / "driver");
  EXPECT_NE(why().find("whose PMD only faultline-switch has"), std::string::npos) << why();
  module_drivers = {"uio_hv_generic"};
  EXPECT_EQ(why(), "");
}

TEST_F(PciDevice, NeedsItsVfioGroup) {
  bind("vfio-pci");
  EXPECT_EQ(reason(),
            (folders.groups / "12").string() +
                ", the VFIO group of 0000:01:00.0, cannot be opened: No such file or directory; give it "
                "to the user (chown)");
  std::ofstream(folders.groups / "12") << "";
  EXPECT_EQ(reason(), "");
}

/// Runs `body` in a thread that has no right to lock more than the limit, under a limit of 1 MiB.
void with_limit_of_locked_memory(const std::function<void()>& body) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit small{.rlim_cur = std::min<rlim_t>(before.rlim_max, 1 << 20), .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &small), 0);
  std::thread([&] {
    // The kernel's capabilities are a thread's, unlike those of libcap.
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3]{};
    ASSERT_EQ(syscall(SYS_capget, &header, sets), 0);
    sets[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
    ASSERT_EQ(syscall(SYS_capset, &header, sets), 0);
    body();
  }).join();
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

TEST_F(PciDevice, NeedsLockedMemoryForDma) {
  std::ofstream(folders.groups / "12") << "";
  constexpr size_t kTooMuch = size_t{1} << 40;
  module_drivers = {"mlx5_core"};
  with_limit_of_locked_memory([&] {
    for (const char* driver : {"vfio-pci", "mlx5_core"}) {
      bind(driver);
      EXPECT_NE(reason(kTooMuch).find("DMA needs 1073741824 KiB of locked memory, and the limit "
                                      "(RLIMIT_MEMLOCK) is"),
                std::string::npos)
          << driver << ": " << reason(kTooMuch);
    }
    bind("uio_pci_generic");
    EXPECT_EQ(reason(kTooMuch), "") << "no IOMMU maps the memory";
  });
}

}  // namespace
}  // namespace faultline::test::nic_test
