// SPDX-License-Identifier: BSD-3-Clause
// One device's engine: a transport core on a DPDK port, run in turns. A turn reads top-down: enter, look at
// the clock, receive, let the core work and send, leave. Everything here but what says otherwise is for
// whoever holds the turn.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "odp/regions/memory_domain.hpp"
#include "pmd_glue/config/config.hpp"
#include "pmd_glue/engine/capture.hpp"
#include "pmd_glue/engine/chaos_link.hpp"
#include "pmd_glue/engine/hand_over.hpp"
#include "pmd_glue/engine/qp_memory.hpp"
#include "pmd_glue/engine/return_pace.hpp"
#include "pmd_glue/link/address_table.hpp"
#include "pmd_glue/link/neighbours.hpp"
#include "pmd_glue/memif/memif_gate.hpp"
#include "pmd_glue/ports/port.hpp"
#include "pmd_glue/wires/switch_seat.hpp"
#include "stack/base/token_bucket.hpp"
#include "stack/base/turn_lock.hpp"
#include "stack/transport/core/core.hpp"
#include "stack/verbs/objects/backend.hpp"
#include "stack/verbs/objects/port_counters.hpp"
#include "stack/wire/link/address_filter.hpp"

struct rte_mbuf;

namespace faultline::glue {

/// A counter with one writer. Any thread may read it.
class Count {
 public:
  void add(uint64_t more) {
    value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

using PortCounts = verbs::BasicPortCounters<Count>;

/// Which of a device's cores an engine is; `hand_over` is nullptr where it is alone.
struct EngineSeat {
  uint32_t index = 0;
  uint32_t cores = 1;
  HandOver* hand_over = nullptr;
};

class Engine final : private transport::Port, private transport::EventSink {
 public:
  /// All outlive the engine; `capture` may be nullptr.
  Engine(const Config& config, const DeviceConfig& device, const AddressTable& addresses, EthernetPort& port,
         odp::EngineSession& session, Capture* capture, const EngineSeat& seat);
  ~Engine() override;

  enum class Turn : uint8_t {
    of_program,  ///< in a call of the program's, which comes back by itself
    of_ours
  };
  /// One turn. True if a frame moved: another turn soon is worth while. One of the program's may leave out
  /// what is to be sent when it has brought the program the completion that it waits for.
  bool turn(Turn whose = Turn::of_ours);
  /// Sends what was posted to the QP, in a call of the program's: once after a turn of its that had little to
  /// do. Whoever posts more, or has more coming in, is served by the burst.
  void send_now(transport::QueuePair* qp);
  [[nodiscard]] bool may_send_now() const { return may_send_now_.load(std::memory_order_relaxed); }
  /// Sends what a turn has left out.
  void send_owed();

  /// When it wants its next turn if nothing else happens.
  [[nodiscard]] TimeNs next_deadline() const {
    return std::min(core_->next_deadline(), neighbours_.next_deadline());
  }

  [[nodiscard]] transport::Core& core() { return *core_; }
  [[nodiscard]] NeighbourCache& neighbours() { return neighbours_; }
  /// Which multicast groups' frames come in.
  [[nodiscard]] wire::AddressFilter& filter() { return filter_; }

  /// Who hears of work while nobody turns the engine: doorbells, and frames from other cores. What was there
  /// before is found by one more turn.
  void set_listener(transport::DoorbellListener* listener) {
    core_->set_doorbell_listener(listener);
    if (seat_.hand_over != nullptr) seat_.hand_over->set_listener(seat_.index, listener);
  }

  /// The port may be used in turns from now on, or no more.
  void use_port(bool use) { port_usable_ = use; }
  [[nodiscard]] bool port_link_up() const { return port_usable_ && port_.link_up(); }

  /// Frames that a bad link's model has not let out yet; and lets out those whose time has come.
  [[nodiscard]] bool holds_frames_to_send() const {
    return transmit_link_ != nullptr && transmit_link_->holds_frames();
  }
  void send_held_frames(TimeNs now);

  /// Tells the device's event sink.
  void raise(transport::AsyncEvent event) { on_device_event(event); }

  /// Packets per second; see faultline_measure_port_tx and _rx.
  [[nodiscard]] double measure_tx(size_t frame_bytes, unsigned milliseconds);
  [[nodiscard]] double measure_rx(unsigned milliseconds);

  // Any thread.
  [[nodiscard]] TurnLock& turns() { return turns_; }
  [[nodiscard]] const PortCounts& counts() const { return counts_; }
  void set_event_sink(transport::EventSink* sink) { events_.store(sink, std::memory_order_release); }
  /// When the last turn was.
  [[nodiscard]] TimeNs last_turn() const { return last_turn_.load(std::memory_order_relaxed); }
  /// When the port last took a frame.
  [[nodiscard]] TimeNs last_sent() const { return last_sent_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kBurst = 32;
  /// A message and an acknowledgement.
  static constexpr size_t kFewFrames = 2;
  /// Where each turn brings a message, so many are acknowledged as one.
  static constexpr uint32_t kMostOwedPolls = 4;
  static constexpr size_t kLoopbackFrames = 1024;  // a power of two

  // transport::Port
  [[nodiscard]] size_t allocate(std::span<transport::TxFrame> out) override;
  [[nodiscard]] size_t transmit(std::span<transport::TxFrame> frames) override;
  void free_unsent(std::span<transport::TxFrame> frames) override;
  void release(std::span<transport::RxFrame> frames) override;

  // transport::EventSink, passed on
  void on_qp_event(uint32_t qpn, void* user, transport::AsyncEvent event) override;
  void on_cq_event(transport::CompletionQueue* cq, transport::AsyncEvent event) override;
  void on_completion(transport::CompletionQueue* cq) override;
  void on_srq_event(transport::SharedReceiveQueue* srq, transport::AsyncEvent event) override;
  void on_device_event(transport::AsyncEvent event) override;
  void on_qp_failure(const transport::QpFailure& failure) override;

  struct Handed {
    rte_mbuf* frame;
    uint32_t owner;
  };
  size_t receive(uint16_t queue);
  void deliver_due();
  [[nodiscard]] bool completion_goes_first();
  size_t take_handed_over();
  /// Gives what is the device's of a burst to its owners: the core, the link's handlers, other cores.
  void distribute(std::span<rte_mbuf*> frames);
  [[nodiscard]] uint32_t owner_of(rte_mbuf* frame, wire::FrameKind kind);
  void hand_over(std::span<const Handed> frames);
  void hand_over_copies(const rte_mbuf* frame);
  void push_to_core(uint32_t core, std::span<rte_mbuf*> frames);
  [[nodiscard]] bool admit(rte_mbuf* frame, wire::FrameKind kind);
  void handle_link_frame(rte_mbuf* frame, wire::FrameKind kind);
  void handle_arp(rte_mbuf* frame);
  void handle_neighbour_message(const wire::NeighbourMessage& message);
  void handle_echo(rte_mbuf* frame);
  void ask_neighbours();
  /// Sends what `write` puts in a new frame, where it puts anything. True if it was sent.
  template <typename Write>
  bool send_written(Write write);

  [[nodiscard]] size_t send_burst(std::span<rte_mbuf*> frames);
  [[nodiscard]] size_t put_on_port(std::span<rte_mbuf*> frames);
  [[nodiscard]] size_t send_to_port(std::span<rte_mbuf*> frames);
  void send_due();
  void put(ChaosLink& link, std::span<rte_mbuf* const> frames);
  /// Something is under way that only later turns bring on.
  [[nodiscard]] bool holds_back() const;
  [[nodiscard]] size_t send_or_give_up(std::span<rte_mbuf*> frames);
  [[nodiscard]] bool send_one(rte_mbuf* frame);
  [[nodiscard]] bool send_to_own_group(rte_mbuf* frame);
  [[nodiscard]] bool gone_port();
  void ask_for_checksums(rte_mbuf* frame) const;
  /// False for a frame to the device's address which is for another process that has it too.
  [[nodiscard]] bool stays_here(rte_mbuf* frame) const;
  [[nodiscard]] bool loop_back(rte_mbuf* frame);
  [[nodiscard]] bool push_loopback(rte_mbuf* frame);
  size_t deliver_loopback();

  EthernetPort& port_;
  odp::EngineSession& session_;
  Capture* const capture_;
  const EngineSeat seat_;
  const AddressTable& addresses_;
  SwitchSeat* const seat_on_wire_;  ///< nullptr for a device of its own
  wire::AddressFilter filter_;
  NeighbourCache neighbours_;
  /// Of the link's other protocols: a flood of questions is no flood of answers.
  TokenBucket echo_answers_{1'000, 1'000};
  TokenBucket link_answers_{10'000, 1'000};
  // Of [device.chaos]; nullptr without.
  std::unique_ptr<ChaosLink> receive_link_;
  std::unique_ptr<ChaosLink> transmit_link_;
  std::unique_ptr<chaos::FaultModel> fault_model_;
  PortCounts counts_;
  bool port_usable_ = false;
  uint64_t tx_offload_flags_ = 0;
  TimeNs now_ = 0;
  TimeNs full_since_ = 0;  ///< the port has taken nothing since then; 0: it takes
  std::array<rte_mbuf*, kLoopbackFrames> loopback_{};
  uint32_t loopback_head_ = 0;
  uint32_t loopback_tail_ = 0;
  uint64_t sent_this_turn_ = 0;
  ReturnPace return_pace_;
  std::atomic<bool> may_send_now_{false};
  uint64_t receives_seen_ = 0;  ///< completed before the turn
  uint32_t owed_polls_ = 0;     ///< that turns have left out since the last one
  QpMemory qp_memory_;
  std::unique_ptr<transport::Core> core_;
  std::atomic<transport::EventSink*> events_{nullptr};
  std::atomic<TimeNs> last_turn_{0};
  std::atomic<TimeNs> last_sent_{0};
  TurnLock turns_;
  std::optional<MemifGate> gate_;
  const std::string device_name_;  ///< for the log
};

/// One contiguous mbuf of the frame: itself, or a copy from `pool` after which it is freed. nullptr (and
/// freed) where it is longer than a buffer or there is none.
[[nodiscard]] rte_mbuf* make_contiguous(rte_mbuf* frame, rte_mempool* pool);

}  // namespace faultline::glue
