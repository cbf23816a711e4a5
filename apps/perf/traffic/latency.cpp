// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include <faultline/faultline.h>

#include "apps/perf/traffic/client.hpp"
#include "apps/perf/traffic/pattern.hpp"

namespace faultline::perf {

namespace {

using Clock = std::chrono::steady_clock;
constexpr uint32_t kSignalEvery = 32;
constexpr size_t kMaxSamples = size_t{1} << 24;

uint32_t ns_since(Clock::time_point start) {
  return static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

}  // namespace

void LatencyRun::post(uint32_t slot, bool signaled, uint32_t remote_slot) {
  ibv_sge piece{reinterpret_cast<uint64_t>(run_.buffer_->data() + geometry_.offset_of(0, slot)),
                static_cast<uint32_t>(plan_.size_bytes), run_.buffer_->lkey()};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.send_flags = signaled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0U;
  if (plan_.op != Op::read && plan_.size_bytes <= run_.qps_->inline_bytes())
    request.send_flags |= IBV_SEND_INLINE;
  switch (plan_.op) {
    case Op::write:
      request.opcode = IBV_WR_RDMA_WRITE;
      break;
    case Op::write_imm:
      request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
      break;
    case Op::read:
      request.opcode = IBV_WR_RDMA_READ;
      break;
    case Op::send:
    case Op::ud_send:
      request.opcode = IBV_WR_SEND;
      break;
  }
  if (plan_.datagrams())
    request.wr.ud = {run_.qps_->ah(), run_.qps_->remote_qpn(0), QpSet::kQkey};
  else
    request.wr.rdma = {run_.remote_address(0, remote_slot), run_.remote_rkey_};
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(run_.qps_->qp(0), &request, &bad); error != 0)
    throw VerbsError(std::string("ibv_post_send: ") + std::strerror(error));
}

void LatencyRun::post_receive() {
  ibv_sge piece{reinterpret_cast<uint64_t>(run_.buffer_->data()),
                static_cast<uint32_t>(geometry_.header_bytes + plan_.size_bytes), run_.buffer_->lkey()};
  ibv_recv_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (const int error = ibv_post_recv(run_.qps_->qp(0), &request, &bad); error != 0)
    throw VerbsError(std::string("ibv_post_recv: ") + std::strerror(error));
}

/// Polls until a completion with `opcode` arrives; ignores others.
void LatencyRun::wait_for_completion(ibv_wc_opcode opcode) {
  std::array<ibv_wc, 4> completions;
  const auto start = Clock::now();
  for (uint32_t turn = 1;; ++turn) {
    const int count = ibv_poll_cq(run_.qps_->cq(), 1, completions.data());
    if (count < 0) throw VerbsError("ibv_poll_cq failed");
    if (count == 1) {
      if (completions[0].status != IBV_WC_SUCCESS)
        throw VerbsError(std::string("a message failed: ") + ibv_wc_status_str(completions[0].status));
      if (completions[0].opcode == opcode) return;
    }
    if (turn % (1U << 16) == 0 && seconds_since(start) > 10) {
      if (plan_.datagrams()) throw VerbsError("a datagram of the ping-pong was lost");
      throw VerbsError("no answer for 10 s");
    }
  }
}

/// Sends one message and waits for the answer.
void LatencyRun::ping() {
  const bool signaled = ++unsignaled_ % kSignalEvery == 0;
  switch (plan_.op) {
    case Op::read:
      post(0, true, 0);
      wait_for_completion(IBV_WC_RDMA_READ);
      return;
    case Op::write: {
      // The ping is sent from slot 1. The answer has the same bytes and arrives in slot 0, so neither waits
      // for the other.
      std::atomic_ref<uint8_t> last(run_.buffer_->data()[plan_.size_bytes - 1]);
      std::atomic_ref<uint8_t> source(run_.buffer_->data()[geometry_.offset_of(0, 1) + plan_.size_bytes - 1]);
      const uint8_t sent = mark_;
      mark_ = static_cast<uint8_t>(mark_ == 255 ? 1 : mark_ + 1);
      source.store(sent, std::memory_order_relaxed);
      last.store(0, std::memory_order_relaxed);
      post(1, signaled, 0);
      const auto start = Clock::now();
      for (uint32_t turn = 1; last.load(std::memory_order_acquire) != sent; ++turn) {
        if (signaled || turn % 1024 == 0) {
          ibv_wc completion;
          const int count = ibv_poll_cq(run_.qps_->cq(), 1, &completion);
          if (count == 1 && completion.status != IBV_WC_SUCCESS)
            throw VerbsError(std::string("a message failed: ") + ibv_wc_status_str(completion.status));
        } else {
          faultline_progress(run_.device_.context());
        }
        if (turn % (1U << 16) == 0 && seconds_since(start) > 10) throw VerbsError("no answer for 10 s");
      }
      return;
    }
    case Op::write_imm:
    case Op::send:
    case Op::ud_send:
      // Receive for the next answer; this message's answer uses the receive that was posted before.
      post(0, signaled, 0);
      post_receive();
      wait_for_completion(plan_.op == Op::write_imm ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
      return;
  }
}

/// Returns half the round-trip time in ns; for a READ, which needs no ping back, the whole time.
uint32_t LatencyRun::timed_ping() {
  const auto start = Clock::now();
  ping();
  return ns_since(start) / (plan_.op == Op::read ? 1 : 2);
}

void LatencyRun::prepare() {
  constexpr int kWarmUp = 1000;
  if (plan_.op == Op::send || plan_.op == Op::ud_send || plan_.op == Op::write_imm) post_receive();
  for (int i = 0; i < kWarmUp; ++i) ping();
}

Turn LatencyRun::take_turn(double seconds, std::vector<uint32_t>& samples_ns) {
  const auto begin = Clock::now();
  uint64_t messages = 0;
  while (messages % 64 != 0 || messages == 0 || seconds_since(begin) < seconds) {
    samples_ns.push_back(timed_ping());
    ++messages;
  }
  return {messages, seconds_since(begin)};
}

void LatencyRun::measure_warm(const RunControl& control, Result& result) {
  prepare();
  std::vector<uint32_t> samples;
  samples.reserve(size_t{1} << 20);
  const auto begin = Clock::now();
  uint64_t messages = 0;
  double told_at = 0;
  for (;;) {
    const uint32_t sample = timed_ping();
    if (samples.size() < kMaxSamples) samples.push_back(sample);
    ++messages;
    if (control.iterations != 0 && messages >= control.iterations) break;
    if (messages % 256 != 0) continue;
    if (control.messages != nullptr) control.messages->store(messages, std::memory_order_relaxed);
    if (control.stop != nullptr && control.stop->load(std::memory_order_relaxed)) break;
    const double now = seconds_since(begin);
    if (control.iterations == 0 && now >= control.seconds) break;
    if (control.progress_lines && now - told_at >= 1.0) {
      std::printf("%6.1f s  %12llu round trips\n", now, static_cast<unsigned long long>(messages));
      std::fflush(stdout);
      told_at = now;
    }
  }
  result.messages = messages;
  result.seconds = seconds_since(begin);
  result.has_latency = true;
  result.latency = Percentiles::of(samples);
}

/// Times post to completion: the acknowledgement means that the bytes are in memory.
uint32_t LatencyRun::time_one(uint32_t slot) {
  const auto start = Clock::now();
  post(slot, true, slot);
  switch (plan_.op) {
    case Op::read:
      wait_for_completion(IBV_WC_RDMA_READ);
      break;
    case Op::write:
    case Op::write_imm:
      wait_for_completion(IBV_WC_RDMA_WRITE);
      break;
    case Op::send:
    case Op::ud_send:
      wait_for_completion(IBV_WC_SEND);
      break;
  }
  return ns_since(start);
}

/// Each message uses a separate page; all pages are dropped before each cold lap. Warm laps alternate with
/// the cold ones for comparison.
void LatencyRun::measure_cold(const RunControl& control, Result& result) {
  std::vector<uint32_t> warm;
  std::vector<uint32_t> cold;
  uint64_t messages = 0;
  double busy_seconds = 0;
  const auto begin = Clock::now();
  const uint32_t lap = std::min(geometry_.slots, 4096U);
  for (uint32_t slot = 0; slot < lap; ++slot) static_cast<void>(time_one(slot));
  do {
    for (uint32_t slot = 0; slot < lap; ++slot) warm.push_back(time_one(slot));
    run_.make_cold();
    const auto lap_begin = Clock::now();
    for (uint32_t slot = 0; slot < lap; ++slot) cold.push_back(time_one(slot));
    busy_seconds += seconds_since(lap_begin);
    messages += lap;
    if (plan_.verify && plan_.op == Op::read) {
      for (uint32_t slot = 0; slot < lap; ++slot)
        result.wrong_bytes += count_wrong(
            {run_.buffer_->data() + geometry_.offset_of(0, slot), plan_.size_bytes}, message_number(0, slot));
    }
    if (control.messages != nullptr) control.messages->store(messages, std::memory_order_relaxed);
    if (control.stop != nullptr && control.stop->load(std::memory_order_relaxed)) break;
  } while (control.iterations != 0 ? messages < control.iterations : seconds_since(begin) < control.seconds);
  result.messages = messages;
  result.seconds = busy_seconds;
  result.has_latency = true;
  result.latency = Percentiles::of(cold);
  const Percentiles before = Percentiles::of(warm);
  result.has_added = true;
  result.added_p50_us = result.latency.p50_us - before.p50_us;
  result.added_p99_us = result.latency.p99_us - before.p99_us;
}

/// Measures the first message after an idle period, in which the server's program and its device sleep.
void LatencyRun::measure_after_idle(const RunControl& control, Result& result) {
  std::vector<uint32_t> samples;
  const auto begin = Clock::now();
  static_cast<void>(time_one(0));
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(plan_.idle_ms));
    samples.push_back(time_one(0));
    if (control.messages != nullptr) control.messages->store(samples.size(), std::memory_order_relaxed);
    if (control.stop != nullptr && control.stop->load(std::memory_order_relaxed)) break;
  } while (control.iterations != 0 ? samples.size() < control.iterations
                                   : seconds_since(begin) < control.seconds);
  result.messages = samples.size();
  result.seconds = seconds_since(begin);
  result.has_latency = true;
  result.latency = Percentiles::of(samples);
}

void LatencyRun::measure(const RunControl& control, Result& result) {
  if (plan_.idle_ms != 0)
    measure_after_idle(control, result);
  else if (plan_.touch == Touch::warm)
    measure_warm(control, result);
  else
    measure_cold(control, result);
}

}  // namespace faultline::perf
