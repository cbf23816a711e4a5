// SPDX-License-Identifier: BSD-3-Clause
// The functions that a hook calls after its own work: the next definition of its name, in the C library or in
// a library preloaded after this one.
//
// Registration caches (UCX, libfabric, Open MPI) replace the first instructions of the C library's munmap and
// the like, or define the name themselves. A bare system call in our hook would bypass both, and those caches
// would keep registrations of unmapped memory.
//
// A constructor looks the definitions up once, since dlsym(3) takes the loader's lock and a hook may run in a
// signal handler. Calls made earlier, by other libraries' constructors, make the bare system call.
//
// None of these is a cancellation point, and each sets errno as the C library does.
#pragma once

#include <cstddef>
#include <cstdint>

namespace faultline::odp::next {

void* mmap(void* address, size_t length, int protection, int flags, int file, int64_t offset) noexcept;
int munmap(void* address, size_t length) noexcept;
/// Reads `wanted` only with MREMAP_FIXED or MREMAP_DONTUNMAP.
void* mremap(void* address, size_t old_length, size_t new_length, int flags, void* wanted) noexcept;
int madvise(void* address, size_t length, int advice) noexcept;
void* shmat(int segment, const void* address, int flags) noexcept;
int shmdt(const void* address) noexcept;
int ioctl(int fd, unsigned long request, void* argument) noexcept;
/// brk and sbrk keep the C library's record of the break (__curbrk) current, which its malloc and sbrk(3)
/// use.
int brk(void* end) noexcept;
void* sbrk(intptr_t increment) noexcept;

}  // namespace faultline::odp::next
