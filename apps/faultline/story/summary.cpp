// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

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
                    {"faults", ordered_json::array()}};
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
  return json;
}

}  // namespace faultline::story
