// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <utility>

#include "apps/faultline/story/analysis.hpp"
#include "stack/wire/packet/psn.hpp"

namespace faultline::story {
namespace {

/// The requests of one end.
struct Requests {
  bool has_begun = false;
  int32_t last = 0;           ///< relative PSN of the last packet
  int32_t highest_sent = -1;  ///< including the answers that a READ asks for
  int32_t highest_answer = -1;
};

void find_mtus(Story& story) {
  for (const Event& event : story.events) {
    if (event.kind != EventKind::packet || event.info().payload != wire::PayloadRule::full_mtu) continue;
    uint32_t& mtu_bytes = story.connections[event.connection].mtu_bytes;
    mtu_bytes = std::max(mtu_bytes, event.length_bytes);
  }
}

int32_t relative_psn(Requests& requests, Connection& connection, unsigned requester, uint32_t psn) {
  if (!requests.has_begun) {
    requests.has_begun = true;
    connection.first_psn[requester] = psn;
  }
  const wire::Psn last(connection.first_psn[requester] + static_cast<uint32_t>(requests.last));
  requests.last += wire::Psn(psn).distance_from(last);
  return requests.last;
}

void count_answer(const Event& event, SentCounts& sent) {
  if (event.info().operation != wire::Operation::acknowledge) return;
  switch (event.syndrome & wire::kAethKindMask) {
    case wire::kAethAck:
      ++sent.acks;
      break;
    case wire::kAethRnrNak:
      ++sent.rnr_naks;
      break;
    case wire::kAethNak:
      if ((event.syndrome & wire::kAethValueMask) == static_cast<uint8_t>(wire::NakCode::psn_sequence_error))
        ++sent.sequence_naks;
      else
        ++sent.other_naks;
      break;
    default:
      break;
  }
}

/// Other events are drawn at the PSN of the packet before them.
bool has_psn(const Story& story, const Event& event) {
  switch (event.kind) {
    case EventKind::packet:
    case EventKind::fault:
    case EventKind::timer:
      return true;
    case EventKind::post:
      return story.requests[event.argument].has_started();
    default:
      return false;
  }
}

bool is_retransmission(const Event& event, const Connection& connection, Requests& requests) {
  const wire::OpcodeInfo& info = event.info();
  if (info.operation == wire::Operation::read_response ||
      info.operation == wire::Operation::atomic_acknowledge) {
    const bool again = event.psn <= requests.highest_answer;
    requests.highest_answer = std::max(requests.highest_answer, event.psn);
    return again;
  }
  if (!info.request) return false;
  const bool again = event.psn <= requests.highest_sent;
  const uint32_t packets =
      info.operation == wire::Operation::read_request
          ? wire::packets_of(event.argument,
                             connection.mtu_bytes == 0 ? kUsualMtuBytes : connection.mtu_bytes)
          : 1;
  requests.highest_sent = std::max(requests.highest_sent, event.psn + static_cast<int32_t>(packets) - 1);
  return again;
}

/// Control calls are long before and after the traffic.
void note_time(const Event& event, Connection& connection) {
  if (event.kind == EventKind::control) return;
  if (!std::exchange(connection.has_begun, true)) connection.begin_ns = event.time_ns;
  connection.end_ns = event.time_ns;
}

}  // namespace

void follow_psns(Story& story) {
  find_mtus(story);
  std::vector<std::array<Requests, 2>> all(story.connections.size());
  for (Event& event : story.events) {
    Connection& connection = story.connections[event.connection];
    ++connection.events;
    note_time(event, connection);
    // Notifications have no PSN of the connection; other events have it if they are about a packet.
    if (event.kind == EventKind::packet && event.info().service == wire::Service::cnp) {
      event.psn = 0;
      ++connection.sent[event.is(kOfSecondEnd) ? 1 : 0].packets;
      continue;
    }
    Requests& requests = all[event.connection][event.requester()];
    if (!has_psn(story, event)) {
      event.psn = requests.last;
      continue;
    }
    event.psn = relative_psn(requests, connection, event.requester(), static_cast<uint32_t>(event.psn));
    if (event.kind == EventKind::post) story.requests[event.argument].psn = event.psn;
    if (event.kind != EventKind::packet) continue;
    SentCounts& sent = connection.sent[event.is(kOfSecondEnd) ? 1 : 0];
    ++sent.packets;
    sent.payload_bytes += event.length_bytes;
    count_answer(event, sent);
    if (connection.service == wire::Service::ud) continue;
    if (!is_retransmission(event, connection, requests)) continue;
    event.flags = static_cast<uint16_t>(event.flags | kRetransmitted);
    ++sent.retransmitted;
  }
}

void analyse(Story& story) {
  follow_psns(story);
  find_stalls(story);
  find_waits(story);
  find_trouble(story);
}

}  // namespace faultline::story
