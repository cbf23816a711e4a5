// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/ports/udp/path_errors.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "pmd_glue/link/socket_address.hpp"
#include "pmd_glue/ports/udp/message_calls.hpp"
#include "stack/base/clock.hpp"
#include "stack/base/log.hpp"
#include "stack/wire/link/address_text.hpp"
#include "stack/wire/link/link.hpp"

namespace faultline::glue {
namespace {

/// Errors that one call takes: ICMP of a flood leaves time for frames.
constexpr unsigned kMostErrors = 64;

/// Returns the kernel's description of the error in a message of the error queue; nullptr if it has none.
const sock_extended_err* description_of(msghdr& message) {
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    const bool ipv4 = at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_RECVERR;
    const bool ipv6 = at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_RECVERR;
    if (ipv4 || ipv6) return reinterpret_cast<const sock_extended_err*>(CMSG_DATA(at));
  }
  return nullptr;
}

}  // namespace

bool PathErrors::request(int fd, bool ipv6) {
  constexpr int kOn = 1;
  return setsockopt(fd, ipv6 ? IPPROTO_IPV6 : IPPROTO_IP, ipv6 ? IPV6_RECVERR : IP_RECVERR, &kOn,
                    sizeof kOn) == 0;
}

void PathErrors::take(int fd) {
  const std::lock_guard guard(lock_);
  for (unsigned i = 0; i < kMostErrors; ++i) {
    SocketAddress peer{};
    alignas(cmsghdr) std::array<uint8_t, 256> control;
    msghdr message{};
    message.msg_name = &peer.any;
    message.msg_namelen = sizeof peer.ipv6;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (receive_message(fd, message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) break;
    const sock_extended_err* const error = description_of(message);
    if (error == nullptr || message.msg_namelen == 0) continue;
    const bool by_icmp = error->ee_origin == SO_EE_ORIGIN_ICMP || error->ee_origin == SO_EE_ORIGIN_ICMP6;
    if (error->ee_errno == EMSGSIZE) {
      if (by_icmp) note_too_long();
      log({gid_of(peer.any), error->ee_info});
    } else if (by_icmp) {
      unreachable_.fetch_add(1, std::memory_order_relaxed);
      log({gid_of(peer.any)});
    }
  }
}

/// Writes a line once for each fault. Their rate is limited, since ICMP may be forged.
void PathErrors::log(const Fault& fault) {
  if (std::ranges::find(logged_, fault) != logged_.end() || !lines_.take(monotonic_ns())) return;
  logged_[next_logged_++ % logged_.size()] = fault;
  try {
    const std::string own = text_of(own_);
    const std::string peer = text_of(fault.peer);
    if (fault.mtu_bytes == 0)
      return faultline::log().debug(
          "{}: ICMP reports that packets to {} reach no socket: does Faultline run there?", own, peer);
    const uint32_t path_mtu = wire::largest_path_mtu_bytes(fault.mtu_bytes, !fault.peer.is_ipv4());
    faultline::log().warn(
        "{}: packets to {} are dropped: they are longer than the {} bytes that the path holds; give its QPs "
        "a path MTU of at most {} (ibv_modify_qp(3)), or the device mtu = {}",
        own, peer, fault.mtu_bytes, path_mtu, fault.mtu_bytes);
  } catch (const std::exception&) {
    // Out of memory: the line is dropped, since packets matter more.
  }
}

}  // namespace faultline::glue
