// SPDX-License-Identifier: BSD-3-Clause
// Counters of completed operations (ibv_create_comp_cntr(3)): the cores of the QPs add to one, any thread
// reads it without a call.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "stack/transport/shared/types.hpp"

namespace faultline::transport {

struct CompletionCounter {
  std::atomic<uint64_t> completed{0};
  std::atomic<uint64_t> failed{0};  ///< operations, also if the other counts bytes
  bool counts_bytes = false;        ///< else work requests
};

/// The bit numbers of ibv_qp_attach_comp_cntr_op. The core does not count READs of the peer: an answer may be
/// sent again, in parts, and no packet says that the peer has it.
enum class CountedOperation : uint8_t {
  send,
  receive,
  rdma_read,
  remote_rdma_read,
  rdma_write,
  remote_rdma_write,
  count_
};

/// The counters of one QP, by operation. Set while the QP is in RESET or INIT, used by its owner thread.
class CountedOperations {
 public:
  using Counters = std::array<CompletionCounter*, static_cast<size_t>(CountedOperation::count_)>;

  explicit CountedOperations(const Counters& counters) : counters_(counters) {}
  [[nodiscard]] const Counters& counters() const { return counters_; }

  void add(CountedOperation operation, CompletionStatus status, uint64_t bytes) const {
    CompletionCounter* const counter = counters_[static_cast<size_t>(operation)];
    if (counter == nullptr) return;
    if (status != CompletionStatus::success)
      counter->failed.fetch_add(1, std::memory_order_release);
    else
      counter->completed.fetch_add(counter->counts_bytes ? bytes : 1, std::memory_order_release);
  }
  /// Of a work request of the send queue. Atomics and operations on keys have no counter.
  void add_send(SendOpcode opcode, CompletionStatus status, uint64_t bytes) const;

 private:
  const Counters counters_;
};

}  // namespace faultline::transport
