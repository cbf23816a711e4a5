// SPDX-License-Identifier: BSD-3-Clause
// Internals of Core, shared by its loop (core.cpp) and its control calls (core_control.cpp).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cassert>
#include <memory>
#include <span>
#include <vector>

#include "stack/record/record.hpp"
#include "stack/transport/context/context.hpp"
#include "stack/transport/core/cnp.hpp"
#include "stack/transport/core/core.hpp"
#include "stack/transport/core/icrc_ahead.hpp"
#include "stack/transport/core/multicast.hpp"
#include "stack/transport/core/peer_identifications.hpp"
#include "stack/transport/core/rx_prefetch.hpp"
#include "stack/transport/gsi/gsi.hpp"
#include "stack/transport/qp/qpn_pool.hpp"
#include "stack/transport/rc/requester.hpp"
#include "stack/transport/rc/responder.hpp"
#include "stack/transport/uc/unreliable_responder.hpp"
#include "stack/transport/ud/datagram.hpp"

namespace faultline::transport {

/// True if sends are in progress.
[[nodiscard]] inline bool is_draining(const QueuePair& qp) {
  return qp.protocol() != Protocol::datagram && qp.send_ring.head() != qp.requester.started;
}

/// True if a socket hides the IP headers of received packets, besides writing those of sent ones.
[[nodiscard]] inline bool receives_by_socket(const CoreConfig& config) {
  return (config.wire_checksums & static_cast<uint8_t>(wire::Checksums::by_socket)) != 0;
}

struct Core::Impl {
  Impl(const CoreConfig& config, odp::MemoryAccess& memory, Port& port, EventSink* events)
      : context(config, memory, port, events),
        is_observed(config.recorder != nullptr || (config.reports_drops && events != nullptr)),
        icrc_ahead(memory),
        peer_identifications(receives_by_socket(config) ? std::make_unique<PeerIdentifications>() : nullptr),
        requester(context),
        responder(context),
        unreliable(context),
        datagram(context),
        notification(context),
        management(context),
        table(std::bit_ceil(std::clamp(config.max_qps, 1U, kQpnBlock))),
        slot_mask(static_cast<uint32_t>(table.size()) - 1),
        qpns(config, static_cast<uint32_t>(table.size())) {
    assert(config.first_qpn % kQpnBlock == 0 && (config.last_qpn + 1) % kQpnBlock == 0 &&
           config.first_qpn != 0 && config.first_qpn < config.last_qpn &&
           config.last_qpn < wire::kMulticastQpn);
  }

  CoreContext context;
  /// Received frames have observers, which one comparison a frame keeps out of the data path.
  const bool is_observed;
  IcrcAhead icrc_ahead;
  const std::unique_ptr<PeerIdentifications> peer_identifications;  ///< nullptr: the port shows IP headers
  Requester requester;
  Responder responder;
  UnreliableResponder unreliable;
  Datagram datagram;
  Cnp notification;
  Gsi management;
  std::vector<QueuePair*> table;  // owns the QPs
  /// The same QPs without gaps, for snapshots. QueuePair::list_index is an index into it.
  std::vector<QueuePair*> list;
  size_t next_snapshot = 0;
  // The number of slots is a power of two. find() compares the full QPN, since several QPNs share a slot.
  const uint32_t slot_mask;
  QpnPool qpns;
  MulticastTable multicast;
  /// Scratch of one call: initialising it costs more than the call.
  std::array<odp::Resolution, 32> resolutions{};

  alignas(64) std::atomic<QueuePair*> rung{nullptr};  // any thread pushes; the core takes the whole list
  std::atomic<DoorbellListener*> listener{nullptr};

  void notify_doorbell_listener() const {
    if (DoorbellListener* const hears = listener.load(std::memory_order_seq_cst); hears != nullptr)
        [[unlikely]]
      hears->on_doorbell();
  }

  [[nodiscard]] std::pmr::polymorphic_allocator<> memory() const { return context.config.qp_memory; }
  [[nodiscard]] QueuePair* find(uint32_t qpn) const {
    QueuePair* qp = table[qpn & slot_mask];
    return qp != nullptr && qp->qpn == qpn ? qp : nullptr;
  }

  static constexpr size_t kBurst = 32;
  void announce(std::span<const wire::Packet> packets, const std::array<wire::ParseError, kBurst>& errors,
                RxPrefetch<kBurst>& arrivals) const;
  void look_ahead(std::span<const wire::Packet> packets, const std::array<wire::ParseError, kBurst>& errors,
                  size_t at, RxPrefetch<kBurst>& arrivals);
  /// Returns true if the core keeps the frame.
  bool on_frame(const RxFrame& frame, const wire::Packet& packet, wire::ParseError error);
  /// As on_frame(), with a recorder or reports of drops.
  bool on_frame_observed(const RxFrame& frame, const wire::Packet& packet, wire::ParseError error);
  [[nodiscard]] uint64_t drop_count() const;
  // With a recorder.
  struct Copy {
    QueuePair* qp = nullptr;
    record::Record* record = nullptr;
    uint32_t packets_before = 0;
  };
  /// Limit of the members of a multicast group whose copies are recorded.
  static constexpr size_t kMostCopies = 32;
  bool on_frame_recorded(const RxFrame& frame, const wire::Packet& packet, wire::ParseError error);
  bool on_multicast_recorded(const wire::Packet& packet, const RxFrame& frame);
  [[nodiscard]] Copy record_copy(QueuePair& qp, const wire::Packet& packet);
  static void complete_copy(const Copy& copy);
  [[nodiscard]] wire::ParseError check_hidden_identification(const wire::Packet& packet);
  bool on_connected(QueuePair& qp, const wire::Packet& packet, const RxFrame& frame);
  bool on_multicast(const wire::Packet& packet, const RxFrame& frame);
  void note_drained(QueuePair& qp);
  void on_notification(QueuePair& qp, const wire::Packet& packet);
  [[nodiscard]] bool admits(const QueuePair& qp, const wire::Packet& packet);
  [[nodiscard]] bool is_of_path(const QueuePair& qp, const wire::Packet& packet);
  void take_doorbells();
  void take_resolutions();
  void resolve(const odp::Resolution& resolution);
  void run_timers();
  void serve(QueuePair& qp, uint32_t& budget_packets);
  [[nodiscard]] bool serve_datagrams(QueuePair& qp, uint32_t& quantum);
  [[nodiscard]] bool serve_connected(QueuePair& qp, uint32_t& quantum);
  void rearm(QueuePair& qp);
  void reset(QueuePair& qp);
  void apply(QueuePair& qp, const QpAttributes& attributes, uint32_t mask);
};

}  // namespace faultline::transport
