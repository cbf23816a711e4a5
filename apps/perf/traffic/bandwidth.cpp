// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>

#include <arpa/inet.h>

#include "apps/perf/traffic/client.hpp"
#include "apps/perf/traffic/pattern.hpp"

namespace faultline::perf {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kPollBatch = 32;

ibv_wr_opcode opcode_of(Op op, bool numbered) {
  switch (op) {
    case Op::write:
      return IBV_WR_RDMA_WRITE;
    case Op::write_imm:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
    case Op::read:
      return IBV_WR_RDMA_READ;
    case Op::send:
      return IBV_WR_SEND;
    case Op::ud_send:
      return numbered ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
  }
  return IBV_WR_SEND;
}

}  // namespace

BandwidthRun::BandwidthRun(ClientRun& run)
    : run_(run),
      plan_(run.plan_),
      geometry_(run.geometry_),
      laps_(plan_.verify || plan_.touch != Touch::warm),
      streams_(run.streams_) {
  // Only a chain's last WR is signaled. The same few WRs serve every post of every QP, so they stay in the
  // cache.
  const uint32_t batch = plan_.batch();
  for (uint32_t i = 0; i < batch; ++i) {
    const bool last = i + 1 == batch;
    pieces_[i] = {0, static_cast<uint32_t>(plan_.size_bytes), run_.buffer_->lkey()};
    ibv_send_wr& request = chain_[i] = {};
    request.next = last ? nullptr : &chain_[i + 1];
    request.sg_list = &pieces_[i];
    request.num_sge = 1;
    request.opcode = opcode_of(plan_.op, plan_.verify);
    request.send_flags = last ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0U;
    if (plan_.datagrams())
      request.wr.ud = {run_.qps_->ah(), 0, QpSet::kQkey};
    else
      request.wr.rdma = {0, run_.remote_rkey_};
  }
}

bool BandwidthRun::has_room(uint32_t qp) const {
  const Stream& stream = streams_[qp];
  return stream.under_way() + plan_.batch() <= plan_.depth &&
         (!laps_ || stream.posted_in_lap < geometry_.slots);
}

void BandwidthRun::post_chain(uint32_t qp) {
  Stream& stream = streams_[qp];
  const uint32_t batch = plan_.batch();
  for (uint32_t i = 0; i < batch; ++i) {
    const uint32_t slot = stream.next_slot + i;
    ibv_send_wr& request = chain_[i];
    request.wr_id = qp;
    request.imm_data = htonl(static_cast<uint32_t>(lap_first_sequence_ + slot));
    pieces_[i].addr = reinterpret_cast<uint64_t>(run_.buffer_->data() + geometry_.offset_of(qp, slot));
    if (plan_.datagrams())
      request.wr.ud.remote_qpn = run_.qps_->remote_qpn(qp);
    else
      request.wr.rdma.remote_addr = run_.remote_address(qp, slot);
  }
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(run_.qps_->qp(qp), chain_.data(), &bad); error != 0)
    throw VerbsError(std::string("ibv_post_send: ") + std::strerror(error));
  stream.add(batch);
  stream.next_slot += batch;
  stream.posted_in_lap += batch;
  posted_ += batch;
  if (stream.next_slot == geometry_.slots) stream.next_slot = 0;
}

/// Posts until every QP is full, one chain per QP in each round.
void BandwidthRun::fill() {
  for (bool posted = true; posted;) {
    posted = false;
    for (uint32_t qp = 0; qp < plan_.qps; ++qp) {
      if (!has_room(qp)) continue;
      post_chain(qp);
      posted = true;
      if (qp % kPollBatch == 0) reap();
    }
  }
}

void BandwidthRun::reap() {
  std::array<ibv_wc, kPollBatch> completions;
  const int count = ibv_poll_cq(run_.qps_->cq(), kPollBatch, completions.data());
  if (count < 0) throw VerbsError("ibv_poll_cq failed");
  for (int i = 0; i < count; ++i) {
    const ibv_wc& completion = completions[static_cast<size_t>(i)];
    if (completion.status != IBV_WC_SUCCESS)
      throw VerbsError(std::string("a send failed: ") + ibv_wc_status_str(completion.status));
    const auto qp = static_cast<uint32_t>(completion.wr_id);
    streams_[qp].take(plan_.batch());
    completed_ += plan_.batch();
    if (posting_ && has_room(qp)) post_chain(qp);
  }
}

void BandwidthRun::drain() {
  for (const Stream& stream : streams_)
    while (stream.under_way() != 0) reap();
}

void BandwidthRun::number_lap(uint64_t first_sequence) {
  for (uint32_t qp = 0; qp < plan_.qps; ++qp) {
    for (uint32_t slot = 0; slot < geometry_.slots; ++slot) {
      uint8_t* message = run_.buffer_->data() + geometry_.offset_of(qp, slot);
      if (plan_.op == Op::read)
        std::memset(message, 0, plan_.size_bytes);
      else
        fill_pattern({message, plan_.size_bytes}, message_number(qp, first_sequence + slot));
    }
  }
}

/// Checks the data of a lap after all its messages have completed. Returns the number of wrong bytes.
uint64_t BandwidthRun::check_lap(uint64_t first_sequence) {
  switch (plan_.op) {
    case Op::read: {
      uint64_t wrong = 0;
      for (uint32_t qp = 0; qp < plan_.qps; ++qp)
        for (uint32_t slot = 0; slot < geometry_.slots; ++slot)
          wrong += count_wrong({run_.buffer_->data() + geometry_.offset_of(qp, slot), plan_.size_bytes},
                               message_number(qp, slot));
      return wrong;
    }
    case Op::write:
    case Op::write_imm:
      return read_back(first_sequence);
    case Op::send:
    case Op::ud_send:
      return 0;  // the server checks them
  }
  return 0;
}

uint64_t BandwidthRun::read_back(uint64_t first_sequence) {
  uint64_t wrong = 0;
  const uint64_t completed_before = completed_;
  for (uint32_t qp = 0; qp < plan_.qps; ++qp) {
    for (uint32_t slot = 0; slot < geometry_.slots; ++slot) {
      uint8_t* copy = run_.check_->data() + geometry_.offset_of(qp, slot);
      ibv_sge piece{reinterpret_cast<uint64_t>(copy), static_cast<uint32_t>(plan_.size_bytes),
                    run_.check_->lkey()};
      ibv_send_wr request{};
      request.wr_id = qp;
      request.sg_list = &piece;
      request.num_sge = 1;
      request.opcode = IBV_WR_RDMA_READ;
      request.send_flags = IBV_SEND_SIGNALED;
      request.wr.rdma = {run_.remote_address(qp, slot), run_.remote_rkey_};
      ibv_send_wr* bad = nullptr;
      if (const int error = ibv_post_send(run_.qps_->qp(qp), &request, &bad); error != 0)
        throw VerbsError(std::string("ibv_post_send: ") + std::strerror(error));
      streams_[qp].add(plan_.batch());
      while (streams_[qp].under_way() >= plan_.depth) reap();
    }
  }
  drain();
  completed_ = completed_before;
  for (uint32_t qp = 0; qp < plan_.qps; ++qp)
    for (uint32_t slot = 0; slot < geometry_.slots; ++slot)
      wrong += count_wrong({run_.check_->data() + geometry_.offset_of(qp, slot), plan_.size_bytes},
                           message_number(qp, first_sequence + slot));
  return wrong;
}

Turn BandwidthRun::take_turn(double seconds) {
  const uint64_t completed_before = completed_;
  const auto begin = Clock::now();
  posting_ = true;
  fill();
  for (uint32_t turn = 1; turn % 64 != 0 || seconds_since(begin) < seconds; ++turn) reap();
  posting_ = false;
  drain();
  return {completed_ - completed_before, seconds_since(begin)};
}

void BandwidthRun::measure(const RunControl& control, Result& result) {
  const auto stopped = [&] {
    return control.stop != nullptr && control.stop->load(std::memory_order_relaxed);
  };
  double busy_seconds = 0;  // without the preparation of laps
  double told_at = 0;
  uint64_t told_messages = 0;
  uint64_t sequence = 0;
  const auto begin = Clock::now();
  const auto over = [&] {
    if (stopped()) return true;
    return control.iterations != 0 ? posted_ >= control.iterations : seconds_since(begin) >= control.seconds;
  };
  const auto tell = [&] {
    if (control.messages != nullptr) control.messages->store(completed_, std::memory_order_relaxed);
    const double now = seconds_since(begin);
    if (!control.progress_lines || now - told_at < 1.0) return;
    const double rate = static_cast<double>(completed_ - told_messages) / (now - told_at);
    std::printf("%6.1f s  %12.0f messages/s  %9.3f GB/s\n", now, rate,
                rate * static_cast<double>(plan_.size_bytes) / 1e9);
    std::fflush(stdout);
    told_at = now;
    told_messages = completed_;
  };

  while (!over()) {
    lap_first_sequence_ = sequence;
    if (plan_.verify) number_lap(sequence);
    if (plan_.touch != Touch::warm) run_.make_cold();
    const auto lap_begin = Clock::now();
    for (Stream& stream : streams_) stream.posted_in_lap = 0;
    posting_ = true;
    fill();
    for (uint32_t turn = 1; !laps_; ++turn) {
      reap();
      if (turn % 64 != 0) continue;
      tell();
      if (over()) break;
    }
    posting_ = laps_;  // with laps, completions post the rest of the lap
    drain();
    busy_seconds += seconds_since(lap_begin);
    tell();
    if (plan_.verify) {
      if (plan_.needs_receives() && !plan_.datagrams())
        run_.exchange_.ask({{"do", "lap"}, {"sent", completed_}});
      result.wrong_bytes += check_lap(sequence);
    }
    sequence += geometry_.slots;
  }
  result.messages = completed_;
  result.seconds = busy_seconds;
}

}  // namespace faultline::perf
