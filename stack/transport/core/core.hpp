// SPDX-License-Identifier: BSD-3-Clause
// The sans-I/O transport core: bytes and a time in, bytes and a next deadline out. One owner thread; the two
// exceptions (doorbells and the rings) say so. It allocates only in the control calls (create, destroy).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>

#include "odp/regions/memory_access.hpp"
#include "stack/transport/gsi/management.hpp"
#include "stack/transport/qp/completion_queue.hpp"
#include "stack/transport/qp/config.hpp"
#include "stack/transport/qp/events.hpp"
#include "stack/transport/qp/init.hpp"
#include "stack/transport/qp/work_queue.hpp"
#include "stack/transport/shared/counters.hpp"
#include "stack/transport/shared/port.hpp"
#include "stack/transport/shared/types.hpp"

namespace faultline::transport {

class QueuePair;
class SharedReceiveQueue;

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
