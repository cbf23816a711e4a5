// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/qp/completion_counter.hpp"

namespace faultline::transport {

void CountedOperations::add_send(SendOpcode opcode, CompletionStatus status, uint64_t bytes) const {
  switch (opcode) {
    case SendOpcode::send:
    case SendOpcode::send_with_imm:
    case SendOpcode::send_with_inv:
      return add(CountedOperation::send, status, bytes);
    case SendOpcode::rdma_read:
      return add(CountedOperation::rdma_read, status, bytes);
    case SendOpcode::rdma_write:
    case SendOpcode::rdma_write_with_imm:
      return add(CountedOperation::rdma_write, status, bytes);
    case SendOpcode::atomic_cmp_and_swp:
    case SendOpcode::atomic_fetch_and_add:
    case SendOpcode::local_inv:
    case SendOpcode::bind_mw:
    case SendOpcode::flush:
    case SendOpcode::atomic_write:
    case SendOpcode::made_to_fail:
      return;
  }
}

}  // namespace faultline::transport
