// SPDX-License-Identifier: BSD-3-Clause
// Where the switch of a wire is found, for those who come to it and for the switch itself. Who starts or ends
// one holds the wire's lock meanwhile.
#pragma once

#include <optional>
#include <string>

#include "pmd_glue/unique_fd.hpp"

namespace faultline::glue {

struct SwitchPlace {
  std::string control_socket;
  std::string lock_file;
  std::string log_file;      ///< of a switch that a program started
  std::string memif_prefix;  ///< of the seats' sockets
};

/// Nothing, and one line in `error`, where the name is no wire's or the directory is of no use.
[[nodiscard]] std::optional<SwitchPlace> place_of_wire(const std::string& wire, std::string& error);

/// The wire's lock, until the descriptor is closed. Not valid, with errno, where it cannot be had
/// (EWOULDBLOCK: others have it, and `wait` is false).
[[nodiscard]] UniqueFd lock_wire(const SwitchPlace& place, bool wait);
/// With the lock: a listening socket in the place of one that nobody serves. Not valid with errno. `died`:
/// there was one, so that its switch has not ended by itself.
[[nodiscard]] UniqueFd listen_on_wire(const SwitchPlace& place, bool& died);
/// Not valid, with errno, where there is no switch.
[[nodiscard]] UniqueFd connect_to_wire(const SwitchPlace& place);

}  // namespace faultline::glue
