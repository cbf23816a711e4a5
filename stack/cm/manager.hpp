// SPDX-License-Identifier: BSD-3-Clause
// The communication manager of one device: IBA vol. 1 chapter 12 with RoCE's IP addressing (Annex A11).
// Sans-I/O: management datagrams and a time in, datagrams out through `MadSender`, events kept until they are
// taken. It reads no clock, has no thread and no lock: service.hpp ties it to a device and to programs'
// threads.
//
// An active side connects: connect, then `replied`, confirm, (QP to RTS before), disconnect or
// `disconnected`. A passive side: listen, then `requested`, accept (QP to RTS before), `established`,
// `disconnected`. Every Id that was given out, also one that came with an event, is its owner's until
// destroy.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "stack/cm/counters.hpp"
#include "stack/cm/state.hpp"
#include "stack/transport/gsi/management.hpp"
#include "stack/wire/mad/mad.hpp"
#include "stack/wire/mad/mad_cm.hpp"

namespace faultline::cm {

/// A listener, a connection or a request for a datagram service: for the latter two the communication ID that
/// peers see. 0 is none.
using Id = uint32_t;

/// Private data of any message, copied.
class PrivateData {
 public:
  static constexpr size_t kMaxBytes = wire::kMaxCmPrivateBytes;

  PrivateData() = default;
  /// Longer than kMaxBytes is cut.
  explicit PrivateData(std::span<const uint8_t> bytes);
  [[nodiscard]] std::span<const uint8_t> bytes() const { return {bytes_.data(), length_}; }
  [[nodiscard]] size_t size() const { return length_; }

 private:
  std::array<uint8_t, kMaxBytes> bytes_{};
  uint8_t length_ = 0;
};

/// Where messages and the connection's packets go.
struct Path {
  transport::AddressVector av;
  uint16_t pkey = wire::kDefaultPkey;
  transport::PathMtu mtu = transport::PathMtu::mtu1024;
  uint8_t rate = 0;                ///< ibv_rate code; 0: whatever the port has
  uint8_t packet_lifetime = 16;    ///< 4.096 us * 2^this, one way
  uint8_t local_ack_timeout = 17;  ///< for the QPs: 4.096 us * 2^this
};

enum class Family : uint8_t { any, ipv4, ipv6 };

/// Which requests a listener gets. Where several match, the one with an address wins over the one with a
/// family, and that over one with neither.
struct ListenParams {
  uint64_t service_id = 0;
  uint64_t service_mask = ~uint64_t{0};
  Family family = Family::any;         ///< of the address that the request was sent to
  std::optional<wire::Gid> address{};  ///< that very one
  uint32_t backlog =
      1024;           ///< requests told of and not yet answered; more are dropped, their peers ask again
  uint64_t user = 0;  ///< given back in events
};

/// The timing of an exchange. The defaults are those of Linux's rdma_cm.
struct ExchangeTiming {
  uint8_t remote_response_timeout = 20;  ///< 4.096 us * 2^this: how long the peer may take to answer
  uint8_t local_response_timeout = 20;   ///< how long we may
  uint8_t max_retries = 15;
};

/// A REQ.
struct ConnectParams {
  uint64_t service_id = 0;
  Path path{};
  ExchangeTiming timing{};
  wire::CmTransport transport = wire::CmTransport::rc;
  uint32_t qpn = 0;
  uint32_t starting_psn = 0;  ///< what the peer shall begin with (IBA 12.7.31)
  uint8_t responder_resources = 1, initiator_depth = 1;
  bool flow_control = true;
  uint8_t retry_count = 7, rnr_retry_count = 7;
  bool srq = false;
  /// The header of Annex A11, before the private data; for service IDs of the IP port spaces.
  std::optional<wire::IpAddressing> ip{};
  /// At most wire::kReqPrivateBytes, of which `ip` takes wire::kIpAddressingBytes.
  std::span<const uint8_t> private_data{};
  uint64_t user = 0;
};

/// A REP.
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

/// A SIDR_REQ: which QP serves a service?
struct ResolveParams {
  uint64_t service_id = 0;
  Path path{};
  uint8_t response_timeout = 20;  ///< 4.096 us * 2^this
  uint8_t max_retries = 15;
  std::optional<wire::IpAddressing> ip{};
  std::span<const uint8_t> private_data{};  ///< at most wire::kSidrReqPrivateBytes, with `ip`
  uint64_t user = 0;
};

/// A SIDR_REP.
struct ResolveAnswer {
  wire::SidrStatus status = wire::SidrStatus::valid;
  uint32_t qpn = 0, qkey = 0;
  std::span<const uint8_t> private_data{};  ///< at most wire::kSidrRepPrivateBytes
};

enum class EventKind : uint8_t {
  requested,           ///< a REQ came to `listener`; `id` is the new connection: accept, reject or destroy it
  replied,             ///< the REP to our REQ: confirm, reject or destroy
  established,         ///< the RTU came, or what notify_established told of; at the passive side only
  rejected,            ///< the peer rejected; `reason`, `reject_info`
  unreachable,         ///< no answer to our REQ or REP, or none in time after an MRA
  disconnected,        ///< a DREQ came (answer it with disconnect), ours was answered, or nobody answers it
  time_wait_over,      ///< the QPN may be used again
  service_requested,   ///< a SIDR_REQ came to `listener`; `id`: answer it
  service_resolved,    ///< the SIDR_REP to ours: `sidr_status`, `remote_qpn`, `remote_qkey`
  service_unreachable  ///< no answer to our SIDR_REQ
};

struct Event {
  EventKind kind = EventKind::requested;
  Id id = 0;
  uint64_t user = 0;
  Id listener = 0;                         ///< requested, service_requested
  uint64_t listener_user = 0;              ///< likewise
  uint64_t service_id = 0;                 ///< likewise: what was asked for
  Path path{};                             ///< likewise: back to the peer
  std::optional<wire::IpAddressing> ip{};  ///< likewise; private_data is what follows it
  uint32_t remote_qpn = 0;                 ///< requested, replied, service_resolved
  uint32_t remote_qkey = 0;                ///< service_resolved
  /// requested: from the local side's point of view already, as the limits of what it may answer (what the
  /// peer can serve is our initiator_depth). replied: what was agreed.
  uint8_t responder_resources = 0, initiator_depth = 0;
  uint8_t retry_count = 0, rnr_retry_count = 0;
  bool flow_control = false, srq = false;
  wire::CmTransport transport = wire::CmTransport::rc;
  wire::RejectReason reason = wire::RejectReason::none;
  PrivateData reject_info{};  ///< the additional rejection information
  wire::SidrStatus sidr_status = wire::SidrStatus::valid;
  PrivateData private_data{};  ///< the whole field, as its length is not on the wire
};

/// What a connection's QP is to be given, as far as the exchange has come.
struct QpSettings {
  Path path{};
  uint32_t local_qpn = 0, remote_qpn = 0;
  uint32_t rq_psn = 0, sq_psn = 0;
  uint8_t max_dest_rd_atomic = 0;  ///< what the peer may have outstanding here
  uint8_t max_rd_atomic = 0;       ///< what may be outstanding there
  uint8_t retry_count = 0, rnr_retry_count = 0;
  uint8_t timeout = 0;  ///< the local ACK timeout
  bool remote_srq = false;
  wire::CmTransport transport = wire::CmTransport::rc;
};

using MadSource = transport::ManagementSource;

/// What takes a manager's datagrams to QP1 of the peer. May drop: a datagram is sent again.
class MadSender {
 public:
  virtual ~MadSender() = default;
  virtual void send_mad(const wire::MadBytes& mad, const transport::AddressVector& to, uint16_t pkey) = 0;
  /// The first listener for a service: of the processes that share an address this one is to get its
  /// requests. 0, or EADDRINUSE where another has them.
  [[nodiscard]] virtual int claim_service(uint64_t service_id) {
    static_cast<void>(service_id);
    return 0;
  }
  /// After the last one.
  virtual void release_service(uint64_t service_id) { static_cast<void>(service_id); }
};

struct ManagerConfig {
  uint64_t ca_guid = 0;
  /// Communication IDs have `comm_id_base` where comm_id_mask has zeros: processes that share one address
  /// have different ones. At least 16 bits of the mask are set.
  uint32_t comm_id_base = 0;
  uint32_t comm_id_mask = 0xffffffff;
  uint64_t seed = 0;  ///< of the first communication and transaction IDs
  uint32_t max_ids = 1U << 16;
  /// Of our port: a request for more is rejected.
  transport::PathMtu max_mtu = transport::PathMtu::mtu4096;
  uint8_t disconnect_retries = 1;  ///< of a DREQ: a peer that has died answers none
  /// A lost message costs this at first, not the whole response timeout; doubling up to it. Not counted as
  /// retries. 0: never before the timeout.
  uint64_t early_resend_ns = 50'000'000;
  /// A request that nobody listens for waits so long for a listener before it is rejected: servers make their
  /// listener anew between two clients, or two connections of one. 0: not at all.
  uint64_t listener_patience_ns = 0;
  /// A second, of both: new requests that are taken, and answers to messages that belong to nothing here. Who
  /// forges addresses can have no more made of either, and who is honest asks again.
  uint32_t strangers_per_second = 5'000;
  uint32_t strangers_at_once = 1'024;
};

class Manager {
 public:
  /// `sender` outlives the manager.
  Manager(const ManagerConfig& config, MadSender& sender);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  /// A datagram that came to QP1: any bytes.
  void on_mad(std::span<const uint8_t> mad, const MadSource& source, TimeNs now);
  /// Sends again what was not answered, gives up, ends time-waits.
  void poll(TimeNs now);
  /// For the next manager of this device: its IDs follow these, as peers may still know them (TIME_WAIT).
  [[nodiscard]] uint64_t next_seed() const;
  [[nodiscard]] TimeNs next_deadline() const;
  /// In order; false where there is none.
  [[nodiscard]] bool take_event(Event& event);
  [[nodiscard]] bool has_events() const;

  // What programs want. 0 or: EINVAL for an Id that is none or not in a state for it (ENOTCONN for
  // disconnect), or private data too long; ENOMEM beyond max_ids; EADDRINUSE for a second listener of the
  // very same.

  [[nodiscard]] int listen(const ListenParams& params, Id& id);
  [[nodiscard]] int connect(const ConnectParams& params, TimeNs now, Id& id);
  [[nodiscard]] int accept(Id id, const AcceptParams& params, TimeNs now);
  /// RTU, after `replied`: the connection stands.
  [[nodiscard]] int confirm(Id id, std::span<const uint8_t> private_data, TimeNs now);
  /// Instead of accept or confirm.
  [[nodiscard]] int reject(Id id, wire::RejectReason reason, std::span<const uint8_t> info,
                           std::span<const uint8_t> private_data, TimeNs now);
  /// MRA: the answer to a REQ or REP takes up to 4.096 us * 2^service_timeout more.
  [[nodiscard]] int delay(Id id, uint8_t service_timeout, std::span<const uint8_t> private_data, TimeNs now);
  /// DREQ of a standing connection, or DREP after the peer's DREQ.
  [[nodiscard]] int disconnect(Id id, std::span<const uint8_t> private_data, TimeNs now);
  /// The passive side's QP has received something: as good as the RTU, should that be lost.
  [[nodiscard]] int notify_established(Id id, TimeNs now);
  [[nodiscard]] int resolve(const ResolveParams& params, TimeNs now, Id& id);
  [[nodiscard]] int answer(Id id, const ResolveAnswer& answer, TimeNs now);

  /// Ends whatever it is in the way its state asks for (REJ, DREQ, DREP). No event of it comes any more,
  /// not even one that waits to be taken.
  void destroy(Id id, TimeNs now);
  /// Destroys everything: the program ends.
  void destroy_all(TimeNs now);

  [[nodiscard]] bool set_user(Id id, uint64_t user);
  /// False where it is no connection.
  [[nodiscard]] bool settings(Id id, QpSettings& out) const;
  [[nodiscard]] std::optional<State> state(Id id) const;

  [[nodiscard]] const ManagerCounters& counters() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace faultline::cm
