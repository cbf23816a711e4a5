// SPDX-License-Identifier: BSD-3-Clause
#include "stack/verbs/device/counter_list.hpp"

#include <array>
#include <bit>
#include <string_view>

namespace faultline::verbs {

namespace {

struct Snapshot {
  odp::Counters odp;
  transport::CoreCounters core;
  GlueCounters port;
};

// One walk gives both the names and the values, so that they cannot part.
template <typename Visit>
void visit_odp(const odp::Counters& c, Visit&& visit) {
  visit("odp.num_page_faults", c.num_page_faults);
  visit("odp.num_page_fault_pages", c.num_page_fault_pages);
  visit("odp.num_invalidations", c.num_invalidations);
  visit("odp.num_invalidation_pages", c.num_invalidation_pages);
  visit("odp.num_prefetches_handled", c.num_prefetches_handled);
  visit("odp.num_prefetch_pages", c.num_prefetch_pages);
  visit("odp.invalidations_faults_contentions", c.invalidations_faults_contentions);
  visit("odp.num_failed_resolutions", c.num_failed_resolutions);
  visit("odp.num_mrs_not_found", c.num_mrs_not_found);
  visit("odp.num_odp_mr_pages", c.num_odp_mr_pages);
  visit("odp.num_odp_mrs", c.num_odp_mrs);
  visit("odp.faults_coalesced", c.faults_coalesced);
  visit("odp.copy_faults_caught", c.copy_faults_caught);
  visit("odp.departures_seen", c.departures_seen);
  visit("odp.pinned_bytes", c.pinned_bytes);
  visit("odp.pin_evictions", c.pin_evictions);
  visit("odp.pin_fallbacks", c.pin_fallbacks);
  visit("odp.stuck_pin_bytes", c.stuck_pin_bytes);
  visit("odp.unwatched_regions", c.unwatched_regions);
  visit("odp.fault_service_ns_total", c.fault_service_ns_total);
  visit("odp.fault_service_ns_max", c.fault_service_ns_max);
  visit("odp.unpinned_bytes", c.unpinned_bytes);
  visit("odp.faults_served_at_once", c.faults_served_at_once);
  visit("odp.num_implicit_children", c.num_implicit_children);
  visit("odp.implicit_children_made", c.implicit_children_made);
  visit("odp.implicit_children_reclaimed", c.implicit_children_reclaimed);
  visit("odp.victims_paged_out", c.victims_paged_out);
  // By kind of fault, how many services took less than so many microseconds and no less than the next
  // smaller.
  for (size_t kind = 0; kind < odp::kFaultKinds; ++kind) {
    const std::string name = "odp.fault_us." + std::string(name_of(static_cast<odp::FaultKind>(kind)));
    for (size_t bucket = 0; bucket + 1 < odp::kLatencyBuckets; ++bucket)
      visit(name + ".lt_" + std::to_string(1U << bucket), c.fault_latency[kind][bucket]);
    visit(name + ".more", c.fault_latency[kind][odp::kLatencyBuckets - 1]);
  }
}

template <typename Visit>
void visit_core(const transport::CoreCounters& c, Visit&& visit) {
  visit("transport.rx_packets", c.rx_packets);
  visit("transport.rx_bytes", c.rx_bytes);
  visit("transport.tx_packets", c.tx_packets);
  visit("transport.tx_bytes", c.tx_bytes);
  visit("transport.messages_sent", c.messages_sent);
  visit("transport.messages_received", c.messages_received);
  visit("transport.acks_sent", c.acks_sent);
  visit("transport.naks_sent", c.naks_sent);
  visit("transport.naks_received", c.naks_received);
  visit("transport.rnr_naks_sent", c.rnr_naks_sent);
  visit("transport.rnr_naks_received", c.rnr_naks_received);
  visit("transport.retransmitted_packets", c.retransmitted_packets);
  visit("transport.timeouts", c.timeouts);
  visit("transport.probes_sent", c.probes_sent);
  visit("transport.selective_acks_sent", c.selective_acks_sent);
  visit("transport.selective_acks_received", c.selective_acks_received);
  visit("transport.packets_held", c.packets_held);
  visit("transport.duplicate_requests", c.duplicate_requests);
  visit("transport.out_of_sequence", c.out_of_sequence);
  visit("transport.faults_requester", c.faults_requester);
  visit("transport.faults_responder", c.faults_responder);
  visit("transport.packets_parked", c.packets_parked);
  visit("transport.ecn_marked_received", c.ecn_marked_received);
  visit("transport.cnps_sent", c.cnps_sent);
  visit("transport.cnps_received", c.cnps_received);
  visit("transport.management_received", c.management_received);
  visit("transport.management_sent", c.management_sent);
  visit("transport.pacing_waits", c.pacing_waits);
  visit("transport.tx_no_buffers", c.tx_no_buffers);
  visit("transport.tx_ring_full", c.tx_ring_full);
  visit("transport.cq_overruns", c.cq_overruns);
  visit("transport.fault_queue_full", c.fault_queue_full);
  for (size_t i = 1; i < c.parse_errors.size(); ++i)  // 0 is no error
    visit("parse." + std::string(wire::name_of(static_cast<wire::ParseError>(i))), c.parse_errors[i]);
  for (size_t i = 0; i < c.drops.size(); ++i)
    visit("drop." + std::string(transport::name_of(static_cast<transport::DropReason>(i))), c.drops[i]);
}

template <typename Visit>
void visit_port(const GlueCounters& c, Visit&& visit) {
  visit("port.rx_frames", c.rx_frames);
  visit("port.tx_frames", c.tx_frames);
  visit("port.rx_missed", c.rx_missed);
  visit("port.rx_no_mbuf", c.rx_no_mbuf);
  visit("port.arp_in", c.arp_in);
  visit("port.arp_out", c.arp_out);
  visit("port.icmp_in", c.icmp_in);
  visit("port.icmp_out", c.icmp_out);
  visit("port.other_dropped", c.other_dropped);
  visit("port.loopback_frames", c.loopback_frames);
  visit("port.linearized_frames", c.linearized_frames);
  visit("port.tx_dropped", c.tx_dropped);
  visit("port.peer_violations", c.peer_violations);
  visit("port.nd_in", c.nd_in);
  visit("port.nd_out", c.nd_out);
  visit("port.wrong_vlan", c.wrong_vlan);
  visit("port.wrong_address", c.wrong_address);
  visit("port.handed_over", c.handed_over);
  visit("port.hand_over_dropped", c.hand_over_dropped);
  visit("port.chaos_lost", c.chaos_lost);
  visit("port.chaos_duplicated", c.chaos_duplicated);
  visit("port.chaos_corrupted", c.chaos_corrupted);
  visit("port.chaos_delayed", c.chaos_delayed);
  visit("port.chaos_marked", c.chaos_marked);
}

template <typename Visit>
void visit_all(const Snapshot& snapshot, Visit&& visit) {
  visit_odp(snapshot.odp, visit);
  visit_core(snapshot.core, visit);
  visit_port(snapshot.port, visit);
}

}  // namespace

const std::vector<std::string>& counter_names() {
  static const std::vector<std::string>& names = *[] {
    auto* list = new std::vector<std::string>;
    visit_all(Snapshot{}, [list](const std::string& name, uint64_t) { list->push_back(name); });
    return list;
  }();
  return names;
}

namespace {

/// A core's counters are 64-bit numbers and nothing else.
transport::CoreCounters sum_of_cores(DeviceBackend& backend) {
  using Numbers = std::array<uint64_t, sizeof(transport::CoreCounters) / sizeof(uint64_t)>;
  Numbers sum{};
  for (uint32_t core = 0; core < backend.core_count(); ++core) {
    const auto numbers = std::bit_cast<Numbers>(backend.core(core).counters());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += numbers[i];
  }
  return std::bit_cast<transport::CoreCounters>(sum);
}

}  // namespace

std::vector<uint64_t> counter_values(DeviceBackend& backend) {
  const Snapshot snapshot{backend.memory().counters(), sum_of_cores(backend), backend.glue_counters()};
  std::vector<uint64_t> values;
  visit_all(snapshot, [&values](const std::string&, uint64_t value) { values.push_back(value); });
  return values;
}

}  // namespace faultline::verbs
