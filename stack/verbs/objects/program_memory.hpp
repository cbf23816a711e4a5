// SPDX-License-Identifier: BSD-3-Clause
// Rings in memory that the program allocates (ibv_alloc_parent_domain(3)). The program's allocators run on
// the program's own threads only. An engine's thread must not wait for a lock of the program, such as an
// interpreter's. The memory that a ring needs is therefore reserved in advance.
#pragma once

#include <array>
#include <memory>
#include <memory_resource>

#include <infiniband/verbs.h>

namespace faultline::verbs {

struct Pd;

/// The resource type passed to the program's allocators. The upper half, which holds rdma_driver_id, is 0.
enum class RingKind : uint64_t { completions = 1, work_requests = 2, shared_receives = 3 };

class ProgramMemory final : public std::pmr::memory_resource {
 public:
  /// Returns nullptr if the domain's program sets no allocators. Throws std::bad_alloc.
  [[nodiscard]] static std::unique_ptr<ProgramMemory> of(Pd* pd, RingKind kind);
  ProgramMemory(Pd& pd, RingKind kind) : pd_(pd), kind_(kind) {}
  /// Runs on the program's thread, after all rings are destroyed, while the domain lives.
  ~ProgramMemory() override;
  ProgramMemory(const ProgramMemory&) = delete;
  ProgramMemory& operator=(const ProgramMemory&) = delete;

  /// Reserves memory for one ring. Throws std::bad_alloc.
  void reserve(size_t bytes, size_t alignment);

 private:
  struct Block {
    void* memory = nullptr;
    size_t bytes = 0;
    size_t alignment = 0;
    bool is_programs = false;
    bool taken = false;
  };

  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* memory, size_t bytes, size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  Pd& pd_;
  const RingKind kind_;
  std::array<Block, 2> blocks_;  ///< a QP has two rings
};

}  // namespace faultline::verbs
