// SPDX-License-Identifier: BSD-3-Clause
// /dev/infiniband/rdma_cm in the process: the commands of <rdma/rdma_user_cm.h>, answered as the kernel's
// ucma answers them, for librdmacm as distributions ship it.
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

  /// A number for the program: poll and epoll find it readable exactly while there are events.
  [[nodiscard]] static int open(const Sight& sight, int flags);

  /// One command: how long it was, or a negative errno.
  [[nodiscard]] ssize_t write(const void* bytes, size_t length) override;
  /// Sleeps a little where another thread reads the events, as the kernel does when it ends identifiers.
  /// A program may close the descriptor under a thread that is on its way to wait again (rping).
  void before_close() override;

  [[nodiscard]] EventQueue& queue() { return queue_; }

 private:
  EventQueue queue_;
  bool counted_ = false;
};

/// A command's bytes and where its answer goes.
struct CmCommand {
  std::span<const uint8_t> in;  ///< in the program's memory
  size_t out_bytes = 0;

  /// Fields that the program does not have yet are zero. EFAULT where the bytes cannot be read.
  template <typename Fields>
  [[nodiscard]] int read(Fields& fields) const {
    fields = {};
    return read_bytes(&fields, sizeof fields);
  }
  /// As much of it as the program has room for; `least_bytes` have to fit (ENOSPC). EFAULT.
  template <typename Answer>
  [[nodiscard]] int answer(uint64_t address, const Answer& answer,
                           size_t least_bytes = sizeof(Answer)) const {
    return write_bytes(address, &answer, sizeof answer, least_bytes);
  }

  [[nodiscard]] int read_bytes(void* to, size_t length) const;
  [[nodiscard]] int write_bytes(uint64_t address, const void* from, size_t length, size_t least_bytes) const;
};

/// Bytes of the program's own, which may not be there.
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

/// The identifier of that number on this descriptor, or nullptr and the kernel's errno: ENOENT for none,
/// EINVAL for another descriptor's. Under the mutex.
[[nodiscard]] std::shared_ptr<Identifier> own_identifier(const CmCore& core, const EventQueue& queue,
                                                         uint32_t handle, int& error);

/// The well-known Q_Key of datagram identifiers (RDMA_UDP_QKEY).
inline constexpr uint32_t kDatagramQkey = 0x01234567;

}  // namespace faultline::abi
