// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/device/telemetry.hpp"

#include <cerrno>
#include <string>

#include <rte_telemetry.h>

#include "pmd_glue/device/registry.hpp"

namespace faultline::glue {
namespace {

int list_running(const char* /*command*/, const char* /*parameters*/, rte_tel_data* data) {
  rte_tel_data_start_array(data, RTE_TEL_STRING_VAL);
  for (const std::string& name : Registry::instance().running())
    rte_tel_data_add_array_string(data, name.c_str());
  return 0;
}

int show_counters(const char* /*command*/, const char* parameters, rte_tel_data* data) {
  const auto device = Registry::instance().find(parameters != nullptr ? parameters : "");
  if (device == nullptr) return -EINVAL;
  rte_tel_data_start_dict(data);
  const auto add = [data](const std::string& name, uint64_t value) {
    rte_tel_data_add_dict_u64(data, name.c_str(), value);
  };

  const verbs::GlueCounters glue = device->glue_counters();
  add("port/rx_frames", glue.rx_frames);
  add("port/tx_frames", glue.tx_frames);
  add("port/rx_missed", glue.rx_missed);
  add("port/rx_no_mbuf", glue.rx_no_mbuf);
  add("port/peer_violations", glue.peer_violations);
  add("port/arp_in", glue.arp_in);
  add("port/arp_out", glue.arp_out);
  add("port/nd_in", glue.nd_in);
  add("port/nd_out", glue.nd_out);
  add("port/icmp_in", glue.icmp_in);
  add("port/icmp_out", glue.icmp_out);
  add("port/other_dropped", glue.other_dropped);
  add("port/loopback_frames", glue.loopback_frames);
  add("port/linearized_frames", glue.linearized_frames);
  add("port/tx_dropped", glue.tx_dropped);
  add("port/wrong_vlan", glue.wrong_vlan);
  add("port/wrong_address", glue.wrong_address);
  add("port/handed_over", glue.handed_over);
  add("port/hand_over_dropped", glue.hand_over_dropped);
  add("port/chaos_lost", glue.chaos_lost);
  add("port/chaos_duplicated", glue.chaos_duplicated);
  add("port/chaos_corrupted", glue.chaos_corrupted);
  add("port/chaos_delayed", glue.chaos_delayed);
  add("port/chaos_marked", glue.chaos_marked);

  const transport::CoreCounters core = device->core().counters();
  add("transport/rx_packets", core.rx_packets);
  add("transport/tx_packets", core.tx_packets);
  add("transport/retransmitted_packets", core.retransmitted_packets);
  add("transport/timeouts", core.timeouts);
  add("transport/rnr_naks_sent", core.rnr_naks_sent);
  add("transport/rnr_naks_received", core.rnr_naks_received);
  add("transport/naks_sent", core.naks_sent);
  add("transport/naks_received", core.naks_received);
  add("transport/faults_requester", core.faults_requester);
  add("transport/faults_responder", core.faults_responder);
  add("transport/packets_parked", core.packets_parked);
  for (size_t i = 0; i < core.parse_errors.size(); ++i)
    if (core.parse_errors[i] != 0)
      add("parse/" + std::string(wire::name_of(static_cast<wire::ParseError>(i))), core.parse_errors[i]);
  for (size_t i = 0; i < core.drops.size(); ++i)
    if (core.drops[i] != 0)
      add("drop/" + std::string(transport::name_of(static_cast<transport::DropReason>(i))), core.drops[i]);

  const odp::Counters odp = device->memory().counters();
  add("odp/num_page_faults", odp.num_page_faults);
  add("odp/num_page_fault_pages", odp.num_page_fault_pages);
  add("odp/num_invalidations", odp.num_invalidations);
  add("odp/num_invalidation_pages", odp.num_invalidation_pages);
  add("odp/num_failed_resolutions", odp.num_failed_resolutions);
  add("odp/pinned_bytes", odp.pinned_bytes);
  return 0;
}

}  // namespace

void register_telemetry() {
  rte_telemetry_register_cmd("/faultline/devices", list_running, "Names of the running devices");
  rte_telemetry_register_cmd("/faultline/counters", show_counters,
                             "Counters of a device. Parameter: its name");
}

}  // namespace faultline::glue
