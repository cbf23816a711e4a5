// SPDX-License-Identifier: BSD-3-Clause
// Routing netlink: which requests about interfaces are answered here, which of them by the kernel, and a
// descriptor that has both answers.
#include "stack/abi/netlink/route_answers.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include "stack/abi/netlink/route_socket.hpp"
#include "stack/abi/sockets/netlink_sockets.hpp"

namespace faultline::abi {
namespace {

constexpr uint32_t kRouteSequence = 9, kRoutePort = 4711, kOwnIndex = 0x10000001;
constexpr size_t kBufferBytes = 4096;  // libmnl's buffer

template <typename Header>
NetlinkMessage question(uint16_t type, uint16_t flags, const Header& header) {
  NetlinkMessage message(type, static_cast<uint16_t>(NLM_F_REQUEST | flags), kRouteSequence, 0);
  message.append_value(header);
  message.pad();
  return message;
}

/// The messages of some datagrams.
std::vector<NetlinkBytes> messages_of(const std::vector<NetlinkBytes>& datagrams) {
  std::vector<NetlinkBytes> messages;
  for (const NetlinkBytes& datagram : datagrams) {
    size_t at = 0;
    while (at + sizeof(nlmsghdr) <= datagram.size()) {
      nlmsghdr header;
      std::memcpy(&header, datagram.data() + at, sizeof header);
      if (header.nlmsg_len < sizeof header || at + header.nlmsg_len > datagram.size()) {
        ADD_FAILURE() << "a message of " << header.nlmsg_len << " bytes at " << at << " of "
                      << datagram.size();
        return messages;
      }
      const auto begin = datagram.begin() + static_cast<ptrdiff_t>(at);
      messages.emplace_back(begin, begin + static_cast<ptrdiff_t>(header.nlmsg_len));
      at += NLMSG_ALIGN(header.nlmsg_len);
    }
  }
  return messages;
}

template <typename Value>
Value value_at(const NetlinkBytes& message, size_t offset) {
  Value value{};
  if (message.size() < offset + sizeof value)
    ADD_FAILURE() << "a message of " << message.size() << " bytes";
  else
    std::memcpy(&value, message.data() + offset, sizeof value);
  return value;
}
nlmsghdr netlink_header(const NetlinkBytes& message) {
  return value_at<nlmsghdr>(message, 0);
}
template <typename Header>
Header family_of(const NetlinkBytes& message) {
  return value_at<Header>(message, sizeof(nlmsghdr));
}

/// The attribute's bytes, read by rtnetlink(3).
template <typename Header>
std::optional<std::string> attribute(const NetlinkBytes& message, uint16_t type) {
  size_t at = NLMSG_LENGTH(NLMSG_ALIGN(sizeof(Header)));
  while (at + sizeof(rtattr) <= message.size()) {
    const auto header = value_at<rtattr>(message, at);
    if (header.rta_len < sizeof header || at + header.rta_len > message.size()) return std::nullopt;
    if ((header.rta_type & NLA_TYPE_MASK) == type)
      return std::string(message.begin() + static_cast<ptrdiff_t>(at + sizeof header),
                         message.begin() + static_cast<ptrdiff_t>(at + header.rta_len));
    at += RTA_ALIGN(header.rta_len);
  }
  return std::nullopt;
}
std::string bytes_of(std::initializer_list<int> bytes) {
  std::string text;
  for (const int byte : bytes) text += static_cast<char>(byte);
  return text;
}
std::string bytes_of(uint32_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

constexpr uint64_t kLarge = 5'000'000'000;  // more than 32 bits
rtnl_link_stats64 statistics_of(const OwnInterface& own) {
  EXPECT_EQ(own.index, kOwnIndex);
  rtnl_link_stats64 statistics{};
  statistics.rx_bytes = kLarge;
  statistics.tx_packets = 3;
  return statistics;
}

class RouteAnswers : public testing::Test {
 protected:
  RouteAnswers() {
    wire::Gid link;
    link.bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x46, 0xc6, 0xff, 0xfe, 0x12, 0, 1};
    const wire::Gid ipv4 = wire::Gid::from_ipv4(0xc6120001);
    own_ = {.name = "wire0",
            .index = kOwnIndex,
            .device = "faultline0",
            .mac = {{2, 0x46, 0xc6, 0x12, 0, 1}},
            .mtu_bytes = 4500,
            .is_up = true,
            .addresses = {{ipv4, 15}, {link, 64}},
            .routes = {{wire::Gid::from_ipv4(0xc6120000), 15, {}, ipv4},
                       {masked(link, 64), 64, {}, link},
                       {wire::Gid::from_ipv4(0xcb007100), 24, wire::Gid::from_ipv4(0xc61200fe), ipv4}}};
  }
  [[nodiscard]] RouteAnswer answer(NetlinkMessage message) const {
    RouteAnswer result = answer_route(message.finish(), kRoutePort, {&own_, 1}, statistics_of);
    for (const NetlinkBytes& one : result.messages) {
      EXPECT_EQ(netlink_header(one).nlmsg_len, one.size());
      EXPECT_EQ(netlink_header(one).nlmsg_seq, kRouteSequence);
      EXPECT_EQ(netlink_header(one).nlmsg_pid, kRoutePort);
    }
    return result;
  }

  OwnInterface own_;
};

TEST_F(RouteAnswers, ADumpOfLinksHasTheInterfaceToo) {
  for (const NetlinkMessage& asked : {question(RTM_GETLINK, NLM_F_DUMP, ifinfomsg{}),
                                      question(RTM_GETLINK, NLM_F_DUMP, rtgenmsg{AF_PACKET})}) {
    const RouteAnswer found = answer(asked);
    EXPECT_TRUE(found.asks_kernel);
    ASSERT_EQ(found.messages.size(), 1U);
    const NetlinkBytes& link = found.messages[0];
    EXPECT_EQ(netlink_header(link).nlmsg_type, RTM_NEWLINK);
    EXPECT_EQ(netlink_header(link).nlmsg_flags, NLM_F_MULTI);
    EXPECT_EQ(family_of<ifinfomsg>(link).ifi_index, static_cast<int>(kOwnIndex));
    EXPECT_EQ(family_of<ifinfomsg>(link).ifi_flags & (IFF_UP | IFF_RUNNING), unsigned{IFF_UP | IFF_RUNNING});
    EXPECT_EQ(attribute<ifinfomsg>(link, IFLA_IFNAME), std::string("wire0\0", 6));
    EXPECT_EQ(attribute<ifinfomsg>(link, IFLA_MTU), bytes_of(4500U));
    EXPECT_EQ(attribute<ifinfomsg>(link, IFLA_ADDRESS), bytes_of({2, 0x46, 0xc6, 0x12, 0, 1}));
  }
  EXPECT_TRUE(answer(question(RTM_GETLINK, NLM_F_DUMP, rtgenmsg{AF_BRIDGE})).messages.empty());
}

TEST_F(RouteAnswers, ALinkHasItsStatisticsUnlessTheProgramSkipsThem) {
  const NetlinkMessage asked = question(RTM_GETLINK, NLM_F_DUMP, ifinfomsg{});
  const NetlinkBytes link = answer(asked).messages.at(0);
  const rtnl_link_stats64 wanted = statistics_of(own_);
  EXPECT_EQ(attribute<ifinfomsg>(link, IFLA_STATS64),
            std::string(reinterpret_cast<const char*>(&wanted), sizeof wanted));
  const auto halves = attribute<ifinfomsg>(link, IFLA_STATS);
  ASSERT_TRUE(halves);
  rtnl_link_stats found{};
  ASSERT_EQ(halves->size(), sizeof found);
  std::memcpy(&found, halves->data(), sizeof found);
  EXPECT_EQ(found.rx_bytes, static_cast<uint32_t>(kLarge));
  EXPECT_EQ(found.tx_packets, 3U);

  NetlinkMessage without = asked;
  without.put_u32(IFLA_EXT_MASK, 8);  // RTEXT_FILTER_SKIP_STATS
  EXPECT_FALSE(attribute<ifinfomsg>(answer(without).messages.at(0), IFLA_STATS64));
}

TEST_F(RouteAnswers, ALinkIsFoundByItsNameOrIndex) {
  NetlinkMessage by_name = question(RTM_GETLINK, 0, ifinfomsg{});
  by_name.put_text(IFLA_IFNAME, "wire0");
  ifinfomsg indexed{};
  indexed.ifi_index = static_cast<int>(kOwnIndex);
  const NetlinkMessage by_index = question(RTM_GETLINK, NLM_F_ACK, indexed);
  for (const NetlinkMessage& asked : {by_name, by_index}) {
    const RouteAnswer found = answer(asked);
    EXPECT_FALSE(found.asks_kernel);
    ASSERT_FALSE(found.messages.empty());
    EXPECT_EQ(family_of<ifinfomsg>(found.messages[0]).ifi_index, static_cast<int>(kOwnIndex));
    EXPECT_EQ(netlink_header(found.messages[0]).nlmsg_flags, 0);
  }
  EXPECT_EQ(answer(by_name).messages.size(), 1U);
  const RouteAnswer acknowledged = answer(by_index);
  ASSERT_EQ(acknowledged.messages.size(), 2U);
  EXPECT_EQ(netlink_header(acknowledged.messages[1]).nlmsg_type, NLMSG_ERROR);
  EXPECT_EQ(family_of<int>(acknowledged.messages[1]), 0);

  indexed.ifi_index = 1;
  NetlinkMessage of_host = question(RTM_GETLINK, 0, indexed);
  of_host.put_text(IFLA_IFNAME, "wire0");  // the index decides
  EXPECT_TRUE(answer(of_host).asks_kernel);
  EXPECT_TRUE(answer(of_host).messages.empty());
}

TEST_F(RouteAnswers, AddressesAreFilteredByFamilyAndInterface) {
  ifaddrmsg header{};
  const RouteAnswer both = answer(question(RTM_GETADDR, NLM_F_DUMP, header));
  EXPECT_TRUE(both.asks_kernel);
  ASSERT_EQ(both.messages.size(), 2U);
  EXPECT_EQ(family_of<ifaddrmsg>(both.messages[0]).ifa_prefixlen, 15);
  EXPECT_EQ(attribute<ifaddrmsg>(both.messages[0], IFA_LOCAL), bytes_of({198, 18, 0, 1}));
  EXPECT_EQ(attribute<ifaddrmsg>(both.messages[0], IFA_BROADCAST), bytes_of({198, 19, 255, 255}));
  EXPECT_EQ(family_of<ifaddrmsg>(both.messages[1]).ifa_family, AF_INET6);
  EXPECT_EQ(family_of<ifaddrmsg>(both.messages[1]).ifa_scope, RT_SCOPE_LINK);

  header.ifa_family = AF_INET6;
  EXPECT_EQ(answer(question(RTM_GETADDR, NLM_F_DUMP, header)).messages.size(), 1U);
  header.ifa_index = 1;
  EXPECT_TRUE(answer(question(RTM_GETADDR, NLM_F_DUMP, header)).messages.empty());
  EXPECT_TRUE(answer(question(RTM_GETADDR, NLM_F_DUMP, header)).asks_kernel);
  header.ifa_index = kOwnIndex;
  const RouteAnswer own = answer(question(RTM_GETADDR, NLM_F_DUMP, header));
  EXPECT_FALSE(own.asks_kernel);  // which has no such interface
  ASSERT_EQ(own.messages.size(), 2U);
  EXPECT_EQ(netlink_header(own.messages[1]).nlmsg_type, NLMSG_DONE);
}

TEST_F(RouteAnswers, RoutesAreOfTheMainTable) {
  rtmsg header{};
  header.rtm_family = AF_INET;
  header.rtm_table = RT_TABLE_MAIN;
  const RouteAnswer found = answer(question(RTM_GETROUTE, NLM_F_DUMP, header));
  EXPECT_TRUE(found.asks_kernel);
  ASSERT_EQ(found.messages.size(), 2U);
  EXPECT_EQ(family_of<rtmsg>(found.messages[0]).rtm_dst_len, 15);
  EXPECT_EQ(attribute<rtmsg>(found.messages[0], RTA_DST), bytes_of({198, 18, 0, 0}));
  EXPECT_EQ(attribute<rtmsg>(found.messages[0], RTA_OIF), bytes_of(kOwnIndex));
  EXPECT_EQ(attribute<rtmsg>(found.messages[0], RTA_PREFSRC), bytes_of({198, 18, 0, 1}));
  EXPECT_EQ(attribute<rtmsg>(found.messages[0], RTA_GATEWAY), std::nullopt);
  EXPECT_EQ(attribute<rtmsg>(found.messages[1], RTA_GATEWAY), bytes_of({198, 18, 0, 254}));

  header.rtm_table = RT_TABLE_LOCAL;
  EXPECT_TRUE(answer(question(RTM_GETROUTE, NLM_F_DUMP, header)).messages.empty());
  header.rtm_table = RT_TABLE_UNSPEC;
  header.rtm_flags = RTM_F_CLONED;
  EXPECT_TRUE(answer(question(RTM_GETROUTE, NLM_F_DUMP, header)).messages.empty());
  header.rtm_flags = 0;
  for (const uint32_t index : {1U, kOwnIndex}) {
    NetlinkMessage asked = question(RTM_GETROUTE, NLM_F_DUMP, header);
    asked.put_u32(RTA_OIF, index);
    EXPECT_EQ(answer(asked).asks_kernel, index == 1);
    EXPECT_EQ(answer(asked).messages.size(), index == 1 ? 0U : 3U);
  }
}

TEST_F(RouteAnswers, TheWayToAnAddressIsThatOfTheLongestPrefix) {
  rtmsg header{};
  header.rtm_family = AF_INET;
  header.rtm_dst_len = 32;
  const auto way_to = [&](std::initializer_list<uint8_t> address) {
    NetlinkMessage asked = question(RTM_GETROUTE, 0, header);
    asked.put_bytes(RTA_DST, std::vector<uint8_t>(address));
    return answer(asked);
  };
  const RouteAnswer peer = way_to({198, 19, 7, 7});
  EXPECT_FALSE(peer.asks_kernel);
  ASSERT_EQ(peer.messages.size(), 1U);
  EXPECT_EQ(family_of<rtmsg>(peer.messages[0]).rtm_dst_len, 32);
  EXPECT_EQ(attribute<rtmsg>(peer.messages[0], RTA_DST), bytes_of({198, 19, 7, 7}));
  EXPECT_EQ(attribute<rtmsg>(peer.messages[0], RTA_OIF), bytes_of(kOwnIndex));
  EXPECT_TRUE(way_to({10, 0, 0, 1}).asks_kernel);
  EXPECT_TRUE(way_to({198, 18, 0}).asks_kernel);  // it refuses the length

  own_.routes.push_back(
      {wire::Gid::from_ipv4(0), 0, wire::Gid::from_ipv4(0xc61200fe), own_.addresses[0].gid});
  EXPECT_TRUE(way_to({10, 0, 0, 1}).asks_kernel);  // it may have a better one
  own_.routes.push_back({wire::Gid::from_ipv4(0xc6130700), 24, wire::Gid::from_ipv4(0xc61200fd), {}});
  EXPECT_EQ(attribute<rtmsg>(way_to({198, 19, 7, 7}).messages[0], RTA_GATEWAY), bytes_of({198, 18, 0, 253}));
}

TEST_F(RouteAnswers, TheTableOfNeighboursIsEmpty) {
  ndmsg header{};
  EXPECT_TRUE(answer(question(RTM_GETNEIGH, NLM_F_DUMP, header)).asks_kernel);
  header.ndm_ifindex = static_cast<int>(kOwnIndex);
  const RouteAnswer found = answer(question(RTM_GETNEIGH, 0, header));
  EXPECT_FALSE(found.asks_kernel);
  ASSERT_EQ(found.messages.size(), 1U);
  EXPECT_EQ(family_of<int>(found.messages[0]), -ENOENT);
}

TEST_F(RouteAnswers, OtherRequestsAreTheKernels) {
  EXPECT_TRUE(answer(question(RTM_NEWADDR, NLM_F_ACK, ifaddrmsg{})).asks_kernel);
  EXPECT_TRUE(answer(question(RTM_GETRULE, NLM_F_DUMP, rtmsg{})).asks_kernel);
  const NetlinkBytes no_request = NetlinkMessage(RTM_GETLINK, NLM_F_DUMP, kRouteSequence, 0).finish();
  EXPECT_TRUE(answer_route(no_request, kRoutePort, {&own_, 1}, statistics_of).messages.empty());
}

TEST_F(RouteAnswers, BytesOfAnyKindAreRead) {
  std::mt19937 random(1);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same in each run
  constexpr int kRequests = 20'000;
  for (int i = 0; i < kRequests; ++i) {
    NetlinkBytes bytes(random() % 96);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    if (bytes.size() >= sizeof(nlmsghdr)) {
      const nlmsghdr header{.nlmsg_len = static_cast<uint32_t>(bytes.size() - random() % 3),
                            .nlmsg_type = static_cast<uint16_t>(RTM_BASE + random() % 16),
                            .nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | random() % 1024),
                            .nlmsg_seq = kRouteSequence,
                            .nlmsg_pid = 0};
      std::memcpy(bytes.data(), &header, sizeof header);
    }
    for (const NetlinkBytes& one : answer_route(bytes, kRoutePort, {&own_, 1}, statistics_of).messages)
      ASSERT_EQ(netlink_header(one).nlmsg_len, one.size());
  }
}

/// The descriptor, with the devices of the test's backend and the kernel of the test's host.
class RouteDescriptor : public testing::Test {
 protected:
  void SetUp() override {
    setenv("FAULTLINE_WIRE", "w0", 1);
    number_ = open_route_netlink(SOCK_RAW).value_or(-1);
    ASSERT_GE(number_, 0);
  }
  void TearDown() override {
    unsetenv("FAULTLINE_WIRE");
    remove_descriptor(number_);
    ::close(number_);
  }
  [[nodiscard]] std::vector<NetlinkBytes> receive_all() const {
    std::vector<NetlinkBytes> datagrams;
    while (true) {
      NetlinkBytes bytes(kBufferBytes);
      const ssize_t length = received_netlink(
          number_, ::recv(number_, bytes.data(), bytes.size(), MSG_DONTWAIT), nullptr, nullptr);
      if (length < 0) return datagrams;
      bytes.resize(static_cast<size_t>(length));
      datagrams.push_back(std::move(bytes));
    }
  }

  int number_ = -1;
};

TEST_F(RouteDescriptor, HasTheInterfacesOfTheHostAndOurs) {
  const NetlinkBytes asked = question(RTM_GETLINK, NLM_F_DUMP, ifinfomsg{}).finish();
  ASSERT_EQ(send_netlink(number_, asked.data(), asked.size()), static_cast<ssize_t>(asked.size()));
  sockaddr_nl own{};
  socklen_t length = sizeof own;
  ASSERT_EQ(name_netlink(number_, reinterpret_cast<sockaddr*>(&own), &length), 0);
  const std::vector<NetlinkBytes> datagrams = receive_all();
  const std::vector<NetlinkBytes> messages = messages_of(datagrams);
  ASSERT_FALSE(messages.empty());
  std::set<std::string> names;
  for (const NetlinkBytes& message : messages) {
    EXPECT_EQ(netlink_header(message).nlmsg_pid, own.nl_pid);
    if (netlink_header(message).nlmsg_type == RTM_NEWLINK)
      names.insert(attribute<ifinfomsg>(message, IFLA_IFNAME).value_or("?").c_str());
  }
  EXPECT_EQ(netlink_header(messages.back()).nlmsg_type, NLMSG_DONE);
  EXPECT_TRUE(names.contains("lo"));
  EXPECT_TRUE(names.contains("wire0"));
  EXPECT_EQ(std::ranges::count_if(
                messages,
                [](const NetlinkBytes& message) { return netlink_header(message).nlmsg_type == NLMSG_DONE; }),
            1);
  EXPECT_NE(own.nl_pid, 0U);
}

TEST_F(RouteDescriptor, AnswersEachMessageOfADatagram) {
  NetlinkMessage own = question(RTM_GETLINK, 0, ifinfomsg{});
  own.put_text(IFLA_IFNAME, "wire0");
  NetlinkMessage hosts = question(RTM_GETLINK, 0, ifinfomsg{});
  hosts.put_text(IFLA_IFNAME, "lo");
  NetlinkBytes both = own.finish();
  const NetlinkBytes second = hosts.finish();
  both.insert(both.end(), second.begin(), second.end());
  ASSERT_EQ(send_netlink(number_, both.data(), both.size()), static_cast<ssize_t>(both.size()));
  const std::vector<NetlinkBytes> messages = messages_of(receive_all());
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(attribute<ifinfomsg>(messages[0], IFLA_IFNAME), std::string("wire0\0", 6));
  EXPECT_EQ(attribute<ifinfomsg>(messages[1], IFLA_IFNAME), std::string("lo\0", 3));
}

TEST_F(RouteDescriptor, PassesTheKernelsErrorOn) {
  NetlinkMessage asked = question(RTM_GETLINK, 0, ifinfomsg{});
  asked.put_text(IFLA_IFNAME, "no-such-link");
  const NetlinkBytes bytes = asked.finish();
  ASSERT_GT(send_netlink(number_, bytes.data(), bytes.size()), 0);
  const std::vector<NetlinkBytes> messages = messages_of(receive_all());
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(netlink_header(messages[0]).nlmsg_type, NLMSG_ERROR);
  EXPECT_EQ(family_of<int>(messages[0]), -ENODEV);
}

TEST_F(RouteDescriptor, BecomesTheKernelsSocketForNotifications) {
  sockaddr_nl own{};
  own.nl_family = AF_NETLINK;
  own.nl_groups = RTMGRP_LINK;
  ASSERT_EQ(bind_netlink(number_, reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
  EXPECT_FALSE(is_own_netlink(number_));
  sockaddr_nl kernels{};
  socklen_t length = sizeof kernels;
  ASSERT_EQ(::getsockname(number_, reinterpret_cast<sockaddr*>(&kernels), &length), 0);
  EXPECT_EQ(kernels.nl_family, AF_NETLINK);
  EXPECT_EQ(kernels.nl_groups, uint32_t{RTMGRP_LINK});
}

TEST(RouteNetlink, IsTheKernelsWithoutAWire) {
  unsetenv("FAULTLINE_WIRE");
  EXPECT_EQ(open_route_netlink(SOCK_RAW), std::nullopt);
  setenv("FAULTLINE_WIRE", "w0", 1);
  setenv("FAULTLINE_WIRE_INTERFACE", "off", 1);
  EXPECT_EQ(open_route_netlink(SOCK_RAW), std::nullopt);
  unsetenv("FAULTLINE_WIRE_INTERFACE");
  unsetenv("FAULTLINE_WIRE");
}

}  // namespace
}  // namespace faultline::abi
