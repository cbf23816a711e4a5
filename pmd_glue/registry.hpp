// SPDX-License-Identifier: BSD-3-Clause
// The configuration of this process and its running devices.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "pmd_glue/config.hpp"
#include "pmd_glue/device.hpp"

namespace faultline::glue {

class Registry {
 public:
  [[nodiscard]] static Registry& instance();

  void set_path(const std::string& path);
  [[nodiscard]] std::vector<verbs::DeviceDescription> list(std::string& error);
  [[nodiscard]] std::shared_ptr<Device> open(const std::string& name, std::string& error);

  /// The running device of that name, or nullptr.
  [[nodiscard]] std::shared_ptr<Device> find(const std::string& name);
  [[nodiscard]] std::vector<std::string> running();

 private:
  Registry() = default;
  [[nodiscard]] const Config& config();  ///< throws ConfigError
  void shut_down_all();
  void tell(const std::string& error);

  std::mutex mutex_;
  std::string path_;
  std::string told_;  ///< the last line on stderr
  std::optional<Config> config_;
  uint32_t generation_ = 0;  ///< of the process that read it
  std::map<std::string, std::weak_ptr<Device>> devices_;
};

}  // namespace faultline::glue
