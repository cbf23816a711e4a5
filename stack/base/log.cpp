// SPDX-License-Identifier: BSD-3-Clause
#include "stack/base/log.hpp"

#include <memory>

#include <spdlog/sinks/stdout_sinks.h>

namespace faultline {

spdlog::logger& log() {
  // Never destroyed: programs exit with devices open.
  static spdlog::logger& instance = []() -> spdlog::logger& {
    auto& logger = *new spdlog::logger("faultline", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger.set_pattern("%n: %v");
    logger.set_level(spdlog::level::warn);
    return logger;
  }();
  return instance;
}

}  // namespace faultline
