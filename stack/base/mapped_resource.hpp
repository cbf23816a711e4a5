// SPDX-License-Identifier: BSD-3-Clause
// A memory resource for containers that must not use malloc. It calls mmap by its bare system call, which
// bypasses the program's allocator and the library's own hook on mmap.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <new>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace faultline {

class MappedResource final : public std::pmr::memory_resource {
 private:
  static constexpr size_t kPage = 4096;
  static size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) & ~(kPage - 1); }

  void* do_allocate(size_t bytes, size_t alignment) override {
    if (alignment > kPage) throw std::bad_alloc();
    const long memory = syscall(SYS_mmap, nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == -1) throw std::bad_alloc();
    return reinterpret_cast<void*>(memory);
  }
  void do_deallocate(void* memory, size_t bytes, size_t /*alignment*/) override {
    syscall(SYS_munmap, memory, whole_pages(bytes));
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }
};

}  // namespace faultline
