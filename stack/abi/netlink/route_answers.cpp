// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/netlink/route_answers.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <linux/rtnetlink.h>
#include <net/if_arp.h>
#include <netinet/in.h>

#include "stack/abi/tree/interface_statistics.hpp"
#include "stack/wire/link/link.hpp"

namespace faultline::abi {
namespace {

constexpr size_t kIpv4Bytes = 4;

struct InterfaceQuestion {
  const NetlinkRequest& request;
  uint32_t port;
  std::span<const OwnInterface> interfaces;
  StatisticsOf statistics_of;

  [[nodiscard]] NetlinkMessage message(uint16_t type) const {
    return {type, static_cast<uint16_t>(request.is_dump() ? NLM_F_MULTI : 0), request.header().nlmsg_seq,
            port};
  }
  [[nodiscard]] const OwnInterface* find(uint32_t index) const {
    const auto found = std::ranges::find(interfaces, index, &OwnInterface::index);
    return index == 0 || found == interfaces.end() ? nullptr : &*found;
  }
  [[nodiscard]] const OwnInterface* find(std::string_view name) const {
    const auto found = std::ranges::find(interfaces, name, &OwnInterface::name);
    return found == interfaces.end() ? nullptr : &*found;
  }
};

uint8_t family_of(const wire::Gid& gid) {
  return gid.is_ipv4() ? AF_INET : AF_INET6;
}

/// The address's bytes as they are in an attribute.
std::span<const uint8_t> bytes_of(const wire::Gid& gid) {
  return gid.is_ipv4() ? std::span(gid.bytes).last(kIpv4Bytes) : std::span(gid.bytes);
}

bool is_wanted(uint8_t family, uint8_t asked) {
  return asked == AF_UNSPEC || asked == family;
}

// --- RTM_GETLINK ---

constexpr uint32_t kSkipStatistics = 1U << 3;  // RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h

/// Puts them with 64 bits and, as the kernel does, their low halves.
void put_statistics(NetlinkMessage& message, const rtnl_link_stats64& whole) {
  const rtnl_link_stats halves = low_halves(whole);
  message.put_bytes(IFLA_STATS64, {reinterpret_cast<const uint8_t*>(&whole), sizeof whole});
  message.put_bytes(IFLA_STATS, {reinterpret_cast<const uint8_t*>(&halves), sizeof halves});
}

NetlinkBytes link_message(const InterfaceQuestion& question, const OwnInterface& own) {
  // enum operstates of linux/if.h, which excludes net/if.h
  constexpr uint8_t kOperationDown = 2, kOperationUp = 6;
  NetlinkMessage message = question.message(RTM_NEWLINK);
  message.append_value(ifinfomsg{.ifi_family = AF_UNSPEC,
                                 .__ifi_pad = 0,
                                 .ifi_type = ARPHRD_ETHER,
                                 .ifi_index = static_cast<int>(own.index),
                                 .ifi_flags = flags_of(own),
                                 .ifi_change = 0});
  message.put_text(IFLA_IFNAME, own.name);
  message.put_u32(IFLA_TXQLEN, kQueueLength);
  message.put_u8(IFLA_OPERSTATE, own.is_up ? kOperationUp : kOperationDown);
  message.put_u8(IFLA_LINKMODE, 0);
  message.put_u32(IFLA_MTU, own.mtu_bytes);
  message.put_u32(IFLA_GROUP, 0);
  message.put_u32(IFLA_NUM_TX_QUEUES, 1);
  message.put_u32(IFLA_NUM_RX_QUEUES, 1);
  message.put_u8(IFLA_CARRIER, own.is_up ? 1 : 0);
  message.put_text(IFLA_QDISC, "noqueue");
  message.put_bytes(IFLA_ADDRESS, own.mac.bytes);
  message.put_bytes(IFLA_BROADCAST, kBroadcastMac.bytes);
  if ((question.request.u32(IFLA_EXT_MASK).value_or(0) & kSkipStatistics) == 0)
    put_statistics(message, question.statistics_of(own));
  message.put_nested(IFLA_LINKINFO, [&] { message.put_text(IFLA_INFO_KIND, "faultline"); });
  return message.finish();
}

RouteAnswer get_link(const InterfaceQuestion& question) {
  const auto header = question.request.family_header<ifinfomsg>();
  RouteAnswer answer;
  if (question.request.is_dump()) {
    // Of AF_BRIDGE and the like, the interfaces are none.
    if (header.ifi_family != AF_UNSPEC && header.ifi_family != AF_PACKET) return answer;
    for (const OwnInterface& own : question.interfaces)
      answer.messages.push_back(link_message(question, own));
    return answer;
  }
  const OwnInterface* own = question.find(static_cast<uint32_t>(header.ifi_index));
  for (const uint16_t name : {IFLA_IFNAME, IFLA_ALT_IFNAME})
    if (const auto text = question.request.text(name); own == nullptr && header.ifi_index == 0 && text)
      own = question.find(*text);
  if (own == nullptr) return answer;
  answer.asks_kernel = false;
  answer.messages.push_back(link_message(question, *own));
  return answer;
}

// --- RTM_GETADDR ---

NetlinkBytes address_message(const InterfaceQuestion& question, const OwnInterface& own,
                             const InterfaceAddress& address) {
  const bool is_link = wire::is_link_local(address.gid);
  NetlinkMessage message = question.message(RTM_NEWADDR);
  message.append_value(
      ifaddrmsg{.ifa_family = family_of(address.gid),
                .ifa_prefixlen = address.prefix_bits,
                .ifa_flags = IFA_F_PERMANENT,
                .ifa_scope = static_cast<uint8_t>(is_link ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE),
                .ifa_index = own.index});
  message.put_bytes(IFA_ADDRESS, bytes_of(address.gid));
  if (address.gid.is_ipv4()) {
    const wire::Gid mask = masked(wire::Gid::from_ipv4(UINT32_MAX), address.prefix_bits);
    message.put_bytes(IFA_LOCAL, bytes_of(address.gid));
    message.put_bytes(IFA_BROADCAST, bytes_of(wire::Gid::from_ipv4(address.gid.ipv4() | ~mask.ipv4())));
    message.put_text(IFA_LABEL, own.name);
  }
  message.put_u32(IFA_FLAGS, IFA_F_PERMANENT);
  const ifa_cacheinfo forever{.ifa_prefered = UINT32_MAX, .ifa_valid = UINT32_MAX, .cstamp = 0, .tstamp = 0};
  message.put_bytes(IFA_CACHEINFO, {reinterpret_cast<const uint8_t*>(&forever), sizeof forever});
  return message.finish();
}

RouteAnswer get_addresses(const InterfaceQuestion& question) {
  const auto header = question.request.family_header<ifaddrmsg>();
  RouteAnswer answer;
  if (!question.request.is_dump()) return answer;
  // The kernel knows no interface of this index.
  answer.asks_kernel = question.find(header.ifa_index) == nullptr;
  for (const OwnInterface& own : question.interfaces) {
    if (header.ifa_index != 0 && header.ifa_index != own.index) continue;
    for (const InterfaceAddress& address : own.addresses)
      if (is_wanted(family_of(address.gid), header.ifa_family))
        answer.messages.push_back(address_message(question, own, address));
  }
  return answer;
}

// --- RTM_GETROUTE ---

NetlinkBytes route_message(const InterfaceQuestion& question, const OwnInterface& own,
                           const InterfaceRoute& route, const wire::Gid& to, uint8_t prefix_bits) {
  constexpr uint32_t kIpv6Metric = 256;  // IP6_RT_PRIO_ADDRCONF
  const bool has_gateway = !route.via.is_zero();
  NetlinkMessage message = question.message(RTM_NEWROUTE);
  message.append_value(
      rtmsg{.rtm_family = family_of(to),
            .rtm_dst_len = prefix_bits,
            .rtm_src_len = 0,
            .rtm_tos = 0,
            .rtm_table = RT_TABLE_MAIN,
            .rtm_protocol = static_cast<uint8_t>(has_gateway ? RTPROT_STATIC : RTPROT_KERNEL),
            .rtm_scope = static_cast<uint8_t>(has_gateway || !to.is_ipv4() ? uint8_t{RT_SCOPE_UNIVERSE}
                                                                           : uint8_t{RT_SCOPE_LINK}),
            .rtm_type = RTN_UNICAST,
            .rtm_flags = 0});
  message.put_u32(RTA_TABLE, RT_TABLE_MAIN);
  if (prefix_bits != 0) message.put_bytes(RTA_DST, bytes_of(to));
  if (has_gateway) message.put_bytes(RTA_GATEWAY, bytes_of(route.via));
  if (to.is_ipv4() && !route.source.is_zero()) message.put_bytes(RTA_PREFSRC, bytes_of(route.source));
  message.put_u32(RTA_OIF, own.index);
  if (!to.is_ipv4()) message.put_u32(RTA_PRIORITY, kIpv6Metric);
  return message.finish();
}

std::optional<wire::Gid> destination_of(const NetlinkRequest& request, uint8_t family) {
  const std::span<const uint8_t> bytes = request.value(RTA_DST);
  wire::Gid gid;
  if (family == AF_INET && bytes.size() == kIpv4Bytes)
    gid = wire::Gid::from_ipv4(uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 |
                               bytes[3]);
  else if (family == AF_INET6 && bytes.size() == gid.bytes.size())
    std::ranges::copy(bytes, gid.bytes.begin());
  else
    return std::nullopt;
  return gid;
}

/// The way to one address. A route to every address leaves the choice to the kernel, which may have a better
/// one.
RouteAnswer get_route(const InterfaceQuestion& question, const rtmsg& header) {
  RouteAnswer answer;
  const auto to = destination_of(question.request, header.rtm_family);
  const auto wanted = question.request.u32(RTA_OIF);
  if (!to) return answer;
  const OwnInterface* own = nullptr;
  const InterfaceRoute* best = nullptr;
  for (const OwnInterface& interface : question.interfaces) {
    if (wanted && *wanted != interface.index) continue;
    for (const InterfaceRoute& route : interface.routes) {
      const bool leads = route.prefix_bits != 0 && route.to.is_ipv4() == to->is_ipv4() &&
                         masked(*to, route.prefix_bits) == route.to;
      if (!leads || (best != nullptr && best->prefix_bits >= route.prefix_bits)) continue;
      own = &interface;
      best = &route;
    }
  }
  if (best == nullptr) return answer;
  constexpr uint8_t kIpv4Bits = 32, kIpv6Bits = 128;
  answer.asks_kernel = false;
  answer.messages.push_back(route_message(question, *own, *best, *to, to->is_ipv4() ? kIpv4Bits : kIpv6Bits));
  return answer;
}

RouteAnswer get_routes(const InterfaceQuestion& question) {
  const auto header = question.request.family_header<rtmsg>();
  if (!question.request.is_dump()) return get_route(question, header);
  RouteAnswer answer;
  const auto wanted = question.request.u32(RTA_OIF);
  const uint32_t table = question.request.u32(RTA_TABLE).value_or(header.rtm_table);
  answer.asks_kernel = !wanted || question.find(*wanted) == nullptr;
  const bool is_cache = (header.rtm_flags & RTM_F_CLONED) != 0;
  if (is_cache || (table != RT_TABLE_UNSPEC && table != RT_TABLE_MAIN)) return answer;
  for (const OwnInterface& own : question.interfaces) {
    if (wanted && *wanted != own.index) continue;
    for (const InterfaceRoute& route : own.routes)
      if (is_wanted(family_of(route.to), header.rtm_family))
        answer.messages.push_back(route_message(question, own, route, route.to, route.prefix_bits));
  }
  return answer;
}

// --- RTM_GETNEIGH ---

/// The device resolves its neighbours itself: the interface's table is empty.
RouteAnswer get_neighbours(const InterfaceQuestion& question) {
  const auto header = question.request.family_header<ndmsg>();
  const uint32_t index =
      question.request.u32(NDA_IFINDEX).value_or(static_cast<uint32_t>(header.ndm_ifindex));
  RouteAnswer answer;
  answer.asks_kernel = question.find(index) == nullptr;
  return answer;
}

// --- requests ---

struct InterfaceCommand {
  uint16_t type;
  size_t header_bytes;
  RouteAnswer (*answer)(const InterfaceQuestion& question);
};
constexpr std::array<InterfaceCommand, 4> kInterfaceCommands{{{RTM_GETLINK, sizeof(ifinfomsg), get_link},
                                                              {RTM_GETADDR, sizeof(ifaddrmsg), get_addresses},
                                                              {RTM_GETROUTE, sizeof(rtmsg), get_routes},
                                                              {RTM_GETNEIGH, sizeof(ndmsg), get_neighbours}}};

/// Ends an answer without the kernel: the end of the dump, the acknowledgement, or the error of a request
/// without a result.
void end_answer(const InterfaceQuestion& question, RouteAnswer& answer) {
  const nlmsghdr& header = question.request.header();
  if (question.request.is_dump()) {
    NetlinkMessage message = question.message(NLMSG_DONE);
    message.append_value(int{0});
    answer.messages.push_back(message.finish());
  } else if (answer.messages.empty() || (header.nlmsg_flags & NLM_F_ACK) != 0) {
    NetlinkMessage message = question.message(NLMSG_ERROR);
    message.append_value(answer.messages.empty() ? -ENOENT : 0);
    message.append_value(header);
    message.add_flags(NLM_F_CAPPED);
    answer.messages.push_back(message.finish());
  }
}

}  // namespace

RouteAnswer answer_route(std::span<const uint8_t> bytes, uint32_t port,
                         std::span<const OwnInterface> interfaces, StatisticsOf statistics_of) {
  nlmsghdr header;
  if (interfaces.empty() || bytes.size() < sizeof header) return {};
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto command = std::ranges::find(kInterfaceCommands, header.nlmsg_type, &InterfaceCommand::type);
  if (command == kInterfaceCommands.end() || (header.nlmsg_flags & NLM_F_REQUEST) == 0) return {};
  size_t length = 0;
  const auto request = NetlinkRequest::read(bytes, length, command->header_bytes);
  // The kernel refuses what is cut off.
  if (!request || !request->is_well_formed()) return {};
  const InterfaceQuestion question{*request, port, interfaces, statistics_of};
  RouteAnswer answer = command->answer(question);
  if (!answer.asks_kernel) end_answer(question, answer);
  return answer;
}

}  // namespace faultline::abi
