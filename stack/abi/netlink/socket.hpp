// SPDX-License-Identifier: BSD-3-Clause
// A socket of netlink in the process: a descriptor of the program, whose answers are datagrams in a UNIX
// socket. So poll, read, MSG_PEEK, MSG_TRUNC and dup work as the kernel's.
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

/// True once this process, or the one that it was forked from, has opened a NetlinkSocket. Most never do:
/// their calls on other sockets cost this load.
inline constinit std::atomic<bool> has_opened_netlink{false};

/// A socket of netlink that this process answers.
class NetlinkSocket : public OpenFile {
 public:
  explicit NetlinkSocket(UniqueFd answers);

  /// Opens the program's descriptor: calls make(answers), which returns the object for it. Returns the
  /// descriptor, or -1 with errno.
  template <typename Make>
  [[nodiscard]] static int open(int type, Make make) {
    UniqueFd answers;
    const int number = open_pair(type, answers);
    if (number < 0) return -1;
    return add(number, make(std::move(answers)));
  }
  /// Returns the socket of a descriptor, or nullptr for any other descriptor.
  [[nodiscard]] static std::shared_ptr<NetlinkSocket> find(int descriptor);

  // Each returns 0, or a negative errno. `descriptor` is the program's.

  [[nodiscard]] virtual int bind(int descriptor, const sockaddr* address, socklen_t length) = 0;
  [[nodiscard]] virtual int connect(const sockaddr* address, socklen_t length) = 0;
  [[nodiscard]] virtual int get_name(sockaddr* address, socklen_t* length) = 0;
  /// Returns nullopt for options that the descriptor itself has (SOL_SOCKET).
  [[nodiscard]] virtual std::optional<int> set_option(int descriptor, int level, int name, const void* value,
                                                      socklen_t length) = 0;

  /// Answers requests. Returns the number of their bytes, or a negative errno.
  [[nodiscard]] ssize_t send(std::span<const uint8_t> bytes);
  [[nodiscard]] ssize_t send(const msghdr& message);
  [[nodiscard]] ssize_t write(const void* bytes, size_t length) override;

  /// Moves answers that wait for room to the descriptor. Called around each receive.
  void refill();

  /// Writes the address of the kernel, as that of a received message's sender.
  static void put_kernel_address(void* address, socklen_t* length);

 protected:
  /// Returns the answers to the requests in `bytes`, or a negative errno in `error`. Under the mutex.
  [[nodiscard]] virtual std::vector<NetlinkBytes> answer_locked(std::span<const uint8_t> bytes,
                                                                int& error) = 0;

  std::mutex mutex_;

 private:
  [[nodiscard]] static int open_pair(int type, UniqueFd& answers);
  [[nodiscard]] static int add(int number, std::shared_ptr<NetlinkSocket> socket);
  void refill_locked();

  // All guarded by the mutex.
  const UniqueFd answers_;  ///< what is sent here is received from the program's descriptor
  std::deque<NetlinkBytes> waiting_;
};

/// A socket of NETLINK_RDMA. It never asks the kernel.
class RdmaNetlinkSocket final : public NetlinkSocket {
 public:
  using NetlinkSocket::NetlinkSocket;
  [[nodiscard]] int bind(int descriptor, const sockaddr* address, socklen_t length) override;
  [[nodiscard]] int connect(const sockaddr* address, socklen_t length) override;
  [[nodiscard]] int get_name(sockaddr* address, socklen_t* length) override;
  [[nodiscard]] std::optional<int> set_option(int descriptor, int level, int name, const void* value,
                                              socklen_t length) override;

 protected:
  [[nodiscard]] std::vector<NetlinkBytes> answer_locked(std::span<const uint8_t> bytes, int& error) override;

 private:
  [[nodiscard]] uint32_t port_locked();

  NetlinkAsker asker_;  ///< guarded by the mutex
};

}  // namespace faultline::abi
