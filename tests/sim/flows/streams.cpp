// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/flows/streams.hpp"

#include <functional>
#include <memory>

#include "stack/transport/qp/queue_pair.hpp"
#include "tests/sim/world/endpoint.hpp"

namespace faultline::sim {

namespace {

constexpr uint64_t kRegionBytes = 8 << 20;

struct Stream {
  std::unique_ptr<Endpoint> from, to;
  SendRequest request;
};

/// Returns the number of packets that the requester of a stream knows to have arrived.
uint64_t acknowledged_packets(const Stream& stream, uint32_t first_psn) {
  return (stream.from->qp()->requester.unacked_psn.value() - first_psn) & wire::Psn::kMask;
}

}  // namespace

SimulationScript ten_gigabit_fabric() {
  SimulationScript script;
  for (LinkScript* link : {&script.a_to_b, &script.b_to_a}) {
    link->picoseconds_per_byte = 800;
    link->delay_ns = 10'000;
  }
  script.a.port.tx_ring = script.b.port.tx_ring = 64;
  script.a.port.rx_buffers = script.b.port.rx_buffers = 4096;
  script.keep_trace = false;
  return script;
}

StreamResult run_streams(const StreamScript& script) {
  constexpr uint32_t kFirstPsn = 100;
  StreamResult result;
  Simulation simulation(script.fabric, script.seed);
  Random random(script.seed);
  constexpr uint32_t kAccess = odp::kLocalWrite | odp::kRemoteWrite;
  Region& source = simulation.a.memory.add_region(1, kAccess, false);
  Region& target = simulation.b.memory.add_region(1, kAccess, false);
  source.extend(kRegionBytes, random);
  target.extend(kRegionBytes, random);

  std::vector<Stream> streams(script.streams);
  const std::function<void(Stream&)> feed = [](Stream& stream) {
    for (const auto& completion : stream.from->poll_sends()) static_cast<void>(completion);
    while (stream.from->post_send(stream.request)) {
    }
  };
  ConnectionScript connection;
  connection.path_mtu = transport::PathMtu::mtu4096;
  connection.psn_a = connection.psn_b = kFirstPsn;
  for (uint32_t i = 0; i < script.streams; ++i) {
    Stream& stream = streams[i];
    stream.from = std::make_unique<Endpoint>(simulation, simulation.a, EndpointScript{.max_send_wr = 4});
    stream.to = std::make_unique<Endpoint>(simulation, simulation.b, EndpointScript{});
    if (!connect(simulation, *stream.from, *stream.to, connection)) {
      result.error = "cannot connect";
      return result;
    }
    stream.request.opcode = transport::SendOpcode::rdma_write;
    stream.request.sges = {{source.base, script.message_bytes, source.key}};
    stream.request.remote_va = target.base;
    stream.request.rkey = target.key;
  }
  const TimeNs start = simulation.now();
  constexpr uint64_t kFeedNs = 20'000;
  for (uint32_t i = 0; i < script.streams; ++i)
    for (TimeNs at = start + i * script.stagger_ns; at < start + script.duration_ns; at += kFeedNs)
      simulation.at(at, [&, i] { feed(streams[i]); });
  const TimeNs middle = start + script.duration_ns / 2;
  static_cast<void>(
      simulation.run_until([&] { return simulation.now() >= middle; }, middle + script.duration_ns));
  std::vector<uint64_t> before;
  for (const Stream& stream : streams) before.push_back(acknowledged_packets(stream, kFirstPsn));
  const double area_before = simulation.a_to_b.queue_area;
  simulation.a_to_b.queue_peak_bytes = 0;
  const TimeNs end = start + script.duration_ns;
  static_cast<void>(simulation.run_until([&] { return simulation.now() >= end; }, end + script.duration_ns));
  const auto elapsed_ns = static_cast<double>(simulation.now() - middle);
  for (uint32_t i = 0; i < script.streams; ++i) {
    const Stream& stream = streams[i];
    if (stream.from->state() != transport::QpState::rts) result.error = "a stream has failed";
    const uint64_t packets = acknowledged_packets(stream, kFirstPsn) - before[i];
    result.gigabits_per_s.push_back(static_cast<double>(packets) * 4096 * 8 / elapsed_ns);
    result.total += result.gigabits_per_s.back();
  }
  result.mean_queue_bytes = (simulation.a_to_b.queue_area - area_before) / elapsed_ns;
  result.peak_queue_bytes = simulation.a_to_b.queue_peak_bytes;
  result.queue_drops = simulation.a_to_b.queue_drops;
  result.queue_marks = simulation.a_to_b.queue_marks;
  const transport::CoreCounters counters = simulation.a.core().counters();
  result.retransmitted = counters.retransmitted_packets;
  result.timeouts = counters.timeouts;
  result.notifications = counters.cnps_received;
  return result;
}

}  // namespace faultline::sim
