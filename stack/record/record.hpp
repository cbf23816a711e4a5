// SPDX-License-Identifier: BSD-3-Clause
// The format of a recording: a file with a header, a ring of connections, a ring of control calls, and a ring
// of records for each core of a device and one for all other threads. A ring keeps the newest; the number of
// all that were written shows how many are lost. Numbers have the host's byte order. The offsets are those of
// these structures.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace faultline::record {

inline constexpr std::array<char, 8> kMagic{'F', 'L', 'R', 'E', 'C', 'O', 'R', 'D'};
inline constexpr uint32_t kVersion = 2;
inline constexpr uint32_t kMostRings = 60;
/// Rows in the ring of connections.
inline constexpr uint32_t kConnectionRows = 4096;
/// Rows in the ring of control calls.
inline constexpr uint32_t kControlRows = 8192;
/// Records in the ring of the other threads.
inline constexpr uint32_t kOtherRecords = 16384;

enum class Kind : uint8_t {
  none,  ///< not written yet
  sent,
  received,
  dropped,     ///< a received packet; code: the reason
  completion,  ///< code: its status; argument: completions in the queue that the program has not read
  fault,       ///< an access waits for a page; argument: a number that the end has too
  fault_end,
  timer,         ///< code: TimerCode
  rate,          ///< of congestion control; argument: megabytes per second
  invalidation,  ///< pages left the device's regions; argument: their number
  /// A work request that the turn found and did not start; code: its ibv_wr_opcode, argument: its length. One
  /// that starts in the turn that finds it has no such record.
  posted,
  /// A turn has left work requests that wait; code: status::WaitsFor, argument: the window in packets,
  /// length_bytes: the number of work requests without a packet, number: the window without cuts.
  waiting,
};

enum class TimerCode : uint8_t { other, ack_timeout, early_probe };

enum Flag : uint16_t {
  kAckRequest = 1U << 0,
  kMarked = 1U << 1,  ///< ECN: congestion experienced
  kPageFault = 1U << 2,
  kPageReady = 1U << 3,
  kHeld = 1U << 4,    ///< kept until an earlier packet arrives
  kParked = 1U << 5,  ///< kept until a page is resident
  kSolicited = 1U << 6,
  kOfPeer = 1U << 7,  ///< the PSN is one of the peer's requests; for kinds other than packets
};

/// 32 bytes, so that a line of the cache has two.
struct Record {
  uint64_t time_ns = 0;  ///< CLOCK_MONOTONIC, at the start of the engine's turn
  uint32_t qpn = 0;      ///< of the device's own QP
  uint32_t psn = 0;
  /// Of a packet: MSN, the length of the work request that it starts or that a READ requests, or the packets
  /// that a selective acknowledgement lists.
  uint32_t argument = 0;
  uint32_t length_bytes = 0;  ///< payload; of a completion: the size of its queue in entries
  uint16_t flags = 0;         ///< Flag
  Kind kind = Kind::none;
  uint8_t code = 0;      ///< of a packet: the BTH's opcode; a reason from kParseErrors on is a parse error
  uint8_t syndrome = 0;  ///< AETH
  uint8_t request = 0;   ///< of a packet that starts a work request: kStartsRequest plus its ibv_wr_opcode
  /// The low bits of a work request's index in its send queue: of the packet that starts it, of `posted`, and
  /// of the completion of a send. Of `waiting`: see there.
  uint16_t number = 0;
};
static_assert(sizeof(Record) == 32);

inline constexpr uint8_t kStartsRequest = 128;

/// Added to the number of a parse error to be a reason of Kind::dropped.
inline constexpr uint8_t kParseErrors = 128;

struct ConnectionRow {
  uint64_t time_ns = 0;
  uint32_t qpn = 0;
  uint32_t peer_qpn = 0;
  std::array<uint8_t, 16> gid{};
  std::array<uint8_t, 16> peer_gid{};
  uint32_t mtu_bytes = 0;
  uint8_t qp_type = 0;  ///< ibv_qp_type
  std::array<uint8_t, 11> reserved{};
};
static_assert(sizeof(ConnectionRow) == 64);

enum class ControlCall : uint8_t {
  none,
  open_device,
  create_cq,
  destroy_cq,
  create_qp,
  modify_qp,
  destroy_qp,
  register_mr,
  reregister_mr,
  deregister_mr,
  count_
};

/// A control call of verbs, as it returned.
struct ControlRow {
  static constexpr uint8_t kNoState = 0xff;

  uint64_t time_ns = 0;  ///< CLOCK_MONOTONIC at its return
  uint64_t duration_ns = 0;
  uint64_t address = 0;       ///< of a region, in the program
  uint64_t length_bytes = 0;  ///< of a region
  uint32_t object = 0;        ///< QPN, lkey, or a CQ's handle; 0: none was made
  uint32_t access = 0;        ///< of a region: ibv_access_flags; of modify_qp: ibv_qp_attr_mask
  uint32_t entries = 0;       ///< of a CQ
  int32_t error = 0;          ///< errno, or 0
  ControlCall call = ControlCall::none;
  uint8_t qp_type = 0;            ///< ibv_qp_type
  uint8_t from_state = kNoState;  ///< ibv_qp_state before the call
  uint8_t to_state = kNoState;    ///< the one that the call asked for
  std::array<uint8_t, 12> reserved{};
};
static_assert(sizeof(ControlRow) == 64);

struct RingHeader {
  uint64_t offset_bytes = 0;  ///< of the first record in the file
  uint64_t records = 0;       ///< a power of two
  uint64_t written = 0;       ///< since the start; the writer adds it after the record
  std::array<uint64_t, 5> reserved{};
};
static_assert(sizeof(RingHeader) == 64);

struct FileHeader {
  std::array<char, 8> magic{};
  uint32_t version = 0;
  uint32_t pid = 0;
  uint32_t rings = 0;
  uint32_t connection_rows = 0;
  uint64_t monotonic_ns = 0;  ///< both clocks at the same moment
  uint64_t realtime_ns = 0;
  uint64_t connections_written = 0;
  uint64_t connections_offset_bytes = 0;
  uint64_t controls_written = 0;
  uint64_t controls_offset_bytes = 0;
  uint64_t control_rows = 0;
  std::array<char, 64> device{};  ///< its name; ends with a zero
  std::array<char, 64> program{};
  std::array<RingHeader, kMostRings> ring{};
};
static_assert(sizeof(FileHeader) <= 4096);

}  // namespace faultline::record
