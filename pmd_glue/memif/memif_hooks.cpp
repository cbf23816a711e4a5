// SPDX-License-Identifier: BSD-3-Clause
// Functions that interpose on calls of net_memif (--wrap, meson.build).
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <rte_interrupts.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pmd_glue/memif/memif_client.hpp"
#include "pmd_glue/memif/memif_gate.hpp"
#include "pmd_glue/memif/memif_port.hpp"

namespace {

using namespace faultline::glue;

/// Descriptors received or sent with a message (unix(7)).
struct Descriptors {
  std::array<int, 16> numbers{};
  size_t count = 0;

  explicit Descriptors(const msghdr& message) {
    auto* const header = const_cast<msghdr*>(&message);
    for (cmsghdr* part = CMSG_FIRSTHDR(header); part != nullptr; part = CMSG_NXTHDR(header, part)) {
      if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
      const size_t bytes = part->cmsg_len - CMSG_LEN(0);
      for (size_t at = 0; at + sizeof(int) <= bytes && count < numbers.size(); at += sizeof(int))
        std::memcpy(&numbers[count++], CMSG_DATA(part) + at, sizeof(int));
    }
  }
  [[nodiscard]] std::span<const int> all() const { return {numbers.data(), count}; }
};

std::span<const uint8_t> first_part(const msghdr& message, size_t length_bytes) {
  if (message.msg_iovlen == 0) return {};
  return {static_cast<const uint8_t*>(message.msg_iov[0].iov_base),
          std::min(length_bytes, message.msg_iov[0].iov_len)};
}

}  // namespace

extern "C" {
ssize_t __real_sendmsg(int fd, const msghdr* message, int flags);
ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags);

// If a client disconnects before the server's HELLO, memif_listener_handler closes a descriptor that EAL
// still watches, and EAL panics. So a HELLO to a closed peer counts as sent: the end of file that follows is
// handled correctly.
ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags) {
  ssize_t sent = __real_sendmsg(fd, message, flags | MSG_NOSIGNAL);
  if (sent < 0) {
    if (errno != EPIPE && errno != ECONNRESET) return sent;
    sent = 0;
    for (size_t i = 0; i < message->msg_iovlen; ++i)
      sent += static_cast<ssize_t>(message->msg_iov[i].iov_len);
  }
  if (rte_thread_is_intr() != 0)
    memif::on_sent(fd, first_part(*message, static_cast<size_t>(sent)), Descriptors(*message).all());
  return sent;
}

ssize_t __real_recvmsg(int fd, msghdr* message, int flags);
ssize_t __wrap_recvmsg(int fd, msghdr* message, int flags);

// On EAL's interrupt thread only memif's control channel receives: a message of its peer, or the end of the
// connection. Messages are rare. A refused message ends its connection, and its descriptors are closed here.
ssize_t __wrap_recvmsg(int fd, msghdr* message, int flags) {
  ssize_t received = __real_recvmsg(fd, message, flags);
  if (rte_thread_is_intr() == 0) return received;
  const int error = errno;
  take_what_has_come();
  const Descriptors descriptors = received > 0 ? Descriptors(*message) : Descriptors(msghdr{});
  const auto bytes =
      received > 0 ? first_part(*message, static_cast<size_t>(received)) : std::span<const uint8_t>();
  if (!memif::on_received(fd, bytes, descriptors.all())) {
    for (const int descriptor : descriptors.all()) close(descriptor);
    message->msg_controllen = 0;
    received = 0;
  }
  errno = error;
  return received;
}

int __real_memif_socket_init(rte_eth_dev* device, const char* socket);
int __wrap_memif_socket_init(rte_eth_dev* device, const char* socket);

int __wrap_memif_socket_init(rte_eth_dev* device, const char* socket) {
  memif::on_socket_init(device);
  return __real_memif_socket_init(device, socket);
}

int __real_memif_connect_client(rte_eth_dev* device);
int __wrap_memif_connect_client(rte_eth_dev* device);

int __wrap_memif_connect_client(rte_eth_dev* device) {
  memif::before_connection(device);
  const int connected = __real_memif_connect_client(device);
  memif::after_connection(device, connected >= 0);
  return connected;
}

int __real_memif_connect(rte_eth_dev* device);
int __wrap_memif_connect(rte_eth_dev* device);

int __wrap_memif_connect(rte_eth_dev* device) {
  if (!memif::before_connect(device)) return -1;
  const int connected = __real_memif_connect(device);
  memif::after_connect(device, connected >= 0);
  return connected;
}

void __real_memif_free_regions(rte_eth_dev* device);
void __wrap_memif_free_regions(rte_eth_dev* device);

void __wrap_memif_free_regions(rte_eth_dev* device) {
  std::vector<int> forgotten;
  close_memif_gates();
  memif::before_free_regions(device, forgotten);
  __real_memif_free_regions(device);
  open_memif_gates();
  for (const int descriptor : forgotten) close(descriptor);
}

int __real_rte_intr_callback_register(const rte_intr_handle* handle, rte_intr_callback_fn callback,
                                      void* argument);
int __wrap_rte_intr_callback_register(const rte_intr_handle* handle, rte_intr_callback_fn callback,
                                      void* argument);

int __wrap_rte_intr_callback_register(const rte_intr_handle* handle, rte_intr_callback_fn callback,
                                      void* argument) {
  const int registered = __real_rte_intr_callback_register(handle, callback, argument);
  if (registered == 0) memif::on_callback_registered(handle, callback, argument);
  return registered;
}

rte_intr_handle* __real_rte_intr_instance_alloc(uint32_t flags);
rte_intr_handle* __wrap_rte_intr_instance_alloc(uint32_t flags);

rte_intr_handle* __wrap_rte_intr_instance_alloc(uint32_t flags) {
  rte_intr_handle* const handle = __real_rte_intr_instance_alloc(flags);
  memif::on_handle_allocated(handle);
  return handle;
}

void __real_rte_intr_instance_free(rte_intr_handle* handle);
void __wrap_rte_intr_instance_free(rte_intr_handle* handle);

void __wrap_rte_intr_instance_free(rte_intr_handle* handle) {
  memif::on_handle_freed(handle);
  __real_rte_intr_instance_free(handle);
}
}
