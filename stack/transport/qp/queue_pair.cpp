// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/qp/queue_pair.hpp"

#include <algorithm>
#include <bit>

namespace faultline::transport {

namespace {

wire::Service service_of(QpType type) {
  switch (type) {
    case QpType::rc:
      return wire::Service::rc;
    case QpType::uc:
      return wire::Service::uc;
    case QpType::ud:
      return wire::Service::ud;
    case QpType::xrc_send:
    case QpType::xrc_recv:
      return wire::Service::xrc;
  }
  return wire::Service::rc;
}

}  // namespace

QueuePair::QueuePair(uint32_t number, const QpInit& init, std::pmr::memory_resource* memory)
    : qpn(number),
      type(init.type),
      service(service_of(init.type)),
      signal_all(init.signal_all),
      blocks_own_multicast(init.blocks_own_multicast),
      domain(init.domain),
      send_cq(init.send_cq),
      receive_cq(init.receive_cq),
      posting_reads(init.posting_reads),
      progress_mask(std::bit_ceil(std::max(init.max_send_wr, 1U)) - 1),
      send_ring(init.max_send_wr, init.max_send_sge, init.max_inline_bytes, init.type == QpType::ud,
                init.ring_memory != nullptr ? init.ring_memory : memory),
      receive_ring(init.max_receive_wr, init.max_receive_sge, 0, false,
                   init.ring_memory != nullptr ? init.ring_memory : memory),
      progress_storage(progress_mask + 1, memory),
      srq(init.srq),
      xrc_domain(init.xrc_domain),
      shared_sges(takes_shared_receives() ? kMaxSharedSges : 0),
      user(init.user) {
  progress = progress_storage.data();
  timer.qp = pacing_timer.qp = this;
}

}  // namespace faultline::transport
