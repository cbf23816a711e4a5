// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/tree/standard_counters.hpp"

#include <algorithm>

namespace faultline::abi {

namespace {

// "counters": IBA vol. 1, 16.1.3.5 (PortCounters), as Linux's Documentation/ABI/stable/sysfs-class-infiniband
// describes them. "hw_counters": the names of drivers/infiniband/hw/mlx5/counters.c and
// sw/rxe/rxe_hw_counters.c. A counter of theirs that is not counted here has no file: a zero would be wrong.
constexpr StandardCounter kCounters[] = {
    {"counters/port_xmit_data", "transport.tx_bytes", 4, "4-byte words of sent packets"},
    {"counters/port_rcv_data", "transport.rx_bytes", 4, "4-byte words of received packets"},
    {"counters/port_xmit_packets", "transport.tx_packets", 1, "packets sent"},
    {"counters/port_rcv_packets", "transport.rx_packets", 1, "packets received"},
    {"counters/port_rcv_errors", "parse.", 1, "packets refused because they are malformed"},
    {"counters/port_xmit_discards", "port.tx_dropped port.tx_too_long", 1,
     "packets that the port could not send"},
    {"counters/excessive_buffer_overrun_errors", "port.rx_missed port.rx_no_mbuf", 1,
     "packets lost because there was no buffer"},
    // mlx5
    {"hw_counters/out_of_sequence", "transport.out_of_sequence", 1, "requests received behind a gap"},
    {"hw_counters/duplicate_request", "transport.duplicate_requests", 1, "requests received a second time"},
    {"hw_counters/packet_seq_err", "transport.sequence_naks_received", 1,
     "NAKs received that report a PSN sequence error"},
    {"hw_counters/local_ack_timeout_err", "transport.timeouts", 1, "local ACK timeouts"},
    {"hw_counters/rnr_nak_retry_err", "transport.rnr_naks_received", 1, "RNR NAKs received"},
    {"hw_counters/out_of_buffer", "drop.no_receive_wqe", 1,
     "packets dropped because no receive work request is posted"},
    {"hw_counters/np_ecn_marked_roce_packets", "transport.ecn_marked_received", 1,
     "packets received with the CE mark"},
    {"hw_counters/np_cnp_sent", "transport.cnps_sent", 1, "congestion notification packets sent"},
    {"hw_counters/rp_cnp_handled", "transport.cnps_received", 1, "congestion notification packets received"},
    {"hw_counters/rp_cnp_ignored", "drop.cnp", 1, "congestion notification packets dropped as malformed"},
    {"hw_counters/rx_icrc_encapsulated", "parse.icrc", 1, "packets with a wrong ICRC"},
    {"hw_counters/odp_events-page_faults", "odp.num_page_faults", 1, "page faults served"},
    {"hw_counters/odp_events-page_invalidations", "odp.num_invalidations", 1,
     "invalidations that touched a region"},
    {"hw_counters/odp_events-page_prefetch", "odp.num_prefetches_handled", 1,
     "calls of ibv_advise_mr served"},
    // rxe
    {"hw_counters/sent_pkts", "transport.tx_packets", 1, "packets sent"},
    {"hw_counters/rcvd_pkts", "transport.rx_packets", 1, "packets received"},
    {"hw_counters/out_of_seq_request", "transport.out_of_sequence", 1, "requests received behind a gap"},
    {"hw_counters/rcvd_rnr_err", "transport.rnr_naks_received", 1, "RNR NAKs received"},
    {"hw_counters/send_rnr_err", "transport.rnr_naks_sent", 1, "RNR NAKs sent"},
    {"hw_counters/rcvd_seq_err", "transport.sequence_naks_received", 1,
     "NAKs received that report a PSN sequence error"},
    {"hw_counters/retry_exceeded_err", "transport.retries_exceeded", 1,
     "QPs that failed because retry_cnt was used up"},
    {"hw_counters/retry_rnr_exceeded_err", "transport.rnr_retries_exceeded", 1,
     "QPs that failed because rnr_retry was used up"},
    {"hw_counters/rdma_sends", "transport.messages_sent", 1, "send work requests completed with success"},
    {"hw_counters/rdma_recvs", "transport.messages_received", 1, "messages that the responder completed"},
};

bool is_source(std::string_view source, std::string_view name) {
  return source.ends_with('.') ? name.starts_with(source) : name == source;
}

}  // namespace

uint64_t sum_of(std::string_view sources, std::span<const NamedCounter> counters) {
  uint64_t sum = 0;
  for (size_t begin = 0; begin < sources.size();) {
    const size_t end = std::min(sources.find(' ', begin), sources.size());
    const std::string_view source = sources.substr(begin, end - begin);
    for (const NamedCounter& counter : counters)
      if (is_source(source, counter.name)) sum += counter.value;
    begin = end + 1;
  }
  return sum;
}

std::span<const StandardCounter> standard_counters() {
  return kCounters;
}

std::vector<CounterFile> counter_files(std::span<const NamedCounter> counters) {
  std::vector<CounterFile> files;
  for (const StandardCounter& counter : kCounters)
    files.push_back({std::string(counter.file), sum_of(counter.sources, counters) / counter.divisor});
  for (const NamedCounter& counter : counters)
    files.push_back({"hw_counters/" + counter.name, counter.value});
  return files;
}

}  // namespace faultline::abi
