// SPDX-License-Identifier: BSD-3-Clause
// Socket options that name an interface or one of its addresses: memberships of multicast groups, and the
// interface by which datagrams to groups leave (ip(7), ipv6(7), RFC 3678). The way to a wire's addresses is
// the kernel's loopback interface.
#pragma once

#include <array>
#include <cstddef>

#include <netinet/in.h>
#include <sys/socket.h>

namespace faultline::abi {

class InterfaceOption {
 public:
  /// True if the value names the wire's interface or a wire's address; value() is then what the kernel gets.
  [[nodiscard]] bool map(int level, int name, const void* value, socklen_t length_bytes);
  /// As long as the value that was mapped.
  [[nodiscard]] const void* value() const { return bytes_.data(); }

 private:
  bool map_address(size_t at);
  bool map_index(size_t at);

  std::array<std::byte, sizeof(group_source_req)> bytes_;
  size_t length_bytes_ = 0;
};

}  // namespace faultline::abi
