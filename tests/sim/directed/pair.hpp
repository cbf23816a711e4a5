// SPDX-License-Identifier: BSD-3-Clause
// The fixture of the directed tests: two hosts with one RC connection, pinned and on-demand memory.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sim/world/endpoint.hpp"
#include "tests/sim/world/simulation.hpp"

namespace faultline::sim {

inline constexpr uint64_t kMicrosecond = 1'000;
inline constexpr uint64_t kMillisecond = 1'000'000;

/// A fabric with round times: 1 us of delay each way, no serialisation, faults served in 20 us. Losses are
/// recovered by go-back-N, as between ordinary RoCEv2 peers.
inline SimulationScript quiet_fabric() {
  SimulationScript script;
  script.a_to_b.picoseconds_per_byte = script.b_to_a.picoseconds_per_byte = 0;
  script.a.memory.resolve_min_ns = script.a.memory.resolve_max_ns = 20 * kMicrosecond;
  script.b.memory.resolve_min_ns = script.b.memory.resolve_max_ns = 20 * kMicrosecond;
  script.a.core.selective_ack = script.b.core.selective_ack = false;
  script.a.core.early_probe = script.b.core.early_probe = false;
  return script;
}

/// The same fabric, with selective acknowledgements at both ends.
inline SimulationScript selective_fabric() {
  SimulationScript script = quiet_fabric();
  script.a.core.selective_ack = script.b.core.selective_ack = true;
  script.a.core.early_probe = script.b.core.early_probe = true;
  return script;
}

struct Pair {
  explicit Pair(const SimulationScript& script = quiet_fabric(), const ConnectionScript& connection = {})
      : simulation(script, 1),
        a(simulation, simulation.a, {}),
        b(simulation, simulation.b, {}),
        pinned_a(add(simulation.a, false, 1)),
        pinned_b(add(simulation.b, false, 2)),
        paged_a(add(simulation.a, true, 3)),
        paged_b(add(simulation.b, true, 4)) {
    EXPECT_TRUE(connect(simulation, a, b, connection));
    simulation.run();
  }

  [[nodiscard]] static transport::Sge sge(const Region& region, uint32_t length, uint64_t offset = 0) {
    return {region.base + offset, length, region.key};
  }

  [[nodiscard]] SendRequest request(transport::SendOpcode opcode, const Region& local, uint32_t length,
                                    const Region* remote = nullptr) {
    SendRequest request;
    request.wr_id = next_wr_id++;
    request.opcode = opcode;
    if (length != 0) request.sges = {sge(local, length)};
    if (remote != nullptr) {
      request.remote_va = remote->base;
      request.rkey = remote->key;
    }
    return request;
  }
  void send(uint32_t length) {
    EXPECT_TRUE(a.post_send(request(transport::SendOpcode::send, pinned_a, length)));
  }
  void write(uint32_t length) {
    EXPECT_TRUE(a.post_send(request(transport::SendOpcode::rdma_write, pinned_a, length, &pinned_b)));
  }
  void read(uint32_t length) {
    EXPECT_TRUE(a.post_send(request(transport::SendOpcode::rdma_read, pinned_a, length, &pinned_b)));
  }
  void receive(uint32_t length) { EXPECT_TRUE(b.post_receive(next_wr_id++, {sge(pinned_b, length)})); }

  /// Sends a packet to `destination` as if `from` had sent it.
  void forge_to(SimHost& from, const wire::Gid& destination, uint32_t to_qpn,
                const wire::PacketFields& fields, uint32_t payload_bytes) {
    wire::PathHeader path = simulation.path(from, simulation.peer_of(from)).path;
    path.destination_gid = destination;
    forge(from, path, to_qpn, fields, payload_bytes);
  }
  /// The same, to the peer's address.
  void forge(SimHost& from, uint32_t to_qpn, wire::PacketFields fields, uint32_t payload_bytes) {
    forge(from, to_qpn, simulation.path(from, simulation.peer_of(from)).path.source_gid, fields,
          payload_bytes);
  }
  /// The same, with `source` as the source address.
  void forge(SimHost& from, uint32_t to_qpn, const wire::Gid& source, wire::PacketFields fields,
             uint32_t payload_bytes) {
    wire::PathHeader path = simulation.path(from, simulation.peer_of(from)).path;
    path.source_gid = source;
    forge(from, path, to_qpn, fields, payload_bytes);
  }
  void forge(SimHost& from, const wire::PathHeader& path, uint32_t to_qpn, wire::PacketFields fields,
             uint32_t payload_bytes) {
    const wire::FrameTemplate header(path);
    fields.bth.destination_qpn = to_qpn;
    Frame frame(header.frame_bytes(fields.bth.opcode, payload_bytes));
    uint8_t* const payload = header.write_headers(frame, fields, payload_bytes);
    ASSERT_NE(payload, nullptr);
    std::fill_n(payload, payload_bytes, uint8_t{0xee});
    header.seal(frame, fields.bth.opcode, payload_bytes);
    (&from == &simulation.a ? simulation.a_to_b : simulation.b_to_a).inject(simulation.now(), frame);
  }

  void run() { EXPECT_TRUE(simulation.run()) << simulation.trace.text(60); }
  [[nodiscard]] std::vector<std::string> lines() const { return simulation.trace.lines(); }
  [[nodiscard]] transport::CoreCounters counters_a() { return simulation.a.core().counters(); }
  [[nodiscard]] transport::CoreCounters counters_b() { return simulation.b.core().counters(); }
  /// Time at which the n-th packet of the run was sent, counted from the first packet.
  [[nodiscard]] uint64_t sent_at(size_t n) const {
    const auto& entries = simulation.trace.entries();
    return entries.at(n).sent_ns - entries.at(0).sent_ns;
  }
  [[nodiscard]] static std::vector<transport::CompletionStatus> statuses(
      const std::vector<transport::Completion>& completions) {
    std::vector<transport::CompletionStatus> all;
    all.reserve(completions.size());
    for (const transport::Completion& completion : completions) all.push_back(completion.status);
    return all;
  }
  [[nodiscard]] static bool same(Region& one, Region& other, uint32_t length) {
    return std::equal(one.bytes.begin(), one.bytes.begin() + length, other.bytes.begin());
  }

  Simulation simulation;
  Endpoint a, b;
  Region &pinned_a, &pinned_b, &paged_a, &paged_b;
  uint64_t next_wr_id = 1;

 private:
  static Region& add(SimHost& host, bool on_demand, uint64_t noise) {
    Region& region =
        host.memory.add_region(1,
                               odp::kLocalWrite | odp::kRemoteWrite | odp::kRemoteRead | odp::kRemoteAtomic |
                                   odp::kMemoryWindowBind | odp::kFlushGlobal | odp::kFlushPersistent,
                               on_demand);
    Random random(noise);
    region.extend(65536, random);
    return region;
  }
};

using Lines = std::vector<std::string>;
using Statuses = std::vector<transport::CompletionStatus>;

}  // namespace faultline::sim
