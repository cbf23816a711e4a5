// SPDX-License-Identifier: BSD-3-Clause
#include "stack/status/failure_text.hpp"

#include <array>
#include <string_view>

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

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
  if (record.lkey != 0)
    text += fmt::format(", local address 0x{:x} with lkey 0x{:x}", record.local_va, record.lkey);
  return text;
}

double ms_of(uint64_t ns) {
  return static_cast<double>(ns) / kNsPerMs;
}

std::string neighbour_text(const FailureRecord& record) {
  switch (record.neighbour) {
    case Neighbour::unknown:
      break;
    case Neighbour::unanswered:
      return "; the next hop answers no neighbour request";
    case Neighbour::reachable:
      return "; the next hop has answered, from MAC address " +
             fmt::format("{:02x}", fmt::join(record.neighbour_mac, ":"));
  }
  return {};
}

/// What the requester has tried.
std::string tries_text(const FailureRecord& record) {
  if (record.cause == receiver_not_ready)
    return record.rnr_retry == kNoRnrLimit
               ? std::string()
               : fmt::format("; {} of {} RNR retries are used", record.rnr_retries_used, record.rnr_retry);
  if (!is_of_silence(record.cause)) return {};
  std::string text = fmt::format(
      "; no answer for {:.4g} ms: {} of {} retries are used, the ACK timeout is {:.3g} ms; {} packets are "
      "not "
      "acknowledged, the last acknowledged PSN is {}",
      ms_of(record.silent_ns), record.retries_used, record.retry_count, ms_of(record.ack_timeout_ns),
      record.unanswered_packets, (record.psn - 1) & 0xff'ffff);
  text += record.link_up ? "; the port's link is up" : "; the port's link is down";
  text += neighbour_text(record);
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

std::string page_text(const FailureRecord& record) {
  if (record.awaited_ns == 0) return {};
  return fmt::format("; the page at address 0x{:x} with {} 0x{:x} was awaited for {:.4g} ms",
                     record.awaited_va, record.nak_sent ? "rkey" : "lkey", record.awaited_key,
                     ms_of(record.awaited_ns));
}

std::string nak_text(const FailureRecord& record) {
  if (record.syndrome == 0) return {};
  return fmt::format(", the peer's NAK has syndrome 0x{:02x}", record.syndrome);
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
        "QP 0x{:06x}{}: fails by a request of the peer at PSN {}: {}, NAK with syndrome 0x{:02x}{}{}; "
        "look at: {}",
        record.qpn, peer_text(record), record.psn, why, record.syndrome, access_text(record),
        page_text(record), row.check);
  return fmt::format("QP 0x{:06x}{}: fails at PSN {}: {}, status {}{}{}{}{}{}; look at: {}", record.qpn,
                     peer_text(record), record.psn, why, record.status, nak_text(record),
                     request_text(record), tries_text(record), access_text(record), page_text(record),
                     row.check);
}

}  // namespace faultline::status
