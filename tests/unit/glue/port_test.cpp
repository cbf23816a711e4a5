// SPDX-License-Identifier: BSD-3-Clause
// Devices on real DPDK ports that need no rights: two on a net_ring wire in this process. Memif needs two:
// tests/interop.
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>
#include <rte_mbuf.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pmd_glue/eal.hpp"
#include "pmd_glue/engine.hpp"
#include "stack/verbs/backend.hpp"

namespace faultline {
namespace {

class Devices : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    char pattern[] = "/tmp/faultline-test-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    directory = pattern;
    const std::string path = directory / "test.toml";
    std::ofstream(path) << R"([eal]
memory_mib = 256
[odp]
monitor = false
[[device]]
name = "a"
ip = "198.18.0.1/24"
capture = ")" << (directory / "a.pcapng").string()
                        << R"("
[device.port]
kind = "ring"
wire = "w0"
side = "a"
[[device]]
name = "b"
ip = "198.18.0.2/24"
progress = "dedicated"
[device.port]
kind = "ring"
wire = "w0"
side = "b"
[[device]]
name = "server"
ip = "198.18.0.3/24"
[device.port]
kind = "memif"
role = "server"
socket = ")" << (directory / "m.sock").string()
                        << R"("
)";
    verbs::configure(path);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(directory); }

  static std::shared_ptr<verbs::DeviceBackend> open(const std::string& name) {
    std::string error;
    auto device = verbs::open_device(name, error);
    EXPECT_NE(device, nullptr) << error;
    return device;
  }

  static inline std::filesystem::path directory;
};

TEST_F(Devices, AreListedInTheFilesOrder) {
  std::string error;
  const auto devices = verbs::list_devices(error);
  ASSERT_EQ(devices.size(), 3U) << error;
  EXPECT_EQ(devices[0].name, "a");
  EXPECT_EQ(devices[1].gids[0], wire::Gid::from_ipv4(0xc6120002));
  EXPECT_EQ(devices[0].max_path_mtu_bytes, 4096U);
}

TEST_F(Devices, OpenRefusesANameThatIsNotThere) {
  std::string error;
  EXPECT_EQ(verbs::open_device("zzz", error), nullptr);
  EXPECT_NE(error.find("there is no device \"zzz\""), std::string::npos) << error;
}

TEST_F(Devices, OpenTwiceIsOneDevice) {
  EXPECT_EQ(open("a"), open("a"));
}

TEST_F(Devices, ResolveEachOtherInBothWaysOfProgress) {
  const auto a = open("a");
  const auto b = open("b");
  wire::MacAddress mac;
  ASSERT_EQ(a->resolve(wire::Gid::from_ipv4(0xc6120002), mac), 0);
  EXPECT_EQ(mac, b->description().mac);
  ASSERT_EQ(b->resolve(wire::Gid::from_ipv4(0xc6120001), mac), 0);
  EXPECT_EQ(mac, a->description().mac);
  ASSERT_EQ(a->resolve(wire::Gid::from_ipv4(0xc6120001), mac), 0);
  EXPECT_EQ(mac, a->description().mac);
  EXPECT_GT(a->glue_counters().arp_out, 0U);
}

TEST_F(Devices, ResolveGivesUpOnNobody) {
  const auto a = open("a");
  wire::MacAddress mac;
  EXPECT_EQ(a->resolve(wire::Gid::from_ipv4(0xc6120063), mac), EHOSTUNREACH);
}

TEST_F(Devices, CallsRunBetweenTurnsFromManyThreads) {
  for (const auto& device : {open("a"), open("b")}) {
    int runs = 0;  // unprotected: calls exclude each other
    const auto caller = [&] {
      for (int i = 0; i < 500; ++i) {
        device->call([](void* count) { ++*static_cast<int*>(count); }, &runs);
        device->drive();
      }
    };
    std::thread one(caller);
    std::thread two(caller);
    one.join();
    two.join();
    device->call([](void* count) { ++*static_cast<int*>(count); }, &runs);
    EXPECT_EQ(runs, 1001);
  }
}

TEST_F(Devices, MeasureTheBarePort) {
  const auto a = open("a");
  const auto b = open("b");
  double received = 0;
  std::thread receiver([&] { received = b->measure_port_rx(400); });
  EXPECT_GT(a->measure_port_tx(64, 200), 0);
  receiver.join();
  EXPECT_GT(received, 0);
  EXPECT_EQ(a->measure_port_tx(10, 10), -EINVAL);
}

TEST_F(Devices, AMemifServerLeavesAPlainFileAlone) {
  const std::filesystem::path socket = directory / "m.sock";
  std::filesystem::remove(socket);
  std::ofstream(socket) << "not a socket";
  std::string error;
  EXPECT_EQ(verbs::open_device("server", error), nullptr);
  EXPECT_NE(error.find("device.port.socket: " + socket.string() + " exists and is not a socket"),
            std::string::npos)
      << error;
  std::filesystem::remove(socket);
}

TEST_F(Devices, CaptureHasWhatWasSent) {
  {
    const auto a = open("a");
    const auto b = open("b");
    wire::MacAddress mac;
    static_cast<void>(a->resolve(wire::Gid::from_ipv4(0xc6120062), mac));
  }
  // A section header, an interface and eight ARP requests of 60 bytes at least.
  EXPECT_GT(std::filesystem::file_size(directory / "a.pcapng"), 8U * 60);
}

class Chains : public Devices {
 protected:
  // Three segments of the given lengths with running bytes.
  static rte_mbuf* chain(rte_mempool* pool, std::initializer_list<uint16_t> lengths) {
    rte_mbuf* head = nullptr;
    uint8_t next = 0;
    for (const uint16_t length : lengths) {
      rte_mbuf* part = rte_pktmbuf_alloc(pool);
      auto* bytes = reinterpret_cast<uint8_t*>(rte_pktmbuf_append(part, length));
      for (uint16_t i = 0; i < length; ++i) bytes[i] = next++;
      if (head == nullptr)
        head = part;
      else
        EXPECT_EQ(rte_pktmbuf_chain(head, part), 0);
    }
    return head;
  }
};

TEST_F(Chains, AreMadeContiguous) {
  const auto a = open("a");  // starts EAL
  rte_mempool* small = rte_pktmbuf_pool_create("small", 63, 0, 0, 512 + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
  rte_mempool* large =
      rte_pktmbuf_pool_create("large", 63, 0, 0, glue::kBufferBytes + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
  ASSERT_TRUE(small != nullptr && large != nullptr);
  for (rte_mempool* from : {small, large}) {
    rte_mbuf* frame = glue::make_contiguous(chain(from, {500, 500, 77}), large);
    ASSERT_NE(frame, nullptr);
    EXPECT_EQ(frame->nb_segs, 1);
    ASSERT_EQ(frame->data_len, 1077);
    EXPECT_EQ(frame->pkt_len, 1077U);
    const auto* bytes = rte_pktmbuf_mtod(frame, const uint8_t*);
    for (unsigned i = 0; i < 1077; ++i) ASSERT_EQ(bytes[i], static_cast<uint8_t>(i)) << i;
    rte_pktmbuf_free(frame);
  }
  // Longer than any buffer: dropped, and nothing leaks.
  EXPECT_EQ(glue::make_contiguous(chain(large, {4000, 4000}), large), nullptr);
  EXPECT_EQ(rte_mempool_avail_count(small), 63U);
  EXPECT_EQ(rte_mempool_avail_count(large), 63U);
  rte_mempool_free(small);
  rte_mempool_free(large);
}

}  // namespace
}  // namespace faultline
