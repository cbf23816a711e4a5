// SPDX-License-Identifier: BSD-3-Clause
// Paths of a wire's switch, for its clients and for the switch itself. A process holds the wire's lock while
// it starts or ends a switch.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "stack/base/unique_fd.hpp"

namespace faultline::glue {

struct SwitchPlace {
  std::string control_socket;
  std::string lock_file;
  std::string log_file;     ///< log of a switch that a program started
  std::string uplink_file;  ///< exists from the start of a switch with an uplink to its orderly end
};

/// Returns the paths of a wire; nullopt with one line in `error` if the name is invalid or the directory is
/// unusable.
[[nodiscard]] std::optional<SwitchPlace> place_of_wire(const std::string& wire, std::string& error);

using SteadyTime = std::chrono::steady_clock::time_point;

/// Between two looks at what another process, a client or the switch, has not done yet.
inline constexpr std::chrono::milliseconds kLookPause{10};

/// Takes the wire's lock, which is held until the descriptor is closed. Returns an invalid descriptor with
/// errno on failure; ETIMEDOUT: another process held the lock until `deadline`.
[[nodiscard]] UniqueFd lock_wire(const SwitchPlace& place, SteadyTime deadline);
/// Creates the listening socket and replaces one without a server. The caller holds the lock. Returns an
/// invalid descriptor with errno on failure. `died`: a socket existed, so its switch has crashed.
[[nodiscard]] UniqueFd listen_on_wire(const SwitchPlace& place, bool& died);
/// Returns a non-blocking connection, or an invalid descriptor with errno: ENOENT or ECONNREFUSED if there is
/// no switch, ETIMEDOUT if the backlog was full until `deadline`.
[[nodiscard]] UniqueFd connect_to_wire(const SwitchPlace& place, SteadyTime deadline);
/// Notes whether the wire's switch has an uplink. Programs start no switch in place of one that has. Returns
/// false with errno if the note cannot be written.
[[nodiscard]] bool note_uplink(const SwitchPlace& place, bool has_uplink);
[[nodiscard]] bool needs_uplink(const SwitchPlace& place);
/// Removes the wire's files. For a switch that ends; the caller holds the lock.
void remove_files(const SwitchPlace& place);

/// Publishes the switch's process ID for switch_process(), as long as the descriptor is open. The process
/// must not close any other descriptor of the lock file meanwhile (fcntl_locking(2)).
[[nodiscard]] UniqueFd lock_as_switch(const SwitchPlace& place);
/// Returns the process ID of the wire's switch; 0 if none is published.
[[nodiscard]] int switch_process(const SwitchPlace& place);
/// Returns the process ID of the holder of the wire's lock; 0 if it is unknown.
[[nodiscard]] int lock_process(const SwitchPlace& place);

/// Returns whether the process is stopped by a signal or a debugger.
[[nodiscard]] bool is_stopped(int pid);
/// Returns advice to the user about a process that does not respond: "process 7 is stopped: ...".
[[nodiscard]] std::string advice_on(int pid);

}  // namespace faultline::glue
