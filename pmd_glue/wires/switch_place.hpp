// SPDX-License-Identifier: BSD-3-Clause
// Where the switch of a wire is found, for those who come to it and for the switch itself. Who starts or ends
// one holds the wire's lock meanwhile.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "stack/base/unique_fd.hpp"

namespace faultline::glue {

struct SwitchPlace {
  std::string control_socket;
  std::string lock_file;
  std::string log_file;      ///< of a switch that a program started
  std::string memif_prefix;  ///< of the seats' sockets
};

/// Nothing, and one line in `error`, where the name is no wire's or the directory is of no use.
[[nodiscard]] std::optional<SwitchPlace> place_of_wire(const std::string& wire, std::string& error);

using SteadyTime = std::chrono::steady_clock::time_point;

/// The wire's lock, until the descriptor is closed. Not valid, with errno, where it cannot be had; ETIMEDOUT:
/// another process had it until `deadline`.
[[nodiscard]] UniqueFd lock_wire(const SwitchPlace& place, SteadyTime deadline);
/// With the lock: a listening socket in the place of one that nobody serves. Not valid with errno. `died`:
/// there was one, so that its switch has not ended by itself.
[[nodiscard]] UniqueFd listen_on_wire(const SwitchPlace& place, bool& died);
/// A non-blocking connection. Not valid, with errno, where there is no switch (ENOENT, ECONNREFUSED), or
/// where as many as it lets wait have waited until `deadline` (ETIMEDOUT).
[[nodiscard]] UniqueFd connect_to_wire(const SwitchPlace& place, SteadyTime deadline);
/// With the lock, by a switch that ends: what a wire leaves in its directory.
void remove_files(const SwitchPlace& place);

/// A switch puts its process ID where switch_process() finds it, for as long as the descriptor is open. No
/// other descriptor of the lock file may be closed in that process meanwhile (fcntl_locking(2)).
[[nodiscard]] UniqueFd sign_as_switch(const SwitchPlace& place);
/// The process that serves the wire; 0 where none has signed.
[[nodiscard]] int switch_process(const SwitchPlace& place);
/// The process that has the wire's lock; 0 where that is not known.
[[nodiscard]] int lock_process(const SwitchPlace& place);

/// Stopped by a signal or a debugger.
[[nodiscard]] bool is_stopped(int pid);
/// What a user can do about a process that does not answer: "process 7 is stopped: ...".
[[nodiscard]] std::string advice_on(int pid);

}  // namespace faultline::glue
