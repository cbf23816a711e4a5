// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/context/shared_receive_queues.hpp"

#include <algorithm>
#include <new>

#include "stack/wire/packet/headers.hpp"

namespace faultline::transport {

SharedReceiveQueue* SharedReceiveQueues::create(const SrqInit& init) {
  try {
    const auto free = std::find(queues_.begin(), queues_.end(), nullptr);
    const auto slot = static_cast<uint32_t>(free - queues_.begin());
    const uint32_t number = slot * config_.core_count + config_.core_index + 1;
    if (number > wire::kXrcSrqMask) return nullptr;
    auto srq = std::make_unique<SharedReceiveQueue>(number, init);
    if (free == queues_.end()) queues_.emplace_back();
    queues_[slot] = std::move(srq);
    return queues_[slot].get();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void SharedReceiveQueues::destroy(SharedReceiveQueue* srq) {
  for (auto& slot : queues_)
    if (slot.get() == srq) slot.reset();
}

SharedReceiveQueue* SharedReceiveQueues::find(uint32_t number) const {
  const uint32_t index = number - 1 - config_.core_index;
  if (number == 0 || index % config_.core_count != 0) return nullptr;
  const uint32_t slot = index / config_.core_count;
  return slot < queues_.size() ? queues_[slot].get() : nullptr;
}

}  // namespace faultline::transport
