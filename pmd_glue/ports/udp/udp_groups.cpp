// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/ports/udp/udp_groups.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <rte_mbuf.h>
#include <sys/epoll.h>

#include "pmd_glue/eal/mbuf_view.hpp"
#include "pmd_glue/link/interface.hpp"
#include "stack/wire/link/link.hpp"
#include "stack/wire/link/steering.hpp"

namespace faultline::glue {

UdpGroups::UdpGroups(std::string interface, std::vector<wire::Gid> own, rte_mempool* pool)
    : interface_(std::move(interface)), own_(std::move(own)), pool_(pool) {}

int UdpGroups::join(const wire::Gid& group, int ready) {
  // Linux drops packets to a group of interface-local scope at both ends (RFC 4291, 2.7).
  constexpr uint8_t kScopeMask = 0xf;
  constexpr uint8_t kInterfaceLocal = 1;
  if (!group.is_ipv4() && (group.bytes[1] & kScopeMask) <= kInterfaceLocal) return EADDRNOTAVAIL;
  if (!readable_) {
    UniqueFd readable(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
    if (!readable || epoll_ctl(ready, EPOLL_CTL_ADD, readable.get(), &event) != 0) return errno;
    readable_ = std::move(readable);
  }
  int error = 0;
  auto socket = UdpSocket::join(group, interface_index(interface_), pool_, error);
  if (socket == nullptr) return error;
  epoll_event event{.events = EPOLLIN, .data = {.ptr = socket.get()}};
  if (epoll_ctl(readable_.get(), EPOLL_CTL_ADD, socket->descriptor(), &event) != 0) return errno;
  sockets_.push_back(std::move(socket));
  return 0;
}

void UdpGroups::leave(const wire::Gid& group) {
  const auto at = std::ranges::find_if(sockets_, [&](const auto& socket) { return socket->own() == group; });
  if (at == sockets_.end()) return;
  // A forked child may have the descriptor still, so that its end would not remove it (epoll(7)).
  static_cast<void>(epoll_ctl(readable_.get(), EPOLL_CTL_DEL, (*at)->descriptor(), nullptr));
  if (partly_read_ == at->get()) partly_read_ = nullptr;
  missed_ += (*at)->missed();
  no_buffer_ += (*at)->no_buffer();
  sockets_.erase(at);
}

size_t UdpGroups::receive(uint16_t port, std::span<rte_mbuf*> frames) {
  size_t received = 0;
  const auto receive_from = [&](UdpSocket* socket) {
    const std::span<rte_mbuf*> room = frames.subspan(received);
    received += drop_own(room.first(socket->receive(wire::multicast_mac(socket->own()), port, room)));
    if (socket->holds_datagrams()) partly_read_ = socket;
  };
  if (partly_read_ != nullptr) receive_from(std::exchange(partly_read_, nullptr));
  if (partly_read_ != nullptr) return received;
  // A socket that the kernel reports, and that is not read to its end, is reported again after the others.
  std::array<epoll_event, 8> events;
  const int count = epoll_wait(readable_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (const epoll_event& event : std::span(events).first(static_cast<size_t>(std::max(count, 0)))) {
    if (received == frames.size() || partly_read_ != nullptr) break;
    receive_from(static_cast<UdpSocket*>(event.data.ptr));
  }
  return received;
}

/// Frees the frames that the device itself has sent; returns how many of the others now begin `frames`.
size_t UdpGroups::drop_own(std::span<rte_mbuf*> frames) const {
  size_t kept = 0;
  for (rte_mbuf* const frame : frames) {
    const auto source = wire::peek_source_gid(bytes_of(frame));
    if (source && std::ranges::find(own_, *source) != own_.end())
      rte_pktmbuf_free(frame);
    else
      frames[kept++] = frame;
  }
  return kept;
}

uint64_t UdpGroups::missed() const {
  uint64_t sum = missed_;
  for (const auto& socket : sockets_) sum += socket->missed();
  return sum;
}

uint64_t UdpGroups::no_buffer() const {
  uint64_t sum = no_buffer_;
  for (const auto& socket : sockets_) sum += socket->no_buffer();
  return sum;
}

}  // namespace faultline::glue
