// SPDX-License-Identifier: BSD-3-Clause
// Programs that this one starts: those of its commands, and the probe.
#pragma once

#include <string>

#include "apps/faultline/probe_report.hpp"

namespace faultline::cli {

/// Replaces this process by the program `name` of this program's folder. `argv` ends with nullptr; its first
/// entry is replaced. Returns only on failure, with the exit status of shells.
[[nodiscard]] int execute(const std::string& name, char** argv);

/// The devices of a probe: at most one text is set. Without any the probe has no device.
struct DeviceChoice {
  std::string config = {};  ///< path of a TOML file
  std::string wire = {};    ///< as $FAULTLINE_WIRE
  std::string udp = {};     ///< as $FAULTLINE_UDP
};

/// Runs a probe with these devices; `what` is one of probe.hpp. Changes this process's environment. If there
/// is no answer, `error` of the report is one line with the reason.
[[nodiscard]] ProbeReport ask_probe(const DeviceChoice& devices, const char* what);

}  // namespace faultline::cli
