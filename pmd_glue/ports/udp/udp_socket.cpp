// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/ports/udp/udp_socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <netinet/udp.h>
#include <rte_mbuf.h>

#include "pmd_glue/eal/frame_bulk.hpp"
#include "pmd_glue/eal/mbuf_view.hpp"
#include "pmd_glue/link/address_table.hpp"
#include "pmd_glue/ports/udp/message_calls.hpp"
#include "stack/wire/link/address_text.hpp"

namespace faultline::glue {
namespace {

// The kernel's checks of a received datagram cover what an offloading NIC's cover.
constexpr uint64_t kVerified = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;

// The kernel limits a request to net.core.rmem_max and wmem_max.
constexpr int kWantedBufferBytes = 8 << 20;

bool set_option(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

/// DF is set, and an IPv4 packet has identification 0 (wire::Checksums::by_socket): the ICRC covers both.
bool set_options(int fd, bool ipv6) {
  constexpr std::array kBuffers{std::pair(SO_RCVBUFFORCE, SO_RCVBUF), std::pair(SO_SNDBUFFORCE, SO_SNDBUF)};
  for (const auto& [forced, plain] : kBuffers)
    if (!set_option(fd, SOL_SOCKET, forced, kWantedBufferBytes))
      static_cast<void>(set_option(fd, SOL_SOCKET, plain, kWantedBufferBytes));
  static_cast<void>(set_option(fd, SOL_SOCKET, SO_RXQ_OVFL, 1));
  // Linux 5.0; without it, trains arrive as single datagrams.
  static_cast<void>(set_option(fd, SOL_UDP, UDP_GRO, 1));
  // RoCEv2 senders need no UDP checksum over IPv6 either (IBA A17.3.2): Linux rxe and NICs send 0.
  if (ipv6)
    return set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) && set_option(fd, SOL_UDP, UDP_NO_CHECK6_RX, 1) &&
           set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO) &&
           set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
  return set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) &&
         set_option(fd, IPPROTO_IP, IP_RECVTOS, 1);
}

/// Packets to a group leave by the interface, with a hop limit that routers of groups accept. Those of this
/// host that are members receive them too: that is the default (ip(7), IP_MULTICAST_LOOP).
bool set_options_to_groups(int fd, bool ipv6, uint32_t interface) {
  constexpr int kHopLimit = 64;
  if (ipv6)
    return set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, static_cast<int>(interface)) &&
           set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, kHopLimit);
  const ip_mreqn by{.imr_multiaddr = {}, .imr_address = {}, .imr_ifindex = static_cast<int>(interface)};
  return setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by) == 0 &&
         set_option(fd, IPPROTO_IP, IP_MULTICAST_TTL, kHopLimit);
}

/// A bound socket receives a group from each interface that any program has joined (ip(7), IP_MULTICAST_ALL):
/// the socket is bound to its interface too. Several processes may share a group.
bool join_group(int fd, const SocketAddress& group, uint32_t interface) {
  group_req request{.gr_interface = interface, .gr_group = {}};
  std::memcpy(&request.gr_group, &group.any, group.length_bytes);
  const int level = group.any.sa_family == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP;
  // Linux before 5.7 asks for CAP_NET_RAW: then over IPv4 alone the socket receives its own interface's.
  static_cast<void>(set_option(fd, SOL_SOCKET, SO_BINDTOIFINDEX, static_cast<int>(interface)));
  if (level == IPPROTO_IP) static_cast<void>(set_option(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0));
  return set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1) &&
         setsockopt(fd, level, MCAST_JOIN_GROUP, &request, sizeof request) == 0;
}

void add(std::atomic<uint64_t>& counter, uint64_t count) {
  counter.store(counter.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
}

template <typename Value>
Value value_of(const cmsghdr& control) {
  Value value{};
  std::memcpy(&value, CMSG_DATA(&control), sizeof value);
  return value;
}

}  // namespace

std::unique_ptr<UdpSocket> UdpSocket::open(const wire::Gid& own, uint32_t scope, rte_mempool* pool,
                                           std::string& error) {
  const bool ipv6 = !own.is_ipv4();
  UniqueFd fd(socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const SocketAddress address = socket_address_of(own, wire::kRoceUdpPort, scope);
  if (!fd || !set_options(fd.get(), ipv6) || !set_options_to_groups(fd.get(), ipv6, scope) ||
      !PathErrors::request(fd.get(), ipv6) || bind(fd.get(), &address.any, address.length_bytes) != 0) {
    error = errno == EADDRINUSE
                ? "another process has UDP port 4791 of " + text_of(own) +
                      " (ss -ulpn shows which); end it, give this one another address of the host, or share "
                      "the address: faultline-switch --wire NAME --uplink udp:" +
                      text_of(own) + ", and faultline-run --wire NAME for each program"
                : "cannot have UDP port 4791 of " + text_of(own) + ": " + std::strerror(errno);
    return nullptr;
  }
  return std::unique_ptr<UdpSocket>(new UdpSocket(std::move(fd), own, scope, pool));
}

std::unique_ptr<UdpSocket> UdpSocket::join(const wire::Gid& group, uint32_t interface, rte_mempool* pool,
                                           int& error) {
  const bool ipv6 = !group.is_ipv4();
  UniqueFd fd(socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const SocketAddress address = socket_address_of(group, wire::kRoceUdpPort, interface);
  if (!fd || !set_options(fd.get(), ipv6) || !join_group(fd.get(), address, interface) ||
      bind(fd.get(), &address.any, address.length_bytes) != 0) {
    error = errno;
    return nullptr;
  }
  return std::unique_ptr<UdpSocket>(new UdpSocket(std::move(fd), group, interface, pool));
}

UdpSocket::UdpSocket(UniqueFd fd, const wire::Gid& own, uint32_t scope, rte_mempool* pool)
    : fd_(std::move(fd)),
      own_(own),
      scope_(scope),
      is_ipv6_(!own.is_ipv4()),
      pool_(pool),
      path_errors_(own),
      in_(new Incoming),  // without values in `rest`: a page of it costs memory once a train has used it
      out_(std::make_unique<Outgoing>()) {
  for (size_t i = 0; i < kIncoming; ++i) {
    msghdr& header = in_->messages[i].msg_hdr;
    header.msg_name = &in_->addresses[i].any;
    header.msg_iov = in_->parts[i].data();
    header.msg_iovlen = in_->parts[i].size();
    in_->parts[i][1] = {.iov_base = in_->rest[i].data(), .iov_len = in_->rest[i].size()};
  }
}

UdpSocket::~UdpSocket() {
  for (rte_mbuf* const frame : in_->frames) rte_pktmbuf_free(frame);
}

uint32_t UdpSocket::receive_buffer_bytes() const {
  int bytes = 0;
  socklen_t length = sizeof bytes;
  if (getsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &bytes, &length) != 0) return 0;
  return static_cast<uint32_t>(bytes);
}

// --- receive ---

/// Provides frames for the first `wanted` messages; returns the number of messages that have one.
size_t UdpSocket::prepare_frames(size_t wanted) {
  std::array<rte_mbuf*, kIncoming> fresh;
  const auto places = std::span(in_->frames).first(wanted);
  const auto missing = static_cast<size_t>(std::ranges::count(places, nullptr));
  if (missing == 0) return wanted;
  if (!take_frames(pool_, std::span(fresh).first(missing))) {
    add(no_buffer_, 1);
    return static_cast<size_t>(std::ranges::find(places, nullptr) - places.begin());
  }
  size_t next = 0;
  for (rte_mbuf*& place : places)
    if (place == nullptr) place = fresh[next++];
  return wanted;
}

/// Receives messages from the kernel; returns false if there are none.
bool UdpSocket::ask_kernel() {
  const size_t wanted = prepare_frames(wanted_);
  const uint32_t offset = wire::udp_payload_offset(is_ipv6_);
  for (size_t i = 0; i < wanted; ++i) {
    in_->parts[i][0] = {.iov_base = rte_pktmbuf_mtod_offset(in_->frames[i], void*, offset),
                        .iov_len = capacity_of(in_->frames[i]) - offset};
    msghdr& header = in_->messages[i].msg_hdr;
    header.msg_namelen = sizeof(sockaddr_in6);
    header.msg_control = in_->controls[i].data();
    header.msg_controllen = kControlBytes;
  }
  const auto ask = [&] {
    return receive_messages(fd_.get(), std::span(in_->messages).first(wanted), MSG_DONTWAIT);
  };
  int count = ask();
  if (count < 0 && errno != EAGAIN) {
    path_errors_.take(fd_.get());
    count = ask();
  }
  at_ = 0;
  arrived_ = static_cast<size_t>(std::max(count, 0));
  wanted_ = std::clamp<size_t>(2 * arrived_, 1, kIncoming);
  if (arrived_ == 0) return false;
  current_ = arrival_of(0);
  return true;
}

void UdpSocket::note_control(const cmsghdr& control, Arrival& arrival) {
  const auto is = [&](int level, int type) {
    return control.cmsg_level == level && control.cmsg_type == type;
  };
  if (is(SOL_SOCKET, SO_RXQ_OVFL)) {
    const auto count = value_of<uint32_t>(control);
    add(missed_, count - overflow_);
    overflow_ = count;
  } else if (is(IPPROTO_IP, IP_TOS)) {
    arrival.datagram.traffic_class = value_of<uint8_t>(control);
  } else if (is(IPPROTO_IPV6, IPV6_TCLASS)) {
    arrival.datagram.traffic_class = static_cast<uint8_t>(value_of<int>(control));
  } else if (is(SOL_UDP, UDP_GRO)) {
    arrival.segment_bytes = static_cast<uint32_t>(value_of<int>(control));
  }
}

UdpSocket::Arrival UdpSocket::arrival_of(size_t index) {
  msghdr& header = in_->messages[index].msg_hdr;
  Arrival arrival;
  arrival.datagram.source = gid_of(in_->addresses[index].any);
  arrival.datagram.destination = own_;
  arrival.datagram.source_port = ntohs(in_->addresses[index].ipv4.sin_port);
  arrival.bytes = in_->messages[index].msg_len;
  arrival.datagram.source_mac = mac_of(arrival.datagram.source);
  for (cmsghdr* at = CMSG_FIRSTHDR(&header); at != nullptr; at = CMSG_NXTHDR(&header, at))
    note_control(*at, arrival);
  if (arrival.segment_bytes == 0 || (header.msg_flags & MSG_TRUNC) != 0)
    arrival.segment_bytes = arrival.bytes;
  return arrival;
}

/// Returns a frame with bytes of message at_ at the place of the UDP payload; nullptr if there is none, or
/// they are too many for it.
rte_mbuf* UdpSocket::copy_segment(uint32_t begin, uint32_t length_bytes) {
  const uint32_t offset = wire::udp_payload_offset(is_ipv6_);
  std::array<rte_mbuf*, 1> frame;
  if (!take_frames(pool_, frame)) {
    add(no_buffer_, 1);
    return nullptr;
  }
  if (length_bytes > capacity_of(frame[0]) - offset) {
    rte_pktmbuf_free(frame[0]);
    return nullptr;
  }
  auto* to = rte_pktmbuf_mtod_offset(frame[0], uint8_t*, offset);
  size_t skipped = begin;
  for (const iovec& part : in_->parts[at_]) {
    const size_t from = std::min(skipped, part.iov_len);
    const size_t count = std::min<size_t>(length_bytes, part.iov_len - from);
    to = std::copy_n(static_cast<const uint8_t*>(part.iov_base) + from, count, to);
    skipped -= from;
    length_bytes -= static_cast<uint32_t>(count);
  }
  return frame[0];
}

/// Returns the next datagram of message at_ as a frame; nullptr if it is dropped.
rte_mbuf* UdpSocket::next_frame(uint16_t port) {
  const uint32_t begin = current_.done_bytes;
  const uint32_t length_bytes = std::min(current_.segment_bytes, current_.bytes - begin);
  current_.done_bytes += length_bytes;
  const bool is_last = current_.done_bytes == current_.bytes;
  // The first one of several leaves its frame last, since that also has bytes of the next ones.
  rte_mbuf* frame = nullptr;
  if (begin == 0 && is_last) {
    const uint32_t room = capacity_of(in_->frames[at_]) - wire::udp_payload_offset(is_ipv6_);
    if (length_bytes <= room) frame = std::exchange(in_->frames[at_], nullptr);
  } else {
    frame = copy_segment(begin, length_bytes);
  }
  if (frame == nullptr) {
    add(missed_, 1);
    return nullptr;
  }
  const auto number = static_cast<uint16_t>(begin / std::max(current_.segment_bytes, 1U));
  current_.datagram.ipv4_identification = number < wire::kMostTrainPackets ? number : uint16_t{0};
  const uint32_t frame_bytes = wire::write_datagram_headers(
      {rte_pktmbuf_mtod(frame, uint8_t*), capacity_of(frame)}, current_.datagram, length_bytes);
  set_length(frame, frame_bytes);
  frame->port = port;
  frame->ol_flags = kVerified;
  return frame;
}

size_t UdpSocket::receive(const wire::MacAddress& mac, uint16_t port, std::span<rte_mbuf*> frames) {
  size_t received = 0;
  bool may_ask = true;
  while (received < frames.size()) {
    if (at_ == arrived_ && (!std::exchange(may_ask, false) || !ask_kernel())) break;
    current_.datagram.destination_mac = mac;
    if (rte_mbuf* const frame = next_frame(port)) frames[received++] = frame;
    if (current_.done_bytes == current_.bytes && ++at_ < arrived_) current_ = arrival_of(at_);
  }
  return received;
}

// --- transmit ---

void UdpSocket::add_control(msghdr& header, int level, int type, const void* value, size_t bytes) {
  const size_t index = static_cast<size_t>(reinterpret_cast<mmsghdr*>(&header) - out_->messages.data());
  const size_t before = header.msg_controllen;
  header.msg_control = out_->controls[index].data();
  header.msg_controllen = before + CMSG_SPACE(bytes);
  auto* const control = reinterpret_cast<cmsghdr*>(out_->controls[index].data() + before);
  control->cmsg_level = level;
  control->cmsg_type = type;
  control->cmsg_len = CMSG_LEN(bytes);
  std::memcpy(CMSG_DATA(control), value, bytes);
}

void UdpSocket::begin_message(size_t index, size_t part, const wire::OutgoingDatagram& first) {
  const wire::Gid& to = first.destination;
  out_->addresses[index] =
      socket_address_of(to, wire::kRoceUdpPort, is_ipv6_ && wire::is_link_local(to) ? scope_ : 0);
  msghdr& header = out_->messages[index].msg_hdr;
  header = {.msg_name = &out_->addresses[index].any,
            .msg_namelen = out_->addresses[index].length_bytes,
            .msg_iov = &out_->parts[part],
            .msg_iovlen = 0,
            .msg_control = nullptr,
            .msg_controllen = 0,
            .msg_flags = 0};
  if (const int traffic_class = first.traffic_class; traffic_class != 0)
    add_control(header, is_ipv6_ ? IPPROTO_IPV6 : IPPROTO_IP, is_ipv6_ ? IPV6_TCLASS : IP_TOS, &traffic_class,
                sizeof traffic_class);
}

/// Describes a prefix of `frames` as messages.
UdpSocket::Planned UdpSocket::plan(std::span<rte_mbuf*> frames) {
  Planned planned;
  wire::OutgoingDatagram first;
  size_t bytes = 0;
  bool is_open = false;
  for (; planned.frames < std::min(frames.size(), kOutgoing); ++planned.frames) {
    const auto next = wire::datagram_of(bytes_of(frames[planned.frames]));
    if (!next) break;
    const size_t length_bytes = next->payload.size();
    if (!is_open || next->destination != first.destination || next->traffic_class != first.traffic_class ||
        length_bytes > first.payload.size() || bytes + length_bytes > wire::kMaxDatagramBytes) {
      begin_message(planned.messages++, planned.frames, *next);
      first = *next;
      bytes = 0;
    }
    out_->parts[planned.frames] = {.iov_base = next->payload.data(), .iov_len = length_bytes};
    ++out_->messages[planned.messages - 1].msg_hdr.msg_iovlen;
    bytes += length_bytes;
    // All but the last of a train have one length.
    is_open = sends_trains_ && length_bytes == first.payload.size();
  }
  return planned;
}

/// The kernel numbers the packets of a train. A second call undoes the first.
void UdpSocket::number_train(const msghdr& header) {
  if (is_ipv6_) return;
  for (size_t i = 1; i < header.msg_iovlen; ++i)
    identification_.renumber({static_cast<uint8_t*>(header.msg_iov[i].iov_base), header.msg_iov[i].iov_len},
                             static_cast<uint32_t>(i));
}

/// Sends frames until the kernel takes no more.
UdpSocket::Sent UdpSocket::send(std::span<rte_mbuf*> frames) {
  const Planned planned = plan(frames);
  const auto messages = std::span(out_->messages).first(planned.messages);
  for (mmsghdr& message : messages) {
    if (message.msg_hdr.msg_iovlen == 1) continue;
    const auto segment_bytes = static_cast<uint16_t>(message.msg_hdr.msg_iov[0].iov_len);
    add_control(message.msg_hdr, SOL_UDP, UDP_SEGMENT, &segment_bytes, sizeof segment_bytes);
    number_train(message.msg_hdr);
  }
  if (messages.empty()) return {.error = EINVAL};  // no RoCEv2 packet
  const auto pass = [&] { return send_messages(fd_.get(), messages, MSG_DONTWAIT); };
  int result = pass();
  Sent sent{.error = result < 0 ? errno : 0, .was_train = messages.front().msg_hdr.msg_iovlen > 1};
  // The error may be an earlier packet's (ICMP).
  if (result < 0 && !sent.may_pass_later()) {
    path_errors_.take(fd_.get());
    result = pass();
    sent.error = result < 0 ? errno : 0;
  }
  const auto sent_messages = static_cast<size_t>(std::max(result, 0));
  // A message that the kernel refused leaves an error, with which poll(2) would return at once.
  if (sent_messages < messages.size()) path_errors_.take(fd_.get());
  for (const mmsghdr& message : messages.first(sent_messages)) sent.frames += message.msg_hdr.msg_iovlen;
  for (const mmsghdr& message : messages.subspan(sent_messages)) number_train(message.msg_hdr);
  return sent;
}

size_t UdpSocket::transmit(std::span<rte_mbuf*> frames) {
  Sent sent = send(frames);
  if (sent.error != 0 && sent.was_train && !sent.may_pass_later()) {
    sent = send(frames.first(1));
    // The path holds its packets, so the device takes no trains: it computes no checksums.
    if (sent.error == 0) sends_trains_ = false;
  }
  if (sent.error != 0) {
    if (sent.may_pass_later()) return 0;
    // The first one cannot be sent: it is too long for the path, has no route, or is no RoCEv2 packet.
    if (sent.error == EMSGSIZE)
      path_errors_.note_too_long();
    else
      add(refused_, 1);
    sent.frames = 1;
  }
  FrameReturn back;
  for (rte_mbuf* const frame : frames.first(sent.frames)) back.add(frame);
  return sent.frames;
}

}  // namespace faultline::glue
