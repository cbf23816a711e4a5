// SPDX-License-Identifier: BSD-3-Clause
// The multicast groups of a device on UDP sockets: one socket for each group, bound to the group's address. A
// socket on a host's address receives no group, and one on all addresses would take datagrams of other
// processes. The kernel speaks IGMP and MLD. Owner: as UdpSocket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pmd_glue/ports/udp/udp_socket.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::glue {

class UdpGroups {
 public:
  /// `own` are the device's addresses: the device itself copies what it sends to a group to its own QPs, and
  /// this class drops the kernel's copies.
  UdpGroups(std::string interface, std::vector<wire::Gid> own, rte_mempool* pool);

  /// Joins a group. `ready` is an epoll descriptor that then also reports the groups' datagrams. Returns 0 or
  /// an errno.
  [[nodiscard]] int join(const wire::Gid& group, int ready);
  void leave(const wire::Gid& group);

  [[nodiscard]] bool empty() const { return sockets_.empty(); }
  /// Receives datagrams as frames to the groups' MAC addresses, from port `port` of DPDK; returns their
  /// number.
  [[nodiscard]] size_t receive(uint16_t port, std::span<rte_mbuf*> frames);

  /// As UdpSocket's, of all groups until now.
  [[nodiscard]] uint64_t missed() const;
  [[nodiscard]] uint64_t no_buffer() const;

 private:
  [[nodiscard]] size_t drop_own(std::span<rte_mbuf*> frames) const;

  const std::string interface_;
  const std::vector<wire::Gid> own_;
  rte_mempool* const pool_;
  UniqueFd readable_;  ///< epoll descriptor of all groups: a turn asks the kernel once, for any number
  std::vector<std::unique_ptr<UdpSocket>> sockets_;
  UdpSocket* partly_read_ = nullptr;  ///< the one that holds datagrams which the kernel no longer reports
  uint64_t missed_ = 0;               ///< of groups that were left
  uint64_t no_buffer_ = 0;            ///< of groups that were left
};

}  // namespace faultline::glue
