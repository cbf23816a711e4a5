// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/qp/work_queue.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <new>

namespace faultline::transport {

namespace {

size_t rounded_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

uint32_t slots_for(uint32_t entries) {
  return std::bit_ceil(std::max(entries, 1U));
}

/// Offset in a slot of the end of its elements or inline data; the address vector, if any, starts there.
size_t data_end(size_t header_bytes, uint32_t max_sge, uint32_t max_inline_bytes) {
  return header_bytes + rounded_up(std::max(max_sge * sizeof(Sge), size_t{max_inline_bytes}), 16);
}

size_t slot_size(size_t data_end_at, bool with_address_vector) {
  constexpr size_t kCacheLineBytes = 64;
  return rounded_up(data_end_at + (with_address_vector ? sizeof(AddressVector) : 0), kCacheLineBytes);
}

}  // namespace

template <typename Header>
size_t WorkRing<Header>::bytes_for(uint32_t entries, uint32_t max_sge, uint32_t max_inline_bytes,
                                   bool with_address_vector) {
  return slot_size(data_end(kHeaderBytes, max_sge, max_inline_bytes), with_address_vector) *
         slots_for(entries);
}

template <typename Header>
WorkRing<Header>::WorkRing(uint32_t entries, uint32_t max_sge, uint32_t max_inline_bytes,
                           bool with_address_vector, std::pmr::memory_resource* memory)
    : entries_(std::max(entries, 1U)),
      mask_(slots_for(entries) - 1),
      max_sge_(max_sge),
      max_inline_bytes_(max_inline_bytes),
      av_offset_(static_cast<uint32_t>(data_end(kHeaderBytes, max_sge, max_inline_bytes))),
      slot_bytes_(static_cast<uint32_t>(slot_size(av_offset_, with_address_vector))),
      slots_(static_cast<uint8_t*>(memory->allocate(size_t{slot_bytes_} * (mask_ + 1), kAlignmentBytes)),
             Release{memory, size_t{slot_bytes_} * (mask_ + 1)}) {
  std::memset(static_cast<void*>(slots_.get()), 0, size_t{slot_bytes_} * (mask_ + 1));
}

template <typename Header>
void WorkRing<Header>::Release::operator()(uint8_t* slots) const {
  memory->deallocate(slots, bytes, kAlignmentBytes);
}

template class WorkRing<SendWqe>;
template class WorkRing<ReceiveWqe>;

}  // namespace faultline::transport
