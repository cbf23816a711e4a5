// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "apps/faultline/story/analysis.hpp"
#include "apps/faultline/story/names.hpp"
#include "apps/faultline/story/page.hpp"
#include "stack/wire/link/address_text.hpp"

namespace faultline::story {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const Connection& connection) {
  ordered_json json{{"service", name_of(connection.service)},
                    {"events", connection.events},
                    {"mtu_bytes", connection.mtu_bytes},
                    {"begin_ns", connection.begin_ns},
                    {"end_ns", connection.end_ns},
                    {"first_psn", connection.first_psn}};
  for (size_t i = 0; i < connection.ends.size(); ++i) {
    const SentCounts& sent = connection.sent[i];
    json["ends"].push_back({{"address", wire::text_of(connection.ends[i].address)},
                            {"qpn", connection.ends[i].qpn},
                            {"sent_packets", sent.packets},
                            {"retransmitted_packets", sent.retransmitted},
                            {"payload_bytes", sent.payload_bytes},
                            {"acks", sent.acks},
                            {"sequence_naks", sent.sequence_naks},
                            {"rnr_naks", sent.rnr_naks},
                            {"other_naks", sent.other_naks}});
  }
  return json;
}

/// The fields that stalls and faults share.
template <typename Row>
ordered_json json_of_row(const Story& story, const Row& row) {
  return {{"connection", row.connection},
          {"end", row.end},
          {"psn", (story.connections[row.connection].first_psn[row.end] + static_cast<uint32_t>(row.psn)) &
                      wire::Psn::kMask},
          {"relative_psn", row.psn},
          {"begin_ns", row.begin_ns},
          {"end_ns", row.end_ns}};
}

/// A time, or null if it is none.
ordered_json time_or_null(uint64_t time_ns) {
  return time_ns == WorkRequest::kNever ? ordered_json(nullptr) : ordered_json(time_ns);
}

/// The requests that waited the longest for their first packet, then the slowest.
std::vector<const WorkRequest*> slowest_of(const Story& story) {
  std::vector<const WorkRequest*> rows(story.requests.size());
  std::ranges::transform(story.requests, rows.begin(), [](const WorkRequest& one) { return &one; });
  const uint64_t end_ns = story.events.empty() ? 0 : story.events.back().time_ns;
  const auto key = [end_ns](const WorkRequest* one) {
    const uint64_t last_ns = std::min(one->completed_ns, one->acknowledged_ns);
    const uint64_t until_ns = last_ns == WorkRequest::kNever ? end_ns : last_ns;
    // One that completes without a packet, as a flushed one, has waited until then.
    const uint64_t started_ns = one->has_started() ? one->first_packet_ns : until_ns;
    return std::pair(started_ns - one->posted_ns, until_ns - one->posted_ns);
  };
  const size_t count = std::min(rows.size(), kMostRows);
  std::ranges::partial_sort(rows, rows.begin() + static_cast<ptrdiff_t>(count), std::ranges::greater(), key);
  rows.resize(count);
  return rows;
}

ordered_json json_of(const Story& story, const WorkRequest& request) {
  const auto psn = [&] {
    return (story.connections[request.connection].first_psn[0] + static_cast<uint32_t>(request.psn)) &
           wire::Psn::kMask;
  };
  return {{"connection", request.connection},
          {"end", 0},
          {"operation", request.operation},
          {"length_bytes", request.length_bytes},
          {"psn", request.has_started() ? ordered_json(psn()) : ordered_json(nullptr)},
          {"relative_psn", request.psn},
          {"begin_ns", request.posted_ns},
          {"first_packet_ns", time_or_null(request.first_packet_ns)},
          {"acknowledged_ns", time_or_null(request.acknowledged_ns)},
          {"completed_ns", time_or_null(request.completed_ns)},
          {"status", request.status},
          {"waited_for", status::name_of(request.waited_for)}};
}

ordered_json json_of(const Control& control) {
  const record::ControlRow& row = control.row;
  ordered_json json{
      {"call", name_of(row.call)},
      {"connection",
       control.connection == Control::kOfDevice ? ordered_json(nullptr) : ordered_json(control.connection)},
      {"begin_ns", control.time_ns - std::min(control.time_ns, row.duration_ns)},
      {"end_ns", control.time_ns},
      {"duration_ns", row.duration_ns},
      {"error", row.error},
      {"text", text_of(row)}};
  using record::ControlCall;
  switch (row.call) {
    case ControlCall::modify_qp:
      json["from"] = name_of_qp_state(row.from_state);
      json["to"] = name_of_qp_state(row.to_state);
      [[fallthrough]];
    case ControlCall::create_qp:
    case ControlCall::destroy_qp:
      json["qpn"] = row.object;
      break;
    case ControlCall::register_mr:
    case ControlCall::reregister_mr:
    case ControlCall::deregister_mr:
      json["address"] = row.address;
      json["length_bytes"] = row.length_bytes;
      json["lkey"] = row.object;
      json["access"] = row.access;
      break;
    case ControlCall::create_cq:
      json["entries"] = row.entries;
      break;
    default:
      break;
  }
  return json;
}

}  // namespace

ordered_json summary_of(const Story& story) {
  ordered_json json{{"source", story.source},
                    {"origin", story.origin},
                    {"start_realtime_ns", story.start_realtime_ns},
                    {"duration_ns", story.events.empty() ? 0 : story.events.back().time_ns},
                    {"events", story.events.size()},
                    {"lost_events", story.lost_events},
                    {"other_frames", story.other_frames},
                    {"invalid_packets", story.invalid_packets},
                    {"notes", story.notes},
                    {"connections", ordered_json::array()},
                    {"findings", ordered_json::array()},
                    {"stalls", ordered_json::array()},
                    {"faults", ordered_json::array()},
                    {"work_requests", story.requests.size()},
                    {"requests", ordered_json::array()},
                    {"controls", ordered_json::array()}};
  for (const Connection& connection : story.connections) json["connections"].push_back(json_of(connection));
  for (const Finding& finding : story.findings)
    json["findings"].push_back({{"rule", name_of(finding.rule)},
                                {"connection", finding.connection},
                                {"end", finding.end},
                                {"begin_ns", finding.begin_ns},
                                {"end_ns", finding.end_ns},
                                {"text", finding.text}});
  for (size_t i = 0; i < std::min(story.stalls.size(), kMostRows); ++i) {
    ordered_json row = json_of_row(story, story.stalls[i]);
    row["cause"] = name_of(story.stalls[i].cause);
    row["packets"] = story.stalls[i].packets;
    json["stalls"].push_back(row);
  }
  for (size_t i = 0; i < std::min(story.faults.size(), kMostRows); ++i) {
    ordered_json row = json_of_row(story, story.faults[i]);
    row["at"] = story.faults[i].at;
    row["length_bytes"] = story.faults[i].length_bytes;
    json["faults"].push_back(row);
  }
  for (const WorkRequest* const request : slowest_of(story))
    json["requests"].push_back(json_of(story, *request));
  for (const Control& control : story.controls) json["controls"].push_back(json_of(control));
  return json;
}

}  // namespace faultline::story
