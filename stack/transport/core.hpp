// SPDX-License-Identifier: BSD-3-Clause
// The sans-I/O transport core: bytes and a time in, bytes and a next deadline out. One owner thread; the two
// exceptions (doorbells and the rings) say so. It allocates only in the control calls (create, destroy).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>

#include "odp/memory_access.hpp"
#include "stack/transport/completion_queue.hpp"
#include "stack/transport/config.hpp"
#include "stack/transport/counters.hpp"
#include "stack/transport/management.hpp"
#include "stack/transport/port.hpp"
#include "stack/transport/types.hpp"
#include "stack/transport/work_queue.hpp"

namespace faultline::transport {

class QueuePair;
class SharedReceiveQueue;

/// Asynchronous events a core raises for verbs (ibv_event_type's values).
enum class AsyncEvent : uint8_t {
  cq_error = 0,
  qp_fatal = 1,
  qp_request_error = 2,
  qp_access_error = 3,
  communication_established = 4,
  sq_drained = 5,
  path_migrated = 6,
  path_migration_error = 7,
  device_fatal = 8,
  port_active = 9,
  port_error = 10,
  srq_error = 14,
  srq_limit_reached = 15,
  last_wqe_reached = 16
};

/// Why a QP goes to the error state (a UC QP: to SQE), where neither its program nor its own end asked for
/// it.
struct QpFailure {
  uint32_t qpn = 0;
  bool is_connected = false;  ///< the peer's address and QPN are known
  bool is_loopback = false;   ///< the peer's address is the device's own
  wire::Gid peer;
  uint32_t peer_qpn = 0;
  uint32_t psn = 0;  ///< oldest PSN not acknowledged, or the request's
  CompletionStatus status = CompletionStatus::success;
  bool nak_sent =
      false;  ///< by a request of the peer, which was told so; then `syndrome` counts (IBA 9.7.5.2.8)
  uint8_t syndrome = 0;
};

/// Where a core tells verbs what happened. Called on the owner thread; must not block or call back into the
/// core.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void on_qp_event(uint32_t qpn, void* user, AsyncEvent event) = 0;
  virtual void on_cq_event(CompletionQueue* cq, AsyncEvent event) = 0;
  /// A completion came that the queue was armed for (CompletionQueue::arm).
  virtual void on_completion(CompletionQueue* cq) { static_cast<void>(cq); }
  virtual void on_srq_event(SharedReceiveQueue* srq, AsyncEvent event) {
    static_cast<void>(srq);
    static_cast<void>(event);
  }
  /// For a log: nothing depends on it.
  virtual void on_qp_failure(const QpFailure& failure) { static_cast<void>(failure); }
  /// Of the port or the whole device.
  virtual void on_device_event(AsyncEvent event) { static_cast<void>(event); }
};

struct QpInit {
  QpType type = QpType::rc;
  odp::ProtectionDomain domain = 0;
  CompletionQueue* send_cq = nullptr;     ///< outlives the QP
  CompletionQueue* receive_cq = nullptr;  ///< outlives the QP
  uint32_t max_send_wr = 1, max_receive_wr = 1, max_send_sge = 1, max_receive_sge = 1, max_inline_bytes = 0;
  SharedReceiveQueue* srq = nullptr;  ///< instead of a receive ring; of the same core, outlives the QP
  uint32_t xrc_domain = 0;            ///< of an xrc_recv QP: its packets name an SRQ of this domain
  std::pmr::memory_resource* ring_memory = nullptr;  ///< of its rings alone; nullptr: the core's own
  bool signal_all = false;
  bool blocks_own_multicast =
      false;             ///< of a UD QP: what it sends to a group that it is in does not come back
  void* user = nullptr;  ///< given back in events
  /// What posting to the QP reads first: fetched when a send completes, since the next one is mostly posted
  /// then.
  std::array<const void*, 2> posting_reads{};
};

struct SrqInit {
  odp::ProtectionDomain domain = 0;
  uint32_t max_wr = 1, max_sge = 1;
  uint32_t limit = 0;             ///< raise srq_limit_reached once fewer are posted; 0: never
  CompletionQueue* cq = nullptr;  ///< of an XRC SRQ: where its receives complete
  uint32_t xrc_domain = 0;        ///< not 0 for an XRC SRQ
  std::pmr::memory_resource* ring_memory = std::pmr::new_delete_resource();  ///< of its ring, until a resize
  void* user = nullptr;                                                      ///< given back in events
};

/// QPs of one core that a multicast group may have.
inline constexpr uint32_t kMaxGroupMembers = 1024;

/// Which of a device's cores owns a QP.
[[nodiscard]] constexpr uint32_t owner_of(uint32_t qpn, uint32_t core_count) {
  return (qpn & 0xffff) % core_count;
}

/// Any thread calls it: it must be quick and must not block.
class DoorbellListener {
 public:
  virtual ~DoorbellListener() = default;
  virtual void on_doorbell() = 0;
};

class Core {
 public:
  /// `memory`, `port` and `events` outlive the core. `events` may be nullptr.
  Core(const CoreConfig& config, odp::MemoryAccess& memory, Port& port, EventSink* events = nullptr);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // --- data path, owner thread ---

  /// Takes RoCEv2 frames (wire::classify said so) that came in one burst. Buffers are released here or when
  /// unparked.
  void on_packets(std::span<RxFrame> frames, TimeNs now);
  /// Serves doorbells, resolutions and timers, and fills transmit bursts until there is nothing to send or
  /// the port is full.
  void poll(TimeNs now);
  /// What is posted to the QP goes out, before anything else has its turn: in the place of ring_doorbell()
  /// where the thread that posts is the owner.
  void send_posted(QueuePair* qp, TimeNs now);
  /// Receives that have completed so far.
  [[nodiscard]] uint64_t receives_completed() const;
  /// When poll() wants to be called again if nothing else happens; kNever if it does not care, `now` or less
  /// if it has work.
  [[nodiscard]] TimeNs next_deadline() const;

  // --- control, owner thread ---

  /// nullptr when out of memory or QPNs.
  [[nodiscard]] QueuePair* create_qp(const QpInit& init);
  /// 0, or EINVAL for a transition or mask that verbs' rules forbid (IBA 11.2.5.3, ibv_modify_qp(3)). Verbs
  /// checks the same table first. `mask` is QpAttrMask.
  [[nodiscard]] int modify_qp(QueuePair* qp, const QpAttributes& attributes, uint32_t mask, TimeNs now);
  void destroy_qp(QueuePair* qp);

  /// A completion queue goes that no QP uses any more.
  void forget_cq(const CompletionQueue& cq);

  /// nullptr when out of memory or numbers.
  [[nodiscard]] SharedReceiveQueue* create_srq(const SrqInit& init);
  /// A new limit and, where `max_wr` is not 0, a new size: 0, EINVAL where more are posted than would fit, or
  /// ENOMEM.
  [[nodiscard]] int modify_srq(SharedReceiveQueue* srq, const uint32_t* limit, uint32_t max_wr);
  /// No QP uses it any more.
  void destroy_srq(SharedReceiveQueue* srq);

  /// A UD QP is to get what comes to a multicast address: 0, EINVAL for another kind of QP or address,
  /// ENOMEM.
  [[nodiscard]] int attach_multicast(QueuePair* qp, const wire::Gid& gid);
  /// 0, or EINVAL where it is not attached.
  [[nodiscard]] int detach_multicast(QueuePair* qp, const wire::Gid& gid);

  /// Where datagrams to QP1 go; nullptr, as at first: nowhere. Of a device's cores those of the owner of
  /// QPN 1 count.
  void set_management_sink(ManagementSink* sink);

  // --- any thread ---

  /// Tells the core that WQEs were published on one of the QP's rings. A QP is queued at most once.
  void ring_doorbell(QueuePair* qp);
  /// Who hears of doorbells and management datagrams while nobody turns the core; nullptr, as at first:
  /// nobody. Whoever is set before a turn hears of all that the turn does not serve.
  void set_doorbell_listener(DoorbellListener* listener);
  /// A doorbell is about to be rung: has its line on its way while the WQE is written.
  static void expect_doorbell(const QueuePair* qp);

  /// Sends a datagram from QP1 to a peer's; false where too many wait.
  [[nodiscard]] bool send_mad(const wire::MadBytes& mad, const AddressVector& to, uint16_t pkey);
  [[nodiscard]] bool has_mads_to_send() const;

  [[nodiscard]] CoreCounters counters() const;
  [[nodiscard]] const CoreConfig& config() const { return config_; }

 private:
  const CoreConfig config_;
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// What verbs needs of a QP from an app thread.
[[nodiscard]] uint32_t qpn_of(const QueuePair* qp);
[[nodiscard]] QpState state_of(const QueuePair* qp);  ///< relaxed snapshot, any thread
[[nodiscard]] SendRing& send_ring_of(QueuePair* qp);
[[nodiscard]] ReceiveRing& receive_ring_of(QueuePair* qp);
/// Owner thread: the attributes as they stand (query_qp), PSNs included.
[[nodiscard]] QpAttributes attributes_of(const QueuePair* qp);

}  // namespace faultline::transport
