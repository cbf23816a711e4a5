// SPDX-License-Identifier: BSD-3-Clause
// /dev/infiniband/rdma_cm in the process: implements the commands of <rdma/rdma_user_cm.h> as the kernel's
// ucma does, for librdmacm as distributions ship it.
#pragma once

#include <cstdint>
#include <span>

#include "stack/abi/rdma_cm/core.hpp"
#include "stack/abi/tree/descriptor_table.hpp"

namespace faultline::abi {

class CmChannel final : public OpenFile {
 public:
  explicit CmChannel(Sight opened);
  ~CmChannel() override;

  /// Returns a descriptor for the program: poll and epoll report it readable exactly while events are queued.
  [[nodiscard]] static int open(const Sight& sight, int flags);

  /// Executes one command. Returns its length, or a negative errno.
  [[nodiscard]] ssize_t write(const void* bytes, size_t length) override;
  /// Waits briefly if another thread reads the events, as the kernel does when it destroys identifiers. A
  /// program may close the descriptor while another of its threads is about to wait on it again (rping).
  void before_close() override;

  [[nodiscard]] EventQueue& queue() { return queue_; }

 private:
  EventQueue queue_;
  bool counted_ = false;
};

/// A command's bytes and the room for its response.
struct CmCommand {
  std::span<const uint8_t> in;  ///< in the program's memory
  size_t out_bytes = 0;

  /// Copies the command to `fields`. Fields that an older program does not send are zero. Returns EFAULT if
  /// the bytes cannot be read.
  template <typename Fields>
  [[nodiscard]] int read(Fields& fields) const {
    fields = {};
    return read_bytes(&fields, sizeof fields);
  }
  /// Writes as much of the response as the program has room for. Returns ENOSPC if `least_bytes` do not fit,
  /// or EFAULT.
  template <typename Answer>
  [[nodiscard]] int answer(uint64_t address, const Answer& answer,
                           size_t least_bytes = sizeof(Answer)) const {
    return write_bytes(address, &answer, sizeof answer, least_bytes);
  }

  [[nodiscard]] int read_bytes(void* to, size_t length) const;
  [[nodiscard]] int write_bytes(uint64_t address, const void* from, size_t length, size_t least_bytes) const;
};

/// Copies bytes of the program's memory, which may be unmapped.
[[nodiscard]] int copy_from_program(void* to, uint64_t from, size_t length);

using CmHandler = int (*)(CmCore& core, EventQueue& queue, const CmCommand& command);

// Each returns 0 or an errno. address.cpp
int create_id(CmCore& core, EventQueue& queue, const CmCommand& command);
int destroy_id(CmCore& core, EventQueue& queue, const CmCommand& command);
int bind_ip(CmCore& core, EventQueue& queue, const CmCommand& command);
int bind_address(CmCore& core, EventQueue& queue, const CmCommand& command);
int resolve_ip(CmCore& core, EventQueue& queue, const CmCommand& command);
int resolve_address(CmCore& core, EventQueue& queue, const CmCommand& command);
int resolve_route(CmCore& core, EventQueue& queue, const CmCommand& command);
int set_option(CmCore& core, EventQueue& queue, const CmCommand& command);
// query.cpp
int query_route(CmCore& core, EventQueue& queue, const CmCommand& command);
int query(CmCore& core, EventQueue& queue, const CmCommand& command);
int init_qp_attributes(CmCore& core, EventQueue& queue, const CmCommand& command);
// connection.cpp
int connect(CmCore& core, EventQueue& queue, const CmCommand& command);
int listen(CmCore& core, EventQueue& queue, const CmCommand& command);
int accept(CmCore& core, EventQueue& queue, const CmCommand& command);
int reject(CmCore& core, EventQueue& queue, const CmCommand& command);
int disconnect(CmCore& core, EventQueue& queue, const CmCommand& command);
int notify(CmCore& core, EventQueue& queue, const CmCommand& command);
// multicast.cpp
int join_ip_multicast(CmCore& core, EventQueue& queue, const CmCommand& command);
int join_multicast(CmCore& core, EventQueue& queue, const CmCommand& command);
int leave_multicast(CmCore& core, EventQueue& queue, const CmCommand& command);

/// Returns the identifier `handle` of this descriptor. Otherwise returns nullptr and the kernel's errno:
/// ENOENT if there is none, EINVAL if it belongs to another descriptor. Requires the mutex.
[[nodiscard]] std::shared_ptr<Identifier> own_identifier(const CmCore& core, const EventQueue& queue,
                                                         uint32_t handle, int& error);

/// Well-known Q_Key of datagram identifiers (RDMA_UDP_QKEY).
inline constexpr uint32_t kDatagramQkey = 0x01234567;

}  // namespace faultline::abi
