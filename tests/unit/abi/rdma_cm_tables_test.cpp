// SPDX-License-Identifier: BSD-3-Clause
// States, ports and addresses of rdma_cm, each tested separately.
#include <array>
#include <cerrno>
#include <cstring>
#include <set>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rdma/rdma_user_cm.h>

#include "stack/abi/rdma_cm/endpoint.hpp"
#include "stack/abi/rdma_cm/ports.hpp"
#include "stack/abi/rdma_cm/state.hpp"

namespace faultline::abi {
namespace {

TEST(IdStates, AreWhatTheKernelHas) {
  using enum IdState;
  struct Step {
    IdState from;
    IdInput input;
    IdState to;
  };
  const std::array<Step, 14> right{{{idle, IdInput::bind, bound},
                                    {bound, IdInput::resolve_address, resolving_address},
                                    {bound, IdInput::listen, listening},
                                    {bound, IdInput::join, bound},
                                    {resolving_address, IdInput::address_found, address_resolved},
                                    {resolving_address, IdInput::address_lost, bound},
                                    {address_resolved, IdInput::resolve_route, route_resolved},
                                    {address_resolved, IdInput::join, address_resolved},
                                    {route_resolved, IdInput::connect, connected},
                                    {route_resolved, IdInput::join, route_resolved},
                                    {connected, IdInput::accept, connected},
                                    {connected, IdInput::reject, connected},
                                    {connected, IdInput::join, connected},
                                    {connected, IdInput::disconnected, disconnected}}};
  size_t found = 0;
  for (int state = 0; state < static_cast<int>(IdState::count_); ++state)
    for (int input = 0; input < static_cast<int>(IdInput::count_); ++input) {
      const auto from = static_cast<IdState>(state);
      const auto what = static_cast<IdInput>(input);
      std::optional<IdState> expected;
      for (const Step& step : right)
        if (step.from == from && step.input == what) expected = step.to;
      EXPECT_EQ(transition(from, what), expected) << state << " " << input;
      found += expected ? 1 : 0;
    }
  EXPECT_EQ(found, 14U);
}

Endpoint ipv4(const char* address, uint16_t port) {
  return {.family = AF_INET,
          .gid = wire::Gid::from_ipv4(ntohl(inet_addr(address))),
          .port = port,
          .port_space = 0};
}

TEST(Ports, BelongToOneAddress) {
  PortTable ports(1);
  int a = 0, b = 0, c = 0, d = 0;
  Endpoint first = ipv4("198.18.0.1", 7471), other = ipv4("198.18.0.2", 7471), any = ipv4("0.0.0.0", 7471);
  Endpoint again = first;
  EXPECT_EQ(ports.bind(&a, RDMA_PS_TCP, first, {}), 0);
  EXPECT_EQ(ports.bind(&b, RDMA_PS_TCP, again, {}), EADDRINUSE);
  EXPECT_EQ(ports.bind(&b, RDMA_PS_TCP, other, {}), 0);
  EXPECT_EQ(ports.bind(&c, RDMA_PS_TCP, any, {}), EADDRNOTAVAIL);
  EXPECT_EQ(ports.bind(&c, RDMA_PS_UDP, any, {}), 0);
  ports.release(&a, RDMA_PS_TCP, 7471);
  EXPECT_EQ(ports.bind(&d, RDMA_PS_TCP, again, {}), 0);
}

TEST(Ports, AreSharedOnlyByThoseThatDoNotListen) {
  PortTable ports(1);
  int a = 0, b = 0, c = 0;
  Endpoint endpoint = ipv4("198.18.0.1", 7471);
  const PortTable::Options reuse{.reuse = true};
  EXPECT_EQ(ports.bind(&a, RDMA_PS_TCP, endpoint, reuse), 0);
  EXPECT_EQ(ports.bind(&b, RDMA_PS_TCP, endpoint, reuse), 0);
  EXPECT_EQ(ports.listen(&a, RDMA_PS_TCP, endpoint), EADDRINUSE);
  ports.release(&b, RDMA_PS_TCP, 7471);
  EXPECT_EQ(ports.listen(&a, RDMA_PS_TCP, endpoint), 0);
  EXPECT_EQ(ports.bind(&c, RDMA_PS_TCP, endpoint, reuse), EADDRINUSE);
  EXPECT_EQ(ports.listen(&c, RDMA_PS_TCP, endpoint), EINVAL);
}

TEST(Ports, AreChosenWhereNoneIsGiven) {
  PortTable ports(1);
  std::array<int, 200> owners{};
  std::set<uint16_t> chosen;
  for (const int& owner : owners) {
    Endpoint endpoint = ipv4("198.18.0.1", 0);
    ASSERT_EQ(ports.bind(&owner, RDMA_PS_TCP, endpoint, {}), 0);
    EXPECT_GE(endpoint.port, 32768);
    chosen.insert(endpoint.port);
  }
  EXPECT_EQ(chosen.size(), owners.size());
}

TEST(Endpoints, SurviveTheWayThereAndBack) {
  std::array<uint8_t, 128> bytes{};
  const Endpoint four = ipv4("198.18.0.1", 7471);
  EXPECT_EQ(write_endpoint(four, RDMA_PS_TCP, bytes), sizeof(sockaddr_in));
  EXPECT_EQ(reinterpret_cast<const sockaddr_in&>(bytes).sin_addr.s_addr, inet_addr("198.18.0.1"));
  EXPECT_EQ(reinterpret_cast<const sockaddr_in&>(bytes).sin_port, htons(7471));
  auto back = read_endpoint(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->gid, four.gid);
  EXPECT_EQ(back->port, 7471);

  Endpoint six{.family = AF_INET6, .gid = {}, .port = 1, .port_space = 0};
  inet_pton(AF_INET6, "2001:2::1", six.gid.bytes.data());
  EXPECT_EQ(write_endpoint(six, RDMA_PS_TCP, bytes), sizeof(sockaddr_in6));
  back = read_endpoint(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->gid, six.gid);
  EXPECT_EQ(back->port, 1);

  // struct sockaddr_ib: the service ID encodes port space and port.
  Endpoint ib{.family = kFamilyIb, .gid = six.gid, .port = 9, .port_space = RDMA_PS_UDP};
  EXPECT_EQ(write_endpoint(ib, RDMA_PS_IB, bytes), 48U);
  const std::array<uint8_t, 8> service{0, 0, 0, 0, 0x01, 0x11, 0, 9};
  EXPECT_EQ(std::memcmp(bytes.data() + 24, service.data(), service.size()), 0);
  back = read_endpoint(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->port, 9);
  EXPECT_EQ(back->port_space, RDMA_PS_UDP);
}

TEST(Endpoints, OfOtherFamiliesOrTooShortAreNone) {
  std::array<uint8_t, 128> bytes{};
  EXPECT_FALSE(read_endpoint(bytes));
  bytes[0] = AF_UNIX;
  EXPECT_FALSE(read_endpoint(bytes));
  bytes[0] = AF_INET6;
  EXPECT_FALSE(read_endpoint(std::span(bytes).first(sizeof(sockaddr_in6) - 1)));
  EXPECT_TRUE(read_endpoint(std::span(bytes).first(sizeof(sockaddr_in6))));
  EXPECT_FALSE(read_endpoint(std::span(bytes).first(1)));
}

}  // namespace
}  // namespace faultline::abi
