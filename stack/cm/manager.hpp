// SPDX-License-Identifier: BSD-3-Clause
// The communication manager of one device: IBA vol. 1 chapter 12 with RoCE's IP addressing (Annex A11).
// Sans-I/O: management datagrams and a time are its input, and it transmits datagrams through `MadSender`.
// Events are queued until the caller takes them. It reads no clock and has neither thread nor lock;
// service.hpp connects it to a device and to the program's threads.
//
// Active side: connect, `replied`, QP to RTS, confirm, then disconnect or `disconnected`. Passive side:
// listen, `requested`, QP to RTS, accept, `established`, `disconnected`. The program owns every Id, including
// one that an event delivered, until destroy.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "stack/cm/counters.hpp"
#include "stack/cm/state.hpp"
#include "stack/transport/gsi/gsi.hpp"
#include "stack/wire/mad/mad.hpp"
#include "stack/wire/mad/mad_cm.hpp"

namespace faultline::cm {

/// Identifies a listener, a connection or a service request (SIDR). For the latter two it is the
/// communication ID that peers see. 0 is none.
using Id = uint32_t;

/// A copy of any message's private data.
class PrivateData {
 public:
  static constexpr size_t kMaxBytes = wire::kMaxCmPrivateBytes;

  PrivateData() = default;
  /// Truncates data longer than kMaxBytes.
  explicit PrivateData(std::span<const uint8_t> bytes);
  [[nodiscard]] std::span<const uint8_t> bytes() const { return {bytes_.data(), length_}; }
  [[nodiscard]] size_t size() const { return length_; }

 private:
  std::array<uint8_t, kMaxBytes> bytes_{};
  uint8_t length_ = 0;
};

/// The path of the messages and of the connection's packets.
struct Path {
  transport::AddressVector av;
  uint16_t pkey = wire::kDefaultPkey;
  transport::PathMtu mtu = transport::PathMtu::mtu1024;
  uint8_t rate = 0;                ///< ibv_rate code; 0: the port's rate
  uint8_t packet_lifetime = 16;    ///< 4.096 us * 2^this, one way
  uint8_t local_ack_timeout = 17;  ///< for the QPs: 4.096 us * 2^this
};

enum class Family : uint8_t { any, ipv4, ipv6 };

/// Selects the requests of a listener. If several listeners match, one with an address has precedence over
/// one with a family, which has precedence over one with neither.
struct ListenParams {
  uint64_t service_id = 0;
  uint64_t service_mask = ~uint64_t{0};
  Family family = Family::any;         ///< family of the request's destination address
  std::optional<wire::Gid> address{};  ///< exact destination address
  uint32_t backlog = 1024;  ///< limit of unanswered requests; more are dropped, and peers retransmit
  uint64_t user = 0;        ///< returned in events
};

/// The timing of an exchange. The defaults are those of Linux's rdma_cm.
struct ExchangeTiming {
  uint8_t remote_response_timeout = 20;  ///< the peer's time to respond: 4.096 us * 2^this
  uint8_t local_response_timeout = 20;   ///< the local side's, in the same unit
  uint8_t max_retries = 15;
};

/// The fields of a REQ.
struct ConnectParams {
  uint64_t service_id = 0;
  Path path{};
  ExchangeTiming timing{};
  wire::CmTransport transport = wire::CmTransport::rc;
  uint32_t qpn = 0;
  uint32_t starting_psn = 0;  ///< the peer's first PSN (IBA 12.7.31)
  uint8_t responder_resources = 1, initiator_depth = 1;
  bool flow_control = true;
  uint8_t retry_count = 7, rnr_retry_count = 7;
  bool srq = false;
  /// The header of Annex A11, which precedes the private data; for service IDs of the IP port spaces.
  std::optional<wire::IpAddressing> ip{};
  /// At most wire::kReqPrivateBytes, including wire::kIpAddressingBytes if `ip` is set.
  std::span<const uint8_t> private_data{};
  uint64_t user = 0;
};

/// The fields of a REP.
struct AcceptParams {
  uint32_t qpn = 0;
  uint32_t starting_psn = 0;
  uint8_t responder_resources = 1, initiator_depth = 1;
  bool flow_control = true;
  uint8_t rnr_retry_count = 7;
  uint8_t target_ack_delay = 15;
  bool srq = false;
  std::span<const uint8_t> private_data{};  ///< at most wire::kRepPrivateBytes
};

/// The fields of a SIDR_REQ, which requests the QP of a service.
struct ResolveParams {
  uint64_t service_id = 0;
  Path path{};
  uint8_t response_timeout = 20;  ///< 4.096 us * 2^this
  uint8_t max_retries = 15;
  std::optional<wire::IpAddressing> ip{};
  std::span<const uint8_t> private_data{};  ///< at most wire::kSidrReqPrivateBytes, including `ip`
  uint64_t user = 0;
};

/// The fields of a SIDR_REP.
struct ResolveAnswer {
  wire::SidrStatus status = wire::SidrStatus::valid;
  uint32_t qpn = 0, qkey = 0;
  std::span<const uint8_t> private_data{};  ///< at most wire::kSidrRepPrivateBytes
};

enum class EventKind : uint8_t {
  requested,          ///< a REQ for `listener`; `id` is the new connection: accept, reject or destroy it
  replied,            ///< a REP to the local REQ: confirm, reject or destroy the connection
  established,        ///< passive side only: an RTU arrived, or notify_established was called
  rejected,           ///< the peer rejected; see `reason`, `reject_info`
  unreachable,        ///< the REQ or REP timed out, even after an MRA
  disconnected,       ///< a DREQ arrived (reply with disconnect), or the local DREQ was answered or timed out
  time_wait_over,     ///< the QPN may be reused
  service_requested,  ///< a SIDR_REQ for `listener`; answer `id`
  service_resolved,   ///< the SIDR_REP: `sidr_status`, `remote_qpn`, `remote_qkey`
  service_unreachable  ///< the SIDR_REQ timed out
};

struct Event {
  EventKind kind = EventKind::requested;
  Id id = 0;
  uint64_t user = 0;
  Id listener = 0;                         ///< requested, service_requested
  uint64_t listener_user = 0;              ///< requested, service_requested
  uint64_t service_id = 0;                 ///< requested, service_requested: the requested service
  Path path{};                             ///< requested, service_requested: the path to the peer
  std::optional<wire::IpAddressing> ip{};  ///< requested, service_requested; not in private_data
  uint32_t remote_qpn = 0;                 ///< requested, replied, service_resolved
  uint32_t remote_qkey = 0;                ///< service_resolved
  /// requested: limits for the reply from the local side's view (the peer's responder resources are the local
  /// initiator_depth). replied: the agreed values.
  uint8_t responder_resources = 0, initiator_depth = 0;
  uint8_t retry_count = 0, rnr_retry_count = 0;
  bool flow_control = false, srq = false;
  wire::CmTransport transport = wire::CmTransport::rc;
  wire::RejectReason reason = wire::RejectReason::none;
  PrivateData reject_info{};  ///< the additional rejection information
  wire::SidrStatus sidr_status = wire::SidrStatus::valid;
  PrivateData private_data{};  ///< the whole field, since its length is not transmitted
};

/// The attributes of a connection's QP, as far as they are known.
struct QpSettings {
  Path path{};
  uint32_t local_qpn = 0, remote_qpn = 0;
  uint32_t rq_psn = 0, sq_psn = 0;
  uint8_t max_dest_rd_atomic = 0;  ///< RDMA READs and atomics that the peer may have outstanding here
  uint8_t max_rd_atomic = 0;       ///< RDMA READs and atomics that may be outstanding at the peer
  uint8_t retry_count = 0, rnr_retry_count = 0;
  uint8_t timeout = 0;  ///< the local ACK timeout
  bool remote_srq = false;
  wire::CmTransport transport = wire::CmTransport::rc;
};

using MadSource = transport::ManagementSource;

/// Transmits a manager's datagrams to the peer's QP1. May drop a datagram, since the manager retransmits.
class MadSender {
 public:
  virtual ~MadSender() = default;
  virtual void send_mad(const wire::MadBytes& mad, const transport::AddressVector& to, uint16_t pkey) = 0;
  /// Claims a service when its first listener is added, so that this process receives its requests, of all
  /// processes that share the address. Returns 0, or EADDRINUSE if another process has claimed it.
  [[nodiscard]] virtual int claim_service(uint64_t service_id) {
    static_cast<void>(service_id);
    return 0;
  }
  /// Releases a service when its last listener is removed.
  virtual void release_service(uint64_t service_id) { static_cast<void>(service_id); }
};

struct ManagerConfig {
  uint64_t ca_guid = 0;
  /// The bits of communication IDs at which comm_id_mask is zero. They distinguish processes that share one
  /// address. At least 16 bits of the mask are set.
  uint32_t comm_id_base = 0;
  uint32_t comm_id_mask = 0xffffffff;
  uint64_t seed = 0;  ///< seed of the first communication and transaction IDs
  uint32_t max_ids = 1U << 16;
  /// MTU of the local port; a request for a larger one is rejected.
  transport::PathMtu max_mtu = transport::PathMtu::mtu4096;
  uint8_t disconnect_retries = 1;  ///< retries of a DREQ; few, since a dead peer answers none
  /// Initial early-retransmission interval, so that a lost message does not cost the whole response timeout.
  /// Doubles up to that timeout, and does not count as a retry. 0: no early retransmission.
  uint64_t early_resend_ns = 50'000'000;
  /// How long a request without a listener waits for one before it is rejected. Servers recreate their
  /// listener between two clients, or between two connections of one client. 0: no wait.
  uint64_t listener_patience_ns = 0;
  /// Rate limits per second, for new requests and for replies to messages of no known connection. They bound
  /// what forged source addresses can trigger; honest peers retransmit.
  uint32_t unknown_peers_per_second = 5'000;
  uint32_t unknown_peer_burst = 1'024;
};

class Manager {
 public:
  /// `sender` must outlive the manager.
  Manager(const ManagerConfig& config, MadSender& sender);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  /// Processes a datagram that arrived on QP1. Its bytes are untrusted.
  void on_mad(std::span<const uint8_t> mad, const MadSource& source, TimeNs now);
  /// Retransmits, times out exchanges, and ends TIME_WAIT states.
  void poll(TimeNs now);
  /// Returns the seed for the next manager of this device. Its IDs follow the current ones, which peers may
  /// still know (TIME_WAIT).
  [[nodiscard]] uint64_t next_seed() const;
  [[nodiscard]] TimeNs next_deadline() const;
  /// Takes the oldest event; false if there is none.
  [[nodiscard]] bool take_event(Event& event);
  [[nodiscard]] bool has_events() const;

  // Calls of the program. They return 0 or an errno:
  // EINVAL if the Id is unknown or in the wrong state, or if the private data is too long.
  // ENOTCONN (disconnect) and EISCONN (notify_established) for the wrong state.
  // ENOMEM beyond max_ids. EADDRINUSE for a second identical listener.

  [[nodiscard]] int listen(const ListenParams& params, Id& id);
  [[nodiscard]] int connect(const ConnectParams& params, TimeNs now, Id& id);
  [[nodiscard]] int accept(Id id, const AcceptParams& params, TimeNs now);
  /// Sends the RTU, after `replied`; establishes the connection.
  [[nodiscard]] int confirm(Id id, std::span<const uint8_t> private_data, TimeNs now);
  /// Rejects, instead of accept or confirm.
  [[nodiscard]] int reject(Id id, wire::RejectReason reason, std::span<const uint8_t> info,
                           std::span<const uint8_t> private_data, TimeNs now);
  /// Sends an MRA: the reply to a REQ or REP takes up to 4.096 us * 2^service_timeout longer.
  [[nodiscard]] int delay(Id id, uint8_t service_timeout, std::span<const uint8_t> private_data, TimeNs now);
  /// Sends a DREQ on an established connection, or a DREP after the peer's DREQ.
  [[nodiscard]] int disconnect(Id id, std::span<const uint8_t> private_data, TimeNs now);
  /// Reports that the passive side's QP has received data. Establishes the connection even if the RTU was
  /// lost.
  [[nodiscard]] int notify_established(Id id, TimeNs now);
  [[nodiscard]] int resolve(const ResolveParams& params, TimeNs now, Id& id);
  [[nodiscard]] int answer(Id id, const ResolveAnswer& answer, TimeNs now);

  /// Ends the object as its state requires (REJ, DREQ, DREP). Discards its queued events; none follows.
  void destroy(Id id, TimeNs now);
  /// Destroys all objects when the program ends.
  void destroy_all(TimeNs now);

  [[nodiscard]] bool set_user(Id id, uint64_t user);
  /// Returns false if `id` is not a connection.
  [[nodiscard]] bool settings(Id id, QpSettings& out) const;
  [[nodiscard]] std::optional<State> state(Id id) const;

  [[nodiscard]] const ManagerCounters& counters() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace faultline::cm
