// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/qp/shared_receive_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

namespace faultline::transport {

namespace {

/// Returns a ring of the new size with the same receives.
std::unique_ptr<ReceiveRing> moved(ReceiveRing& from, uint32_t max_wr) {
  auto to = std::make_unique<ReceiveRing>(max_wr, from.max_sge(), 0);
  for (uint32_t index = from.head(); index != from.tail(); ++index) {
    ReceiveWqe* const source = from.header_at(index);
    ReceiveWqe* const target = to->prepare();
    *target = *source;
    std::copy_n(from.sges_of(source), source->sge_count, to->sges_of(target));
    to->advance();
  }
  to->publish();
  return to;
}

}  // namespace

int modify(SharedReceiveQueue& srq, const uint32_t* limit, uint32_t max_wr) {
  if (max_wr != 0) {
    if (posted_in(&srq) > max_wr) return EINVAL;
    try {
      srq.ring = moved(*srq.ring, max_wr);
    } catch (const std::bad_alloc&) {
      return ENOMEM;
    }
  }
  if (limit != nullptr) srq.limit = *limit;
  return 0;
}

}  // namespace faultline::transport
