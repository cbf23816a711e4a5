// SPDX-License-Identifier: BSD-3-Clause
// Field layouts of IBA vol. 1, 12.6 and 12.11. Offsets are those of the tables there, from the message's
// first byte. A field that shares a word with another has no offset constant; it is packed into that word.
#include "stack/wire/mad/mad_cm.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "stack/wire/packet/byte_order.hpp"

namespace faultline::wire {
namespace {

using Message = std::span<const uint8_t, kCmMessageBytes>;
using MutableMessage = std::span<uint8_t, kCmMessageBytes>;

constexpr size_t kLocalIdAt = 0;
constexpr size_t kRemoteIdAt = 4;

// REQ (12.6.5)
constexpr size_t kReqServiceIdAt = 8;
constexpr size_t kReqGuidAt = 16;
constexpr size_t kReqQkeyAt = 28;
constexpr size_t kReqQpnAt = 32;        // and responder resources
constexpr size_t kReqLocalEecnAt = 36;  // and initiator depth
constexpr size_t kReqRemoteEecnAt =
    40;                           // and remote CM response timeout, transport service type, flow control
constexpr size_t kReqPsnAt = 44;  // and local CM response timeout, retry count
constexpr size_t kReqPkeyAt = 48;
constexpr size_t kReqMtuAt = 50;      // and RDC exists, RNR retry count
constexpr size_t kReqRetriesAt = 51;  // and SRQ, extended transport type
constexpr size_t kReqPrimaryAt = 52;
constexpr size_t kReqAlternateAt = 96;
constexpr size_t kReqPrivateAt = 140;
constexpr uint8_t kExtendedTransportXrc = 1;

// A path in a REQ
constexpr size_t kPathLocalLidAt = 0;
constexpr size_t kPathRemoteLidAt = 2;
constexpr size_t kPathLocalGidAt = 4;
constexpr size_t kPathRemoteGidAt = 20;
constexpr size_t kPathFlowLabelAt = 36;  // and rate
constexpr size_t kPathTrafficClassAt = 40;
constexpr size_t kPathHopLimitAt = 41;
constexpr size_t kPathSlAt = 42;  // and subnet local
constexpr size_t kPathAckTimeoutAt = 43;
constexpr size_t kPathBytes = 44;

// MRA (12.6.6), REJ (12.6.7)
constexpr size_t kAnsweredAt = 8;
constexpr size_t kMraTimeoutAt = 9;
constexpr size_t kMraPrivateAt = 10;
constexpr size_t kRejInfoLengthAt = 9;
constexpr size_t kRejReasonAt = 10;
constexpr size_t kRejInfoAt = 12;
constexpr size_t kRejPrivateAt = 84;

// REP (12.6.8)
constexpr size_t kRepQkeyAt = 8;
constexpr size_t kRepQpnAt = 12;
constexpr size_t kRepEecnAt = 16;
constexpr size_t kRepPsnAt = 20;
constexpr size_t kRepResourcesAt = 24;
constexpr size_t kRepDepthAt = 25;
constexpr size_t kRepAckDelayAt = 26;  // and failover accepted, flow control
constexpr size_t kRepRnrAt = 27;       // and SRQ
constexpr size_t kRepGuidAt = 28;
constexpr size_t kRepPrivateAt = 36;

// RTU (12.6.9), DREQ (12.6.10), DREP (12.6.11)
constexpr size_t kRtuPrivateAt = 8;
constexpr size_t kDreqQpnAt = 8;
constexpr size_t kDreqPrivateAt = 12;
constexpr size_t kDrepPrivateAt = 8;

// SIDR_REQ, SIDR_REP (12.11.1, 12.11.2)
constexpr size_t kRequestIdAt = 0;
constexpr size_t kSidrReqPkeyAt = 4;
constexpr size_t kSidrReqServiceIdAt = 8;
constexpr size_t kSidrReqPrivateAt = 16;
constexpr size_t kSidrRepStatusAt = 4;
constexpr size_t kSidrRepInfoLengthAt = 5;
constexpr size_t kSidrRepQpnAt = 8;
constexpr size_t kSidrRepServiceIdAt = 12;
constexpr size_t kSidrRepQkeyAt = 20;
constexpr size_t kSidrRepInfoAt = 24;
constexpr size_t kSidrRepPrivateAt = 96;

static_assert(kReqPrivateAt + kReqPrivateBytes == kCmMessageBytes);
static_assert(kReqPrimaryAt + kPathBytes == kReqAlternateAt && kReqAlternateAt + kPathBytes == kReqPrivateAt);
static_assert(kMraPrivateAt + kMraPrivateBytes == kCmMessageBytes);
static_assert(kRejInfoAt + kRejInfoBytes == kRejPrivateAt &&
              kRejPrivateAt + kRejPrivateBytes == kCmMessageBytes);
static_assert(kRepPrivateAt + kRepPrivateBytes == kCmMessageBytes);
static_assert(kRtuPrivateAt + kRtuPrivateBytes == kCmMessageBytes);
static_assert(kDreqPrivateAt + kDreqPrivateBytes == kCmMessageBytes);
static_assert(kDrepPrivateAt + kDrepPrivateBytes == kCmMessageBytes);
static_assert(kSidrReqPrivateAt + kSidrReqPrivateBytes == kCmMessageBytes);
static_assert(kSidrRepInfoAt + kSidrRepInfoBytes == kSidrRepPrivateAt &&
              kSidrRepPrivateAt + kSidrRepPrivateBytes == kCmMessageBytes);

Message message_of(const CmMad& mad, CmAttribute attribute) {
  assert(mad.attribute() == attribute);
  static_cast<void>(attribute);
  return mad.message();
}

uint32_t load_24(const uint8_t* word) {
  return load_be32(word) >> 8;
}
void store_24(uint8_t* word, uint32_t value, uint8_t low) {
  store_be32(word, value << 8 | low);
}
uint8_t bits(uint8_t byte, unsigned shift, unsigned width) {
  return static_cast<uint8_t>(byte >> shift & ((1U << width) - 1));
}
uint8_t pack(unsigned value, unsigned shift, unsigned width) {
  return static_cast<uint8_t>((value & ((1U << width) - 1)) << shift);
}

void copy_to(MutableMessage message, size_t at, std::span<const uint8_t> from, size_t most) {
  assert(from.size() <= most);
  std::copy_n(from.begin(), std::min(from.size(), most), message.begin() + static_cast<ptrdiff_t>(at));
}

CmPath read_path(const uint8_t* at) {
  CmPath path;
  path.local_lid = load_be16(at + kPathLocalLidAt);
  path.remote_lid = load_be16(at + kPathRemoteLidAt);
  std::memcpy(path.local_gid.bytes.data(), at + kPathLocalGidAt, path.local_gid.bytes.size());
  std::memcpy(path.remote_gid.bytes.data(), at + kPathRemoteGidAt, path.remote_gid.bytes.size());
  const uint32_t flow = load_be32(at + kPathFlowLabelAt);
  path.flow_label = flow >> 12;
  path.rate = flow & 0x3f;
  path.traffic_class = at[kPathTrafficClassAt];
  path.hop_limit = at[kPathHopLimitAt];
  path.sl = bits(at[kPathSlAt], 4, 4);
  path.subnet_local = bits(at[kPathSlAt], 3, 1) != 0;
  path.local_ack_timeout = bits(at[kPathAckTimeoutAt], 3, 5);
  return path;
}

void write_path(uint8_t* at, const CmPath& path) {
  store_be16(at + kPathLocalLidAt, path.local_lid);
  store_be16(at + kPathRemoteLidAt, path.remote_lid);
  std::memcpy(at + kPathLocalGidAt, path.local_gid.bytes.data(), path.local_gid.bytes.size());
  std::memcpy(at + kPathRemoteGidAt, path.remote_gid.bytes.data(), path.remote_gid.bytes.size());
  store_be32(at + kPathFlowLabelAt, path.flow_label << 12 | (path.rate & 0x3f));
  at[kPathTrafficClassAt] = path.traffic_class;
  at[kPathHopLimitAt] = path.hop_limit;
  at[kPathSlAt] = pack(path.sl, 4, 4) | pack(path.subnet_local ? 1 : 0, 3, 1);
  at[kPathAckTimeoutAt] = pack(path.local_ack_timeout, 3, 5);
}

CmTransport transport_of(uint8_t type, uint8_t extended) {
  if (type != static_cast<uint8_t>(CmTransport::xrc)) return static_cast<CmTransport>(type);
  // Type 3 has no other extension, and REQs for reliable datagrams are not supported.
  return extended == kExtendedTransportXrc ? CmTransport::xrc : CmTransport::rd;
}

}  // namespace

CmReq read_req(const CmMad& mad) {
  const Message message = message_of(mad, CmAttribute::req);
  const uint8_t* const at = message.data();
  CmReq req;
  req.local_id = load_be32(at + kLocalIdAt);
  req.service_id = load_be64(at + kReqServiceIdAt);
  req.ca_guid = load_be64(at + kReqGuidAt);
  req.qkey = load_be32(at + kReqQkeyAt);
  req.qpn = load_24(at + kReqQpnAt);
  req.responder_resources = at[kReqQpnAt + 3];
  req.local_eecn = load_24(at + kReqLocalEecnAt);
  req.initiator_depth = at[kReqLocalEecnAt + 3];
  req.remote_eecn = load_24(at + kReqRemoteEecnAt);
  const uint8_t service = at[kReqRemoteEecnAt + 3];
  req.remote_response_timeout = bits(service, 3, 5);
  req.transport = transport_of(bits(service, 1, 2), bits(at[kReqRetriesAt], 0, 3));
  req.flow_control = bits(service, 0, 1) != 0;
  req.starting_psn = load_24(at + kReqPsnAt);
  req.local_response_timeout = bits(at[kReqPsnAt + 3], 3, 5);
  req.retry_count = bits(at[kReqPsnAt + 3], 0, 3);
  req.pkey = load_be16(at + kReqPkeyAt);
  req.path_mtu = bits(at[kReqMtuAt], 4, 4);
  req.rdc_exists = bits(at[kReqMtuAt], 3, 1) != 0;
  req.rnr_retry_count = bits(at[kReqMtuAt], 0, 3);
  req.max_cm_retries = bits(at[kReqRetriesAt], 4, 4);
  req.srq = bits(at[kReqRetriesAt], 3, 1) != 0;
  req.primary = read_path(at + kReqPrimaryAt);
  req.alternate = read_path(at + kReqAlternateAt);
  req.private_data = message.subspan<kReqPrivateAt>();
  return req;
}

void write(MadBytes& mad, uint64_t transaction_id, const CmReq& req) {
  const MutableMessage message = write_cm_header(mad, CmAttribute::req, transaction_id);
  uint8_t* const at = message.data();
  store_be32(at + kLocalIdAt, req.local_id);
  store_be64(at + kReqServiceIdAt, req.service_id);
  store_be64(at + kReqGuidAt, req.ca_guid);
  store_be32(at + kReqQkeyAt, req.qkey);
  store_24(at + kReqQpnAt, req.qpn, req.responder_resources);
  store_24(at + kReqLocalEecnAt, req.local_eecn, req.initiator_depth);
  store_24(at + kReqRemoteEecnAt, req.remote_eecn,
           pack(req.remote_response_timeout, 3, 5) | pack(static_cast<unsigned>(req.transport), 1, 2) |
               pack(req.flow_control ? 1 : 0, 0, 1));
  store_24(at + kReqPsnAt, req.starting_psn,
           pack(req.local_response_timeout, 3, 5) | pack(req.retry_count, 0, 3));
  store_be16(at + kReqPkeyAt, req.pkey);
  at[kReqMtuAt] =
      pack(req.path_mtu, 4, 4) | pack(req.rdc_exists ? 1 : 0, 3, 1) | pack(req.rnr_retry_count, 0, 3);
  at[kReqRetriesAt] = pack(req.max_cm_retries, 4, 4) | pack(req.srq ? 1 : 0, 3, 1) |
                      pack(req.transport == CmTransport::xrc ? kExtendedTransportXrc : 0, 0, 3);
  write_path(at + kReqPrimaryAt, req.primary);
  write_path(at + kReqAlternateAt, req.alternate);
  copy_to(message, kReqPrivateAt, req.private_data, kReqPrivateBytes);
}

CmMra read_mra(const CmMad& mad) {
  const Message message = message_of(mad, CmAttribute::mra);
  const uint8_t* const at = message.data();
  return {.local_id = load_be32(at + kLocalIdAt),
          .remote_id = load_be32(at + kRemoteIdAt),
          .answered = static_cast<CmAnswered>(bits(at[kAnsweredAt], 6, 2)),
          .service_timeout = bits(at[kMraTimeoutAt], 3, 5),
          .private_data = message.subspan<kMraPrivateAt>()};
}

void write(MadBytes& mad, uint64_t transaction_id, const CmMra& mra) {
  const MutableMessage message = write_cm_header(mad, CmAttribute::mra, transaction_id);
  uint8_t* const at = message.data();
  store_be32(at + kLocalIdAt, mra.local_id);
  store_be32(at + kRemoteIdAt, mra.remote_id);
  at[kAnsweredAt] = pack(static_cast<unsigned>(mra.answered), 6, 2);
  at[kMraTimeoutAt] = pack(mra.service_timeout, 3, 5);
  copy_to(message, kMraPrivateAt, mra.private_data, kMraPrivateBytes);
}

CmRej read_rej(const CmMad& mad) {
  const Message message = message_of(mad, CmAttribute::rej);
  const uint8_t* const at = message.data();
  const size_t info_bytes = std::min<size_t>(bits(at[kRejInfoLengthAt], 1, 7), kRejInfoBytes);
  return {.local_id = load_be32(at + kLocalIdAt),
          .remote_id = load_be32(at + kRemoteIdAt),
          .rejected = static_cast<CmAnswered>(bits(at[kAnsweredAt], 6, 2)),
          .reason = static_cast<RejectReason>(load_be16(at + kRejReasonAt)),
          .info = message.subspan(kRejInfoAt, info_bytes),
          .private_data = message.subspan<kRejPrivateAt>()};
}

void write(MadBytes& mad, uint64_t transaction_id, const CmRej& rej) {
  const MutableMessage message = write_cm_header(mad, CmAttribute::rej, transaction_id);
  uint8_t* const at = message.data();
  store_be32(at + kLocalIdAt, rej.local_id);
  store_be32(at + kRemoteIdAt, rej.remote_id);
  at[kAnsweredAt] = pack(static_cast<unsigned>(rej.rejected), 6, 2);
  at[kRejInfoLengthAt] = pack(static_cast<unsigned>(rej.info.size()), 1, 7);
  store_be16(at + kRejReasonAt, static_cast<uint16_t>(rej.reason));
  copy_to(message, kRejInfoAt, rej.info, kRejInfoBytes);
  copy_to(message, kRejPrivateAt, rej.private_data, kRejPrivateBytes);
}

CmRep read_rep(const CmMad& mad) {
  const Message message = message_of(mad, CmAttribute::rep);
  const uint8_t* const at = message.data();
  return {.local_id = load_be32(at + kLocalIdAt),
          .remote_id = load_be32(at + kRemoteIdAt),
          .qkey = load_be32(at + kRepQkeyAt),
          .qpn = load_24(at + kRepQpnAt),
          .eecn = load_24(at + kRepEecnAt),
          .starting_psn = load_24(at + kRepPsnAt),
          .responder_resources = at[kRepResourcesAt],
          .initiator_depth = at[kRepDepthAt],
          .target_ack_delay = bits(at[kRepAckDelayAt], 3, 5),
          .failover_accepted = bits(at[kRepAckDelayAt], 1, 2),
          .flow_control = bits(at[kRepAckDelayAt], 0, 1) != 0,
          .rnr_retry_count = bits(at[kRepRnrAt], 5, 3),
          .srq = bits(at[kRepRnrAt], 4, 1) != 0,
          .ca_guid = load_be64(at + kRepGuidAt),
          .private_data = message.subspan<kRepPrivateAt>()};
}

void write(MadBytes& mad, uint64_t transaction_id, const CmRep& rep) {
  const MutableMessage message = write_cm_header(mad, CmAttribute::rep, transaction_id);
  uint8_t* const at = message.data();
  store_be32(at + kLocalIdAt, rep.local_id);
  store_be32(at + kRemoteIdAt, rep.remote_id);
  store_be32(at + kRepQkeyAt, rep.qkey);
  store_24(at + kRepQpnAt, rep.qpn, 0);
  store_24(at + kRepEecnAt, rep.eecn, 0);
  store_24(at + kRepPsnAt, rep.starting_psn, 0);
  at[kRepResourcesAt] = rep.responder_resources;
  at[kRepDepthAt] = rep.initiator_depth;
  at[kRepAckDelayAt] = pack(rep.target_ack_delay, 3, 5) | pack(rep.failover_accepted, 1, 2) |
                       pack(rep.flow_control ? 1 : 0, 0, 1);
  at[kRepRnrAt] = pack(rep.rnr_retry_count, 5, 3) | pack(rep.srq ? 1 : 0, 4, 1);
  store_be64(at + kRepGuidAt, rep.ca_guid);
  copy_to(message, kRepPrivateAt, rep.private_data, kRepPrivateBytes);
}

CmRtu read_rtu(const CmMad& mad) {
  const Message message = message_of(mad, CmAttribute::rtu);
  return {.local_id = load_be32(&message[kLocalIdAt]),
          .remote_id = load_be32(&message[kRemoteIdAt]),
          .private_data = message.subspan<kRtuPrivateAt>()};
}

void write(MadBytes& mad, uint64_t transaction_id, const CmRtu& rtu) {
  const MutableMessage message = write_cm_header(mad, CmAttribute::rtu, transaction_id);
  store_be32(&message[kLocalIdAt], rtu.local_id);
  store_be32(&message[kRemoteIdAt], rtu.remote_id);
  copy_to(message, kRtuPrivateAt, rtu.private_data, kRtuPrivateBytes);
}

CmDreq read_dreq(const CmMad& mad) {
  const Message message = message_of(mad, CmAttribute::dreq);
  return {.local_id = load_be32(&message[kLocalIdAt]),
          .remote_id = load_be32(&message[kRemoteIdAt]),
          .remote_qpn = load_24(&message[kDreqQpnAt]),
          .private_data = message.subspan<kDreqPrivateAt>()};
}

void write(MadBytes& mad, uint64_t transaction_id, const CmDreq& dreq) {
  const MutableMessage message = write_cm_header(mad, CmAttribute::dreq, transaction_id);
  store_be32(&message[kLocalIdAt], dreq.local_id);
  store_be32(&message[kRemoteIdAt], dreq.remote_id);
  store_24(&message[kDreqQpnAt], dreq.remote_qpn, 0);
  copy_to(message, kDreqPrivateAt, dreq.private_data, kDreqPrivateBytes);
}

CmDrep read_drep(const CmMad& mad) {
  const Message message = message_of(mad, CmAttribute::drep);
  return {.local_id = load_be32(&message[kLocalIdAt]),
          .remote_id = load_be32(&message[kRemoteIdAt]),
          .private_data = message.subspan<kDrepPrivateAt>()};
}

void write(MadBytes& mad, uint64_t transaction_id, const CmDrep& drep) {
  const MutableMessage message = write_cm_header(mad, CmAttribute::drep, transaction_id);
  store_be32(&message[kLocalIdAt], drep.local_id);
  store_be32(&message[kRemoteIdAt], drep.remote_id);
  copy_to(message, kDrepPrivateAt, drep.private_data, kDrepPrivateBytes);
}

CmSidrReq read_sidr_req(const CmMad& mad) {
  const Message message = message_of(mad, CmAttribute::sidr_req);
  return {.request_id = load_be32(&message[kRequestIdAt]),
          .pkey = load_be16(&message[kSidrReqPkeyAt]),
          .service_id = load_be64(&message[kSidrReqServiceIdAt]),
          .private_data = message.subspan<kSidrReqPrivateAt>()};
}

void write(MadBytes& mad, uint64_t transaction_id, const CmSidrReq& request) {
  const MutableMessage message = write_cm_header(mad, CmAttribute::sidr_req, transaction_id);
  store_be32(&message[kRequestIdAt], request.request_id);
  store_be16(&message[kSidrReqPkeyAt], request.pkey);
  store_be64(&message[kSidrReqServiceIdAt], request.service_id);
  copy_to(message, kSidrReqPrivateAt, request.private_data, kSidrReqPrivateBytes);
}

CmSidrRep read_sidr_rep(const CmMad& mad) {
  const Message message = message_of(mad, CmAttribute::sidr_rep);
  const uint8_t* const at = message.data();
  const size_t info_bytes = std::min<size_t>(at[kSidrRepInfoLengthAt], kSidrRepInfoBytes);
  return {.request_id = load_be32(at + kRequestIdAt),
          .status = static_cast<SidrStatus>(at[kSidrRepStatusAt]),
          .qpn = load_24(at + kSidrRepQpnAt),
          .service_id = load_be64(at + kSidrRepServiceIdAt),
          .qkey = load_be32(at + kSidrRepQkeyAt),
          .info = message.subspan(kSidrRepInfoAt, info_bytes),
          .private_data = message.subspan<kSidrRepPrivateAt>()};
}

void write(MadBytes& mad, uint64_t transaction_id, const CmSidrRep& answer) {
  const MutableMessage message = write_cm_header(mad, CmAttribute::sidr_rep, transaction_id);
  uint8_t* const at = message.data();
  store_be32(at + kRequestIdAt, answer.request_id);
  at[kSidrRepStatusAt] = static_cast<uint8_t>(answer.status);
  at[kSidrRepInfoLengthAt] = static_cast<uint8_t>(answer.info.size());
  store_24(at + kSidrRepQpnAt, answer.qpn, 0);
  store_be64(at + kSidrRepServiceIdAt, answer.service_id);
  store_be32(at + kSidrRepQkeyAt, answer.qkey);
  copy_to(message, kSidrRepInfoAt, answer.info, kSidrRepInfoBytes);
  copy_to(message, kSidrRepPrivateAt, answer.private_data, kSidrRepPrivateBytes);
}

std::optional<uint32_t> receiver_id(const CmMad& mad) {
  switch (mad.attribute()) {
    case CmAttribute::req:
    case CmAttribute::sidr_req:
      return std::nullopt;
    case CmAttribute::sidr_rep:
      return load_be32(&mad.message()[kRequestIdAt]);
    case CmAttribute::mra:
    case CmAttribute::rej:
    case CmAttribute::rep:
    case CmAttribute::rtu:
    case CmAttribute::dreq:
    case CmAttribute::drep:
      break;
  }
  const uint32_t id = load_be32(&mad.message()[kRemoteIdAt]);
  return id != 0 ? std::optional(id) : std::nullopt;
}

uint32_t requester_id(const CmMad& mad) {
  return load_be32(&mad.message()[mad.attribute() == CmAttribute::sidr_req ? kRequestIdAt : kLocalIdAt]);
}

std::optional<uint64_t> service_id(const CmMad& mad) {
  switch (mad.attribute()) {
    case CmAttribute::req:
      return load_be64(&mad.message()[kReqServiceIdAt]);
    case CmAttribute::sidr_req:
      return load_be64(&mad.message()[kSidrReqServiceIdAt]);
    default:
      return std::nullopt;
  }
}

}  // namespace faultline::wire
