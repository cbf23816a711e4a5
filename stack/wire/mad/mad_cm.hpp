// SPDX-License-Identifier: BSD-3-Clause
// Connection manager messages (IBA vol. 1, 12.6 and 12.11) as values in host order, and the IP addressing
// header of Annex A11. `read_...` takes a checked datagram of that attribute (asserted); its private data is
// a view of the whole field. `write` fills a datagram and pads private data with zeros.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "stack/wire/mad/mad.hpp"
#include "stack/wire/packet/headers.hpp"

namespace faultline::wire {

inline constexpr size_t kReqPrivateBytes = 92;
inline constexpr size_t kMraPrivateBytes = 222;
inline constexpr size_t kRejPrivateBytes = 148;
inline constexpr size_t kRejInfoBytes = 72;
inline constexpr size_t kRepPrivateBytes = 196;
inline constexpr size_t kRtuPrivateBytes = 224;
inline constexpr size_t kDreqPrivateBytes = 220;
inline constexpr size_t kDrepPrivateBytes = 224;
inline constexpr size_t kSidrReqPrivateBytes = 216;
inline constexpr size_t kSidrRepPrivateBytes = 136;
inline constexpr size_t kSidrRepInfoBytes = 72;
inline constexpr size_t kMaxCmPrivateBytes = 224;

/// Transport service that a REQ requests, with its extension (IBA 12.7.5, A14).
enum class CmTransport : uint8_t { rc = 0, uc = 1, rd = 2, xrc = 3 };

/// The message that a REJ or MRA answers.
enum class CmAnswered : uint8_t { req = 0, rep = 1, other = 2 };

/// IBA 12.6.7.2.
enum class RejectReason : uint16_t {
  none = 0,
  no_qp = 1,
  no_eec = 2,
  no_resources = 3,
  timeout = 4,
  unsupported = 5,
  invalid_communication_id = 6,
  invalid_communication_instance = 7,
  invalid_service_id = 8,
  invalid_transport = 9,
  stale_connection = 10,
  rdc_does_not_exist = 11,
  invalid_gid = 12,
  invalid_mtu = 26,
  insufficient_responder_resources = 27,
  consumer_defined = 28
};

/// IBA 12.11.2.
enum class SidrStatus : uint8_t {
  valid = 0,
  unsupported = 1,
  rejected = 2,
  no_qp = 3,
  redirected = 4,
  version_unsupported = 5
};

/// Path in a REQ. RoCE has no LIDs and sends the permissive one, as Linux does.
struct CmPath {
  uint16_t local_lid = 0xffff, remote_lid = 0xffff;
  Gid local_gid{}, remote_gid{};
  uint32_t flow_label = 0;
  uint8_t rate = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  uint8_t sl = 0;
  bool subnet_local = false;
  uint8_t local_ack_timeout = 0;
};

struct CmReq {
  uint32_t local_id = 0;
  uint64_t service_id = 0;
  uint64_t ca_guid = 0;
  uint32_t qkey = 0;
  uint32_t qpn = 0;
  uint8_t responder_resources = 0, initiator_depth = 0;
  uint32_t local_eecn = 0, remote_eecn = 0;
  uint8_t remote_response_timeout = 0, local_response_timeout = 0;
  CmTransport transport = CmTransport::rc;
  bool flow_control = false;
  uint32_t starting_psn = 0;
  uint8_t retry_count = 0, rnr_retry_count = 0;
  uint16_t pkey = kDefaultPkey;
  uint8_t path_mtu = 0;  ///< transport::PathMtu's code
  bool rdc_exists = false;
  uint8_t max_cm_retries = 0;
  bool srq = false;
  CmPath primary{};
  CmPath alternate{.local_lid = 0, .remote_lid = 0};
  std::span<const uint8_t> private_data{};
};

struct CmMra {
  uint32_t local_id = 0, remote_id = 0;
  CmAnswered answered = CmAnswered::req;
  uint8_t service_timeout = 0;
  std::span<const uint8_t> private_data{};
};

struct CmRej {
  uint32_t local_id = 0, remote_id = 0;
  CmAnswered rejected = CmAnswered::req;
  RejectReason reason = RejectReason::none;
  std::span<const uint8_t> info{};  ///< when read: of the length in the message
  std::span<const uint8_t> private_data{};
};

struct CmRep {
  uint32_t local_id = 0, remote_id = 0;
  uint32_t qkey = 0;
  uint32_t qpn = 0, eecn = 0;  ///< an XRC target's QPN is in eecn
  uint32_t starting_psn = 0;
  uint8_t responder_resources = 0, initiator_depth = 0;
  uint8_t target_ack_delay = 0;
  uint8_t failover_accepted = 0;
  bool flow_control = false;
  uint8_t rnr_retry_count = 0;
  bool srq = false;
  uint64_t ca_guid = 0;
  std::span<const uint8_t> private_data{};
};

struct CmRtu {
  uint32_t local_id = 0, remote_id = 0;
  std::span<const uint8_t> private_data{};
};

struct CmDreq {
  uint32_t local_id = 0, remote_id = 0;
  uint32_t remote_qpn = 0;
  std::span<const uint8_t> private_data{};
};

struct CmDrep {
  uint32_t local_id = 0, remote_id = 0;
  std::span<const uint8_t> private_data{};
};

struct CmSidrReq {
  uint32_t request_id = 0;
  uint16_t pkey = kDefaultPkey;
  uint64_t service_id = 0;
  std::span<const uint8_t> private_data{};
};

struct CmSidrRep {
  uint32_t request_id = 0;
  SidrStatus status = SidrStatus::valid;
  uint32_t qpn = 0;
  uint64_t service_id = 0;
  uint32_t qkey = 0;
  std::span<const uint8_t> info{};  ///< when read: of the length in the message
  std::span<const uint8_t> private_data{};
};

[[nodiscard]] CmReq read_req(const CmMad& mad);
[[nodiscard]] CmMra read_mra(const CmMad& mad);
[[nodiscard]] CmRej read_rej(const CmMad& mad);
[[nodiscard]] CmRep read_rep(const CmMad& mad);
[[nodiscard]] CmRtu read_rtu(const CmMad& mad);
[[nodiscard]] CmDreq read_dreq(const CmMad& mad);
[[nodiscard]] CmDrep read_drep(const CmMad& mad);
[[nodiscard]] CmSidrReq read_sidr_req(const CmMad& mad);
[[nodiscard]] CmSidrRep read_sidr_rep(const CmMad& mad);

void write(MadBytes& mad, uint64_t transaction_id, const CmReq& message);
void write(MadBytes& mad, uint64_t transaction_id, const CmMra& message);
void write(MadBytes& mad, uint64_t transaction_id, const CmRej& message);
void write(MadBytes& mad, uint64_t transaction_id, const CmRep& message);
void write(MadBytes& mad, uint64_t transaction_id, const CmRtu& message);
void write(MadBytes& mad, uint64_t transaction_id, const CmDreq& message);
void write(MadBytes& mad, uint64_t transaction_id, const CmDrep& message);
void write(MadBytes& mad, uint64_t transaction_id, const CmSidrReq& message);
void write(MadBytes& mad, uint64_t transaction_id, const CmSidrRep& message);

// Fields that identify a datagram's receiver, for steering among processes that share one address.

/// Communication ID that the receiver assigned. nullopt for a REQ or SIDR_REQ, which are steered by service
/// ID, and for a REJ without one.
[[nodiscard]] std::optional<uint32_t> receiver_id(const CmMad& mad);
/// The ID that the sender of a REQ or SIDR_REQ assigned.
[[nodiscard]] uint32_t requester_id(const CmMad& mad);
/// Service ID of a REQ or SIDR_REQ.
[[nodiscard]] std::optional<uint64_t> service_id(const CmMad& mad);

// --- Annex A11 ---

inline constexpr size_t kIpAddressingBytes = 36;

/// Addresses of a connection, at the start of a REQ's or SIDR_REQ's private data (A11.4.3). The destination
/// port is in the service ID.
struct IpAddressing {
  Gid source, destination;  ///< both IPv4-mapped, or neither
  uint16_t source_port = 0;
  friend bool operator==(const IpAddressing&, const IpAddressing&) = default;
};

/// Service IDs 0x0000_0000_01pp_dddd: a protocol and a destination port (A11.4.2).
[[nodiscard]] constexpr bool is_ip_service(uint64_t service_id) {
  return service_id >> 24 == 1;
}
/// `port_space` as in rdma_user_cm.h: 0x0106 TCP, 0x0111 UDP.
[[nodiscard]] constexpr uint64_t ip_service_id(uint16_t port_space, uint16_t port) {
  return uint64_t{port_space} << 16 | port;
}

/// nullopt if version or addresses are invalid.
[[nodiscard]] std::optional<IpAddressing> read_ip_addressing(
    std::span<const uint8_t, kIpAddressingBytes> bytes);
void write_ip_addressing(std::span<uint8_t, kIpAddressingBytes> bytes, const IpAddressing& addressing);

}  // namespace faultline::wire
