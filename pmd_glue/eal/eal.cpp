// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/eal/eal.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_version.h>
#include <sched.h>
#include <signal.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>
#include <sys/mman.h>

#include "pmd_glue/config/port_kinds.hpp"
#include "pmd_glue/eal/eal_folder.hpp"
#include "pmd_glue/eal/eal_fork.hpp"
#include "pmd_glue/eal/eal_output.hpp"
#include "stack/base/free_descriptors.hpp"
#include "stack/base/log.hpp"
#include "stack/base/process/fork_generation.hpp"
#include "stack/base/process/process_local.hpp"
#include "stack/base/process/service_thread.hpp"

namespace faultline::glue {
namespace {

/// EAL's last log line, for the error message if EAL does not start.
struct EalLog {
  std::mutex mutex;
  std::string last_line;
};
constinit ProcessLocal<EalLog> eal_log;

ssize_t write_eal_log(void* /*cookie*/, const char* text, size_t size) {
  std::string line(text, size);
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.pop_back();
  if (line.empty()) return static_cast<ssize_t>(size);
  log().warn("{}", line);
  EalLog& eal = eal_log.get();
  const std::lock_guard guard(eal.mutex);
  eal.last_line = std::move(line);
  return static_cast<ssize_t>(size);
}

// Redirects EAL's log to this library's log.
void redirect_eal_log() {
  FILE* stream =
      fopencookie(nullptr, "w", {.read = nullptr, .write = write_eal_log, .seek = nullptr, .close = nullptr});
  if (stream == nullptr) return;
  setvbuf(stream, nullptr, _IOLBF, BUFSIZ);
  rte_openlog_stream(stream);
}

std::string cpu_list(const Config& config) {
  std::vector<unsigned> cpus = config.eal.lcores;
  if (cpus.empty()) {
    cpu_set_t affinity;
    CPU_ZERO(&affinity);
    if (sched_getaffinity(0, sizeof affinity, &affinity) == 0)
      for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &affinity)) cpus.push_back(cpu);
  }
  return fmt::format("{}", fmt::join(cpus, ","));
}

/// Returns the first device whose port passes EAL's memory to its peer; nullptr: none.
const DeviceConfig* sharing_device(const Config& config) {
  const auto found = std::ranges::find_if(
      config.devices, [](const DeviceConfig& device) { return row_of(device.port.kind).shares_memory; });
  return found == config.devices.end() ? nullptr : &*found;
}

/// Returns a base address for EAL's memory; 0: none. EAL's default is 4 GiB, where other programs map memory
/// with MAP_FIXED over existing mappings (OpenSHMEM's heap: 0xFF000000). So EAL gets a range that the kernel
/// has just chosen, as for any mapping without an address.
uintptr_t free_range(const Config& config) {
  // An IOMMU may have only 39 address bits (EAL's eal_get_baseaddr takes this into account).
  void* const hint = any_pci_port(config) ? reinterpret_cast<void*>(uintptr_t{0x4000000000}) : nullptr;
  // The page size of EAL's memory.
  const size_t alignment_bytes = config.eal.huge_pages ? size_t{1} << 30 : size_t{2} << 20;
  // With huge pages EAL reserves the address space of the maximum (RTE_MAX_MEM_MB).
  const size_t bytes =
      config.eal.huge_pages ? size_t{1} << 40 : (size_t{config.eal.memory_mib} << 20) + alignment_bytes;
  void* const range = mmap(hint, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return 0;
  munmap(range, bytes);
  return (reinterpret_cast<uintptr_t>(range) + alignment_bytes - 1) & ~(alignment_bytes - 1);
}

std::vector<std::string> eal_arguments(const Config& config) {
  // Two processes that start at once race for the telemetry socket; the loser runs without it, which is no
  // error.
  std::vector<std::string> arguments{"faultline",
                                     "--log-level=error",
                                     "--log-level=pmd.net.memif:critical",
                                     "--log-level=pmd.net.tap:critical",
                                     "--log-level=pmd.net.af_packet:critical",
                                     "--log-level=pmd.net.af_xdp:critical",
                                     "--log-level=lib.vhost.config:critical",
                                     "--log-level=lib.telemetry:critical",
                                     "--file-prefix=faultline"};
  // One lcore that may run on all the CPUs: EAL would pin the thread that starts it.
  arguments.push_back(fmt::format("--lcores=0@({})", cpu_list(config)));
  arguments.insert(arguments.end(), {"-m", std::to_string(config.eal.memory_mib)});
  if (config.eal.huge_pages)
    arguments.emplace_back("--in-memory");
  else
    arguments.insert(arguments.end(), {"--no-huge", "--no-shconf", "--iova-mode=va"});
  // vhost-user passes at most 8 descriptors (VHOST_USER_SET_MEM_TABLE); EAL would use one for each huge page.
  if (config.eal.huge_pages && sharing_device(config) != nullptr)
    arguments.emplace_back("--single-file-segments");
  // Errors of a vhost-user message are errors of the peer, whose end the port reports as a lost link.
  if (sharing_device(config) != nullptr)
    for (const char* part : {"driver", "init"})
      arguments.push_back(fmt::format("--log-level=pmd.net.virtio.{}:critical", part));
  if (const uintptr_t base = free_range(config); base != 0)
    arguments.push_back(fmt::format("--base-virtaddr={:#x}", base));
  if (eal_folder().empty()) arguments.emplace_back("--no-telemetry");

  bool scans_pci = false;
  for (const DeviceConfig& device : config.devices) {
    // EAL refuses an address of a bus that it lacks. faultline-switch adds VMBus with the address.
    if (!row_of(device.port.kind).is_on_pci || is_vmbus_address(pci_address_of(device.port.address)))
      continue;
    arguments.insert(arguments.end(), {"-a", device.port.address});
    scans_pci = true;
  }
  if (!scans_pci) arguments.emplace_back("--no-pci");
  arguments.insert(arguments.end(), config.eal.extra_args.begin(), config.eal.extra_args.end());
  return arguments;
}

/// Returns why EAL did not start. rte_errno is thread-local, so it is read on the thread that started EAL.
std::string text_of_failure(int error) {
  if (error == 0) return "it names no reason";
  const std::string text = rte_strerror(error);
  return error == EAGAIN ? text + ": no thread could be made, raise RLIMIT_NPROC (ulimit -u)" : text;
}

/// What EAL opens, and then a device. Without an epoll instance EAL's interrupt thread ends the process.
constexpr size_t kNeededDescriptors = 12;

/// Starts EAL. Returns the reason of a failure, or an empty string.
std::string run_eal_init(const Config& config) {
  if (const size_t found = count_free_descriptors(kNeededDescriptors); found < kNeededDescriptors)
    return fmt::format(
        "{} descriptors are free of {} (RLIMIT_NOFILE), and a device takes {}; raise ulimit -n", found,
        descriptor_limit(), kNeededDescriptors);
  if (sharing_device(config) != nullptr) share_eal_memory();
  std::string failure;
  const int error = on_starter_thread([&] {
    redirect_eal_log();
    std::vector<std::string> arguments = eal_arguments(config);
    std::vector<char*> argv;
    argv.reserve(arguments.size());
    for (std::string& argument : arguments) argv.push_back(argument.data());
    const EalOutputDropped dropped;
    rte_errno = 0;
    errno = 0;
    if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0)
      failure = text_of_failure(rte_errno != 0 ? rte_errno : errno);
  });
  if (error != 0) failure = text_of_failure(error);
  if (failure.empty()) return failure;
  EalLog& eal = eal_log.get();
  const std::lock_guard guard(eal.mutex);
  return eal.last_line.empty() ? failure : fmt::format("{} ({})", eal.last_line, failure);
}

}  // namespace

int on_starter_thread(const std::function<void()>& start) {
  try {
    std::thread starter = start_service_thread([&] {
      sigset_t blocked;
      sigfillset(&blocked);
      for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&blocked, fault);
      pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
      start();
    });
    starter.join();
    return 0;
  } catch (const std::system_error& error) {
    return error.code().value();
  }
}

bool start_eal(const Config& config, std::string& error) {
  static std::mutex mutex;
  static enum class State { not_started, running, failed } state = State::not_started;
  static uint32_t generation = 0;
  static std::string& failure = *new std::string;  // programs exit with devices open
  const std::lock_guard guard(mutex);
  if (state == State::not_started) {
    log().set_level(spdlog::level::from_str(config.log_level));
    failure = run_eal_init(config);
    state = failure.empty() ? State::running : State::failed;
    generation = fork_generation();
    own_eal();
  }
  if (state == State::running && generation != fork_generation()) {
    if (config.eal.huge_pages) {
      error = fmt::format(
          "faultline: {}: eal.huge_pages: this process was forked from one whose huge pages it would share: "
          "it can have devices of its own after exec, or without huge pages",
          config.path);
      return false;
    }
    if (const DeviceConfig* const device = sharing_device(config); device != nullptr) {
      error = fmt::format(
          "faultline: {}: {}: device.port.kind: this process was forked from one that shares its frames with "
          "the peer of a {} port; it can have devices of its own after exec",
          config.path, device->name, name_of(device->port.kind));
      return false;
    }
    if (!revive_eal()) {
      error = fmt::format("faultline: {}: eal: {} did not go on in a forked process: {}", config.path,
                          rte_version(), std::strerror(errno));
      return false;
    }
    generation = fork_generation();
  }
  if (state == State::running) return true;
  error = fmt::format("faultline: {}: eal: {} did not start: {}", config.path, rte_version(), failure);
  return false;
}

void register_this_thread() {
  // The id is released when the thread ends.
  struct Registration {
    Registration() : registered(rte_lcore_id() == LCORE_ID_ANY && rte_thread_register() == 0) {}
    ~Registration() {
      if (registered) rte_thread_unregister();
    }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;
    bool registered;
  };
  static thread_local bool done = false;
  if (__builtin_expect(done, true)) return;
  static thread_local Registration registration;
  done = true;
}

}  // namespace faultline::glue
