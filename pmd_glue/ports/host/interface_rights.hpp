// SPDX-License-Identifier: BSD-3-Clause
// Checks the privileges that a port on a kernel interface needs. The check precedes the driver, which reports
// a different error number or none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace faultline::glue {

/// Returns why this process may not open a port on a kernel interface, and what to do; nullopt if it may.
/// `kind` is for the message; `loads_programs`: the driver loads a BPF program.
[[nodiscard]] std::optional<std::string> missing_rights(std::string_view kind, bool loads_programs);

/// Returns how many frames each of net_af_packet's rings may have within the limit of locked memory. The
/// kernel locks the rings (packet(7), MAP_LOCKED), two for each of `queue_pairs`. At most `most`; 0 if too
/// few fit.
[[nodiscard]] uint32_t packet_ring_frames(uint32_t most, size_t frame_bytes, uint16_t queue_pairs);

/// Returns whether the process may lock that many bytes more.
[[nodiscard]] bool may_lock(size_t bytes);

/// Returns advice about the limit of locked memory. `need` begins it, such as "its rings need".
[[nodiscard]] std::string locked_memory_advice(std::string_view need, size_t wanted_bytes);

}  // namespace faultline::glue
