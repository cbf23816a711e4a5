// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/qp/shared_receive_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

#include "stack/transport/qp/context.hpp"

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

SharedReceiveQueue* CoreContext::create_srq(const SrqInit& init) {
  try {
    const auto free = std::find(srqs_.begin(), srqs_.end(), nullptr);
    const auto slot = static_cast<uint32_t>(free - srqs_.begin());
    const uint32_t number = slot * config.core_count + config.core_index + 1;
    if (number > wire::kXrcSrqMask) return nullptr;
    auto srq = std::make_unique<SharedReceiveQueue>(number, init);
    if (free == srqs_.end()) srqs_.emplace_back();
    srqs_[slot] = std::move(srq);
    return srqs_[slot].get();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void CoreContext::destroy_srq(SharedReceiveQueue* srq) {
  for (auto& slot : srqs_)
    if (slot.get() == srq) slot.reset();
}

SharedReceiveQueue* CoreContext::find_srq(uint32_t number) const {
  const uint32_t index = number - 1 - config.core_index;
  if (number == 0 || index % config.core_count != 0) return nullptr;
  const uint32_t slot = index / config.core_count;
  return slot < srqs_.size() ? srqs_[slot].get() : nullptr;
}

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
