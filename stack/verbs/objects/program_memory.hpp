// SPDX-License-Identifier: BSD-3-Clause
// Rings in memory that the program gives (ibv_alloc_parent_domain(3)). Its functions are called on its own
// threads alone: an engine's may not wait for what a program holds, an interpreter's lock for one. So what a
// ring will ask for is had before.
#pragma once

#include <array>
#include <memory>
#include <memory_resource>

#include <infiniband/verbs.h>

namespace faultline::verbs {

struct Pd;

/// What a program is told that a ring is of: its resource type. The upper half, rdma_driver_id's, is 0.
enum class RingKind : uint64_t { completions = 1, work_requests = 2, shared_receives = 3 };

class ProgramMemory final : public std::pmr::memory_resource {
 public:
  /// nullptr for a domain whose program wants nothing of it. Throws std::bad_alloc.
  [[nodiscard]] static std::unique_ptr<ProgramMemory> of(Pd* pd, RingKind kind);
  ProgramMemory(Pd& pd, RingKind kind) : pd_(pd), kind_(kind) {}
  /// With all rings gone, on the program's thread, while the domain lives.
  ~ProgramMemory() override;
  ProgramMemory(const ProgramMemory&) = delete;
  ProgramMemory& operator=(const ProgramMemory&) = delete;

  /// For one ring. Throws std::bad_alloc.
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
