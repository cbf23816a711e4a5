// SPDX-License-Identifier: BSD-3-Clause
// A receive queue that several QPs share. Owner: the core's thread, except the ring's producer side, which
// application threads use as for a QP's ring.
#pragma once

#include <cstdint>
#include <memory>

#include "stack/transport/qp/init.hpp"
#include "stack/transport/qp/work_queue.hpp"

namespace faultline::transport {

class SharedReceiveQueue {
 public:
  SharedReceiveQueue(uint32_t srq_number, const SrqInit& init)
      : number(srq_number),
        domain(init.domain),
        cq(init.cq),
        xrc_domain(init.xrc_domain),
        user(init.user),
        limit(init.limit),
        ring(std::make_unique<ReceiveRing>(init.max_wr, init.max_sge, 0, false, init.ring_memory)) {}

  const uint32_t number;  ///< 24 bits, as an XRCETH carries it
  const odp::ProtectionDomain domain;
  CompletionQueue* const cq;
  const uint32_t xrc_domain;
  void* const user;
  uint32_t limit;                     ///< 0: no event armed
  std::unique_ptr<ReceiveRing> ring;  ///< replaced by a resize, with producers locked out
};

/// Sets a new limit and, if `max_wr` is not 0, a new size. Returns 0, EINVAL if more WQEs are posted than
/// fit, or ENOMEM.
[[nodiscard]] int modify(SharedReceiveQueue& srq, const uint32_t* limit, uint32_t max_wr);

// Accessors for the verbs layer.
[[nodiscard]] inline uint32_t number_of(const SharedReceiveQueue* srq) {
  return srq->number;
}
[[nodiscard]] inline ReceiveRing& receive_ring_of(SharedReceiveQueue* srq) {
  return *srq->ring;
}
/// Number of posted WQEs that are not taken yet; a snapshot.
[[nodiscard]] inline uint32_t posted_in(const SharedReceiveQueue* srq) {
  return srq->ring->tail() - srq->ring->head();
}

}  // namespace faultline::transport
