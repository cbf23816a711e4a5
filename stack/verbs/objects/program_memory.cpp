// SPDX-License-Identifier: BSD-3-Clause
#include "stack/verbs/objects/program_memory.hpp"

#include <new>

#include "stack/verbs/objects/objects.hpp"

namespace faultline::verbs {

std::unique_ptr<ProgramMemory> ProgramMemory::of(Pd* pd, RingKind kind) {
  return pd == nullptr || pd->allocators.alloc == nullptr ? nullptr
                                                          : std::make_unique<ProgramMemory>(*pd, kind);
}

ProgramMemory::~ProgramMemory() {
  for (const Block& block : blocks_) {
    if (block.memory == nullptr) continue;
    if (block.is_programs)
      pd_.allocators.free(&pd_, pd_.allocators.context, block.memory, static_cast<uint64_t>(kind_));
    else
      std::pmr::new_delete_resource()->deallocate(block.memory, block.bytes, block.alignment);
  }
}

void ProgramMemory::reserve(size_t bytes, size_t alignment) {
  for (Block& block : blocks_) {
    if (block.memory != nullptr) continue;
    void* const memory =
        pd_.allocators.alloc(&pd_, pd_.allocators.context, bytes, alignment, static_cast<uint64_t>(kind_));
    if (memory == nullptr) throw std::bad_alloc();
    const bool is_programs = memory != IBV_ALLOCATOR_USE_DEFAULT;
    if (is_programs && reinterpret_cast<uintptr_t>(memory) % alignment != 0) {
      pd_.allocators.free(&pd_, pd_.allocators.context, memory, static_cast<uint64_t>(kind_));
      throw std::bad_alloc();
    }
    block = {.memory = is_programs ? memory : std::pmr::new_delete_resource()->allocate(bytes, alignment),
             .bytes = bytes,
             .alignment = alignment,
             .is_programs = is_programs};
    return;
  }
  throw std::bad_alloc();
}

void* ProgramMemory::do_allocate(size_t bytes, size_t /*alignment*/) {
  for (Block& block : blocks_) {
    if (block.taken || block.memory == nullptr || block.bytes != bytes) continue;
    block.taken = true;
    return block.memory;
  }
  throw std::bad_alloc();
}

void ProgramMemory::do_deallocate(void* memory, size_t /*bytes*/, size_t /*alignment*/) {
  for (Block& block : blocks_)
    if (block.memory == memory) block.taken = false;
}

}  // namespace faultline::verbs
