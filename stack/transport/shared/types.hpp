// SPDX-License-Identifier: BSD-3-Clause
// Basic types of the transport. Enums that exist in infiniband/verbs.h have the same values there (asserted
// in stack/verbs).
#pragma once

#include <cstdint>

#include "stack/base/time.hpp"
#include "stack/wire/packet/frame.hpp"

namespace faultline::transport {

enum class QpType : uint8_t { rc = 2, uc = 3, ud = 4, xrc_send = 9, xrc_recv = 10 };
/// How a QP exchanges packets: with acknowledgements (RC and XRC), without (UC), or as datagrams (UD).
enum class Protocol : uint8_t { reliable, unreliable, datagram };
[[nodiscard]] constexpr Protocol protocol_of(QpType type) {
  return type == QpType::ud   ? Protocol::datagram
         : type == QpType::uc ? Protocol::unreliable
                              : Protocol::reliable;
}
enum class QpState : uint8_t { reset = 0, init = 1, rtr = 2, rts = 3, sqd = 4, sqe = 5, err = 6 };
inline constexpr unsigned kQpStateCount = 7;

enum class PathMtu : uint8_t { mtu256 = 1, mtu512 = 2, mtu1024 = 3, mtu2048 = 4, mtu4096 = 5 };
[[nodiscard]] constexpr uint32_t bytes_of(PathMtu mtu) {
  return 128U << static_cast<uint32_t>(mtu);
}

/// Send work requests (ibv_wr_opcode).
enum class SendOpcode : uint8_t {
  rdma_write = 0,
  rdma_write_with_imm = 1,
  send = 2,
  send_with_imm = 3,
  rdma_read = 4,
  atomic_cmp_and_swp = 5,
  atomic_fetch_and_add = 6,
  local_inv = 7,
  bind_mw = 8,
  send_with_inv = 9,
  flush = 14,
  atomic_write = 15,
  made_to_fail = 16  ///< by a scenario (stack/trouble): completes with the status in `rkey`, without a packet
};

enum SendFlag : uint8_t { kFence = 1U << 0, kSignaled = 1U << 1, kSolicited = 1U << 2, kInline = 1U << 3 };

/// ibv_wc_status.
enum class CompletionStatus : uint8_t {
  success = 0,
  local_length = 1,
  local_qp_operation = 2,
  local_eec_operation = 3,
  local_protection = 4,
  work_request_flushed = 5,
  mw_bind = 6,
  bad_response = 7,
  local_access = 8,
  remote_invalid_request = 9,
  remote_access = 10,
  remote_operation = 11,
  retry_exceeded = 12,
  rnr_retry_exceeded = 13,
  general = 21
};

/// ibv_wc_opcode.
enum class CompletionOpcode : uint8_t {
  send = 0,
  rdma_write = 1,
  rdma_read = 2,
  comp_swap = 3,
  fetch_add = 4,
  bind_mw = 5,
  local_inv = 6,
  flush = 8,
  atomic_write = 9,
  recv = 128,
  recv_rdma_with_imm = 129
};

enum CompletionFlag : uint8_t { kWithGrh = 1U << 0, kWithImm = 1U << 1, kWithInvalidate = 1U << 3 };

/// Operand size of compare-and-swap, fetch-and-add and ATOMIC WRITE.
inline constexpr uint32_t kAtomicBytes = 8;

/// A scatter/gather element, as ibv_sge.
struct Sge {
  uint64_t va = 0;
  uint32_t length_bytes = 0;
  uint32_t lkey = 0;
};

/// Resolved address vector: destination of a UD message or of a connected QP's packets.
struct AddressVector {
  wire::PathHeader path;
  bool loopback = false;  ///< the destination is this device
};

/// Attributes of modify_qp; bits as ibv_qp_attr_mask.
enum QpAttrMask : uint32_t {
  kAttrState = 1U << 0,
  kAttrCurState = 1U << 1,
  kAttrEnSqdAsyncNotify = 1U << 2,
  kAttrAccessFlags = 1U << 3,
  kAttrPkeyIndex = 1U << 4,
  kAttrPort = 1U << 5,
  kAttrQkey = 1U << 6,
  kAttrAv = 1U << 7,
  kAttrPathMtu = 1U << 8,
  kAttrTimeout = 1U << 9,
  kAttrRetryCnt = 1U << 10,
  kAttrRnrRetry = 1U << 11,
  kAttrRqPsn = 1U << 12,
  kAttrMaxQpRdAtomic = 1U << 13,
  kAttrAltPath = 1U << 14,
  kAttrMinRnrTimer = 1U << 15,
  kAttrSqPsn = 1U << 16,
  kAttrMaxDestRdAtomic = 1U << 17,
  kAttrPathMigState = 1U << 18,
  kAttrCap = 1U << 19,
  kAttrDestQpn = 1U << 20,
  kAttrRateLimit = 1U << 25
};

/// Values of the attributes that the transport uses.
struct QpAttributes {
  QpState state = QpState::reset;
  uint32_t access_flags = 0;  ///< odp::AccessFlag remote bits
  uint32_t qkey = 0;
  AddressVector av;
  PathMtu path_mtu = PathMtu::mtu1024;
  uint8_t timeout = 14;  ///< 4.096 us * 2^timeout; 0 = never
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;       ///< 7 = without limit
  uint8_t min_rnr_timer = 12;  ///< code of the RNR timer table
  uint8_t max_rd_atomic = 1;
  uint8_t max_dest_rd_atomic = 1;
  uint32_t rq_psn = 0;
  uint32_t sq_psn = 0;
  uint32_t destination_qpn = 0;
  bool sqd_notify = false;   ///< kAttrEnSqdAsyncNotify: raise sq_drained once drained in SQD
  bool sq_draining = false;  ///< attributes_of only: in SQD with sends in progress
};

}  // namespace faultline::transport
