// SPDX-License-Identifier: BSD-3-Clause
// What this host and its limits on this user are, as far as programs on the library depend on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace faultline::cli {

struct KernelVersion {
  unsigned major = 0;
  unsigned minor = 0;
  // clang-tidy 14 takes the 0 of a rewritten comparison for a pointer.
  auto operator<=>(const KernelVersion&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The numbers at the start of uname(2)'s release; zeros for any other text.
[[nodiscard]] KernelVersion parse_kernel_version(const std::string& release);

inline constexpr uint64_t kUnlimited = UINT64_MAX;

struct HostFacts {
  std::string system;  ///< PRETTY_NAME of os-release(5)
  std::string kernel;  ///< uname(2)
  std::string cpu_model;
  unsigned online_cpus = 0;
  unsigned usable_cpus = 0;  ///< of this process (sched_getaffinity(2))
  uint64_t memory_bytes = 0;
  uint64_t available_bytes = 0;
  std::optional<uint64_t> shm_bytes;  ///< size of /dev/shm; nullopt: none that this user may write
  uint64_t huge_pages = 0;            ///< configured pages, of any size

  // Soft limits; kUnlimited: none.
  uint64_t locked_bytes = 0;
  uint64_t descriptors = 0;
  uint64_t processes = 0;

  std::vector<std::string> capabilities;  ///< effective, of those that ports need
  bool has_seccomp_filter = false;
  std::optional<int> unprivileged_userfaultfd;  ///< sysctl vm.unprivileged_userfaultfd
  std::optional<int> io_uring_disabled;         ///< sysctl kernel.io_uring_disabled (Linux 6.6)
  /// Why this user may not open ports on kernel interfaces; nullopt if it may.
  std::optional<std::string> missing_rights;

  std::vector<std::string> adapters;  ///< the kernel's RDMA devices, which programs on the library do not see
  std::vector<std::string> own_addresses;  ///< which a device of --udp would have
  uint64_t socket_buffer_bytes = 0;        ///< what the kernel grants of kWantedBufferBytes

  std::string directory;        ///< of the wires' sockets; empty: none
  std::string directory_error;  ///< the reason, one line
  std::string library;          ///< path; empty: not found
  std::string switch_program;   ///< likewise
};

/// The receive buffer that a port of kind udp asks for.
inline constexpr uint64_t kWantedBufferBytes = 8U << 20;

[[nodiscard]] HostFacts gather_host_facts();

}  // namespace faultline::cli
