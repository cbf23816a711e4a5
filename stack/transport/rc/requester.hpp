// SPDX-License-Identifier: BSD-3-Clause
// The requester of connected QPs: turns send WQEs into packets, retransmits, and completes what the responder
// acknowledged. IBA vol. 1, 9.7.3 to 9.7.7. Owner: the core's thread.
#pragma once

#include <cstdint>

#include "stack/transport/context/context.hpp"

namespace faultline::transport {

struct SendOperation;

class Requester {
 public:
  explicit Requester(CoreContext& context) : context_(context) {}

  /// Sends what the window, rate and credits allow, at most `budget_packets`, which it decrements.
  void send(QueuePair& qp, uint32_t& budget_packets);
  /// True if `send` would have something to do at once.
  [[nodiscard]] bool has_work(QueuePair& qp) const;

  /// Flushes a send queue that is in error.
  void flush_sends(QueuePair& qp);
  void on_selective_acknowledge(QueuePair& qp, const wire::Packet& packet);
  void on_acknowledge(QueuePair& qp, const wire::Packet& packet);
  /// Handles a READ response, an atomic acknowledgement, or the empty response to a FLUSH or ATOMIC WRITE.
  void on_answer(QueuePair& qp, const wire::Packet& packet);
  void on_fault_resolved(QueuePair& qp, uint32_t generation, odp::Outcome outcome);
  /// Handles expired deadlines of the requester.
  void on_timer(QueuePair& qp);
  [[nodiscard]] static TimeNs next_deadline(const QueuePair& qp);

 private:
  enum class Step : uint8_t {
    sent,
    blocked,
    failed,
    retry  ///< a page has become resident: try again
  };

  [[nodiscard]] bool place_when_served(const QueuePair& qp, std::span<const Sge> sges, uint32_t offset,
                                       std::span<const uint8_t> data, SgeSpan& stop);
  [[nodiscard]] bool asks_inside_message(const QueuePair& qp, wire::Psn behind, uint32_t sent_packets) const;
  [[nodiscard]] bool flight_full(QueuePair& qp) const;
  /// Packets that may be unacknowledged without rate control.
  [[nodiscard]] int32_t window_packets(const QueuePair& qp) const {
    return static_cast<int32_t>(context_.config.window_packets - qp.requester.window_cut_packets);
  }
  [[nodiscard]] bool window_open(QueuePair& qp) const;
  void cut_window(QueuePair& qp);
  void widen_window(QueuePair& qp, wire::Psn from);
  [[nodiscard]] bool is_beyond_credits(const QueuePair& qp, const SendOperation& operation) const;
  [[nodiscard]] bool awaits_credits(QueuePair& qp, const SendOperation& operation) const;
  void take_credits(QueuePair& qp, const wire::Aeth& aeth);
  [[nodiscard]] Step prepare(QueuePair& qp, const SendWqe& wqe, const SendOperation& operation);
  [[nodiscard]] Step start(QueuePair& qp, const SendWqe& wqe, const SendOperation& operation);
  void finish_unreliable(QueuePair& qp, wire::Psn behind);
  [[nodiscard]] Step run_local(QueuePair& qp, const SendWqe& wqe);
  /// Completes the local operations at the head of the queue.
  void complete_local(QueuePair& qp) {
    while (qp.send_ring.head() != qp.requester.started && qp.progress_at(qp.send_ring.head()).packets == 0)
      complete_head(qp);
  }
  [[nodiscard]] Step prefault_destination(QueuePair& qp, const SendWqe& wqe);
  template <bool kWhole>
  [[nodiscard]] Step send_packet(QueuePair& qp, SendWqe& wqe, const SendOperation& operation);
  /// A non-null `crc` is updated over the copied bytes.
  [[nodiscard]] Step fill_payload(QueuePair& qp, SendWqe& wqe, uint32_t offset, std::span<uint8_t> to,
                                  uint32_t* crc);
  [[nodiscard]] Step hold_for(QueuePair& qp, const odp::Target& target, uint64_t va, uint64_t length_bytes);
  /// Called if the WQE at `current` cannot proceed. It fails when it is the oldest, so that completions stay
  /// in order.
  Step make_fail(QueuePair& qp, const SendWqe& wqe);
  [[nodiscard]] Step fail_in_order(QueuePair& qp, CompletionStatus status);

  /// Acknowledges everything before `psn`. Stops at a READ whose responses are missing and then returns
  /// false.
  bool acknowledge_before(QueuePair& qp, wire::Psn psn);
  void complete_head(QueuePair& qp);
  /// Moves the send position past packets that have been acknowledged meanwhile.
  void catch_up(QueuePair& qp);
  void note_progress(QueuePair& qp, wire::Psn from);
  void forget_fault(QueuePair& qp);
  // Recovery.
  void go_back_to(QueuePair& qp, wire::Psn psn);
  void move_back_to(QueuePair& qp, wire::Psn psn);
  [[nodiscard]] static wire::Psn first_unanswered(QueuePair& qp);
  static void skip_acknowledged(QueuePair& qp);
  void note_resent(QueuePair& qp, wire::Psn psn);
  void start_timing(QueuePair& qp, wire::Psn psn);
  void on_window_moved(QueuePair& qp, wire::Psn from);
  void probe(QueuePair& qp);
  [[nodiscard]] static bool waits_to_send(QueuePair& qp);
  void on_sequence_nak(QueuePair& qp, wire::Psn psn);
  [[nodiscard]] bool count_rnr_retry(QueuePair& qp);
  void on_rnr_nak(QueuePair& qp, wire::Psn psn, uint8_t timer_code, bool for_page);
  void on_stall_notification(QueuePair& qp, bool ready);
  void on_response_gap(QueuePair& qp);
  /// Fails the oldest WQE with `status`, and the QP with it.
  void fail(QueuePair& qp, CompletionStatus status);
  void arm_ack_timer(QueuePair& qp);
  /// Maximum silence after a stall notification.
  static constexpr TimeNs kStallSilenceNs = 1'000'000'000;

  CoreContext& context_;
  /// Fields of the current packet. Each packet sets the fields of its opcode, and no code reads the others,
  /// so none needs zeroing.
  wire::PacketFields fields_;
};

/// True if the response carries data or a result rather than a plain acknowledgement. Such a request counts
/// against max_rd_atomic.
[[nodiscard]] constexpr bool has_answer(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::rdma_read:
    case SendOpcode::atomic_cmp_and_swp:
    case SendOpcode::atomic_fetch_and_add:
    case SendOpcode::flush:
    case SendOpcode::atomic_write:
      return true;
    default:
      return false;
  }
}

/// Converts an RNR timer code to nanoseconds (IBA table 45).
[[nodiscard]] uint64_t rnr_timer_ns(uint8_t code);

}  // namespace faultline::transport
