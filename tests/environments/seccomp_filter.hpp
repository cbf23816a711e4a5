// SPDX-License-Identifier: BSD-3-Clause
// A seccomp filter that gives the listed system calls an errno, as a container's profile does.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace faultline::test {

/// Loads a filter. Returns 0, or the errno of the kernel that refuses it.
inline int load_filter(std::vector<sock_filter>& filter) {
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  // Without CAP_SYS_ADMIN a filter needs no_new_privs (seccomp(2)).
  if (prctl(PR_SET_NO_NEW_PRIVS, 1UL, 0UL, 0UL, 0UL) != 0) return errno;
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0) return errno;
  return 0;
}

/// Refuses one call where the lower half of an argument has a value; else as refuse_calls().
inline int refuse_argument(long number, size_t argument, uint32_t value, int error) {
  const auto jump_unless = [](uint32_t expected, uint8_t skipped) {
    return sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, skipped, expected};
  };
  const auto load = [](size_t offset) {
    return sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<uint32_t>(offset)};
  };
  std::vector<sock_filter> filter{
      load(offsetof(seccomp_data, nr)),
      jump_unless(static_cast<uint32_t>(number), 3),
      load(offsetof(seccomp_data, args) + argument * sizeof(uint64_t)),
      jump_unless(value, 1),
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  return load_filter(filter);
}

/// For all threads of this process and for what it executes, for good. 0, or the errno of the kernel that
/// refuses the filter.
inline int refuse_calls(std::span<const long> numbers, int error) {
  const auto statement = [](unsigned code, uint32_t value) {
    return sock_filter{static_cast<uint16_t>(code), 0, 0, value};
  };
  std::vector<sock_filter> filter{
      statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      {BPF_JMP | BPF_JEQ | BPF_K, 1, 0, AUDIT_ARCH_X86_64},
      statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
  for (const long number : numbers) {
    filter.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, static_cast<uint32_t>(number)});
    filter.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)));
  }
  filter.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return load_filter(filter);
}

}  // namespace faultline::test
