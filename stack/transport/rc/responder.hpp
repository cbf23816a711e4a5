// SPDX-License-Identifier: BSD-3-Clause
// The responder of connected QPs: executes requests in PSN order, parks them during page faults, answers
// READs and acknowledges. IBA vol. 1, 9.7.4 and 9.7.5. Owner: the core's thread.
#pragma once

#include <cstdint>

#include "stack/transport/context/inbound.hpp"

namespace faultline::transport {

class Responder {
 public:
  explicit Responder(CoreContext& context) : context_(context) {}

  /// Handles a request of this QP whose ICRC is verified.
  [[nodiscard]] Fate on_request(QueuePair& qp, const wire::Packet& packet, const RxFrame& frame);

  /// Sets how many responses may be queued at once. Returns 0, EBUSY if more are queued, or ENOMEM.
  [[nodiscard]] static int set_resources(QueuePair& qp, uint32_t capacity);

  /// Refuses the request at the expected PSN with an answer of this syndrome, as a scenario asks for. Does
  /// nothing and returns false if packets are parked.
  [[nodiscard]] bool refuse_as_asked(QueuePair& qp, uint8_t syndrome);

  /// Sends the pending NAK, or an ACK of what was executed, before a QP fails by a lost completion. One try:
  /// it may be lost as well.
  void send_last_answer(QueuePair& qp);
  /// Sends queued responses, then the pending NAK or ACK, at most `budget_packets`, which it decrements.
  void send(QueuePair& qp, uint32_t& budget_packets);
  [[nodiscard]] bool has_work(const QueuePair& qp) const;

  /// Sends an acknowledgement with new credits if receives were posted.
  void offer_credits(QueuePair& qp);

  /// Executes parked packets again until one misses.
  void retry_parked(QueuePair& qp);
  void on_parked_resolved(QueuePair& qp, uint32_t generation, odp::Outcome outcome);
  void on_read_job_resolved(QueuePair& qp, uint32_t generation, odp::Outcome outcome);
  void on_timer(QueuePair& qp);
  [[nodiscard]] static TimeNs next_deadline(const QueuePair& qp);

 private:
  enum class StallNotification : uint8_t { none, page_fault, page_ready };

  /// Executes a packet, repeatedly while its pages are served at once; never returns retry.
  [[nodiscard]] Execution execute(QueuePair& qp, const wire::Packet& packet);
  [[nodiscard]] Execution execute_once(QueuePair& qp, const wire::Packet& packet);
  /// Handles a packet that arrives after a gap.
  [[nodiscard]] Fate on_gap(QueuePair& qp, const wire::Packet& packet, const RxFrame& frame);
  /// Moves parked packets to the packets held after a gap.
  void hold_parked(QueuePair& qp);
  /// Executes the packets held after a gap that is closed now, up to the next gap.
  void execute_held(QueuePair& qp);
  /// Parks a packet that waits for a page. If there is no room, schedules an RNR NAK and returns false.
  [[nodiscard]] bool park_missed(QueuePair& qp, const RxFrame& frame);
  [[nodiscard]] static constexpr uint8_t nak_syndrome(wire::NakCode code) {
    return static_cast<uint8_t>(wire::kAethNak | static_cast<uint8_t>(code));
  }
  [[nodiscard]] bool send_selective_acknowledge(QueuePair& qp);
  void find_shared_queue(QueuePair& qp, const wire::Packet& packet);
  [[nodiscard]] static odp::ProtectionDomain domain_of(const QueuePair& qp);
  void on_duplicate(QueuePair& qp, const wire::Packet& packet);

  [[nodiscard]] Execution execute_send(QueuePair& qp, const wire::Packet& packet);
  [[nodiscard]] Execution execute_write(QueuePair& qp, const wire::Packet& packet);
  [[nodiscard]] Execution execute_read(QueuePair& qp, const wire::Packet& packet);
  void finish_packet(QueuePair& qp, const wire::Packet& packet);

  /// Takes a receive for the message; false if none is posted.
  [[nodiscard]] bool take_receive(QueuePair& qp);
  [[nodiscard]] Execution miss(QueuePair& qp, const odp::Target& target, uint64_t va, uint64_t length_bytes);
  void drop_answered_read(QueuePair& qp);
  void stop_job_wait(QueuePair& qp);
  [[nodiscard]] Execution execute_atomic(QueuePair& qp, const wire::Packet& packet);
  [[nodiscard]] Execution execute_atomic_write(QueuePair& qp, const wire::Packet& packet);
  [[nodiscard]] Execution execute_flush(QueuePair& qp, const wire::Packet& packet);
  [[nodiscard]] bool has_room_for_answer(QueuePair& qp);
  void finish_answered(QueuePair& qp, wire::Psn psn, uint32_t psns);
  void queue_answer(QueuePair& qp, const QueuedResponse& answer) {
    ResponderState& state = qp.responder;
    state.job(state.job_count++) = answer;
    context_.make_ready(qp);
  }
  void answer_again(QueuePair& qp, const wire::Packet& packet);
  /// Inserts the response to a duplicate request in PSN order among the queued ones, which stay. Returns
  /// nullptr if that response is queued anyway, or if there is no room.
  [[nodiscard]] QueuedResponse* place_again(QueuePair& qp, wire::Psn psn, uint32_t packets);
  /// True if the QP's access flags include these rights.
  [[nodiscard]] static bool is_enabled(const QueuePair& qp, uint32_t rights) {
    return (qp.attributes.access_flags & rights) == rights;
  }
  [[nodiscard]] bool may_read(const QueuePair& qp, const wire::Reth& reth);
  void read_again(QueuePair& qp, const wire::Packet& packet);
  [[nodiscard]] bool invalidate(QueuePair& qp, const wire::Packet& packet);
  /// Sends NAK remote access error; the QP fails.
  [[nodiscard]] Execution refuse_access(QueuePair& qp, const odp::Target& target, uint64_t va,
                                        uint64_t length_bytes);
  /// Sends NAK invalid request; the QP fails.
  [[nodiscard]] Execution refuse_function(QueuePair& qp);
  [[nodiscard]] Execution refuse_length(QueuePair& qp);
  [[nodiscard]] Execution refuse_memory(QueuePair& qp);
  void fill_read(QueuePair& qp, QueuedResponse& job, const wire::Packet& packet, const wire::Reth& reth,
                 uint32_t packets, bool duplicate);

  /// The packet that a NAK requested has arrived. A pending NAK for an older READ must still be sent.
  static void settle_nak(QueuePair& qp, wire::Psn psn) {
    ResponderState& state = qp.responder;
    state.nak_sent = false;
    if (state.nak_psn >= psn) state.nak_pending = false;
  }
  void nak(QueuePair& qp, uint8_t syndrome, wire::Psn psn);
  /// Sends an RNR NAK for a page fault.
  void nak_fault(QueuePair& qp, wire::Psn psn);
  [[nodiscard]] TimeNs park_deadline(const QueuePair& qp) const {
    return stall_deadline(qp, qp.responder.expected_psn, context_.config.park_deadline_ns);
  }
  [[nodiscard]] TimeNs stall_deadline(const QueuePair& qp, wire::Psn psn, uint64_t longest_ns) const;
  /// True if an RNR NAK for a page fault has named this PSN.
  [[nodiscard]] static bool was_nak_sent_for(const QueuePair& qp, wire::Psn psn) {
    return qp.responder.fault_naks != 0 && qp.responder.fault_nak_psn == psn;
  }
  /// Sends a NAK after which this QP fails too.
  void nak_and_close(QueuePair& qp, wire::NakCode code, AsyncEvent event);
  void rnr_nak_parked(QueuePair& qp);

  [[nodiscard]] uint8_t ack_syndrome(const QueuePair& qp) const;
  [[nodiscard]] bool send_answer(QueuePair& qp);
  [[nodiscard]] bool send_acknowledge(QueuePair& qp, uint8_t syndrome, wire::Psn psn,
                                      StallNotification word = StallNotification::none);
  /// Sends pending stall notifications (page fault, page ready) to a peer that understands them.
  [[nodiscard]] bool send_stall_notifications(QueuePair& qp, uint32_t& budget_packets);
  void schedule_stall_notification(QueuePair& qp);
  void refuse_duplicate(QueuePair& qp, wire::Psn psn);
  void refuse_late_read(QueuePair& qp, wire::Psn psn);
  [[nodiscard]] bool refuse_rest_of_response(QueuePair& qp, const QueuedResponse& job, wire::Psn psn);
  [[nodiscard]] bool hold_read_job(QueuePair& qp, const QueuedResponse& job);

  CoreContext& context_;
  /// Fields of the current packet, as in Requester.
  wire::PacketFields fields_;
};

}  // namespace faultline::transport
