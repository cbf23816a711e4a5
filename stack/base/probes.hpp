// SPDX-License-Identifier: BSD-3-Clause
// Probes for bpftrace, perf and SystemTap: one no-op instruction and a note in the library each, nothing more
// while none is traced. Without <sys/sdt.h>, or with -Dprobes=disabled, there are none. docs/seeing/probes.md
// lists them for users. Enumerations are passed as numbers.
#pragma once

#include <cstdint>

#if !defined(FAULTLINE_NO_PROBES) && __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define FAULTLINE_PROBE3(...) DTRACE_PROBE3(faultline, __VA_ARGS__)
#define FAULTLINE_PROBE4(...) DTRACE_PROBE4(faultline, __VA_ARGS__)
#define FAULTLINE_PROBE5(...) DTRACE_PROBE5(faultline, __VA_ARGS__)
#define FAULTLINE_PROBE6(...) DTRACE_PROBE6(faultline, __VA_ARGS__)
#else
#define FAULTLINE_PROBE3(...) static_cast<void>(0)
#define FAULTLINE_PROBE4(...) static_cast<void>(0)
#define FAULTLINE_PROBE5(...) static_cast<void>(0)
#define FAULTLINE_PROBE6(...) static_cast<void>(0)
#endif

// The functions have the names of the probes.
namespace faultline::probes {

/// Marks a send work request that is complete in its ring, before the engine can see it. `opcode` is of
/// ibv_wr_opcode.
[[gnu::always_inline]] inline void post([[maybe_unused]] uint32_t qpn, [[maybe_unused]] uint64_t wr_id,
                                        [[maybe_unused]] uint8_t opcode,
                                        [[maybe_unused]] uint32_t length_bytes) {
  FAULTLINE_PROBE4(post, qpn, wr_id, opcode, length_bytes);
}

/// Marks a packet that is complete in its buffer. `opcode` is the BTH's (IBA 9.2.1).
[[gnu::always_inline]] inline void send([[maybe_unused]] uint32_t destination_qpn,
                                        [[maybe_unused]] uint32_t psn, [[maybe_unused]] uint8_t opcode,
                                        [[maybe_unused]] uint32_t payload_bytes) {
  FAULTLINE_PROBE4(send, destination_qpn, psn, opcode, payload_bytes);
}

/// Marks a well-formed packet with a valid ICRC, before the QP is looked up.
[[gnu::always_inline]] inline void receive([[maybe_unused]] uint32_t destination_qpn,
                                           [[maybe_unused]] uint32_t psn, [[maybe_unused]] uint8_t opcode,
                                           [[maybe_unused]] uint16_t payload_bytes) {
  FAULTLINE_PROBE4(receive, destination_qpn, psn, opcode, payload_bytes);
}

/// Marks a packet that a requester sends again, after its `send`.
[[gnu::always_inline]] inline void retransmit([[maybe_unused]] uint32_t qpn, [[maybe_unused]] uint32_t psn,
                                              [[maybe_unused]] uint32_t unacknowledged_psn) {
  FAULTLINE_PROBE3(retransmit, qpn, psn, unacknowledged_psn);
}

/// Marks an access that misses a page, before it is served. `role` is of transport::FaultRole.
[[gnu::always_inline]] inline void fault([[maybe_unused]] uint32_t qpn, [[maybe_unused]] uint32_t key,
                                         [[maybe_unused]] uint64_t va, [[maybe_unused]] uint64_t length_bytes,
                                         [[maybe_unused]] uint8_t role) {
  FAULTLINE_PROBE5(fault, qpn, key, va, length_bytes, role);
}

/// Marks the answer to a fault, on the thread that served it. `kind` is of odp::FaultKind, `outcome` of
/// odp::Outcome; `pages` were made resident.
[[gnu::always_inline]] inline void resolve([[maybe_unused]] uint32_t key, [[maybe_unused]] uint64_t va,
                                           [[maybe_unused]] uint64_t pages, [[maybe_unused]] uint8_t kind,
                                           [[maybe_unused]] uint8_t outcome,
                                           [[maybe_unused]] uint64_t duration_ns) {
  FAULTLINE_PROBE6(resolve, key, va, pages, kind, outcome, duration_ns);
}

/// Marks a completion before it is pushed. `status` is of ibv_wc_status. Few arguments: the others would have
/// to be in memory, which costs a SEND's receiver 1 % of its instructions.
[[gnu::always_inline]] inline void complete([[maybe_unused]] uint32_t qpn, [[maybe_unused]] uint64_t wr_id,
                                            [[maybe_unused]] uint8_t status) {
  FAULTLINE_PROBE3(complete, qpn, wr_id, status);
}

}  // namespace faultline::probes
