// SPDX-License-Identifier: BSD-3-Clause
// The configuration of this process and its running devices. A forked child inherits its parent's
// configuration. It opens its own devices if their ports can be opened twice.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "pmd_glue/config/config.hpp"
#include "pmd_glue/config/wire_config.hpp"
#include "pmd_glue/device/running_device.hpp"

namespace faultline::glue {

class Registry {
 public:
  [[nodiscard]] static Registry& instance();

  void set_path(const std::string& path);
  [[nodiscard]] std::vector<verbs::DeviceDescription> list(std::string& error);
  [[nodiscard]] std::shared_ptr<RunningDevice> open(const std::string& name, std::string& error);

  /// Returns whether the link of a device that does not run yet would be up.
  [[nodiscard]] bool expects_link(const std::string& name);

  /// The running device of that name, or nullptr.
  [[nodiscard]] std::shared_ptr<RunningDevice> find(const std::string& name);
  [[nodiscard]] std::vector<std::string> running();

 private:
  Registry() = default;
  /// In a forked child: copies the parent's configuration, unless a device is attached to a wire.
  explicit Registry(const Registry& parents);
  static void begin_in_child();
  /// Returns why a device of the parent process cannot be opened a second time; empty if it can.
  [[nodiscard]] std::string reason_not_for_child(const Config& all, const DeviceConfig& device) const;
  [[nodiscard]] const Config& config();  ///< throws ConfigError
  [[nodiscard]] std::shared_ptr<WireAttachment> attachment_of(const DeviceConfig& device) const;
  /// Asks for the address of a wire's device that this process has only looked at. Returns false with one
  /// line in `error` if another process has it.
  [[nodiscard]] bool has_seat(const DeviceConfig& device, std::string& error);
  void shut_down_all();
  /// Replaces shut_down_all() if the exiting thread is inside a verbs call.
  void abandon_all();
  /// Replaces shut_down_all() in a process that ends by _exit: async-signal-safe.
  void run_last_turns();
  void tell(const std::string& error);
  void tell_anyone(const std::string& error);
  /// Calls log_to_file(), unless `name` was its last argument; `origin` names the setting in an error line.
  void use_log_file(const std::string& name, const std::string& origin);

  std::mutex mutex_;
  std::string path_;
  std::string told_;      ///< the last error line on stderr
  std::string log_file_;  ///< the last argument of log_to_file(); a child keeps its parent's
  std::optional<Config> config_;
  Attachments attachments_;  ///< of the devices in config_
  std::map<std::string, std::weak_ptr<RunningDevice>> devices_;
  /// keeps the parent's registry reachable for leak checkers
  [[maybe_unused]] const Registry* const parents_registry_ = nullptr;
  std::set<std::string> parents_;  ///< devices that ran in the ancestor processes
};

}  // namespace faultline::glue
