// SPDX-License-Identifier: BSD-3-Clause
// The address of this process's attachment to the wire of $FAULTLINE_WIRE, for calls that may neither wait
// nor open a device. The first list of the devices attaches the process.
#pragma once

#include <atomic>
#include <cstdint>

#include <unistd.h>

namespace faultline::verbs {

/// The process ID, and the address in the low 32 bits. A forked child has an attachment of its own, and a
/// vfork child shares the variable with its parent.
inline constinit std::atomic<uint64_t> attached_address{0};

/// `ipv4` is in host byte order; 0: not attached. Any thread.
inline void set_wire_address(uint32_t ipv4) {
  attached_address.store(uint64_t{static_cast<uint32_t>(getpid())} << 32 | ipv4, std::memory_order_relaxed);
}

/// Returns the address in host byte order, or 0 if this process is not attached. Async-signal-safe.
[[nodiscard]] inline uint32_t wire_address() {
  const uint64_t value = attached_address.load(std::memory_order_relaxed);
  return value >> 32 == static_cast<uint32_t>(getpid()) ? static_cast<uint32_t>(value) : 0;
}

}  // namespace faultline::verbs
