// SPDX-License-Identifier: BSD-3-Clause
#include "stack/base/log.hpp"

#include <cstdio>
#include <iterator>
#include <memory>
#include <mutex>

#include <spdlog/fmt/fmt.h>
#include <spdlog/sinks/sink.h>

namespace faultline {
namespace {

/// Writes "faultline: TEXT". spdlog's own sinks hold a mutex for it, which would stay locked in a child that
/// is forked meanwhile. stdio's lock suffices for whole lines, and the C library unlocks it in a child.
class StderrSink final : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override {
    const std::string_view name(message.logger_name.data(), message.logger_name.size());
    const std::string_view text(message.payload.data(), message.payload.size());
    fmt::memory_buffer line;
    fmt::format_to(std::back_inserter(line), "{}: {}\n", name, text);
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
  }
  void flush() override {}
  void set_pattern(const std::string& /*pattern*/) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter> /*formatter*/) override {}
};

}  // namespace

spdlog::logger& log() {
  // Never destroyed: programs exit with devices open. A child continues with it, and with its level.
  // pthread_once(3) begins anew in a child that is forked during the call, unlike a static's initialisation.
  static spdlog::logger* instance = nullptr;
  static std::once_flag once;
  std::call_once(once, [] {
    instance = new spdlog::logger("faultline", std::make_shared<StderrSink>());
    instance->set_level(spdlog::level::warn);
  });
  return *instance;
}

}  // namespace faultline
