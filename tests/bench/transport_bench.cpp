// SPDX-License-Identifier: BSD-3-Clause
// The core alone: two cores on one thread, joined by arrays of frames, memory always there. What is left is
// the transport.
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include "odp/copy/tolerant_copy_crc.hpp"
#include "stack/transport/core/core.hpp"
#include "tests/sim/world/take_to_rts.hpp"

namespace {

using namespace faultline;
using namespace faultline::transport;

class PresentMemory final : public odp::MemoryAccess {
 public:
  odp::Outcome check(const odp::Target&, uint64_t, uint64_t) override { return odp::Outcome::done; }
  odp::Outcome probe(const odp::Target&, uint64_t, uint64_t) override { return odp::Outcome::done; }
  odp::Outcome write(const odp::Target&, uint64_t va, std::span<const uint8_t> from) override {
    auto* const to = reinterpret_cast<void*>(va);
    const size_t copied = beside_ == nullptr || beside_->done
                              ? odp::tolerant_copy(to, from.data(), from.size())
                              : odp::tolerant_copy_beside(to, from.data(), from.size(), *beside_);
    return copied == from.size() ? odp::Outcome::done : odp::Outcome::violation;
  }
  odp::Outcome read(const odp::Target&, uint64_t va, std::span<uint8_t> to) override {
    std::memcpy(to.data(), reinterpret_cast<const void*>(va), to.size());
    return odp::Outcome::done;
  }
  odp::Outcome read_with_crc(const odp::Target&, uint64_t va, std::span<uint8_t> to, uint32_t& crc) override {
    const auto* from = reinterpret_cast<const void*>(va);
    return odp::tolerant_copy_crc(to.data(), from, to.size(), crc) == to.size() ? odp::Outcome::done
                                                                                : odp::Outcome::violation;
  }
  odp::Outcome atomic(const odp::Target&, uint64_t va, const odp::AtomicRequest& request,
                      uint64_t& original) override {
    original = __atomic_fetch_add(reinterpret_cast<uint64_t*>(va), request.operand, __ATOMIC_SEQ_CST);
    return odp::Outcome::done;
  }
  odp::Outcome flush(const odp::Target&, uint64_t, uint64_t, odp::FlushKind) override {
    return odp::Outcome::done;
  }
  bool range_of(odp::Key, uint64_t&, uint64_t&) override { return false; }
  odp::Outcome bind_window(const odp::WindowBinding&) override { return odp::Outcome::done; }
  odp::Outcome invalidate(odp::Key, odp::ProtectionDomain, uint32_t, bool) override {
    return odp::Outcome::done;
  }
  bool request_fault(const odp::FaultRequest&) override { return true; }
  size_t take_resolutions(std::span<odp::Resolution>) override { return 0; }
  void offer_beside_write(odp::CrcBeside* sum) override { beside_ = sum; }

 private:
  odp::CrcBeside* beside_ = nullptr;
};

/// Frames in a pool; what is sent waits in an array until the peer takes it.
class ArrayPort final : public Port {
 public:
  static constexpr uint32_t kFrameBytes = 4352;
  static constexpr uint32_t kFrames = 1024;

  ArrayPort() : memory_(size_t{kFrameBytes} * kFrames) {
    for (uint32_t i = 0; i < kFrames; ++i) free_.push_back(memory_.data() + size_t{i} * kFrameBytes);
  }
  size_t allocate(std::span<TxFrame> out) override {
    size_t given = 0;
    for (TxFrame& frame : out) {
      if (free_.empty()) break;
      frame.handle = frame.data = free_.back();
      frame.capacity_bytes = kFrameBytes;
      free_.pop_back();
      ++given;
    }
    return given;
  }
  size_t transmit(std::span<TxFrame> frames) override {
    for (const TxFrame& frame : frames) sent_.push_back({frame.data, frame.length_bytes, 0, frame.handle});
    return frames.size();
  }
  void free_unsent(std::span<TxFrame> frames) override {
    for (const TxFrame& frame : frames) free_.push_back(frame.data);
  }
  void release(std::span<RxFrame> frames) override {
    for (const RxFrame& frame : frames) peer->free_.push_back(static_cast<uint8_t*>(frame.handle));
  }
  void deliver_to(Core& core, TimeNs now) {
    std::vector<RxFrame>& batch = taken_;
    batch.swap(sent_);
    for (size_t at = 0; at < batch.size(); at += 32)
      core.on_packets(std::span(batch).subspan(at, std::min<size_t>(32, batch.size() - at)), now);
    batch.clear();
  }
  ArrayPort* peer = nullptr;

 private:
  std::vector<uint8_t> memory_;
  std::vector<uint8_t*> free_;
  std::vector<RxFrame> sent_;
  std::vector<RxFrame> taken_;
};

void connect(Core& core, QueuePair* qp, const QueuePair* to, uint32_t self, uint32_t other, TimeNs now) {
  QpAttributes attributes;
  attributes.access_flags = odp::kRemoteWrite | odp::kRemoteRead;
  attributes.path_mtu = PathMtu::mtu4096;
  attributes.av.path.source_gid = wire::Gid::from_ipv4(self);
  attributes.av.path.destination_gid = wire::Gid::from_ipv4(other);
  attributes.destination_qpn = qpn_of(to);
  attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 16;
  if (sim::take_to_rts(core, qp, attributes, now) != 0) std::abort();
}

void post(QueuePair* qp, SendOpcode opcode, void* local, uint32_t bytes, void* remote) {
  Core::expect_doorbell(qp);
  SendRing& ring = send_ring_of(qp);
  ring.prefetch_slot();
  SendWqe* wqe = ring.prepare();
  *wqe = SendWqe{};
  wqe->opcode = opcode;
  wqe->flags = kSignaled;
  wqe->remote_va = reinterpret_cast<uint64_t>(remote);
  wqe->length_bytes = bytes;
  wqe->sge_count = 1;
  *ring.sges_of(wqe) = {reinterpret_cast<uint64_t>(local), bytes, 1};
  ring.advance();
}

struct Pair {
  PresentMemory memory;
  ArrayPort port_a, port_b;
  Core a{CoreConfig{}, memory, port_a};
  Core b{CoreConfig{}, memory, port_b};
  CompletionQueue cq_a{4096}, cq_b{4096};
  QueuePair* qp_a = nullptr;
  QueuePair* qp_b = nullptr;
  TimeNs now = 1;

  Pair() {
    port_a.peer = &port_b;
    port_b.peer = &port_a;
    QpInit init;
    init.domain = 1;
    init.max_send_wr = init.max_receive_wr = 256;
    init.send_cq = init.receive_cq = &cq_a;
    qp_a = a.create_qp(init);
    init.send_cq = init.receive_cq = &cq_b;
    qp_b = b.create_qp(init);
    connect(a, qp_a, qp_b, 0xc6120001, 0xc6120002, now);
    connect(b, qp_b, qp_a, 0xc6120002, 0xc6120001, now);
  }

  /// Posts a batch and turns both cores until it is complete.
  void run_batch(SendOpcode opcode, uint32_t messages, uint32_t bytes, uint8_t* local, uint8_t* remote) {
    for (uint32_t i = 0; i < messages; ++i) post(qp_a, opcode, local, bytes, remote);
    send_ring_of(qp_a).publish();
    a.ring_doorbell(qp_a);
    std::array<Completion, 64> completions;
    for (uint32_t done = 0; done < messages;) {
      now += 1000;
      a.poll(now);
      port_a.deliver_to(b, now);
      b.poll(now);
      port_b.deliver_to(a, now);
      done += cq_a.poll(completions);
    }
  }
};

void run(benchmark::State& state, SendOpcode opcode) {
  auto pair = std::make_unique<Pair>();
  const auto bytes = static_cast<uint32_t>(state.range(0));
  const uint32_t messages = bytes <= 4096 ? 128 : 4;
  std::vector<uint8_t> local(bytes), remote(bytes);
  for (auto _ : state) pair->run_batch(opcode, messages, bytes, local.data(), remote.data());
  state.SetItemsProcessed(state.iterations() * messages);
  state.SetBytesProcessed(state.iterations() * messages * bytes);
}

void rc_write(benchmark::State& state) {
  run(state, SendOpcode::rdma_write);
}
void rc_read(benchmark::State& state) {
  run(state, SendOpcode::rdma_read);
}

/// Many connections between two cores, each used in turn: what a QP costs when it is not in the cache.
struct Crowd {
  PresentMemory memory;
  ArrayPort port_a, port_b;
  Core a{CoreConfig{}, memory, port_a};
  Core b{CoreConfig{}, memory, port_b};
  CompletionQueue cq_a{4096}, cq_b{4096};
  std::vector<QueuePair*> qps;
  TimeNs now = 1;
  size_t next = 0;

  explicit Crowd(size_t count) {
    port_a.peer = &port_b;
    port_b.peer = &port_a;
    QpInit init;
    init.domain = 1;
    init.max_send_wr = init.max_receive_wr = 16;
    for (size_t i = 0; i < count; ++i) {
      init.send_cq = init.receive_cq = &cq_a;
      QueuePair* from = a.create_qp(init);
      init.send_cq = init.receive_cq = &cq_b;
      QueuePair* to = b.create_qp(init);
      connect(a, from, to, 0xc6120001, 0xc6120002, now);
      connect(b, to, from, 0xc6120002, 0xc6120001, now);
      qps.push_back(from);
    }
  }

  /// One WRITE on each of the next `messages` QPs, which come to an end before it returns.
  void run_batch(uint32_t messages, uint32_t bytes, uint8_t* local, uint8_t* remote) {
    for (uint32_t i = 0; i < messages; ++i) {
      QueuePair* qp = qps[next];
      next = next + 1 == qps.size() ? 0 : next + 1;
      post(qp, SendOpcode::rdma_write, local, bytes, remote);
      send_ring_of(qp).publish();
      a.ring_doorbell(qp);
    }
    std::array<Completion, 64> completions;
    for (uint32_t done = 0; done < messages;) {
      now += 1000;
      a.poll(now);
      port_a.deliver_to(b, now);
      b.poll(now);
      port_b.deliver_to(a, now);
      done += cq_a.poll(completions);
    }
  }
};

uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * 4096;
}

void crowd_write(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  const uint64_t before = resident_bytes();
  auto crowd = std::make_unique<Crowd>(count);
  const uint64_t after = resident_bytes();
  constexpr uint32_t kBatch = 128;
  constexpr uint32_t kBytes = 64;
  std::vector<uint8_t> local(kBytes), remote(kBytes);
  for (auto _ : state) crowd->run_batch(kBatch, kBytes, local.data(), remote.data());
  state.SetItemsProcessed(state.iterations() * kBatch);
  // Both ends of each connection are here.
  if (count > 1000)
    state.counters["bytes_per_qp"] = static_cast<double>(after - before) / static_cast<double>(2 * count);
}

BENCHMARK(crowd_write)->Arg(16)->Arg(1000)->Arg(10000);
BENCHMARK(rc_write)->Arg(64)->Arg(4096)->Arg(65536);
BENCHMARK(rc_read)->Arg(64)->Arg(4096)->Arg(65536);

}  // namespace

BENCHMARK_MAIN();
