// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/device/registry.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>

#include <pthread.h>
#include <spdlog/fmt/fmt.h>
#include <sys/auxv.h>

#include "pmd_glue/config/udp_config.hpp"
#include "pmd_glue/config/wire_config.hpp"
#include "pmd_glue/device/device_counters.hpp"
#include "pmd_glue/device/progress_thread.hpp"
#include "pmd_glue/device/telemetry.hpp"
#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/eal/interrupt_thread.hpp"
#include "pmd_glue/engine/reasons.hpp"
#include "pmd_glue/trouble/start.hpp"
#include "stack/base/log.hpp"
#include "stack/base/process/call_stack.hpp"
#include "stack/base/process/exit_hook.hpp"
#include "stack/base/process/fork_generation.hpp"
#include "stack/trouble/director.hpp"
#include "stack/verbs/objects/wire_address.hpp"

namespace faultline::glue {

namespace {

std::atomic<Registry*> current{nullptr};  // never destroyed, since programs exit with devices open

/// Throws ConfigError for a counter that the scenario cannot wait for.
void check_counters_of_scenario() {
  const trouble::Director* const director = trouble::director();
  if (director == nullptr) return;
  for (const std::string& name : director->counter_names())
    if (!can_be_waited_for(name))
      throw ConfigError(fmt::format(
          "faultline: the scenario waits for the counter \"{}\", which {}: docs/trouble/trouble.md "
          "states which it may wait for",
          name, name.starts_with("port.") ? "is unknown or the port's driver keeps" : "is unknown"));
}

/// Returns the address on the wire of `request`, the text of $FAULTLINE_WIRE; 0 if there is none.
uint32_t address_on(const std::string& request, const Config& config, const Attachments& attachments) {
  const std::string wire = request.substr(0, request.find(','));
  for (const DeviceConfig& device : config.devices) {
    if (device.port.kind != PortKind::wire || device.port.request.wire != wire) continue;
    const auto found = attachments.find(device.name);
    return found != attachments.end() ? found->second->grant().ipv4 : device.port.request.ipv4;
  }
  return 0;
}

}  // namespace

Registry& Registry::instance() {
  static std::once_flag once;
  std::call_once(once, [] {
    current = new Registry;
    // pthread_atfork runs prepare handlers in reverse order, so watch_forks() registers first. A thread that
    // opens a device takes the registry's lock before the locks of watch_forks().
    watch_forks();
    pthread_atfork(
        [] {
          current.load()->mutex_.lock();
          hold_interrupt_thread();
        },
        [] {
          release_interrupt_thread();
          current.load()->mutex_.unlock();
        },
        begin_in_child);
  });
  return *current.load();
}

// The parent's registry stays as it is, with its lock held, since its contents must not be destroyed here.
void Registry::begin_in_child() {
  current = new Registry(*current.load());
}

Registry::Registry(const Registry& parents)
    : path_(parents.path_),
      log_file_(parents.log_file_),
      parents_registry_(&parents),
      parents_(parents.parents_) {
  if (parents.config_ && parents.attachments_.empty()) config_ = parents.config_;
  for (const auto& [name, device] : parents.devices_)
    if (!device.expired()) parents_.insert(name);
}

std::string Registry::reason_not_for_child(const Config& all, const DeviceConfig& device) const {
  if (attachments_.contains(device.name) || child_may_open(device.port) || !parents_.contains(device.name))
    return {};
  return fmt::format(
      "faultline: {}: {}: the process that this one was forked from has the device, and a port of kind {} "
      "cannot "
      "be had twice: on a wire (faultline-run --wire NAME --share) each process has its own",
      all.path, device.name, name_of(device.port.kind));
}

void Registry::set_path(const std::string& path) {
  const std::lock_guard guard(mutex_);
  path_ = path;
  config_.reset();
  attachments_.clear();
  verbs::set_wire_address(0);
}

const Config& Registry::config() {
  if (!config_) {
    // Read before the configuration, and overrides it.
    std::string complaint;
    const std::optional<std::string> level = log_level_of_environment(complaint);
    if (!complaint.empty()) tell_anyone(complaint);
    if (level) log().set_level(spdlog::level::from_str(*level));
    const char* const log_file = secure_getenv("FAULTLINE_LOG_FILE");
    if (log_file != nullptr) use_log_file(log_file, "FAULTLINE_LOG_FILE");
    start_trouble();
    check_counters_of_scenario();
    std::string path = path_;
    if (path.empty())
      if (const char* from_environment = secure_getenv("FAULTLINE_CONFIG")) path = from_environment;
    const char* const wire = secure_getenv("FAULTLINE_WIRE");
    const char* const udp = secure_getenv("FAULTLINE_UDP");
    if (path.empty() && wire == nullptr && udp == nullptr)
      throw ConfigError(
          getauxval(AT_SECURE) != 0
              ? "faultline: no configuration: this program has raised rights (setuid or capabilities), so "
                "the "
                "environment is not heeded: call faultline_configure() with the path of a TOML file"
              : "faultline: no configuration: start the program with faultline-run --wire NAME or --udp, or "
                "set FAULTLINE_CONFIG to the path of a TOML file");
    Config read = !path.empty() ? load_config(path) : wire != nullptr ? wire_config(wire) : udp_config(udp);
    if (level) read.log_level = *level;
    if (log_file == nullptr) use_log_file(read.log_file, read.path + ": log.file");
    find_host_addresses(read);
    attachments_ = attach(read, wire);
    if (wire != nullptr) verbs::set_wire_address(address_on(wire, read, attachments_));
    config_ = std::move(read);
  }
  return *config_;
}

std::shared_ptr<WireAttachment> Registry::attachment_of(const DeviceConfig& device) const {
  const auto found = attachments_.find(device.name);
  return found == attachments_.end() ? nullptr : found->second;
}

bool Registry::has_seat(const DeviceConfig& device, std::string& error) {
  if (device.port.kind != PortKind::wire || attachments_.contains(device.name)) return true;
  std::optional<SwitchGrant> holders;
  auto attachment = WireAttachment::take(device.port.request, error, holders);
  if (attachment == nullptr) return false;
  attachments_[device.name] = std::move(attachment);
  return true;
}

std::vector<verbs::DeviceDescription> Registry::list(std::string& error) {
  const std::lock_guard guard(mutex_);
  std::vector<verbs::DeviceDescription> descriptions;
  try {
    const Config& all = config();
    for (const DeviceConfig& device : all.devices)
      descriptions.push_back(describe(all, device, attachment_of(device).get()));
  } catch (const ConfigError& problem) {
    error = problem.what();
    descriptions.clear();
    tell(error);
  }
  return descriptions;
}

bool Registry::expects_link(const std::string& name) {
  const std::lock_guard guard(mutex_);
  try {
    for (const DeviceConfig& device : config().devices)
      if (device.name == name) return glue::expects_link(device.port);
  } catch (const ConfigError&) {
    return false;  // open() reports the error
  }
  return false;
}

// A program that called configure() receives the error text; other programs receive only an errno.
void Registry::tell(const std::string& error) {
  if (path_.empty()) tell_anyone(error);
}

void Registry::tell_anyone(const std::string& error) {
  if (error == told_) return;
  std::fprintf(stderr, "%s\n", error.c_str());
  told_ = error;
}

void Registry::use_log_file(const std::string& name, const std::string& origin) {
  if (name.empty() || name == log_file_) return;
  log_file_ = name;
  if (const std::string error = log_to_file(name); !error.empty())
    tell_anyone(fmt::format("faultline: {}: {}", origin, error));
}

std::shared_ptr<RunningDevice> Registry::open(const std::string& name, std::string& error) {
  const std::lock_guard guard(mutex_);
  if (auto running = devices_[name].lock()) return running;
  try {
    const Config& all = config();
    const auto wanted = std::find_if(all.devices.begin(), all.devices.end(),
                                     [&](const DeviceConfig& device) { return device.name == name; });
    if (wanted == all.devices.end()) {
      error = fmt::format("faultline: {}: there is no device \"{}\"", all.path, name);
      return nullptr;
    }
    if (has_seat(*wanted, error)) error = reason_not_for_child(all, *wanted);
    auto device = error.empty() && start_eal(all, error)
                      ? RunningDevice::open(all, *wanted, attachment_of(*wanted), error)
                      : nullptr;
    if (device == nullptr) tell(error);
    devices_[name] = device;
    // Set for each process, not once: a forked child needs the hook too.
    if (device != nullptr) odp::set_exit_hook([] { instance().run_last_turns(); });
    static std::once_flag first_device;
    if (device != nullptr)
      std::call_once(first_device, [] {
        register_telemetry();
        // Writes out captures and removes sockets if a program exits with its devices open.
        std::atexit([] { instance().shut_down_all(); });
        // quick_exit(3) runs no atexit(3) handlers.
        std::at_quick_exit([] { instance().run_last_turns(); });
      });
    return device;
  } catch (const ConfigError& problem) {
    error = problem.what();
    tell(error);
    return nullptr;
  }
}

std::shared_ptr<RunningDevice> Registry::find(const std::string& name) {
  const std::lock_guard guard(mutex_);
  const auto found = devices_.find(name);
  return found == devices_.end() ? nullptr : found->second.lock();
}

std::vector<std::string> Registry::running() {
  const std::lock_guard guard(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, device] : devices_)
    if (!device.expired()) names.push_back(name);
  return names;
}

void Registry::shut_down_all() {
  if (has_interrupted_own_call()) return abandon_all();
  for (const std::string& name : running())
    if (const auto device = find(name)) device->shut_down();
}

void Registry::run_last_turns() {
  // The interrupted call may hold the turn lock, or any other lock.
  if (has_interrupted_own_call() || !mutex_.try_lock()) return;
  for (const auto& [name, known] : devices_) {
    // Never destroyed, as in abandon_all().
    alignas(std::shared_ptr<RunningDevice>) std::array<std::byte, sizeof(std::shared_ptr<RunningDevice>)>
        place;
    if (auto* const device = new (place.data()) std::shared_ptr<RunningDevice>(known.lock());
        *device != nullptr)
      (*device)->run_last_turns();
  }
  mutex_.unlock();
}

/// Neither waits for a lock nor allocates: the interrupted call may hold the lock or be in the allocator.
void Registry::abandon_all() {
  if (mutex_.try_lock()) {
    for (const auto& [name, known] : devices_) {
      // Never destroyed: this may be the last reference, and the destructor of a device waits.
      alignas(std::shared_ptr<RunningDevice>) std::array<std::byte, sizeof(std::shared_ptr<RunningDevice>)>
          place;
      if (auto* const device = new (place.data()) std::shared_ptr<RunningDevice>(known.lock());
          *device != nullptr)
        (*device)->abandon();
    }
    mutex_.unlock();
  }
  ProgressThread::abandon();
}

}  // namespace faultline::glue

namespace faultline::verbs {

std::vector<DeviceDescription> list_devices(std::string& error) {
  return glue::Registry::instance().list(error);
}

bool expects_link(const std::string& name) {
  return glue::Registry::instance().expects_link(name);
}

std::shared_ptr<DeviceBackend> open_device(const std::string& name, std::string& error) {
  return glue::Registry::instance().open(name, error);
}

void configure(const std::string& path) {
  glue::Registry::instance().set_path(path);
}

}  // namespace faultline::verbs
