// SPDX-License-Identifier: BSD-3-Clause
// Errors of paths, as the kernel reports them to the UDP socket of an address. The test has a network
// namespace of its own, whose loopback interface has the addresses.
#include "pmd_glue/ports/udp/udp_socket.hpp"

#include <array>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <rte_mbuf.h>

#include "pmd_glue/eal/frame_bulk.hpp"
#include "pmd_glue/eal/mbuf_view.hpp"
#include "pmd_glue/link/address_table.hpp"
#include "pmd_glue/link/interface.hpp"
#include "tests/interop/own_network.hpp"
#include "tests/unit/engine/eal_pool.hpp"

namespace faultline::glue::test {
namespace {

bool has_network = false;

struct Hosts {
  const char* own;
  const char* peer;
  const char* absent;  ///< an address of this host without a socket
  const char* far;     ///< behind a path that holds 1400 bytes
};
constexpr std::array kFamilies{Hosts{"198.18.0.1", "198.18.0.2", "198.18.0.3", "198.18.9.9"},
                               Hosts{"2001:2::1", "2001:2::2", "2001:2::3", "2001:2:0:9::9"}};

class UdpSockets : public WithFrames {
 protected:
  void SetUp() override {
    if (!has_network) GTEST_SKIP() << "no network namespace for an ordinary user, or no ip";
    WithFrames::SetUp();
  }

  static wire::Gid gid_of(const char* text) { return parse_address(text)->gid; }
  static std::unique_ptr<UdpSocket> open(const char* address) {
    std::string error;
    auto socket = UdpSocket::open(gid_of(address), interface_index("lo"), pool(), error);
    EXPECT_NE(socket, nullptr) << error;
    return socket;
  }
  /// Sends `count` packets in one burst.
  static void send(UdpSocket& from, const char* to, uint32_t payload_bytes, size_t count = 1) {
    std::vector<rte_mbuf*> frames;
    for (size_t i = 0; i < count; ++i) {
      rte_mbuf* const frame = rte_pktmbuf_alloc(pool());
      ASSERT_NE(frame, nullptr);
      wire::IncomingDatagram headers;
      headers.source = from.own();
      headers.destination = gid_of(to);
      set_length(frame, wire::write_datagram_headers({rte_pktmbuf_mtod(frame, uint8_t*), capacity_of(frame)},
                                                     headers, payload_bytes));
      frames.push_back(frame);
    }
    for (std::span<rte_mbuf*> left(frames); !left.empty();) left = left.subspan(from.transmit(left));
  }
  static size_t receive(UdpSocket& socket) {
    std::array<rte_mbuf*, 32> frames;
    const size_t count = socket.receive({}, 0, frames);
    for (size_t i = 0; i < count; ++i) rte_pktmbuf_free(frames[i]);
    return count;
  }
};

TEST_F(UdpSockets, APeerWithoutASocketDisturbsNoOther) {
  for (const Hosts& hosts : kFamilies) {
    const auto own = open(hosts.own);
    const auto peer = open(hosts.peer);
    size_t arrived = 0;
    for (int i = 0; i < 20; ++i) {
      send(*own, hosts.absent, 64);
      send(*own, hosts.peer, 64);
      arrived += receive(*peer);
      send(*own, hosts.absent, 64);
      send(*peer, hosts.own, 64);
      arrived += receive(*own);
    }
    EXPECT_EQ(arrived, 40U) << hosts.own;
    EXPECT_EQ(own->path_errors().unreachable(), 40U);
    EXPECT_EQ(own->path_errors().too_long(), 0U);
    EXPECT_EQ(own->refused(), 0U);
  }
}

TEST_F(UdpSockets, PacketsThatTheirPathDoesNotHoldAreCountedAndNamedOnce) {
  for (const Hosts& hosts : kFamilies) {
    const auto own = open(hosts.own);
    const auto peer = open(hosts.peer);
    testing::internal::CaptureStderr();
    send(*own, hosts.far, 2048, 3);
    send(*own, hosts.far, 2048);
    send(*own, hosts.far, 1024);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(own->path_errors().too_long(), 4U) << hosts.own;
    EXPECT_EQ(own->refused(), 0U);
    const std::string line =
        std::string("faultline: ") + hosts.own + ": packets to " + hosts.far +
        " are dropped: they are longer than the 1400 bytes that the path holds; give its "
        "QPs a path MTU of at most 1024 (ibv_modify_qp(3)), or the device mtu = 1400\n";
    EXPECT_EQ(log, line);
    pollfd sleeper{.fd = own->descriptor(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&sleeper, 1, 0), 0) << "a thread could not sleep on the socket";
    send(*own, hosts.peer, 2048, 3);
    EXPECT_EQ(receive(*peer), 3U);
  }
}

// A thread that ends in a burst would keep the turn: ibv_poll_cq is no cancellation point (pthreads(7)).
TEST_F(UdpSockets, BurstsAreNoCancellationPoints) {
  struct Bursts {
    UdpSocket& own;
    UdpSocket& peer;
    const char* to;
    size_t arrived = 0;
  };
  for (const Hosts& hosts : kFamilies) {
    const auto own = open(hosts.own);
    const auto peer = open(hosts.peer);
    Bursts bursts{*own, *peer, hosts.peer};
    const auto run = [](void* argument) -> void* {
      auto& the = *static_cast<Bursts*>(argument);
      pthread_cancel(pthread_self());
      send(the.own, the.to, 64);
      send(the.own, the.to, 64, 2);
      for (int i = 0; i < 4; ++i) the.arrived += receive(the.peer);
      pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
      return argument;
    };
    pthread_t thread{};
    ASSERT_EQ(pthread_create(&thread, nullptr, run, &bursts), 0);
    void* result = nullptr;
    ASSERT_EQ(pthread_join(thread, &result), 0);
    EXPECT_EQ(result, &bursts) << "the thread ended in a burst";
    EXPECT_EQ(bursts.arrived, 3U) << hosts.own;
  }
}

bool make_network() {
  if (!faultline::test::enter_own_network()) return false;
  using faultline::test::ip;
  for (const Hosts& hosts : kFamilies)
    for (const char* address : {hosts.own, hosts.peer, hosts.absent})
      ip(std::string("addr add dev lo ") + address + (address[0] == '1' ? "/32" : "/128 nodad"));
  // Packets to the far peer leave the host, and nobody takes them.
  ip("link add fl-a mtu 9000 type veth peer name fl-b mtu 9000");
  ip("link set fl-a up");
  ip("link set fl-b up");
  ip("route add 198.18.9.0/24 dev fl-a mtu lock 1400");
  ip("route add 2001:2:0:9::/64 dev fl-a mtu lock 1400");
  return true;
}

}  // namespace
}  // namespace faultline::glue::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  faultline::glue::test::has_network = faultline::glue::test::make_network();
  return RUN_ALL_TESTS();
}
