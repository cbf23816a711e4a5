// SPDX-License-Identifier: BSD-3-Clause
// refuse_syscalls ERRNO NAME,NAME... -- PROGRAM ARGUMENTS: runs a program as a container's seccomp profile
// does. The listed system calls fail with ERRNO (a number or EPERM, ENOSYS, ENOMEM, EMFILE); all others work.
// A name may also be a number.
//
// Exit status 77, which meson takes for a skipped test, where the kernel refuses the filter.
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

#include "tests/environments/seccomp_filter.hpp"

namespace {

constexpr int kUsage = 2;
constexpr int kSkipped = 77;
constexpr int kCannotRun = 126;

struct Named {
  std::string_view name;
  long number;
};

#define CALL(name)    \
  Named {             \
#name, SYS_##name \
  }
constexpr std::array kCalls{
    CALL(add_key),
    CALL(bpf),
    CALL(capget),
    CALL(clock_nanosleep),
    CALL(clone3),
    CALL(close_range),
    CALL(epoll_create1),
    CALL(eventfd2),
    CALL(get_mempolicy),
    CALL(getrandom),
    CALL(io_uring_enter),
    CALL(io_uring_register),
    CALL(io_uring_setup),
    CALL(ioctl),
    CALL(kcmp),
    CALL(keyctl),
    CALL(madvise),
    CALL(mbind),
    CALL(membarrier),
    CALL(memfd_create),
    CALL(mincore),
    CALL(mlock),
    CALL(mlock2),
    CALL(mlockall),
    CALL(mount),
    CALL(move_pages),
    CALL(mremap),
    CALL(msync),
    CALL(name_to_handle_at),
    CALL(open_by_handle_at),
    CALL(openat),
    CALL(perf_event_open),
    CALL(personality),
    CALL(pidfd_getfd),
    CALL(pidfd_open),
    CALL(pidfd_send_signal),
    CALL(pivot_root),
    CALL(prctl),
    CALL(pread64),
    CALL(prlimit64),
    CALL(process_madvise),
    CALL(process_vm_readv),
    CALL(process_vm_writev),
    CALL(ptrace),
    CALL(readlink),
    CALL(readlinkat),
    CALL(request_key),
    CALL(rseq),
    CALL(sched_setaffinity),
    CALL(sched_setscheduler),
    CALL(sched_yield),
    CALL(set_mempolicy),
    CALL(setns),
    CALL(shmat),
    CALL(shmctl),
    CALL(shmdt),
    CALL(shmget),
    CALL(socket),
    CALL(statx),
    CALL(timerfd_create),
    CALL(umount2),
    CALL(unshare),
    CALL(userfaultfd),
    CALL(vmsplice),
};
#undef CALL

std::optional<int> errno_of(std::string_view text) {
  struct Known {
    std::string_view name;
    int number;
  };
  constexpr std::array kKnown{Known{"EPERM", EPERM}, Known{"ENOSYS", ENOSYS}, Known{"ENOMEM", ENOMEM},
                              Known{"EMFILE", EMFILE}};
  for (const Known& known : kKnown)
    if (known.name == text) return known.number;
  const int number = std::atoi(std::string(text).c_str());
  // seccomp(2): SECCOMP_RET_DATA, of which the kernel takes no more than MAX_ERRNO.
  if (number < 1 || number > 4095) return std::nullopt;
  return number;
}

std::optional<long> number_of(std::string_view text) {
  for (const Named& call : kCalls)
    if (call.name == text) return call.number;
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  return std::atol(std::string(text).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5 || std::strcmp(argv[3], "--") != 0) {
    std::fprintf(stderr, "usage: refuse_syscalls ERRNO NAME,NAME... -- PROGRAM ARGUMENTS\n");
    return kUsage;
  }
  const std::optional<int> error = errno_of(argv[1]);
  if (!error) {
    std::fprintf(stderr, "refuse_syscalls: %s: is no errno\n", argv[1]);
    return kUsage;
  }
  std::vector<long> refused;
  std::string_view names(argv[2]);
  while (!names.empty()) {
    const size_t comma = names.find(',');
    const std::string_view name = names.substr(0, comma);
    const std::optional<long> number = number_of(name);
    if (!number) {
      std::fprintf(stderr, "refuse_syscalls: %.*s: is no system call known here\n",
                   static_cast<int>(name.size()), name.data());
      return kUsage;
    }
    refused.push_back(*number);
    names = comma == std::string_view::npos ? std::string_view() : names.substr(comma + 1);
  }
  if (const int failed = faultline::test::refuse_calls(refused, *error); failed != 0) {
    std::fprintf(stderr, "refuse_syscalls: the kernel refuses the filter: %s\n", std::strerror(failed));
    return kSkipped;
  }
  execvp(argv[4], argv + 4);
  std::fprintf(stderr, "refuse_syscalls: %s: %s\n", argv[4], std::strerror(errno));
  return kCannotRun;
}
