// SPDX-License-Identifier: BSD-3-Clause
// A fixed-size array in anonymous memory. Allocation reserves address space; a page costs memory only once it
// is touched. Elements start as all zero bytes. The array can also be a view of memory that it does not own.
// An array smaller than a page is allocated from the heap. A process may have about 65,000 mappings
// (vm.max_map_count), and a device may have more regions than that.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include <sys/mman.h>

namespace faultline {

template <typename T>
class LazyArray {
  static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= alignof(std::max_align_t));

 public:
  LazyArray() = default;
  LazyArray(const LazyArray&) = delete;
  LazyArray& operator=(const LazyArray&) = delete;
  LazyArray(LazyArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        borrowed_(std::exchange(other.borrowed_, false)) {}
  LazyArray& operator=(LazyArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(borrowed_, other.borrowed_);
    return *this;
  }
  ~LazyArray() {
    if (data_ == nullptr || borrowed_) return;
    if (is_small(size_))
      operator delete(static_cast<void*>(data_));
    else
      munmap(static_cast<void*>(data_), size_ * sizeof(T));
  }

  /// Returns false if memory is short. A small array takes the heap's lock, so a thread that must not wait
  /// for that lock must not allocate one.
  [[nodiscard]] bool allocate(size_t size) {
    if (is_small(size)) {
      void* const small = operator new(size * sizeof(T), std::nothrow);
      if (small == nullptr) return false;
      std::memset(small, 0, size * sizeof(T));
      data_ = static_cast<T*>(small);
      size_ = size;
      return true;
    }
    void* memory = mmap(nullptr, size * sizeof(T), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    // One touched element must cost a page, not 2 MiB.
    constexpr size_t kHugePageBytes = size_t{2} << 20;
    if (size * sizeof(T) >= kHugePageBytes) madvise(memory, size * sizeof(T), MADV_NOHUGEPAGE);
    data_ = static_cast<T*>(memory);
    size_ = size;
    return true;
  }

  void borrow(std::span<T> elements) {
    data_ = elements.data();
    size_ = elements.size();
    borrowed_ = true;
  }

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] T& operator[](size_t index) { return data_[index]; }
  [[nodiscard]] const T& operator[](size_t index) const { return data_[index]; }

 private:
  static constexpr bool is_small(size_t size) { return size * sizeof(T) < 4096; }

  T* data_ = nullptr;
  size_t size_ = 0;
  bool borrowed_ = false;
};

}  // namespace faultline
