// SPDX-License-Identifier: BSD-3-Clause
// What a simulated fabric is made of: hosts, switches, links, their parameters, and the traffic. Plain data
// without behaviour.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "stack/base/time.hpp"
#include "stack/transport/congestion/rate_control.hpp"
#include "stack/transport/shared/types.hpp"

namespace faultline::fabric {

/// A mistake of the user. what() is one line: the place, the key, what is wrong, what to do.
class DescriptionError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A host or a switch. Hosts have the first indices, in the order of their addresses.
struct Node {
  std::string name;
  friend bool operator==(const Node&, const Node&) = default;
};

/// Both directions of a cable.
struct Link {
  uint32_t a = 0, b = 0;  ///< indices of nodes
  uint64_t bits_per_s = 0;
  uint64_t delay_ns = 0;  ///< propagation
  friend bool operator==(const Link&, const Link&) = default;
};

/// A link is without function from `down_ns` until `up_ns`.
struct Failure {
  uint32_t link = 0;
  TimeNs down_ns = 0;
  TimeNs up_ns = kNever;
};

struct Topology {
  uint32_t hosts = 0;  ///< the first nodes
  std::vector<Node> nodes;
  std::vector<Link> links;

  [[nodiscard]] bool is_host(uint32_t node) const { return node < hosts; }
};

/// Of every switch.
struct SwitchParameters {
  uint64_t queue_bytes = 1'000'000;    ///< limit of one output queue
  uint64_t buffer_bytes = 12'000'000;  ///< limit of all queues of a switch together
  // RED with ECN as DCQCN configures it: no marks up to kmin, probability pmax at kmax, all marked above.
  bool marks = false;
  uint64_t kmin_bytes = 0;
  uint64_t kmax_bytes = 0;
  double pmax = 0;
  // PFC (IEEE 802.1Qbb): bytes from one input that make it pause, and let it send again.
  bool pauses = false;
  uint64_t pause_on_bytes = 0;
  uint64_t pause_off_bytes = 0;
  uint64_t reroute_ns = 1'000'000;  ///< from a link's failure or return until the routes reflect it
};

/// Of every host.
struct HostParameters {
  transport::PathMtu mtu = transport::PathMtu::mtu1024;
  uint32_t nic_frames = 8;        ///< transmit ring
  uint64_t turn_ns = 1'000;       ///< minimum interval of two turns of the engine
  uint32_t window_packets = 256;  ///< of a QP
  uint8_t timeout = 14;           ///< 4.096 us * 2^timeout
  uint8_t retry_count = 7;
  bool selective_ack = true;
};

enum class PatternKind : uint8_t { permutation, incast, all_to_all, ring_allreduce, tree_allreduce, trace };
enum class Operation : uint8_t { write, write_imm, send, read };

/// One row of a trace.
struct TraceRow {
  TimeNs start_ns = 0;
  uint32_t source = 0;
  uint32_t destination = 0;
  uint32_t bytes = 0;
};

struct TrafficParameters {
  PatternKind pattern = PatternKind::permutation;
  Operation operation = Operation::write;
  uint32_t hosts = 0;               ///< the first hosts take part; 0: all
  uint32_t connections = 1;         ///< of each pair of hosts
  uint32_t message_bytes = 65'536;  ///< of an allreduce: the vector of a host
  uint32_t chunk_bytes = 65'536;    ///< of a tree allreduce: part that travels alone
  uint32_t outstanding = 2;         ///< work requests posted at a time, of a connection
  uint64_t messages = 0;            ///< of a connection; of an allreduce: repetitions; 0: until the end
  uint64_t spread_ns = 0;           ///< connections begin at random within this time
  uint32_t senders = 0;             ///< of an incast; 0: all others
  uint32_t receiver = 0;            ///< of an incast
  std::vector<TraceRow> trace;      ///< sorted by time
};

struct Description {
  uint64_t seed = 1;
  TimeNs duration_ns = 10'000'000;
  TimeNs sample_ns = 0;  ///< interval of the queues' time series; 0: none
  Topology topology;
  std::vector<Failure> failures;
  SwitchParameters switches;
  HostParameters host;
  transport::CongestionConfig congestion;
  TrafficParameters traffic;
};

}  // namespace faultline::fabric
