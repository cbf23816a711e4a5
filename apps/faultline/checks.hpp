// SPDX-License-Identifier: BSD-3-Clause
// The table of what `faultline doctor` checks. A check is a function of facts, so that tests can make the
// facts of any machine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "apps/faultline/host_facts.hpp"
#include "apps/faultline/probe_report.hpp"

namespace faultline::cli {

struct Facts {
  HostFacts host;
  std::string devices;  ///< what the probe's devices are, for a line: "a wire of its own"
  ProbeReport program;
  /// The same with a device on the host's own address, if the first probe had a wire of its own and failed.
  std::optional<ProbeReport> by_udp;
};

enum class State : uint8_t { missing, limited, ok };

struct Finding {
  State state = State::ok;
  std::string reason = {};  ///< or how it works
  std::string lost = {};    ///< if not ok: what programs lose
  std::string mend = {};    ///< if not ok: a command, or what to change
};

struct Check {
  std::string_view name;
  Finding (*find)(const Facts& facts);
};

/// All rows, in the order of the output.
[[nodiscard]] std::span<const Check> checks();
/// The row that decides whether verbs programs run.
inline constexpr std::string_view kDecidingCheck = "program";

[[nodiscard]] std::string_view text_of(State state);

}  // namespace faultline::cli
