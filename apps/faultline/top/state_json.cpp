// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/top/state_json.hpp"

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "apps/faultline/top/names.hpp"
#include "stack/status/failure_text.hpp"
#include "stack/wire/link/address_text.hpp"

namespace faultline::cli {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const QpState& qp) {
  const status::QpRow& row = qp.row;
  const status::QpLive& live = row.live;
  ordered_json json{{"qpn", row.qpn},
                    {"type", qp_type_name(row.type)},
                    {"state", qp_state_name(live.state)},
                    {"pd", row.pd_handle},
                    {"send_cq", row.send_cq_handle},
                    {"recv_cq", row.receive_cq_handle},
                    {"srq", row.srq_number},
                    {"core", row.core}};
  const wire::Gid peer{live.peer_gid};
  if (!peer.is_zero()) {
    json["peer"] = wire::text_of(peer);
    json["peer_qpn"] = live.peer_qpn;
  }
  json["waits_for"] = status::name_of(live.waits_for);
  json["next_psn"] = live.next_psn;
  json["unacked_psn"] = live.unacked_psn;
  json["expected_psn"] = live.expected_psn;
  json["in_flight_packets"] = live.in_flight_packets;
  json["window_packets"] = live.window_packets;
  json["round_trip_ns"] = live.round_trip_ns;
  json["rate_bytes_per_s"] = live.rate_bytes_per_s;
  json["retries_used"] = live.retry_count - live.retries_left;
  json["retry_cnt"] = live.retry_count;
  json["rnr_retry"] = live.rnr_retry;
  json["timeout"] = live.timeout;
  json["mtu_bytes"] = live.mtu_bytes;
  json["sends_posted"] = live.sends_posted;
  json["receives_posted"] = live.receives_posted;
  json["parked_packets"] = live.parked_packets;
  json["updated_ns"] = live.updated_ns;
  json["tx_packets_per_s"] = qp.tx_packets_per_s;
  json["rx_packets_per_s"] = qp.rx_packets_per_s;
  for (const status::QpCounterRow& counter : status::kQpCounterRows)
    json["counters"][std::string(counter.name)] = live.counters.*counter.member;
  return json;
}

ordered_json json_of(const RegionState& region) {
  const status::MrRow& row = region.row;
  return {{"lkey", row.lkey},
          {"rkey", row.rkey},
          {"address", row.address},
          {"length_bytes", row.length_bytes},
          {"iova", row.iova},
          {"access", row.access},
          {"pd", row.pd_handle},
          {"page_faults", row.page_faults},
          {"page_invalidations", row.page_invalidations},
          {"page_prefetch", row.page_prefetch},
          {"resident_pages", row.resident_pages},
          {"page_faults_per_s", region.faults_per_s}};
}

ordered_json json_of(const status::FailureRecord& failure) {
  return {{"time_ns", failure.time_ns},
          {"vendor_err", static_cast<unsigned>(failure.cause)},
          {"name", status::row_of(failure.cause).name},
          {"count", failure.count},
          {"qpn", failure.qpn},
          {"peer_qpn", failure.peer_qpn},
          {"psn", failure.psn},
          {"status", failure.status},
          {"syndrome", failure.syndrome},
          {"retries_used", failure.retries_used},
          {"silent_ns", failure.silent_ns},
          {"unacknowledged_packets", failure.unanswered_packets},
          {"awaited_address", failure.awaited_va},
          {"awaited_ns", failure.awaited_ns},
          {"text", status::text_of(failure)}};
}

ordered_json json_of(const DeviceState& device) {
  ordered_json json{{"device", device.device},
                    {"pid", device.pid},
                    {"program", device.program},
                    {"port", device.port_kind},
                    {"dead", device.is_dead},
                    {"link_up", device.link_up},
                    {"cores", device.cores},
                    {"addresses", device.addresses},
                    {"created_realtime_ns", device.created_realtime_ns},
                    {"updated_ns", device.updated_ns},
                    {"pds", device.pds},
                    {"cqs", device.cqs},
                    {"srqs", device.srqs},
                    {"cm_ids", device.cm_ids}};
  json["counters"] = ordered_json::object();
  json["per_second"] = ordered_json::object();
  for (const CounterState& counter : device.counters) {
    json["counters"][counter.name] = counter.value;
    if (counter.kind == "count" && counter.per_second != 0)
      json["per_second"][counter.name] = counter.per_second;
  }
  json["qps"] = ordered_json::array();
  for (const QpState& qp : device.qps) json["qps"].push_back(json_of(qp));
  json["mrs"] = ordered_json::array();
  for (const RegionState& region : device.regions) json["mrs"].push_back(json_of(region));
  json["failures"] = ordered_json::array();
  for (const status::FailureRecord& failure : device.failures) json["failures"].push_back(json_of(failure));
  return json;
}

}  // namespace

nlohmann::ordered_json json_of(const TopState& state) {
  ordered_json json{{"now_ns", state.now_ns}, {"devices", ordered_json::array()}};
  for (const DeviceState& device : state.devices) json["devices"].push_back(json_of(device));
  return json;
}

}  // namespace faultline::cli
