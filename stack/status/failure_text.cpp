// SPDX-License-Identifier: BSD-3-Clause
#include "stack/status/failure_text.hpp"

#include <array>
#include <string_view>

#include <spdlog/fmt/fmt.h>

#include "stack/wire/link/address_text.hpp"

namespace faultline::status {
namespace {

using enum FailureCause;

constexpr double kNsPerMs = 1e6;
constexpr uint8_t kNoRnrLimit = 7;  ///< of rnr_retry (ibv_modify_qp(3))

bool is_drop(FailureCause cause) {
  return cause >= dropped_unknown_qpn;
}

bool is_of_connection(FailureCause cause) {
  return cause >= connection_rejected && cause < dropped_unknown_qpn;
}

bool is_of_silence(FailureCause cause) {
  return cause == never_answered || cause == stopped_answering || cause == link_down ||
         cause == acknowledges_nothing;
}

/// Names of transport::SendOpcode, whose values are those of ibv_wr_opcode.
std::string_view request_name(uint8_t opcode) {
  switch (opcode) {
    case 0:
      return "WRITE";
    case 1:
      return "WRITE with immediate";
    case 2:
      return "SEND";
    case 3:
      return "SEND with immediate";
    case 4:
      return "READ";
    case 5:
      return "compare and swap";
    case 6:
      return "fetch and add";
    case 7:
      return "invalidation of a local key";
    case 8:
      return "bind of a memory window";
    case 9:
      return "SEND with invalidate";
    case 14:
      return "FLUSH";
    case 15:
      return "ATOMIC WRITE";
    default:
      return "work request";
  }
}

bool has_remote_address(uint8_t opcode) {
  constexpr std::array<uint8_t, 5> kWithout{2, 3, 7, 8, 9};
  for (const uint8_t without : kWithout)
    if (opcode == without) return false;
  return true;
}

std::string peer_text(const FailureRecord& record) {
  if (!record.is_connected) return {};
  return fmt::format(", peer {} QP 0x{:06x}", wire::text_of(wire::Gid{record.peer_gid}), record.peer_qpn);
}

std::string request_text(const FailureRecord& record) {
  if (!record.has_request) return {};
  std::string text =
      fmt::format("; the request: {} of {} bytes", request_name(record.opcode), record.length_bytes);
  if (has_remote_address(record.opcode))
    text += fmt::format(" at address 0x{:x} with rkey 0x{:x}", record.remote_va, record.key);
  return text;
}

/// What the requester has tried.
std::string tries_text(const FailureRecord& record) {
  if (record.cause == receiver_not_ready)
    return record.rnr_retry == kNoRnrLimit ? std::string()
                                           : fmt::format("; rnr_retry is {}", record.rnr_retry);
  if (!is_of_silence(record.cause)) return {};
  std::string text = fmt::format(
      "; no answer for {} x {:.3g} ms; {} packets are not acknowledged, the last acknowledged PSN is {}",
      record.retry_count + 1, static_cast<double>(record.ack_timeout_ns) / kNsPerMs,
      record.unanswered_packets, (record.psn - 1) & 0xff'ffff);
  text += record.link_up ? "; the port's link is up" : "; the port's link is down";
  if (record.is_loopback)
    text += "; the peer's address is this device's own: are both ends on one wire, and of one user?";
  return text;
}

/// The access that was refused: here, or of a local buffer.
std::string access_text(const FailureRecord& record) {
  if (record.refused_key == 0 && record.refused_length_bytes == 0) return {};
  return fmt::format("; {} 0x{:x}, {} bytes at address 0x{:x}", record.nak_sent ? "rkey" : "lkey",
                     record.refused_key, record.refused_length_bytes, record.refused_va);
}

}  // namespace

std::string text_of(const FailureRecord& record) {
  const FailureCauseRow& row = row_of(record.cause);
  const std::string why =
      fmt::format("{} ({}, vendor_err {})", row.text, row.name, static_cast<unsigned>(record.cause));
  if (is_of_connection(record.cause))
    return fmt::format("{}: {}{}; look at: {}", wire::text_of(wire::Gid{record.peer_gid}), why,
                       record.syndrome != 0 ? fmt::format(", reason {}", record.syndrome) : "", row.check);
  if (is_drop(record.cause)) return fmt::format("{} x {}; look at: {}", record.count, why, row.check);
  if (record.nak_sent)
    return fmt::format(
        "QP 0x{:06x}{}: fails by a request of the peer at PSN {}: {}, NAK with syndrome 0x{:02x}{}; "
        "look at: {}",
        record.qpn, peer_text(record), record.psn, why, record.syndrome, access_text(record), row.check);
  return fmt::format("QP 0x{:06x}{}: fails at PSN {}: {}, status {}{}{}{}; look at: {}", record.qpn,
                     peer_text(record), record.psn, why, record.status, request_text(record),
                     tries_text(record), access_text(record), row.check);
}

}  // namespace faultline::status
