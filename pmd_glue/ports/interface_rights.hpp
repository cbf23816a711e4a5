// SPDX-License-Identifier: BSD-3-Clause
// What a process must be allowed to do for a port on an interface of the kernel's, asked for before the
// driver tries: it reports another error number, or none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace faultline::glue {

/// Why this process may not have a port on a kernel interface, and what to do; nothing if it may. `kind` is
/// for the message; `loads_programs`: the driver loads a BPF program.
[[nodiscard]] std::optional<std::string> missing_rights(std::string_view kind, bool loads_programs);

/// Frames of each of net_af_packet's rings, two for each of `queue_pairs`, that the limit of locked memory
/// has room for: the kernel locks them (packet(7), MAP_LOCKED). `most`, or as many as fit; 0 where those are
/// too few.
[[nodiscard]] uint32_t packet_ring_frames(uint32_t most, size_t frame_bytes, uint16_t queue_pairs);

/// What to do about the limit of locked memory.
[[nodiscard]] std::string locked_memory_advice(size_t wanted_bytes);

}  // namespace faultline::glue
