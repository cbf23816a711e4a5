// SPDX-License-Identifier: BSD-3-Clause
// Devices on real DPDK ports that need no privileges: two on a net_ring wire in this process. Memif needs two
// processes: tests/interop.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <rte_mbuf.h>
#include <rte_spinlock.h>
#include <rte_stack.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pmd_glue/device/running_device.hpp"
#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/engine/chaos_link.hpp"
#include "pmd_glue/engine/poll_engine.hpp"
#include "stack/verbs/objects/backend.hpp"
#include "tests/hang_limit.hpp"
#include "tests/sim/world/take_to_rts.hpp"

namespace faultline::port_test {
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
  EXPECT_GT(a->port_counters().arp_out, 0U);
}

TEST_F(Devices, AnswerForTheirCountersAfterShutDown) {
  const auto server = open("server");
  dynamic_cast<glue::RunningDevice&>(*server).shut_down();
  EXPECT_EQ(server->port_counters().rx_missed, 0U);
}

TEST_F(Devices, ResolveGivesUpOnNobody) {
  const auto a = open("a");
  wire::MacAddress mac;
  EXPECT_EQ(a->resolve(wire::Gid::from_ipv4(0xc6120063), mac), EHOSTUNREACH);
}

TEST_F(Devices, CallsRunBetweenTurnsFromManyThreads) {
  for (const auto& device : {open("a"), open("b")}) {
    int runs = 0;  // unprotected: calls must exclude each other
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

/// Between turns no thread holds the engine. A control call may free memory of a region or deregister a
/// region; both wait for all engines. A call that waited for its own engine would never return.
TEST_F(Devices, CallsMayWaitForTheEngines) {
  struct Outcome {
    odp::MemoryDomain& memory;
    std::array<uint8_t, 4096> bytes{};
    int error = -1;
  };
  for (const auto& device : {open("a"), open("b")}) {
    Outcome outcome{device->memory()};
    alarm(faultline::test::hang_seconds());
    device->call(
        [](void* argument) {
          auto& call = *static_cast<Outcome*>(argument);
          const odp::RegionResult region =
              call.memory.register_region({.domain = 1,
                                           .address = reinterpret_cast<uint64_t>(call.bytes.data()),
                                           .length_bytes = call.bytes.size(),
                                           .iova = 0,
                                           .access = odp::kLocalWrite});
          call.error = region.error != 0 ? region.error : call.memory.deregister_region(region.key);
        },
        &outcome);
    alarm(0);
    EXPECT_EQ(outcome.error, 0);
  }
}

TEST_F(Devices, MeasureTheBarePort) {
  const auto a = open("a");
  const auto b = open("b");
  // A busy machine may delay either thread for the whole measurement.
  double received = 0;
  std::atomic<bool> is_over{false};
  std::thread receiver([&] {
    for (int turn = 0; turn < 100 && received <= 0; ++turn) received = b->measure_port_rx(200);
    is_over = true;
  });
  double sent = 0;
  while (!is_over) sent += a->measure_port_tx(64, 50);
  receiver.join();
  EXPECT_GT(sent, 0);
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
  // At least a section header, an interface, and eight ARP requests of 60 bytes.
  EXPECT_GT(std::filesystem::file_size(directory / "a.pcapng"), 8U * 60);
}

/// A QP on each of two devices, joined. This thread drives "a"; a dedicated lcore drives "b".
class Joined : public Devices {
 protected:
  void SetUp() override {
    a.device = open("a");
    b.device = open("b");
    wire::MacAddress mac_of_b;
    wire::MacAddress mac_of_a;
    ASSERT_EQ(a.device->resolve(wire::Gid::from_ipv4(0xc6120002), mac_of_b), 0);
    ASSERT_EQ(b.device->resolve(wire::Gid::from_ipv4(0xc6120001), mac_of_a), 0);
    a.create();
    b.create();
    ASSERT_TRUE(a.connect(b, mac_of_b));
    ASSERT_TRUE(b.connect(a, mac_of_a));
  }
  void TearDown() override {
    a.destroy();
    b.destroy();
  }

  struct End {
    std::shared_ptr<verbs::DeviceBackend> device;
    transport::CompletionQueue sends{1024}, receives{1024};
    transport::QueuePair* qp = nullptr;

    template <typename Function>
    void call(Function function) {
      device->call([](void* argument) { (*static_cast<Function*>(argument))(); }, &function);
    }
    void create() {
      transport::QpInit init;
      init.send_cq = &sends;
      init.receive_cq = &receives;
      init.max_send_wr = init.max_receive_wr = 512;
      call([&] { qp = device->core().create_qp(init); });
      ASSERT_NE(qp, nullptr);
    }
    void destroy() {
      if (qp != nullptr) call([&] { device->core().destroy_qp(qp); });
      qp = nullptr;
    }
    bool connect(const End& peer, const wire::MacAddress& mac) {
      using namespace transport;
      QpAttributes attributes;
      attributes.path_mtu = PathMtu::mtu1024;
      attributes.av.path.source_gid = device->description().gids[0];
      attributes.av.path.destination_gid = peer.device->description().gids[0];
      attributes.av.path.source_mac = device->description().mac;
      attributes.av.path.destination_mac = mac;
      attributes.destination_qpn = qpn_of(peer.qp);
      attributes.timeout = 10;
      attributes.retry_count = 7;
      int error = 0;
      call([&] { error = sim::take_to_rts(device->core(), qp, attributes, device->now()); });
      return error == 0;
    }
    void receive() {
      transport::ReceiveRing& ring = transport::receive_ring_of(qp);
      *ring.prepare() = {};
      ring.advance();
      ring.publish();
    }
    /// Posts a SEND without payload; the test rings the engine's doorbell.
    void post() {
      transport::SendRing& ring = transport::send_ring_of(qp);
      transport::SendWqe& wqe = *ring.prepare();
      wqe = {};
      wqe.opcode = transport::SendOpcode::send;
      wqe.flags = transport::kSignaled;
      ring.advance();
      ring.publish();
    }
    /// Drives until a completion arrives.
    [[nodiscard]] transport::CompletionStatus await(transport::CompletionQueue& queue) const {
      transport::Completion completion;
      while (queue.poll({&completion, 1}) == 0) device->drive();
      return completion.status;
    }
  };
  End a, b;
};

TEST_F(Joined, WhatTheDrivingThreadPostsIsSentAtOnce) {
  b.receive();
  a.device->drive();
  a.post();
  const uint64_t before = a.device->port_counters().tx_frames;
  // Another thread may hold the turn for a moment.
  do a.device->drive();
  while (!a.device->serve_posted(0, a.qp));
  EXPECT_EQ(a.device->port_counters().tx_frames, before + 1);
  EXPECT_FALSE(a.device->serve_posted(0, a.qp)) << "once a turn";
  EXPECT_EQ(b.await(b.receives), transport::CompletionStatus::success);
  EXPECT_EQ(a.await(a.sends), transport::CompletionStatus::success);
}

TEST_F(Joined, OthersThanTheDrivingThreadRingTheDoorbell) {
  a.device->drive();
  std::thread([&] { EXPECT_FALSE(a.device->serve_posted(0, a.qp)); }).join();
  b.device->drive();
  EXPECT_FALSE(b.device->serve_posted(0, b.qp)) << "its lcore drives it";
}

TEST_F(Joined, AQpThatGoesAcknowledgesWhatItWasGiven) {
  constexpr int kMessages = 1000;
  for (int i = 0; i < kMessages; ++i) {
    a.receive();
    b.post();
    b.device->core().ring_doorbell(b.qp);
    ASSERT_EQ(a.await(a.receives), transport::CompletionStatus::success);
    // The last completion is delivered to a program that has always returned at once.
    if (i + 1 == kMessages)
      a.destroy();
    else
      a.device->drive();
    ASSERT_EQ(b.await(b.sends), transport::CompletionStatus::success) << i;
  }
}

class Chains : public Devices {
 protected:
  // Returns three segments of the given lengths, filled with consecutive bytes.
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

class FramePool : public Devices {
 protected:
  static constexpr unsigned kFrames = 4095;
  void SetUp() override {
    device = open("a");  // starts EAL
    pool = rte_mempool_lookup("frames");
    if (pool == nullptr) pool = glue::create_frame_pool("frames", kFrames);
    ASSERT_NE(pool, nullptr);
  }
  std::vector<rte_mbuf*> take(unsigned count) const {
    std::vector<rte_mbuf*> frames(count);
    EXPECT_EQ(rte_pktmbuf_alloc_bulk(pool, frames.data(), count), 0);
    return frames;
  }

  std::shared_ptr<verbs::DeviceBackend> device;
  rte_mempool* pool = nullptr;
};

TEST_F(FramePool, GivesOutWhatCameBackLast) {
  // One thread allocates and another frees, as at the two ends of a net_ring wire.
  std::set<rte_mbuf*> used;
  for (int i = 0; i < 200; ++i) {
    std::vector<rte_mbuf*> burst = take(32);
    used.insert(burst.begin(), burst.end());
    std::thread([&] {
      glue::register_this_thread();
      rte_pktmbuf_free_bulk(burst.data(), 32);
    }).join();
  }
  EXPECT_LT(used.size(), kFrames / 4);
  EXPECT_EQ(rte_mempool_avail_count(pool), kFrames);
}

TEST_F(FramePool, HasEachFrameOnceWhenRefilled) {
  // The first buffers are never freed; the rest of the burst is in this thread's cache.
  std::vector<rte_mbuf*> lost = take(100);
  lost[0]->refcnt = 2;
  // As if a thread had died while it was about to allocate.
  rte_spinlock_lock(&static_cast<rte_stack*>(pool->pool_data)->stack_std.lock);
  glue::refill(*pool);
  EXPECT_EQ(rte_mempool_avail_count(pool), kFrames);
  std::vector<rte_mbuf*> all = take(kFrames);
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), kFrames);
  for (const rte_mbuf* frame : all) EXPECT_EQ(frame->refcnt, 1);
  rte_pktmbuf_free_bulk(all.data(), kFrames);
}

class BadLink : public Devices {
 protected:
  void SetUp() override {
    device = open("a");  // starts EAL
    pool = rte_mempool_lookup("bad_link");
    if (pool == nullptr)
      pool = rte_pktmbuf_pool_create("bad_link", 4095, 0, 0, 256 + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
    ASSERT_NE(pool, nullptr);
  }
  void TearDown() override { EXPECT_EQ(rte_mempool_avail_count(pool), 4095U) << "a frame leaked"; }

  rte_mbuf* frame(uint8_t number) {
    rte_mbuf* made = rte_pktmbuf_alloc(pool);
    auto* bytes = reinterpret_cast<uint8_t*>(rte_pktmbuf_append(made, 64));
    std::fill_n(bytes, 64, number);
    return made;
  }
  void put(glue::ChaosLink& link, uint8_t number, TimeNs now) {
    rte_mbuf* made = frame(number);
    link.put({&made, 1}, now, counts);
  }
  /// Returns the first byte of each frame that is due.
  std::vector<uint8_t> take(glue::ChaosLink& link, TimeNs now) {
    std::vector<uint8_t> numbers;
    std::array<glue::ChaosLink::Held, 8> due;
    while (const size_t count = link.take_due(now, due))
      for (size_t i = 0; i < count; ++i) {
        numbers.push_back(*rte_pktmbuf_mtod(due[i].frame, uint8_t*));
        rte_pktmbuf_free(due[i].frame);
      }
    return numbers;
  }

  std::shared_ptr<verbs::DeviceBackend> device;
  rte_mempool* pool = nullptr;
  glue::ChaosCounts counts;
};

TEST_F(BadLink, HoldsFramesForTheirTimeAndInOrder) {
  glue::ChaosLink link({.delay_ns = 1000}, pool);
  for (uint8_t i = 0; i < 20; ++i) put(link, i, 10U * i);
  EXPECT_TRUE(take(link, 999).empty());
  EXPECT_EQ(take(link, 1050), (std::vector<uint8_t>{0, 1, 2, 3, 4, 5}));
  // Frames that the port did not accept are sent first the next time.
  std::array<glue::ChaosLink::Held, 4> due;
  ASSERT_EQ(link.take_due(1100, due), 4U);
  rte_pktmbuf_free(due[0].frame);
  link.give_back(std::span(due).subspan(1));
  EXPECT_EQ(take(link, 1100), (std::vector<uint8_t>{7, 8, 9, 10}));
  EXPECT_TRUE(link.holds_frames());  // the destructor frees them
}

TEST_F(BadLink, LosesDuplicatesDamagesAndReorders) {
  {
    glue::ChaosLink loses({.loss = 1}, pool);
    put(loses, 1, 0);
    EXPECT_TRUE(take(loses, 1).empty());
    EXPECT_EQ(counts.lost, 1U);
  }
  {
    glue::ChaosLink doubles({.duplicate = 1}, pool);
    put(doubles, 1, 0);
    EXPECT_EQ(take(doubles, 0), (std::vector<uint8_t>{1, 1}));
    EXPECT_EQ(counts.duplicated, 1U);
  }
  {
    glue::ChaosLink corrupts({.corrupt = 1}, pool);
    rte_mbuf* good = frame(0);
    good->ol_flags = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
    corrupts.put({&good, 1}, 0, counts);
    std::array<glue::ChaosLink::Held, 1> due;
    ASSERT_EQ(corrupts.take_due(0, due), 1U);
    const auto* bytes = rte_pktmbuf_mtod(due[0].frame, const uint8_t*);
    EXPECT_EQ(
        std::accumulate(bytes, bytes + 64, 0, [](int sum, uint8_t b) { return sum + std::popcount(b); }), 1);
    EXPECT_EQ(due[0].frame->ol_flags & (RTE_MBUF_F_RX_IP_CKSUM_MASK | RTE_MBUF_F_RX_L4_CKSUM_MASK), 0U)
        << "the port's word no longer holds";
    rte_pktmbuf_free(due[0].frame);
  }
  {
    glue::ChaosLink reorders({.reorder = 0.3, .reorder_delay_ns = 50}, pool);
    for (uint8_t i = 0; i < 100; ++i) put(reorders, i, i);
    const std::vector<uint8_t> came = take(reorders, 1000);
    EXPECT_EQ(came.size(), 100U);
    EXPECT_FALSE(std::is_sorted(came.begin(), came.end()));
  }
}

TEST_F(BadLink, HoldsSoManyFramesAndNoMore) {
  glue::ChaosLink link({.delay_ns = 1000}, pool);
  for (size_t i = 0; i < glue::ChaosLink::kHeld + 10; ++i) put(link, 0, 0);
  EXPECT_EQ(counts.lost, 10U);
  EXPECT_EQ(take(link, 1000).size(), glue::ChaosLink::kHeld);
}

}  // namespace
}  // namespace faultline::port_test
