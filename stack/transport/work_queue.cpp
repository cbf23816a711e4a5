// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/work_queue.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <new>

namespace faultline::transport {

namespace {

constexpr size_t kSlotAlignmentBytes = 64;

size_t rounded_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace

template <typename Header>
WorkRing<Header>::WorkRing(uint32_t entries, uint32_t max_sge, uint32_t max_inline_bytes,
                           bool with_address_vector, std::pmr::memory_resource* memory)
    : entries_(std::max(entries, 1U)),
      mask_(std::bit_ceil(entries_) - 1),
      max_sge_(max_sge),
      max_inline_bytes_(max_inline_bytes),
      av_offset_(static_cast<uint32_t>(
          kHeaderBytes + rounded_up(std::max(max_sge * sizeof(Sge), size_t{max_inline_bytes}), 16))),
      slot_bytes_(static_cast<uint32_t>(
          rounded_up(av_offset_ + (with_address_vector ? sizeof(AddressVector) : 0), kSlotAlignmentBytes))),
      slots_(static_cast<uint8_t*>(memory->allocate(size_t{slot_bytes_} * (mask_ + 1), kSlotAlignmentBytes)),
             Release{memory, size_t{slot_bytes_} * (mask_ + 1)}) {
  std::memset(static_cast<void*>(slots_.get()), 0, size_t{slot_bytes_} * (mask_ + 1));
}

template <typename Header>
void WorkRing<Header>::Release::operator()(uint8_t* slots) const {
  memory->deallocate(slots, bytes, kSlotAlignmentBytes);
}

template class WorkRing<SendWqe>;
template class WorkRing<ReceiveWqe>;

}  // namespace faultline::transport
