// SPDX-License-Identifier: BSD-3-Clause
// A socket of routing netlink in a program that has interfaces of ours: the kernel's answers, with those
// interfaces among them.
#pragma once

#include <atomic>
#include <optional>
#include <span>
#include <vector>

#include "stack/abi/interfaces/net_interface.hpp"
#include "stack/abi/netlink/socket.hpp"

namespace faultline::abi {

/// Implements socket(2) for AF_NETLINK and NETLINK_ROUTE, as open_rdma_netlink(). Returns nullopt if this
/// process shows no interfaces.
[[nodiscard]] std::optional<int> open_route_netlink(int type);

/// Passes what it does not answer to a socket of the kernel. Once the program joins a multicast group, its
/// descriptor becomes that socket, whose notifications come at any time: our interfaces never change.
class RouteNetlinkSocket final : public NetlinkSocket {
 public:
  RouteNetlinkSocket(UniqueFd answers, UniqueFd kernel);

  [[nodiscard]] int bind(int descriptor, const sockaddr* address, socklen_t length) override;
  [[nodiscard]] int connect(const sockaddr* address, socklen_t length) override;
  [[nodiscard]] int get_name(sockaddr* address, socklen_t* length) override;
  [[nodiscard]] std::optional<int> set_option(int descriptor, int level, int name, const void* value,
                                              socklen_t length) override;

 protected:
  [[nodiscard]] std::vector<NetlinkBytes> answer_locked(std::span<const uint8_t> bytes, int& error) override;

 private:
  /// Makes the program's descriptor the kernel's socket. Returns 0, or a negative errno.
  [[nodiscard]] int hand_over(int descriptor);
  [[nodiscard]] uint32_t port() const;
  /// Answers one message.
  [[nodiscard]] std::vector<NetlinkBytes> answer_one(std::span<const uint8_t> message,
                                                     std::span<const OwnInterface> interfaces,
                                                     int& error) const;
  [[nodiscard]] std::vector<NetlinkBytes> ask_kernel(std::span<const uint8_t> bytes, int& error) const;

  const UniqueFd kernel_;
};

}  // namespace faultline::abi
