// SPDX-License-Identifier: BSD-3-Clause
// A poll engine: a transport core on a DPDK port, run in turns. A turn reads the clock, receives, runs the
// core and transmits. It enters the memory session only if the core has work, and otherwise leaves it. Unless
// noted, every member requires TurnLock to be held.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "odp/regions/memory_domain.hpp"
#include "pmd_glue/capture/capture.hpp"
#include "pmd_glue/capture/captured_burst.hpp"
#include "pmd_glue/config/config.hpp"
#include "pmd_glue/engine/ack_deferral.hpp"
#include "pmd_glue/engine/chaos_link.hpp"
#include "pmd_glue/engine/hand_over.hpp"
#include "pmd_glue/engine/port_counts.hpp"
#include "pmd_glue/engine/qp_memory.hpp"
#include "pmd_glue/engine/tx_path.hpp"
#include "pmd_glue/link/address_table.hpp"
#include "pmd_glue/link/neighbours.hpp"
#include "pmd_glue/memif/memif_gate.hpp"
#include "pmd_glue/ports/port.hpp"
#include "pmd_glue/status/core_publisher.hpp"
#include "pmd_glue/trouble/device_trouble.hpp"
#include "pmd_glue/wires/wire_attachment.hpp"
#include "stack/base/token_bucket.hpp"
#include "stack/base/turn_lock.hpp"
#include "stack/transport/core/core.hpp"
#include "stack/verbs/objects/backend.hpp"
#include "stack/wire/link/address_filter.hpp"

struct rte_mbuf;

namespace faultline::glue {

class PollEngine final : private transport::EventSink {
 public:
  /// All references outlive the engine; `capture` may be nullptr.
  PollEngine(const Config& config, const DeviceConfig& device, WireAttachment* attachment,
             const AddressTable& addresses, EthernetPort& port, odp::EngineSession& session, Capture* capture,
             const CoreSlot& slot);
  ~PollEngine() override;

  enum class Turn : uint8_t {
    of_program,  ///< in a verbs call of the program, which polls again by itself
    of_ours
  };
  /// Runs one turn. Returns true if a frame moved or is held back: another turn soon is worth while. A turn
  /// of the program may defer transmission (the ACK) if it delivered exactly one receive completion; see
  /// AckDeferral.
  bool turn(Turn whose = Turn::of_ours);

  // The core's work outside a turn.

  /// Serves what was posted to the QP, within the program's call. At most once after each turn of the program
  /// that moved few frames; further posts, and busy receivers, are served by the next turn's burst.
  void serve_posted(transport::QueuePair* qp);
  [[nodiscard]] bool may_serve_posted() const { return may_serve_posted_.load(std::memory_order_relaxed); }
  /// About the program's last turn. Only until the core's next work.
  [[nodiscard]] bool received_few_frames() const { return may_serve_posted(); }
  /// Polls the core if turns have deferred that.
  void poll_deferred();

  /// Time of the next turn if no event occurs.
  [[nodiscard]] TimeNs next_deadline() const {
    return std::min({core_->next_deadline(), neighbours_.next_deadline(), publisher_.next_deadline()});
  }

  [[nodiscard]] transport::Core& core() { return *core_; }
  [[nodiscard]] const DeviceTrouble& trouble() const { return trouble_; }
  [[nodiscard]] NeighbourCache& neighbours() { return neighbours_; }
  /// Filter of destination addresses, with the joined multicast groups.
  [[nodiscard]] wire::AddressFilter& filter() { return filter_; }

  /// Sets the listener for doorbells and for frames from other cores while no thread turns the engine. The
  /// caller runs one more turn to find earlier work.
  void set_listener(transport::DoorbellListener* listener) {
    core_->set_doorbell_listener(listener);
    if (core_slot_.hand_over != nullptr) core_slot_.hand_over->set_listener(core_slot_.index, listener);
  }

  /// Allows or forbids turns to use the port.
  void use_port(bool use) { tx_.use_port(use); }
  [[nodiscard]] bool port_link_up() const {
    return tx_.is_port_usable() && port_.link_up() && !trouble_.is_link_down();
  }

  /// Prepares a sleep: returns a descriptor that reports frames for this core, or -1. The caller runs one
  /// more turn. Both require the turn lock; EthernetPort describes them.
  [[nodiscard]] int await_frames() {
    return tx_.is_port_usable() ? port_.await_frames(static_cast<uint16_t>(core_slot_.index)) : -1;
  }
  void stop_awaiting_frames() {
    if (tx_.is_port_usable()) port_.stop_awaiting_frames(static_cast<uint16_t>(core_slot_.index));
  }
  /// Runs the turn after a sleep; `reported`: the descriptor was readable. Returns as turn().
  bool turn_after_sleep(bool reported);
  [[nodiscard]] bool has_interrupts() const { return tx_.is_port_usable() && port_.has_interrupts(); }

  /// True if the model of a bad link holds frames to transmit. release_due_frames() releases those that are
  /// due.
  [[nodiscard]] bool holds_frames_to_send() const { return tx_.holds_frames(); }
  void release_due_frames(TimeNs now);

  /// Publishes the core's state for other processes in its turns; see CorePublisher.
  [[nodiscard]] CorePublisher& publisher() { return publisher_; }

  /// Raises an event at the device's event sink.
  void raise(transport::AsyncEvent event) { on_device_event(event); }

  /// Return packets per second, or a negative errno; see faultline_measure_port_tx and _rx.
  [[nodiscard]] double measure_tx(size_t frame_bytes, unsigned milliseconds);
  [[nodiscard]] double measure_rx(unsigned milliseconds);

  // Any thread.
  [[nodiscard]] TurnLock& turns() { return turns_; }
  [[nodiscard]] const PortCounts& counts() const { return counts_; }
  void set_event_sink(transport::EventSink* sink) { events_.store(sink, std::memory_order_release); }
  /// Start of the last turn.
  [[nodiscard]] TimeNs last_turn() const { return last_turn_.load(std::memory_order_relaxed); }
  /// Time at which the port last took a frame.
  [[nodiscard]] TimeNs last_sent() const { return tx_.last_sent(); }

 private:
  static constexpr size_t kBurst = TxPath::kBurst;
  /// Limit of frames in a turn after which serve_posted() is allowed: a message and an acknowledgement.
  static constexpr size_t kFewFrames = 2;

  // transport::EventSink, forwarded to events_
  void on_qp_event(uint32_t qpn, void* user, transport::AsyncEvent event) override;
  void on_cq_event(transport::CompletionQueue* cq, transport::AsyncEvent event) override;
  void on_completion(transport::CompletionQueue* cq) override;
  void on_srq_event(transport::SharedReceiveQueue* srq, transport::AsyncEvent event) override;
  void on_device_event(transport::AsyncEvent event) override;
  status::FailureCause on_qp_failure(const transport::QpFailure& failure) override;
  void on_frame_dropped(const transport::RxFrame& frame, size_t counter) override;

  struct Handed {
    rte_mbuf* frame;
    uint32_t owner;
  };
  /// Enters the memory session, unless this turn has.
  void enter_session();
  /// False if Core::poll would do nothing.
  [[nodiscard]] bool may_poll_do_work() const;
  /// Passes RoCEv2 frames to the core.
  void process(std::span<transport::RxFrame> frames);
  void process_captured(std::span<transport::RxFrame> frames);
  size_t receive(uint16_t queue);
  /// make_contiguous() of a received frame, with its counters and its captured copy.
  [[nodiscard]] rte_mbuf* linearize(rte_mbuf* frame);
  void deliver_due();
  /// Delivers the packets that the scenario adds.
  void deliver_injected(InjectedPackets& injected);
  size_t take_handed_over();
  /// Distributes the device's frames of a burst to their owners: the core, the link's protocol handlers,
  /// other cores.
  void distribute(std::span<rte_mbuf*> frames);
  [[nodiscard]] uint32_t owner_of(rte_mbuf* frame, wire::FrameKind kind);
  void hand_over(std::span<const Handed> frames);
  /// Counts a received frame's owner for the entry of the NIC's redirection table that brought it here.
  void vote(rte_mbuf* frame, uint32_t owner);
  [[nodiscard]] bool admit(rte_mbuf* frame, wire::FrameKind kind);
  /// Counts a frame as dropped, in the capture too, and frees it.
  void drop(rte_mbuf* frame, Count PortCounts::*counter, uint64_t verbs::PortCounters::*why);
  /// The engine, not the core, has taken the frame.
  void settle(rte_mbuf* frame) {
    if (capture_ != nullptr) capture_->settle(*frame);
  }
  void handle_link_frame(rte_mbuf* frame, wire::FrameKind kind);
  void handle_arp(rte_mbuf* frame);
  void handle_neighbour_message(const wire::NeighbourMessage& message);
  void handle_echo(rte_mbuf* frame);
  void send_neighbour_requests();
  /// Transmits a new frame with the bytes that `write` stores; none if it stores none. Returns true if the
  /// frame was sent.
  template <typename Write>
  bool write_own_frame(Write write);
  /// Adds what the neighbour cache knows of the next hop to a connected peer.
  void add_neighbour(const wire::Gid& peer, status::FailureRecord& record) const;
  void suffer();
  /// True if delayed frames or faults need later turns to complete.
  [[nodiscard]] bool holds_back() const;
  size_t deliver_loopback();

  EthernetPort& port_;
  odp::EngineSession& session_;
  Capture* const capture_;
  std::unique_ptr<CapturedBurst<kBurst>> in_core_;  ///< nullptr without a capture
  const CoreSlot core_slot_;
  FlowVotes* const votes_;  ///< nullptr without a redirection table
  uint32_t votes_to_skip_ = 0;
  uint32_t vote_random_ = 0;
  const AddressTable& addresses_;
  wire::AddressFilter filter_;
  NeighbourCache neighbours_;
  /// Rate limits of replies (ARP, ND, ICMP echo): a flood of requests causes no flood of replies.
  TokenBucket echo_answers_{1'000, 1'000};
  TokenBucket link_answers_{10'000, 1'000};
  DeviceTrouble trouble_;
  // From [device.chaos] and the scenario; nullptr if it is harmless. TxPath has the link of the other
  // direction.
  std::unique_ptr<ChaosLink> receive_link_;
  std::unique_ptr<chaos::FaultModel> fault_model_;
  PortCounts counts_;
  TimeNs now_ = 0;
  bool is_in_session_ = false;  ///< since the start of the turn
  TxPath tx_;
  AckDeferral ack_deferral_;
  std::atomic<bool> may_serve_posted_{false};
  QpMemory qp_memory_;
  std::unique_ptr<transport::Core> core_;
  CorePublisher publisher_;
  std::atomic<transport::EventSink*> events_{nullptr};
  std::atomic<TimeNs> last_turn_{0};
  TurnLock turns_;
  std::optional<MemifGate> gate_;
  const std::string device_name_;  ///< for log lines
};

/// Returns the frame as one contiguous mbuf: the frame itself, or a copy from `pool`, after which the frame
/// is freed. Returns nullptr, with the frame freed, if it is longer than a buffer or the pool is empty.
[[nodiscard]] rte_mbuf* make_contiguous(rte_mbuf* frame, rte_mempool* pool);

}  // namespace faultline::glue
