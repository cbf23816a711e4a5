// SPDX-License-Identifier: BSD-3-Clause
// A story: the connections and events of a capture or recording, in the order of time, and what the analysis
// finds in them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "stack/record/record.hpp"
#include "stack/status/rows.hpp"
#include "stack/wire/packet/headers.hpp"
#include "stack/wire/packet/opcode.hpp"

namespace faultline::story {

/// An event has 16 bits for its connection.
inline constexpr size_t kMostConnections = 65535;

/// The page's script has the same values.
enum class EventKind : uint8_t {
  packet,
  post,        ///< a work request; code: operation, argument: its place in Story::requests
  completion,  ///< code: status
  fault,       ///< an access waits for a page; argument: a number that the end has too
  fault_end,
  invalidation,  ///< memory left a region
  timer,         ///< a timer of the requester or the responder expired
  congestion,    ///< the rate or the window changed; argument: megabytes per second
  drop,          ///< a received packet was dropped; code: see record::Kind::dropped
  control,       ///< a control call of verbs; argument: its place in Story::controls
  wait           ///< work requests wait; code: WaitsFor, argument: window in packets, length: their number
};

enum EventFlag : uint16_t {
  kOfSecondEnd = 1U << 0,    ///< sent by, or took place at, the connection's second end
  kResponse = 1U << 1,       ///< its PSN is one of the receiver's requests
  kRetransmitted = 1U << 2,  ///< its sender had sent this PSN before
  kAckRequest = 1U << 3,
  kMarked = 1U << 4,     ///< ECN: congestion experienced
  kPageFault = 1U << 5,  ///< the answer states a page fault
  kPageReady = 1U << 6,
  kHeld = 1U << 7,    ///< the receiver keeps it until an earlier packet arrives
  kParked = 1U << 8,  ///< the receiver keeps it until a page is resident
  kSolicited = 1U << 9,
  kCutWindow = 1U << 11,  ///< losses have made the window smaller
  kReceived = 1U << 10    ///< the time is that of the receipt, otherwise of the transmission
};

struct Event {
  uint64_t time_ns = 0;  ///< since the story's start
  int32_t psn = 0;       ///< relative to the first PSN of its requests, without wrap; see Requests::first_psn
  uint32_t argument = 0;  ///< of a packet: MSN, or the length that a READ requests
  uint32_t length_bytes = 0;
  uint16_t connection = 0;
  EventKind kind = EventKind::packet;
  uint8_t code = 0;  ///< of a packet: the BTH's opcode
  uint16_t flags = 0;
  uint8_t syndrome = 0;  ///< AETH
  [[nodiscard]] bool is(EventFlag flag) const { return (flags & flag) != 0; }
  /// Which end's requests the PSN counts: 0 or 1.
  [[nodiscard]] unsigned requester() const { return is(kOfSecondEnd) != is(kResponse) ? 1 : 0; }
  [[nodiscard]] const wire::OpcodeInfo& info() const { return wire::opcode_info(code); }
};

struct End {
  wire::Gid address;
  uint32_t qpn = 0;  ///< 0: unknown
  friend bool operator==(const End&, const End&) = default;
};

/// Counts of what one end sent; in a recording, of what the device sent and received.
struct SentCounts {
  uint64_t packets = 0;
  uint64_t retransmitted = 0;
  uint64_t payload_bytes = 0;
  uint64_t acks = 0;
  uint64_t sequence_naks = 0;
  uint64_t rnr_naks = 0;
  uint64_t other_naks = 0;
};

struct Connection {
  std::array<End, 2> ends;
  wire::Service service = wire::Service::rc;
  std::array<uint32_t, 2> first_psn{};  ///< of the requests of each end
  std::array<SentCounts, 2> sent;
  uint32_t mtu_bytes = 0;  ///< 0: no message has two packets
  uint64_t events = 0;
  bool has_begun = false;
  uint64_t begin_ns = 0;  ///< of the traffic: control calls are before and after
  uint64_t end_ns = 0;
};

/// A work request of a recording. Times since the story's start; the first end is the requester.
struct WorkRequest {
  static constexpr uint64_t kNever = ~uint64_t{0};

  uint16_t connection = 0;
  uint8_t operation = 0;                                    ///< ibv_wr_opcode
  uint8_t status = 0;                                       ///< ibv_wc_status, if it completed
  status::WaitsFor waited_for = status::WaitsFor::nothing;  ///< before its first packet
  int32_t psn = 0;                                          ///< as Event::psn, of its first packet
  uint32_t length_bytes = 0;
  uint64_t posted_ns = 0;  ///< when a turn of the engine found it
  uint64_t first_packet_ns = kNever;
  uint64_t acknowledged_ns = kNever;
  uint64_t completed_ns = kNever;  ///< kNever also without a completion, as of an unsignaled one
  [[nodiscard]] bool has_started() const { return first_packet_ns != kNever; }
};

/// A control call of a recording, as it returned.
struct Control {
  static constexpr uint32_t kOfDevice = ~uint32_t{0};

  record::ControlRow row;
  uint64_t time_ns = 0;             ///< since the story's start
  uint32_t connection = kOfDevice;  ///< of the QP that it names
};

enum class StallCause : uint8_t {
  unknown,           ///< no answer, and no retransmission
  page_fault,        ///< the responder stated one
  receiver_unready,  ///< RNR NAK
  loss,              ///< sequence NAK, or a retransmission
};

/// A time in which a requester had packets under way and none was acknowledged.
struct Stall {
  uint16_t connection = 0;
  uint8_t end = 0;  ///< the requester
  StallCause cause = StallCause::unknown;
  int32_t psn = 0;       ///< the oldest unacknowledged one
  uint32_t packets = 0;  ///< under way at the end of the stall
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
};

struct Fault {
  uint16_t connection = 0;
  uint8_t end = 0;  ///< the requester that waited
  uint8_t at = 0;   ///< the end whose page was missing
  int32_t psn = 0;
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  uint32_t length_bytes = 0;
};

enum class Rule : uint8_t {
  go_back_n_storm,
  rnr_storm,
  fault_in_critical_path,
  unread_cq,
  closed_window,  ///< credits
  full_window,
  cut_window,
  paced_queue,
};

struct Finding {
  Rule rule = Rule::go_back_n_storm;
  uint16_t connection = 0;
  uint8_t end = 0;
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  std::string text;
};

struct Story {
  std::string source;              ///< the file's name
  std::string origin;              ///< what the file is, for the page's heading
  uint64_t start_realtime_ns = 0;  ///< of the first event; 0: unknown
  uint64_t lost_events = 0;        ///< overwritten in the recording's ring
  uint64_t other_frames = 0;       ///< frames of the capture that are not RoCEv2
  uint64_t invalid_packets = 0;    ///< RoCEv2, but not readable
  std::vector<Connection> connections;
  std::vector<Event> events;          ///< by time
  std::vector<Stall> stalls;          ///< the longest first
  std::vector<Fault> faults;          ///< the slowest first
  std::vector<WorkRequest> requests;  ///< each of a QP in its queue's order
  std::vector<Control> controls;      ///< by time
  uint64_t lost_controls = 0;         ///< overwritten
  std::vector<Finding> findings;
  std::vector<std::string> notes;
};

}  // namespace faultline::story
