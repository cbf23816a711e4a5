// SPDX-License-Identifier: BSD-3-Clause
// The sans-I/O transport core: input is bytes and a time, output is bytes and a next deadline. The owner
// thread makes all calls, except those marked "any thread". Only the control calls and the first send_mad()
// allocate memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>

#include "odp/regions/memory_access.hpp"
#include "stack/transport/gsi/gsi.hpp"
#include "stack/transport/qp/completion_queue.hpp"
#include "stack/transport/qp/config.hpp"
#include "stack/transport/qp/events.hpp"
#include "stack/transport/qp/init.hpp"
#include "stack/transport/qp/snapshot.hpp"
#include "stack/transport/qp/work_queue.hpp"
#include "stack/transport/shared/counters.hpp"
#include "stack/transport/shared/port.hpp"
#include "stack/transport/shared/types.hpp"

namespace faultline::transport {

class CountedOperations;
class QueuePair;
class SharedReceiveQueue;

/// Called on any thread: must be quick and must not block.
class DoorbellListener {
 public:
  virtual ~DoorbellListener() = default;
  virtual void on_doorbell() = 0;
};

class Core {
 public:
  /// `memory`, `port` and `events` must outlive the core. `events` may be nullptr.
  Core(const CoreConfig& config, odp::MemoryAccess& memory, Port& port, EventSink* events = nullptr);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // --- data path, owner thread ---

  /// Processes RoCEv2 frames (as wire::classify found) of one burst. Buffers are released here or when
  /// unparked.
  void on_packets(std::span<RxFrame> frames, TimeNs now);
  /// Serves doorbells, fault resolutions and timers. Then fills transmit bursts until nothing is left to send
  /// or the port is full.
  void poll(TimeNs now);
  /// Returns false if poll() would do nothing at that time, apart from fault resolutions: the memory knows
  /// whether some are outstanding. Costs less than an empty poll.
  [[nodiscard]] bool has_work(TimeNs now) const;
  /// Sends the QP's posted WQEs before any other work. Replaces ring_doorbell() if the posting thread is the
  /// owner.
  void send_posted(QueuePair* qp, TimeNs now);
  /// Number of receives completed so far.
  [[nodiscard]] uint64_t receives_completed() const;
  /// Returns when poll() must run again if nothing else happens. kNever means no deadline; `now` or earlier
  /// means that work is waiting.
  [[nodiscard]] TimeNs next_deadline() const;

  // --- control, owner thread ---

  /// Creates a QP; nullptr if memory or QPNs are exhausted.
  [[nodiscard]] QueuePair* create_qp(const QpInit& init);
  /// Returns 0, or EINVAL for a transition or mask that the verbs rules forbid (IBA 11.2.5.3,
  /// ibv_modify_qp(3)). The verbs layer checks the same table first. `mask` is QpAttrMask.
  [[nodiscard]] int modify_qp(QueuePair* qp, const QpAttributes& attributes, uint32_t mask, TimeNs now);
  void destroy_qp(QueuePair* qp);
  /// Moves all QPs to the error state, since the device is lost: what is posted completes as flushed. A QP in
  /// RESET has nothing posted and stays.
  void fail_qps(TimeNs now);
  /// Moves one QP to the error state, with IBV_EVENT_QP_FATAL, as a scenario asks for. Does nothing for an
  /// unknown QPN or a QP in RESET or in error.
  void fail_qp(uint32_t qpn, TimeNs now);
  /// The same for each QP that completes in the queue, as after an overrun of it.
  void fail_qps_of(const CompletionQueue& cq, TimeNs now);
  /// Returns the QPN of the connected QP whose peer is that QP; 0: none. Takes time in proportion to the QPs.
  [[nodiscard]] uint32_t qpn_of_peer(const wire::Gid& peer, uint32_t peer_qpn) const;

  /// Returns the PSN of the oldest packet of a connected QP that awaits an answer; nullopt: there is none.
  [[nodiscard]] std::optional<wire::Psn> first_unanswered(uint32_t qpn) const;
  /// Returns the PSN of the request that a reliable QP executes next; nullopt: it executes none, since no
  /// such QP is able to receive, or since a NAK has ended its connection.
  [[nodiscard]] std::optional<wire::Psn> next_request(uint32_t qpn) const;
  /// Refuses that request, as a scenario asks for: it counts as not received. After an RNR NAK or a NAK of a
  /// PSN sequence error the peer sends it again, after another NAK the QP fails too (IBA 9.7.5.2). False if
  /// packets before it wait for a page.
  [[nodiscard]] bool refuse_request(uint32_t qpn, uint8_t syndrome, TimeNs now);

  /// Drops all references to `cq`; call after its last QP is destroyed and before destroying it.
  void forget_cq(const CompletionQueue& cq);

  /// Creates an SRQ; nullptr if memory or SRQ numbers are exhausted.
  [[nodiscard]] SharedReceiveQueue* create_srq(const SrqInit& init);
  /// Sets a new limit and, if `max_wr` is not 0, a new size. Returns 0, EINVAL if more WQEs are posted than
  /// fit, or ENOMEM.
  [[nodiscard]] int modify_srq(SharedReceiveQueue* srq, const uint32_t* limit, uint32_t max_wr);
  /// Destroys an SRQ that no QP uses any more.
  void destroy_srq(SharedReceiveQueue* srq);

  /// Attaches a UD QP to a multicast address. Returns 0, EINVAL for another kind of QP or address, or ENOMEM.
  [[nodiscard]] int attach_multicast(QueuePair* qp, const wire::Gid& gid);
  /// Returns 0, or EINVAL if the QP is not attached.
  [[nodiscard]] int detach_multicast(QueuePair* qp, const wire::Gid& gid);

  /// Sets the receiver of datagrams to QP1; with nullptr (the default) they are dropped. Only the sink of the
  /// core that owns QPN 1 receives datagrams.
  void set_management_sink(ManagementSink* sink);

  /// Sets the counters of the QP's operations, in RESET or INIT; they outlive the QP.
  static void set_counted(QueuePair* qp, CountedOperations* counted);
  /// Sets the row in which the QP's state is published; status::kNoRow (the default): none.
  static void set_status_row(QueuePair* qp, status::RowIndex row);
  /// Fills snapshots of QPs that have a row, beginning after those of the last call, each QP at most once.
  /// Returns their number. For the thread that runs the core, at any time between two of its calls.
  [[nodiscard]] size_t qp_count() const;
  size_t snapshot_qps(std::span<QpSnapshot> snapshots, TimeNs now);

  // --- any thread ---

  /// Notifies the core that WQEs were published on one of the QP's rings. A QP is queued at most once.
  void ring_doorbell(QueuePair* qp);
  /// Sets the listener for doorbells and management datagrams while no thread polls the core; nullptr (the
  /// default): none. A listener that is set before a turn is notified of all work that the turn does not
  /// serve.
  void set_doorbell_listener(DoorbellListener* listener);
  /// Prefetches the doorbell's cache line; call before writing the WQE.
  static void expect_doorbell(const QueuePair* qp);

  /// Queues a datagram from QP1 to a peer's QP1; false if too many are queued.
  [[nodiscard]] bool send_mad(const wire::MadBytes& mad, const AddressVector& to, uint16_t pkey);
  [[nodiscard]] bool has_mads_to_send() const;

  /// Time at which a QP last had WQEs that its window or credits did not let it send.
  [[nodiscard]] TimeNs last_awaited_answers() const;
  [[nodiscard]] CoreCounters counters() const;
  [[nodiscard]] const CoreConfig& config() const { return config_; }

 private:
  const CoreConfig config_;
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// Accessors for the verbs layer, for application threads.
[[nodiscard]] uint32_t qpn_of(const QueuePair* qp);
[[nodiscard]] QpState state_of(const QueuePair* qp);  ///< relaxed snapshot, any thread
[[nodiscard]] SendRing& send_ring_of(QueuePair* qp);
[[nodiscard]] ReceiveRing& receive_ring_of(QueuePair* qp);
/// Owner thread: returns the current attributes, PSNs included (query_qp).
[[nodiscard]] QpAttributes attributes_of(const QueuePair* qp);

}  // namespace faultline::transport
