// SPDX-License-Identifier: BSD-3-Clause
// A socket of RDMA netlink in the process: a descriptor of the program, whose answers are datagrams in a
// UNIX socket. So poll, read, MSG_PEEK, MSG_TRUNC and dup work as the kernel's.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <sys/socket.h>

#include "stack/abi/netlink/answers.hpp"
#include "stack/abi/tree/descriptor_table.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::abi {

/// Implements socket(2) for AF_NETLINK and NETLINK_RDMA; `type` has the flags too. Returns a descriptor, -1
/// with errno, or nullopt if this process has no devices: then the socket is the kernel's.
[[nodiscard]] std::optional<int> open_rdma_netlink(int type);

/// True once this process, or the one that it was forked from, has opened such a socket. Most never do: their
/// calls on other sockets cost this load.
inline constinit std::atomic<bool> has_opened_rdma_netlink{false};

class NetlinkSocket final : public OpenFile {
 public:
  explicit NetlinkSocket(UniqueFd answers);

  /// Returns the socket of a descriptor, or nullptr for any other descriptor.
  [[nodiscard]] static std::shared_ptr<NetlinkSocket> find(int descriptor);

  // Each returns 0, or a negative errno.

  [[nodiscard]] int bind(const sockaddr* address, socklen_t length);
  [[nodiscard]] int connect(const sockaddr* address, socklen_t length) const;
  [[nodiscard]] int get_name(sockaddr* address, socklen_t* length);
  /// Returns nullopt for options that the descriptor itself has (SOL_SOCKET).
  [[nodiscard]] std::optional<int> set_option(int level, int name, const void* value, socklen_t length);

  /// Answers requests. Returns the number of their bytes, or a negative errno.
  [[nodiscard]] ssize_t send(std::span<const uint8_t> bytes);
  [[nodiscard]] ssize_t send(const msghdr& message);
  [[nodiscard]] ssize_t write(const void* bytes, size_t length) override;

  /// Moves answers that wait for room to the descriptor. Called around each receive.
  void refill();

  /// Writes the address of the kernel, as that of a received message's sender.
  static void put_kernel_address(void* address, socklen_t* length);

 private:
  void refill_locked();
  [[nodiscard]] uint32_t port_locked();

  std::mutex mutex_;
  // All guarded by the mutex.
  const UniqueFd answers_;  ///< what is sent here is received from the program's descriptor
  std::deque<NetlinkBytes> waiting_;
  NetlinkAsker asker_;
};

}  // namespace faultline::abi
