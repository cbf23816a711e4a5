// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/interpose/next_definition.hpp"

#include <atomic>
#include <cerrno>

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

/// glibc's record of the break (GLIBC_2.2.5, misc/sbrk.c). Weak, since other C libraries have none.
extern "C" void* __curbrk __attribute__((weak));  // NOLINT(bugprone-reserved-identifier)

namespace faultline::odp::next {
namespace {

template <typename Function>
class Definition {
 public:
  constexpr explicit Definition(const char* name) : name_(name) {}

  void find() {
    if (void* const found = dlsym(RTLD_NEXT, name_); found != nullptr)
      function_.store(reinterpret_cast<Function*>(found), std::memory_order_release);
  }
  /// Returns nullptr before the constructor below has run.
  [[nodiscard]] Function* get() const { return function_.load(std::memory_order_acquire); }

 private:
  const char* name_;
  std::atomic<Function*> function_{nullptr};
};

constinit Definition<void*(void*, size_t, int, int, int, int64_t)> next_mmap("mmap");
constinit Definition<int(void*, size_t)> next_munmap("munmap");
constinit Definition<void*(void*, size_t, size_t, int, ...)> next_mremap("mremap");
constinit Definition<int(void*, size_t, int)> next_madvise("madvise");
constinit Definition<void*(int, const void*, int)> next_shmat("shmat");
constinit Definition<int(const void*)> next_shmdt("shmdt");
constinit Definition<int(int, unsigned long, ...)> next_ioctl("ioctl");
constinit Definition<int(void*)> next_brk("brk");
constinit Definition<void*(intptr_t)> next_sbrk("sbrk");

[[gnu::constructor]] void find_definitions() {
  next_mmap.find();
  next_munmap.find();
  next_mremap.find();
  next_madvise.find();
  next_shmat.find();
  next_shmdt.find();
  next_ioctl.find();
  next_brk.find();
  next_sbrk.find();
}

void* pointer_of(long result) {
  return reinterpret_cast<void*>(result);
}
void* const kFailed = pointer_of(-1);

/// The kernel returns the resulting break: the old one if it has refused (brk(2)).
void* set_break(void* end) {
  void* const now = pointer_of(syscall(SYS_brk, end));
  if (&__curbrk != nullptr) __curbrk = now;
  return now;
}

}  // namespace

void* mmap(void* address, size_t length, int protection, int flags, int file, int64_t offset) noexcept {
  if (auto* const function = next_mmap.get())
    return function(address, length, protection, flags, file, offset);
  return pointer_of(syscall(SYS_mmap, address, length, protection, flags, file, offset));
}

int munmap(void* address, size_t length) noexcept {
  if (auto* const function = next_munmap.get()) return function(address, length);
  return static_cast<int>(syscall(SYS_munmap, address, length));
}

void* mremap(void* address, size_t old_length, size_t new_length, int flags, void* wanted) noexcept {
  if (auto* const function = next_mremap.get())
    return function(address, old_length, new_length, flags, wanted);
  return pointer_of(syscall(SYS_mremap, address, old_length, new_length, flags, wanted));
}

int madvise(void* address, size_t length, int advice) noexcept {
  if (auto* const function = next_madvise.get()) return function(address, length, advice);
  return static_cast<int>(syscall(SYS_madvise, address, length, advice));
}

void* shmat(int segment, const void* address, int flags) noexcept {
  if (auto* const function = next_shmat.get()) return function(segment, address, flags);
  return pointer_of(syscall(SYS_shmat, segment, address, flags));
}

int shmdt(const void* address) noexcept {
  if (auto* const function = next_shmdt.get()) return function(address);
  return static_cast<int>(syscall(SYS_shmdt, address));
}

int ioctl(int fd, unsigned long request, void* argument) noexcept {
  if (auto* const function = next_ioctl.get()) return function(fd, request, argument);
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

int brk(void* end) noexcept {
  if (auto* const function = next_brk.get()) return function(end);
  if (set_break(end) >= end) return 0;
  errno = ENOMEM;
  return -1;
}

void* sbrk(intptr_t increment) noexcept {
  if (auto* const function = next_sbrk.get()) return function(increment);
  void* const before = set_break(nullptr);
  if (increment == 0) return before;
  auto* const end = static_cast<char*>(before) + increment;
  if ((end > before) == (increment > 0) && brk(end) == 0) return before;
  errno = ENOMEM;
  return kFailed;
}

}  // namespace faultline::odp::next
