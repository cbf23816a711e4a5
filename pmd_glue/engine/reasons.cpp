// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine/reasons.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>

#include <arpa/inet.h>
#include <spdlog/fmt/fmt.h>

#include "pmd_glue/config/config.hpp"
#include "stack/base/log.hpp"
#include "stack/base/process/process_local.hpp"
#include "stack/wire/link/address_text.hpp"
#include "stack/wire/packet/headers.hpp"

namespace faultline::glue {
namespace {

using transport::CompletionStatus;

const char* text_of(CompletionStatus status) {
  switch (status) {
    case CompletionStatus::local_length:
      return "local length error";
    case CompletionStatus::local_qp_operation:
      return "local QP operation error: the work request does not go with this QP";
    case CompletionStatus::local_protection:
      return "local protection error: a local buffer is in no region, or its page cannot be had";
    case CompletionStatus::mw_bind:
      return "memory window bind error";
    case CompletionStatus::bad_response:
      return "bad response from the peer";
    case CompletionStatus::remote_invalid_request:
      return "remote invalid request";
    case CompletionStatus::remote_access:
      return "remote access error: rkey, range or rights";
    case CompletionStatus::remote_operation:
      return "remote operation error: the peer could not complete it";
    case CompletionStatus::retry_exceeded:
      return "no answer from the peer, retry_cnt is used up";
    case CompletionStatus::rnr_retry_exceeded:
      return "the peer had no receive posted, rnr_retry is used up";
    default:
      return "error";
  }
}

/// Returns the text of a NAK code (IBA 9.7.5.2.8, table 46).
const char* text_of_nak(uint8_t syndrome) {
  constexpr std::array<const char*, 5> kCodes{"PSN sequence error", "invalid request", "remote access error",
                                              "remote operational error", "invalid RD request"};
  const uint8_t code = syndrome & wire::kAethValueMask;
  return code < kCodes.size() ? kCodes[code] : "unknown code";
}

const char* name_of(transport::SendOpcode opcode) {
  using transport::SendOpcode;
  switch (opcode) {
    case SendOpcode::rdma_write:
      return "WRITE";
    case SendOpcode::rdma_write_with_imm:
      return "WRITE with immediate";
    case SendOpcode::send:
      return "SEND";
    case SendOpcode::send_with_imm:
      return "SEND with immediate";
    case SendOpcode::rdma_read:
      return "READ";
    case SendOpcode::atomic_cmp_and_swp:
      return "compare and swap";
    case SendOpcode::atomic_fetch_and_add:
      return "fetch and add";
    case SendOpcode::local_inv:
      return "invalidation of a local key";
    case SendOpcode::bind_mw:
      return "bind of a memory window";
    case SendOpcode::send_with_inv:
      return "SEND with invalidate";
    case SendOpcode::flush:
      return "FLUSH";
    case SendOpcode::atomic_write:
      return "ATOMIC WRITE";
  }
  return "work request";
}

bool has_remote_address(transport::SendOpcode opcode) {
  using transport::SendOpcode;
  return opcode != SendOpcode::send && opcode != SendOpcode::send_with_imm &&
         opcode != SendOpcode::send_with_inv && opcode != SendOpcode::local_inv &&
         opcode != SendOpcode::bind_mw;
}

/// Returns what was asked of the peer: "; the request: WRITE of 64 bytes to ...", or "".
std::string request_text(const transport::QpFailure& failure) {
  if (!failure.has_request) return {};
  std::string text =
      fmt::format("; the request: {} of {} bytes", name_of(failure.opcode), failure.length_bytes);
  if (has_remote_address(failure.opcode))
    text += fmt::format(" at address 0x{:x} with rkey 0x{:x}", failure.remote_va, failure.rkey);
  return text;
}

/// Returns how long the requester has tried: "; 3 packets are not acknowledged, ...", or "".
std::string tries_text(const transport::QpFailure& failure) {
  constexpr double kNsPerMs = 1e6;
  if (failure.status == CompletionStatus::rnr_retry_exceeded)
    return fmt::format("; rnr_retry is {}", failure.rnr_retry);
  if (failure.status != CompletionStatus::retry_exceeded) return {};
  return fmt::format("; {} packets are not acknowledged, retry_cnt is {}, the timeout {:.3g} ms",
                     failure.unanswered_packets, failure.retry_count,
                     static_cast<double>(failure.ack_timeout_ns) / kNsPerMs);
}

constinit ProcessLocal<ReasonLimit> limit;

}  // namespace

std::string text_of(const transport::QpFailure& failure) {
  const std::string peer = failure.is_connected
                               ? fmt::format(", peer {} QP 0x{:06x}", text_of(failure.peer), failure.peer_qpn)
                               : std::string();
  if (failure.nak_sent)
    return fmt::format("QP 0x{:06x}{}: fails by a request of the peer at PSN {}: {} (NAK, syndrome 0x{:02x})",
                       failure.qpn, peer, failure.psn, text_of_nak(failure.syndrome), failure.syndrome);
  const bool to_itself = failure.status == CompletionStatus::retry_exceeded && failure.is_loopback;
  return fmt::format(
      "QP 0x{:06x}{}: fails at PSN {}: {} (status {}){}{}{}", failure.qpn, peer, failure.psn,
      text_of(failure.status), static_cast<int>(failure.status), request_text(failure), tries_text(failure),
      to_itself ? "; the peer's address is this device's own: are both ends on one wire, and of one user?"
                : "");
}

std::optional<uint64_t> ReasonLimit::admit(TimeNs now) {
  const std::lock_guard guard(mutex_);
  if (!lines_.take(now)) {
    ++held_back_;
    return std::nullopt;
  }
  const uint64_t before = held_back_;
  held_back_ = 0;
  return before;
}

bool wants_reasons() {
  return log().should_log(spdlog::level::debug);
}

void log_reason(std::string_view device, std::string_view line, TimeNs now) noexcept {
  try {
    const auto before = limit.get().admit(now);
    if (!before) return;
    if (*before != 0) log().debug("{} lines like the next one were left out", *before);
    log().debug("{}: {}", device, line);
  } catch (const std::exception&) {
    // Out of memory: the line is dropped, since the caller's work matters more.
  }
}

std::optional<std::string> parse_log_level(const char* text, std::string& complaint) {
  if (text == nullptr) return std::nullopt;
  const auto levels = log_levels();
  if (std::find(levels.begin(), levels.end(), text) != levels.end()) return text;
  complaint = fmt::format("faultline: FAULTLINE_LOG: \"{}\" is not one of {}", text, fmt::join(levels, ", "));
  return std::nullopt;
}

std::optional<std::string> log_level_of_environment(std::string& complaint) {
  return parse_log_level(secure_getenv("FAULTLINE_LOG"), complaint);
}

}  // namespace faultline::glue
