// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/host_facts.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include <linux/capability.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "apps/run/find_files.hpp"
#include "pmd_glue/link/address_table.hpp"
#include "pmd_glue/link/host_address.hpp"
#include "pmd_glue/ports/host/interface_rights.hpp"
#include "stack/base/runtime_directory.hpp"
#include "stack/base/unique_fd.hpp"
#include "stack/wire/link/address_text.hpp"

namespace faultline::cli {
namespace {

namespace fs = std::filesystem;

/// Returns the rest of the first line that begins with `key`, without blanks around it; "" if there is none.
std::string field_in(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    line.erase(0, key.size());
    const size_t begin = line.find_first_not_of(" \t:=\"");
    const size_t end = line.find_last_not_of(" \t\"");
    return begin == std::string::npos ? "" : line.substr(begin, end + 1 - begin);
  }
  return {};
}

std::optional<int> number_in(const char* path) {
  std::ifstream file(path);
  int value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

uint64_t memory_field(std::string_view key) {
  return std::strtoull(field_in("/proc/meminfo", key).c_str(), nullptr, 10) << 10;
}

unsigned count_usable_cpus() {
  // As many as the kernel may have; a smaller set fails on a machine with more (sched_setaffinity(2)).
  constexpr int kMostCpus = 8192;
  cpu_set_t* const set = CPU_ALLOC(kMostCpus);
  const size_t bytes = CPU_ALLOC_SIZE(kMostCpus);
  const int count = set != nullptr && sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
  CPU_FREE(set);
  return static_cast<unsigned>(count);
}

uint64_t soft_limit(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return kUnlimited;
  return limit.rlim_cur;
}

std::optional<uint64_t> find_shm() {
  struct statvfs facts {};
  if (statvfs("/dev/shm", &facts) != 0 || access("/dev/shm", W_OK | X_OK) != 0) return std::nullopt;
  return uint64_t{facts.f_blocks} * facts.f_frsize;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename());
  std::ranges::sort(names);
  return names;
}

uint64_t count_huge_pages() {
  const fs::path folder = "/sys/kernel/mm/hugepages";
  int count = 0;
  for (const std::string& size : names_in(folder))
    count += number_in((folder / size / "nr_hugepages").c_str()).value_or(0);
  return static_cast<uint64_t>(count);
}

/// Those that the ports and the pager use.
std::vector<std::string> find_capabilities() {
  struct Known {
    unsigned number;
    const char* name;
  };
  constexpr std::array kKnown{Known{CAP_NET_ADMIN, "CAP_NET_ADMIN"},
                              Known{CAP_NET_RAW, "CAP_NET_RAW"},
                              Known{CAP_IPC_LOCK, "CAP_IPC_LOCK"},
                              Known{CAP_SYS_PTRACE, "CAP_SYS_PTRACE"},
                              Known{CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
                              Known{CAP_SYS_NICE, "CAP_SYS_NICE"},
                              Known{CAP_BPF, "CAP_BPF"}};
  const uint64_t held = std::strtoull(field_in("/proc/self/status", "CapEff").c_str(), nullptr, 16);
  std::vector<std::string> names;
  for (const Known& one : kKnown)
    if ((held >> one.number & 1) != 0) names.emplace_back(one.name);
  return names;
}

/// The kernel's RDMA devices. SYSFS_PATH as in rdma-core.
std::vector<std::string> find_adapters() {
  const char* const path = secure_getenv("SYSFS_PATH");
  return names_in(fs::path(path != nullptr ? path : "/sys") / "class/infiniband");
}

/// The kernel doubles what it grants, and reports the doubled size (socket(7)).
uint64_t find_socket_buffer() {
  const UniqueFd probe(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int wanted = kWantedBufferBytes;
  int granted = 0;
  socklen_t length = sizeof granted;
  if (setsockopt(probe.get(), SOL_SOCKET, SO_RCVBUFFORCE, &wanted, sizeof wanted) != 0)
    static_cast<void>(setsockopt(probe.get(), SOL_SOCKET, SO_RCVBUF, &wanted, sizeof wanted));
  if (getsockopt(probe.get(), SOL_SOCKET, SO_RCVBUF, &granted, &length) != 0) return 0;
  return static_cast<uint64_t>(granted) / 2;
}

void gather_limits(HostFacts& facts) {
  facts.locked_bytes = soft_limit(RLIMIT_MEMLOCK);
  facts.descriptors = soft_limit(RLIMIT_NOFILE);
  facts.processes = soft_limit(RLIMIT_NPROC);
  facts.capabilities = find_capabilities();
  facts.has_seccomp_filter = field_in("/proc/self/status", "Seccomp:") == "2";
  facts.unprivileged_userfaultfd = number_in("/proc/sys/vm/unprivileged_userfaultfd");
  facts.io_uring_disabled = number_in("/proc/sys/kernel/io_uring_disabled");
  facts.missing_rights = glue::missing_rights("af_xdp", true);
}

}  // namespace

KernelVersion parse_kernel_version(const std::string& release) {
  KernelVersion version;
  if (std::sscanf(release.c_str(), "%u.%u", &version.major, &version.minor) != 2) return {};
  return version;
}

HostFacts gather_host_facts() {
  HostFacts facts;
  facts.system = field_in("/etc/os-release", "PRETTY_NAME");
  utsname name{};
  if (uname(&name) == 0) facts.kernel = name.release;
  facts.cpu_model = field_in("/proc/cpuinfo", "model name");
  facts.online_cpus = static_cast<unsigned>(std::max(0L, sysconf(_SC_NPROCESSORS_ONLN)));
  facts.usable_cpus = count_usable_cpus();
  facts.memory_bytes = memory_field("MemTotal");
  facts.available_bytes = memory_field("MemAvailable");
  facts.shm_bytes = find_shm();
  facts.huge_pages = count_huge_pages();
  gather_limits(facts);
  facts.adapters = find_adapters();
  for (const wire::Gid& gid : glue::default_route_addresses())
    facts.own_addresses.push_back(wire::text_of(gid));
  facts.socket_buffer_bytes = find_socket_buffer();
  facts.directory = runtime_directory(facts.directory_error);
  const std::string folder = run::own_directory();
  facts.library = run::find_library(folder, FAULTLINE_LIBDIR);
  facts.switch_program = run::find_switch(folder);
  return facts;
}

}  // namespace faultline::cli
