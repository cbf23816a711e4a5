// SPDX-License-Identifier: BSD-3-Clause
// refuse_syscalls ERRNO NAME,NAME... -- PROGRAM ARGUMENTS: runs a program as a container's seccomp profile
// does. The listed system calls fail with ERRNO (a number or EPERM, ENOSYS, ENOMEM, EMFILE); all others work.
// A name may also be a number.
//
// Exit status 77, which meson takes for a skipped test, where the kernel refuses the filter.
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

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

std::optional<uint32_t> number_of(std::string_view text) {
  for (const Named& call : kCalls)
    if (call.name == text) return static_cast<uint32_t>(call.number);
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  return static_cast<uint32_t>(std::atoi(std::string(text).c_str()));
}

sock_filter statement(unsigned code, uint32_t value) {
  return {static_cast<uint16_t>(code), 0, 0, value};
}
sock_filter unless_equal_skip(uint32_t value, uint8_t skipped) {
  return {BPF_JMP | BPF_JEQ | BPF_K, 0, skipped, value};
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
  std::vector<sock_filter> filter{
      statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      {BPF_JMP | BPF_JEQ | BPF_K, 1, 0, AUDIT_ARCH_X86_64},
      statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
  std::string_view names(argv[2]);
  while (!names.empty()) {
    const size_t comma = names.find(',');
    const std::string_view name = names.substr(0, comma);
    const std::optional<uint32_t> number = number_of(name);
    if (!number) {
      std::fprintf(stderr, "refuse_syscalls: %.*s: is no system call known here\n",
                   static_cast<int>(name.size()), name.data());
      return kUsage;
    }
    filter.push_back(unless_equal_skip(*number, 1));
    filter.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(*error)));
    names = comma == std::string_view::npos ? std::string_view() : names.substr(comma + 1);
  }
  filter.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  // Without CAP_SYS_ADMIN a filter needs no_new_privs (seccomp(2)).
  if (prctl(PR_SET_NO_NEW_PRIVS, 1UL, 0UL, 0UL, 0UL) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::fprintf(stderr, "refuse_syscalls: the kernel refuses the filter: %s\n", std::strerror(errno));
    return kSkipped;
  }
  execvp(argv[4], argv + 4);
  std::fprintf(stderr, "refuse_syscalls: %s: %s\n", argv[4], std::strerror(errno));
  return kCannotRun;
}
