// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/checks.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include "apps/faultline/transfer.hpp"
#include "stack/include/faultline/faultline.h"

namespace faultline::cli {
namespace {

Finding ok(std::string reason) {
  return {.state = State::ok, .reason = std::move(reason)};
}

std::string reason_of(int error) {
  const char* const text = strerrordesc_np(error);
  return text != nullptr ? text : fmt::format("error {}", error);
}

std::string kib(uint64_t bytes) {
  return bytes == kUnlimited ? "unlimited" : fmt::format("{} KiB", bytes >> 10);
}

std::string seccomp_advice(std::string_view calls) {
  return fmt::format(
      "docker run --security-opt seccomp=FILE, with a profile that allows {}, or seccomp=unconfined", calls);
}

// --- What a program on the library gets.

/// Returns the reason why a program with these devices moves no data; "" if it does.
std::string failure_of(const ProbeReport& report) {
  if (!report.error.empty()) return report.error;
  if (report.devices.empty()) return "there is no device";
  const DeviceReport& device = report.devices.front();
  if (!device.error.empty()) return device.error;
  return report.transfer.error.empty() ? "" : fmt::format("{}: {}", device.name, report.transfer.error);
}

Finding find_program(const Facts& facts) {
  const std::string failure = failure_of(facts.program);
  const std::string more = "FAULTLINE_LOG=debug faultline doctor, and the rows below";
  if (!failure.empty()) {
    if (facts.by_udp && failure_of(*facts.by_udp).empty())
      return {.state = State::limited,
              .reason = failure,
              .lost = "--wire: programs of this host meet by --udp alone, one program an address",
              .mend = "faultline run --udp PROGRAM"};
    return {.state = State::missing, .reason = failure, .lost = "verbs programs do not run", .mend = more};
  }
  const DeviceReport& device = facts.program.devices.front();
  if (device.port_state != kActivePort)
    return {.state = State::limited,
            .reason = fmt::format("{} on {} opens, and its port is {}", device.name, facts.devices,
                                  device.port_state),
            .lost = "programs wait for the link",
            .mend = "start the program at the other end, or set the interface up (ip link)"};
  if (!facts.program.transfer.on_demand_error.empty())
    return {.state = State::limited,
            .reason = facts.program.transfer.on_demand_error,
            .lost = "on-demand memory: programs have to register classic memory",
            .mend = "see the row userfaultfd"};
  return ok(fmt::format("a WRITE of {} KiB into on-demand memory arrived, on {}", kTransferBytes >> 10,
                        facts.devices));
}

Finding find_library(const Facts& facts) {
  if (facts.host.library.empty())
    return {.state = State::missing,
            .reason = "libibverbs.so.1 of Faultline is neither beside this program nor where it is installed",
            .lost = "verbs programs do not run",
            .mend = "install Faultline as a whole: meson install -C build/plain"};
  if (!facts.program.has_library)
    return {
        .state = State::missing,
        .reason = facts.program.error,
        .lost = "verbs programs do not run",
        .mend = fmt::format("LD_PRELOAD={} /bin/true, which prints the loader's reason", facts.host.library)};
  return ok(facts.host.library);
}

// --- Ways to peers.

Finding find_wires(const Facts& facts) {
  constexpr const char* kLost = "--wire, and the socket of DPDK's telemetry";
  if (facts.host.switch_program.empty())
    return {.state = State::missing,
            .reason = "faultline-switch is not beside this program",
            .lost = "--wire",
            .mend = "install Faultline as a whole: meson install -C build/plain"};
  if (facts.host.directory.empty())
    return {.state = State::missing,
            .reason = facts.host.directory_error,
            .lost = kLost,
            .mend = "export XDG_RUNTIME_DIR=$(mktemp -d), in a folder that this user may write"};
  return ok(facts.host.directory);
}

Finding find_own_address(const Facts& facts) {
  if (facts.host.own_addresses.empty())
    return {.state = State::limited,
            .reason = "the host has no default route, whose address --udp takes",
            .lost = "--udp without --ip",
            .mend = "faultline run --udp --ip ADDRESS PROGRAM, with an address of `ip address`"};
  if (facts.host.socket_buffer_bytes < kWantedBufferBytes)
    return {.state = State::limited,
            .reason = fmt::format("a socket's buffer is {} of {}", kib(facts.host.socket_buffer_bytes),
                                  kib(kWantedBufferBytes)),
            .lost = "throughput of --udp: a shorter window, and packets that several busy QPs send again",
            .mend = fmt::format("sudo sysctl -w net.core.rmem_max={0} net.core.wmem_max={0}",
                                kWantedBufferBytes)};
  return ok(fmt::format("{}", fmt::join(facts.host.own_addresses, ", ")));
}

Finding find_rights(const Facts& facts) {
  if (!facts.host.missing_rights) return ok("ports on interfaces of the kernel may be opened");
  return {
      .state = State::limited,
      .reason = *facts.host.missing_rights,
      .lost = "ports of kind tap, af_packet and af_xdp, and uplinks of such a kind",
      .mend = "sudo faultline run --config FILE PROGRAM; docker run --cap-add NET_ADMIN --cap-add NET_RAW"};
}

Finding find_huge_pages(const Facts& facts) {
  if (facts.host.huge_pages != 0) return ok(fmt::format("{} are reserved", facts.host.huge_pages));
  return {.state = State::limited,
          .reason = "none are reserved",
          .lost = "most NICs (kind pci, eal.huge_pages = true); no other port needs them",
          .mend = "sudo sysctl -w vm.nr_hugepages=256"};
}

Finding find_adapters(const Facts& facts) {
  if (facts.host.adapters.empty()) return ok("the host has no RDMA device of its own");
  return {.state = State::limited,
          .reason = fmt::format("{} of the host", fmt::join(facts.host.adapters, ", ")),
          .lost = "programs on Faultline do not see these devices, but its own alone",
          .mend = "start a program without faultline run to use them"};
}

// --- Guards of registered memory: the library's own probes (odp/guards.hpp).

struct GuardRow {
  const char* guard;  ///< the library's name
  const char* lost;
  std::string (*mend)(const GuardReport& guard, const HostFacts& host);
};

Finding find_guard(const Facts& facts, const GuardRow& row) {
  const auto& guards = facts.program.guards;
  const auto found = std::ranges::find(guards, row.guard, &GuardReport::name);
  if (found == guards.end())
    return {.state = State::missing,
            .reason = "not known: the library is in no program",
            .lost = row.lost,
            .mend = "see the row library"};
  if (found->state == FAULTLINE_GUARD_WORKS) return ok(found->text);
  // The library's line has what is lost after a colon; the errno alone is the reason here.
  std::string reason =
      found->error != 0 ? reason_of(found->error) : found->text.substr(0, found->text.find(": "));
  return {.state = found->state == FAULTLINE_GUARD_LIMITED ? State::limited : State::missing,
          .reason = std::move(reason),
          .lost = row.lost,
          .mend = row.mend(*found, facts.host)};
}

std::string mend_userfaultfd(const GuardReport& guard, const HostFacts& host) {
  if (guard.state == FAULTLINE_GUARD_LIMITED) return "Linux 6.7 or later";
  if (guard.error == EINVAL) return "Linux 5.11 or later";
  if (guard.error == ENOSYS && !host.has_seccomp_filter) return "a kernel with CONFIG_USERFAULTFD";
  return seccomp_advice("userfaultfd");
}

std::string mend_pins(const GuardReport& guard, const HostFacts& host) {
  if (guard.state == FAULTLINE_GUARD_LIMITED || guard.error == ENOMEM)
    return "ulimit -l unlimited; docker run --ulimit memlock=-1";
  if (guard.error == EMFILE || guard.error == ENFILE) return "ulimit -n 1024";
  if (host.io_uring_disabled.value_or(0) != 0) return "sudo sysctl -w kernel.io_uring_disabled=0";
  if (guard.error == EINVAL) return "Linux 5.13 or later";
  if (guard.error == ENOSYS && !host.has_seccomp_filter) return "Linux 5.13 or later, with CONFIG_IO_URING";
  return seccomp_advice("io_uring_setup, io_uring_enter and io_uring_register");
}

Finding find_userfaultfd(const Facts& facts) {
  return find_guard(facts, {.guard = "userfaultfd",
                            .lost = "unmappings inside the C library (free, realloc) are not detected; if "
                                    "limited, those of files",
                            .mend = mend_userfaultfd});
}

Finding find_pins(const Facts& facts) {
  return find_guard(facts,
                    {.guard = "pins",
                     .lost = "pins: the kernel may page registered memory out, and classic regions are not "
                             "pinned",
                     .mend = mend_pins});
}

Finding find_memlock(const Facts& facts) {
  return find_guard(facts,
                    {.guard = "memlock",
                     .lost = "pinned memory above three quarters of the limit",
                     .mend = [](const GuardReport&, const HostFacts&) -> std::string {
                       return "ulimit -l unlimited, or a memlock line in /etc/security/limits.d; docker "
                              "run --ulimit memlock=-1";
                     }});
}

Finding find_descriptors(const Facts& facts) {
  return find_guard(facts, {.guard = "descriptors",
                            .lost = "the next device, ring, userfaultfd or map may fail",
                            .mend = [](const GuardReport&, const HostFacts&) -> std::string {
                              return "ulimit -n 1024; docker run --ulimit nofile=1024";
                            }});
}

Finding find_process_map(const Facts& facts) {
  return find_guard(facts,
                    {.guard = "process map",
                     .lost = "the kind of a faulting page is unknown, and shmdt of a segment of unknown size "
                             "takes later mappings away too",
                     .mend = [](const GuardReport&, const HostFacts&) -> std::string {
                       return "sudo mount -t proc proc /proc";
                     }});
}

Finding find_restartable_copies(const Facts& facts) {
  return find_guard(facts, {.guard = "restartable copies",
                            .lost = "a call that takes registered memory away waits for each engine's turn",
                            .mend = [](const GuardReport&, const HostFacts& host) -> std::string {
                              return host.has_seccomp_filter ? seccomp_advice("rseq and membarrier")
                                                             : "Linux 5.10 or later, and glibc 2.35 or later";
                            }});
}

Finding find_hooks(const Facts& facts) {
  return find_guard(facts, {.guard = "memory hooks",
                            .lost = "the program's own munmap and madvise are detected by userfaultfd alone",
                            .mend = [](const GuardReport&, const HostFacts&) -> std::string {
                              return "unset LD_PRELOAD, whose libraries come first";
                            }});
}

Finding find_signal_hooks(const Facts& facts) {
  return find_guard(facts,
                    {.guard = "signal hooks",
                     .lost = "a handler of SIGSEGV or SIGBUS that the program installs gets the faults of "
                             "the library's copies",
                     .mend = [](const GuardReport&, const HostFacts&) -> std::string {
                       return "unset LD_PRELOAD, whose libraries come first";
                     }});
}

// --- The host.

Finding find_kernel(const Facts& facts) {
  constexpr KernelVersion kAll{6, 7};     // WP_ASYNC of userfaultfd
  constexpr KernelVersion kPins{5, 13};   // tables of buffers with empty slots
  constexpr KernelVersion kWatch{5, 11};  // UFFD_USER_MODE_ONLY
  const KernelVersion version = parse_kernel_version(facts.host.kernel);
  if (version >= kAll) return ok("Linux " + facts.host.kernel);
  return {.state = State::limited,
          .reason = "Linux " + facts.host.kernel,
          .lost = version < kWatch  ? "userfaultfd for ordinary users, and pins"
                  : version < kPins ? "pins, and the watch on mappings of files"
                                    : "the watch on mappings of files",
          .mend = "Linux 6.7 or later"};
}

Finding find_cpus(const Facts& facts) {
  const HostFacts& host = facts.host;
  const std::string reason = fmt::format("{} of {}", host.usable_cpus, host.online_cpus);
  if (host.usable_cpus > 1) return ok(reason);
  return {.state = State::limited,
          .reason = reason,
          .lost = "latency: a program and its peer take turns on one CPU",
          .mend = host.online_cpus > 1 ? "taskset -c 0-1 PROGRAM; docker run --cpuset-cpus 0-1"
                                       : "a machine with two CPUs"};
}

Finding find_memory(const Facts& facts) {
  // A program and the switch, with room for the program's own.
  constexpr uint64_t kEnoughBytes = 128U << 20;
  const std::string reason = fmt::format("{} MiB of {} MiB are available", facts.host.available_bytes >> 20,
                                         facts.host.memory_bytes >> 20);
  if (facts.host.available_bytes >= kEnoughBytes) return ok(reason);
  return {.state = State::limited,
          .reason = reason,
          .lost = "a device takes 31 MiB and a wire's switch as much: they may not start",
          .mend = "end other programs, or add memory"};
}

Finding find_shm(const Facts& facts) {
  constexpr uint64_t kDockerBytes = 64U << 20;  // docker-run(1), --shm-size
  constexpr const char* kLost = "shared memory of UCX and MPI between ranks; Faultline itself uses none";
  if (!facts.host.shm_bytes)
    return {.state = State::limited,
            .reason = "this user may not write to it",
            .lost = kLost,
            .mend = "sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm"};
  if (*facts.host.shm_bytes <= kDockerBytes)
    return {.state = State::limited,
            .reason = fmt::format("it has {}", kib(*facts.host.shm_bytes)),
            .lost = kLost,
            .mend = "docker run --shm-size=1g; sudo mount -o remount,size=1g /dev/shm"};
  return ok(fmt::format("it has {} MiB", *facts.host.shm_bytes >> 20));
}

constexpr std::array<Check, 19> kChecks{{
    {kDecidingCheck, find_program},
    {"library", find_library},
    {"wires", find_wires},
    {"own address", find_own_address},
    {"memory hooks", find_hooks},
    {"signal hooks", find_signal_hooks},
    {"userfaultfd", find_userfaultfd},
    {"io_uring", find_pins},
    {"memlock", find_memlock},
    {"descriptors", find_descriptors},
    {"process map", find_process_map},
    {"restartable copies", find_restartable_copies},
    {"kernel", find_kernel},
    {"CPUs", find_cpus},
    {"memory", find_memory},
    {"/dev/shm", find_shm},
    {"capabilities", find_rights},
    {"huge pages", find_huge_pages},
    {"host devices", find_adapters},
}};

}  // namespace

std::span<const Check> checks() {
  return kChecks;
}

std::string_view text_of(State state) {
  constexpr std::array<std::string_view, 3> kTexts{"missing", "limited", "ok"};
  return kTexts[static_cast<size_t>(state)];
}

}  // namespace faultline::cli
