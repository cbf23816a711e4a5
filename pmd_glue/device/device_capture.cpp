// SPDX-License-Identifier: BSD-3-Clause
// A device's capture: its file, its name, and the comments of dropped packets.
#include <span>
#include <string>
#include <vector>

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include "pmd_glue/device/running_device.hpp"
#include "stack/verbs/objects/counter_list.hpp"

namespace faultline::glue {
namespace {

/// "drop.unknown_qpn: packets dropped: no QP has the destination QPN": as docs/counters.md has it.
std::vector<std::string> drop_comments() {
  std::vector<std::string> comments;
  const std::span texts(verbs::counter_texts());
  for (const verbs::CounterText& text : texts.subspan(verbs::core_counter_range().first, kDropCounters))
    comments.push_back(fmt::format("{}: {}", text.name, text.help));
  return comments;
}

}  // namespace

bool RunningDevice::open_capture(const std::string& config_path, const DeviceConfig& wanted,
                                 std::string& error) {
  // A forked child writes a separate file, since its parent writes this one.
  const std::string file =
      fork_generation() == 0 ? wanted.capture : fmt::format("{}.{}", wanted.capture, getpid());
  const std::string description =
      fmt::format("port 1 of the RoCEv2 device {}, of kind {}", wanted.name, name_of(wanted.port.kind));
  capture_ = Capture::open({.file = file,
                            .interface = wanted.name,
                            .description = description,
                            .port_id = port_->id(),
                            .comments = drop_comments()},
                           error);
  if (capture_ != nullptr) return true;
  error = fmt::format("faultline: {}: {}: device.capture: {}", config_path, wanted.name, error);
  return false;
}

}  // namespace faultline::glue
