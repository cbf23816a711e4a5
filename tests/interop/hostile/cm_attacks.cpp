// SPDX-License-Identifier: BSD-3-Clause
// Datagrams to the connection manager: requests without end, answers to what nobody asked, nonsense.
#include "stack/wire/mad/mad.hpp"
#include "stack/wire/mad/mad_cm.hpp"
#include "tests/interop/hostile/attacks.hpp"

namespace faultline::hostile {
namespace {

constexpr uint64_t kNobodysService = wire::ip_service_id(0x0106, 4444);

wire::IpAddressing addressing_of(const wire::PathHeader& path) {
  return {path.source_gid, path.destination_gid, 999};
}

}  // namespace

Bytes Attacks::cm_request() {
  const wire::PathHeader path = foreign_path();
  std::array<uint8_t, wire::kReqPrivateBytes> field{};
  wire::write_ip_addressing(std::span(field).first<wire::kIpAddressingBytes>(), addressing_of(path));
  wire::CmReq request;
  request.local_id = static_cast<uint32_t>(random_());
  request.service_id = chance(70) ? facts_.services[0] : kNobodysService;
  request.ca_guid = random_();
  request.qpn = static_cast<uint32_t>(random(1U << 24));
  request.responder_resources = request.initiator_depth = static_cast<uint8_t>(random(256));
  request.remote_response_timeout = request.local_response_timeout = static_cast<uint8_t>(random(32));
  request.transport = static_cast<wire::CmTransport>(chance(90) ? 0 : random(4));
  request.starting_psn = static_cast<uint32_t>(random(1U << 24));
  request.retry_count = request.rnr_retry_count = 7;
  request.path_mtu = static_cast<uint8_t>(chance(90) ? 5 : random(16));
  request.max_cm_retries = static_cast<uint8_t>(random(16));
  request.primary.local_gid = path.source_gid;
  request.primary.remote_gid = chance(95) ? path.destination_gid : stranger(false);
  request.primary.local_ack_timeout = static_cast<uint8_t>(random(32));
  request.private_data = field;
  wire::MadBytes mad{};
  wire::write(mad, random_(), request);
  return datagram(path, mad, wire::kManagementQkey, wire::kManagementQpn);
}

Bytes Attacks::cm_answer() {
  const auto id = [this] { return static_cast<uint32_t>(random_()); };
  wire::MadBytes mad{};
  switch (random(7)) {
    case 0:
      wire::write(mad, random_(),
                  wire::CmMra{.local_id = id(),
                              .remote_id = id(),
                              .answered = static_cast<wire::CmAnswered>(random(3)),
                              .service_timeout = 31});
      break;
    case 1:
      wire::write(mad, random_(),
                  wire::CmRej{.local_id = id(),
                              .remote_id = chance(50) ? 0 : id(),
                              .reason = static_cast<wire::RejectReason>(random(40))});
      break;
    case 2:
      wire::write(
          mad, random_(),
          wire::CmRep{
              .local_id = id(), .remote_id = id(), .qpn = id() & wire::kQpnMask, .ca_guid = random_()});
      break;
    case 3:
      wire::write(mad, random_(), wire::CmRtu{.local_id = id(), .remote_id = id()});
      break;
    case 4:
      wire::write(mad, random_(),
                  wire::CmDreq{.local_id = id(), .remote_id = id(), .remote_qpn = any_qp().qpn});
      break;
    case 5:
      wire::write(mad, random_(), wire::CmDrep{.local_id = id(), .remote_id = id()});
      break;
    default:
      wire::write(mad, random_(), wire::CmSidrRep{.request_id = id(), .qpn = 1, .qkey = id()});
  }
  return datagram(chance(50) ? foreign_path() : peers_path(), mad, wire::kManagementQkey,
                  wire::kManagementQpn);
}

Bytes Attacks::cm_service_request() {
  const wire::PathHeader path = foreign_path();
  std::array<uint8_t, wire::kSidrReqPrivateBytes> field{};
  wire::write_ip_addressing(std::span(field).first<wire::kIpAddressingBytes>(), addressing_of(path));
  wire::MadBytes mad{};
  wire::write(mad, random_(),
              wire::CmSidrReq{.request_id = static_cast<uint32_t>(random_()),
                              .service_id = chance(70) ? facts_.services[0] : kNobodysService,
                              .private_data = field});
  return datagram(path, mad, wire::kManagementQkey, wire::kManagementQpn);
}

Bytes Attacks::cm_malformed() {
  const Bytes mad = random_bytes(chance(50) ? wire::kMadBytes : random(600));
  return datagram(chance(50) ? foreign_path() : peers_path(), mad,
                  chance(70) ? wire::kManagementQkey : static_cast<uint32_t>(random_()),
                  chance(70) ? wire::kManagementQpn : static_cast<uint32_t>(random(1U << 24)));
}

}  // namespace faultline::hostile
