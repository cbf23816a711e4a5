// SPDX-License-Identifier: BSD-3-Clause
// A library like a registration cache, next in symbol order after this library's hooks. It defines names of
// the C library, counts their calls, and forwards them to the C library.
#include "tests/unit/odp/hooks/counting_calls.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include <dlfcn.h>

namespace {

struct Counter {
  const char* name;
  std::atomic<int> calls{0};
};
std::array<Counter, 9> counters{
    {{"mmap"}, {"munmap"}, {"mremap"}, {"madvise"}, {"shmat"}, {"shmdt"}, {"brk"}, {"sbrk"}, {"ioctl"}}};

Counter& counter_of(const char* name) {
  for (Counter& counter : counters)
    if (std::strcmp(counter.name, name) == 0) return counter;
  return counters[0];
}

template <typename Function>
Function* count(const char* name) {
  ++counter_of(name).calls;
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define COUNTED extern "C" __attribute__((visibility("default")))

COUNTED int counted_calls(const char* name) {
  return counter_of(name).calls.load();
}

// With explicit asm labels: the headers declare some of these functions differently.
COUNTED void* counted_mmap(void*, size_t, int, int, int, int64_t) asm("mmap");
void* counted_mmap(void* address, size_t length, int protection, int flags, int file, int64_t offset) {
  return count<void*(void*, size_t, int, int, int, int64_t)>("mmap")(address, length, protection, flags, file,
                                                                     offset);
}
COUNTED int counted_munmap(void*, size_t) asm("munmap");
int counted_munmap(void* address, size_t length) {
  return count<int(void*, size_t)>("munmap")(address, length);
}
COUNTED void* counted_mremap(void*, size_t, size_t, int, void*) asm("mremap");
void* counted_mremap(void* address, size_t old_length, size_t new_length, int flags, void* wanted) {
  return count<void*(void*, size_t, size_t, int, ...)>("mremap")(address, old_length, new_length, flags,
                                                                 wanted);
}
COUNTED int counted_madvise(void*, size_t, int) asm("madvise");
int counted_madvise(void* address, size_t length, int advice) {
  return count<int(void*, size_t, int)>("madvise")(address, length, advice);
}
COUNTED void* counted_shmat(int, const void*, int) asm("shmat");
void* counted_shmat(int segment, const void* address, int flags) {
  return count<void*(int, const void*, int)>("shmat")(segment, address, flags);
}
COUNTED int counted_shmdt(const void*) asm("shmdt");
int counted_shmdt(const void* address) {
  return count<int(const void*)>("shmdt")(address);
}
COUNTED int counted_brk(void*) asm("brk");
int counted_brk(void* end) {
  return count<int(void*)>("brk")(end);
}
COUNTED void* counted_sbrk(intptr_t) asm("sbrk");
void* counted_sbrk(intptr_t increment) {
  return count<void*(intptr_t)>("sbrk")(increment);
}
COUNTED int counted_ioctl(int, unsigned long, void*) asm("ioctl");
int counted_ioctl(int fd, unsigned long request, void* argument) {
  return count<int(int, unsigned long, ...)>("ioctl")(fd, request, argument);
}
