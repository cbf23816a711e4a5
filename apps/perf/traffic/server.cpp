// SPDX-License-Identifier: BSD-3-Clause
// The passive side: creates memory and QPs as the client requests, answers pings, consumes receives and
// checks them.
#include "apps/perf/traffic/server.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <arpa/inet.h>
#include <faultline/faultline.h>

#include "apps/perf/plan/plan.hpp"
#include "apps/perf/traffic/pattern.hpp"

namespace faultline::perf {

namespace {

constexpr int kServerPollBatch = 32;
constexpr uint32_t kTurnsBetweenLooks = 256;  // polls of the TCP exchange cost a system call each

class ServedRun {
 public:
  ServedRun(Exchange& exchange, const PerfDevice& device, const nlohmann::json& request);
  /// Serves until the client sends "end" (returns nullopt) or "turn" (returns the index of the run to serve).
  [[nodiscard]] std::optional<size_t> serve();

 private:
  void post_receives(uint32_t qp, uint32_t count);
  void take_completions();
  void on_received(const ibv_wc& completion);
  void answer_pings();
  void send_pong(uint32_t qp);
  enum class Next : uint8_t { same, other, none };
  Next answer(const nlohmann::json& message);

  Exchange& exchange_;
  const PerfDevice& device_;
  const Plan plan_;
  const Geometry geometry_;
  const Protection protection_;
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<QpSet> qps_;
  std::unordered_map<uint32_t, uint32_t> index_of_qpn_;
  std::vector<uint32_t> posted_;
  std::vector<uint64_t> received_;
  uint64_t total_received_ = 0;
  uint64_t wrong_bytes_ = 0;
  std::map<std::string, uint64_t> counters_before_;
  uint64_t client_va_ = 0;
  uint32_t client_rkey_ = 0;
  uint8_t expected_mark_ = 1;  // of the next WRITE ping
  uint64_t pongs_ = 0;
  size_t next_ = 0;
};

ServedRun::ServedRun(Exchange& exchange, const PerfDevice& device, const nlohmann::json& request)
    : exchange_(exchange),
      device_(device),
      plan_(plan_from(request.at("plan"))),
      geometry_(plan_.geometry()),
      protection_(device) {
  counters_before_ = device.counters();
  buffer_ = std::make_unique<Buffer>(protection_, geometry_.total_bytes(), plan_.region);
  if (plan_.touch == Touch::warm || plan_.mode == Mode::latency) buffer_->touch();
  if (plan_.op == Op::read && plan_.verify) {
    for (uint32_t qp = 0; qp < plan_.qps; ++qp)
      for (uint32_t slot = 0; slot < geometry_.slots; ++slot)
        fill_pattern({buffer_->data() + geometry_.offset_of(qp, slot), plan_.size_bytes},
                     message_number(qp, slot));
  }
  qps_ = std::make_unique<QpSet>(protection_, plan_.datagrams() ? IBV_QPT_UD : IBV_QPT_RC, plan_.qps, 64,
                                 plan_.receive_depth(), plan_.reads_under_way());
  posted_.resize(plan_.qps);
  received_.resize(plan_.qps);
  for (uint32_t qp = 0; qp < plan_.qps; ++qp) {
    index_of_qpn_[qps_->qp(qp)->qp_num] = qp;
    if (plan_.needs_receives()) post_receives(qp, plan_.receive_depth());
  }
  client_va_ = request.at("va").get<uint64_t>();
  client_rkey_ = request.at("rkey").get<uint32_t>();
  qps_->connect(endpoints_from(request.at("qps")), gid_from(request.at("gid")), plan_.mtu_bytes,
                plan_.ack_timeout);
  exchange_.send({{"qps", to_json(qps_->endpoints())},
                  {"gid", to_json(device.gid())},
                  {"va", reinterpret_cast<uint64_t>(buffer_->data())},
                  {"rkey", buffer_->rkey()}});
}

void ServedRun::post_receives(uint32_t qp, uint32_t count) {
  std::array<ibv_recv_wr, kServerPollBatch> requests{};
  std::array<ibv_sge, kServerPollBatch> pieces{};
  const auto length = static_cast<uint32_t>(geometry_.header_bytes + plan_.size_bytes);
  while (count != 0) {
    const uint32_t chain = std::min<uint32_t>(count, kServerPollBatch);
    for (uint32_t i = 0; i < chain; ++i) {
      const uint32_t slot = posted_[qp]++ % geometry_.slots;
      pieces[i] = {reinterpret_cast<uint64_t>(buffer_->data() + geometry_.offset_of(qp, slot)), length,
                   buffer_->lkey()};
      requests[i] = {.wr_id = uint64_t{qp} << 32 | slot,
                     .next = i + 1 < chain ? &requests[i + 1] : nullptr,
                     .sg_list = plan_.op == Op::write_imm ? nullptr : &pieces[i],
                     .num_sge = plan_.op == Op::write_imm ? 0 : 1};
    }
    ibv_recv_wr* bad = nullptr;
    if (const int error = ibv_post_recv(qps_->qp(qp), requests.data(), &bad); error != 0)
      throw VerbsError(std::string("ibv_post_recv: ") + std::strerror(error));
    count -= chain;
  }
}

void ServedRun::on_received(const ibv_wc& completion) {
  const auto qp = static_cast<uint32_t>(completion.wr_id >> 32);
  const auto slot = static_cast<uint32_t>(completion.wr_id);
  const uint64_t sequence = received_[qp]++;
  ++total_received_;
  if (!plan_.verify) return;
  // A datagram carries its number, since other datagrams may be lost.
  const uint64_t number = (completion.wc_flags & IBV_WC_WITH_IMM) != 0 && plan_.op != Op::send
                              ? ntohl(completion.imm_data)
                              : sequence;
  if (plan_.op == Op::send || plan_.op == Op::ud_send) {
    if (completion.byte_len != geometry_.header_bytes + plan_.size_bytes) wrong_bytes_ += plan_.size_bytes;
    const uint8_t* message = buffer_->data() + geometry_.offset_of(qp, slot) + geometry_.header_bytes;
    wrong_bytes_ += count_wrong({message, plan_.size_bytes}, message_number(qp, number));
  } else {
    const auto written = static_cast<uint32_t>(number % geometry_.slots);
    wrong_bytes_ += count_wrong({buffer_->data() + geometry_.offset_of(qp, written), plan_.size_bytes},
                                message_number(qp, number));
  }
}

void ServedRun::take_completions() {
  std::array<ibv_wc, kServerPollBatch> completions;
  const int count = ibv_poll_cq(qps_->cq(), kServerPollBatch, completions.data());
  if (count < 0) throw VerbsError("ibv_poll_cq failed");
  uint32_t run_qp = 0;
  uint32_t run = 0;
  for (int i = 0; i < count; ++i) {
    const ibv_wc& completion = completions[static_cast<size_t>(i)];
    if (completion.status == IBV_WC_WR_FLUSH_ERR) continue;  // the client failed and reports it
    if (completion.status != IBV_WC_SUCCESS)
      throw VerbsError(std::string("a receive failed: ") + ibv_wc_status_str(completion.status));
    if ((completion.opcode & IBV_WC_RECV) == 0) continue;
    on_received(completion);
    const auto qp = static_cast<uint32_t>(completion.wr_id >> 32);
    if (plan_.mode == Mode::latency && plan_.touch == Touch::warm) send_pong(qp);
    if (run != 0 && qp != run_qp) {
      post_receives(run_qp, run);
      run = 0;
    }
    run_qp = qp;
    ++run;
  }
  if (run != 0) post_receives(run_qp, run);
}

void ServedRun::send_pong(uint32_t qp) {
  uint8_t* source = buffer_->data() + geometry_.header_bytes;
  ibv_sge piece{reinterpret_cast<uint64_t>(source), static_cast<uint32_t>(plan_.size_bytes), buffer_->lkey()};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.send_flags =
      (++pongs_ % 32 == 0 ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0U) |
      (plan_.size_bytes <= qps_->inline_bytes() ? static_cast<unsigned>(IBV_SEND_INLINE) : 0U);
  switch (plan_.op) {
    case Op::write:
      request.opcode = IBV_WR_RDMA_WRITE;
      request.wr.rdma = {client_va_, client_rkey_};
      break;
    case Op::write_imm:
      request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
      request.wr.rdma = {client_va_, client_rkey_};
      break;
    case Op::ud_send:
      request.opcode = IBV_WR_SEND;
      request.wr.ud = {qps_->ah(), qps_->remote_qpn(qp), QpSet::kQkey};
      break;
    default:
      request.opcode = IBV_WR_SEND;
  }
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(qps_->qp(qp), &request, &bad); error != 0)
    throw VerbsError(std::string("ibv_post_send: ") + std::strerror(error));
}

/// Answers a WRITE ping, which is detected by polling memory: its last byte counts up.
void ServedRun::answer_pings() {
  std::atomic_ref<uint8_t> mark(buffer_->data()[plan_.size_bytes - 1]);
  if (mark.load(std::memory_order_acquire) != expected_mark_) return;
  send_pong(0);  // sends back the received bytes
  ++expected_mark_;
  if (expected_mark_ == 0) expected_mark_ = 1;
}

ServedRun::Next ServedRun::answer(const nlohmann::json& message) {
  const auto what = message.at("do").get<std::string>();
  if (what == "drop") {
    buffer_->drop();
    if (message.at("prefetch").get<bool>()) buffer_->prefetch();
    exchange_.send({{"ok", true}});
    return Next::same;
  }
  if (what == "lap") {
    const auto expected = message.at("sent").get<uint64_t>();
    while (plan_.needs_receives() && !plan_.datagrams() && total_received_ < expected) take_completions();
    exchange_.send({{"ok", true}, {"wrong_bytes", wrong_bytes_}});
    return Next::same;
  }
  if (what == "turn") {
    next_ = message.at("run").get<size_t>();
    exchange_.send({{"ok", true}});
    return Next::other;
  }
  if (what != "end") throw ExchangeError("the client asked for \"" + what + "\" in the middle of a run");
  for (uint32_t turn = 0; plan_.datagrams() && turn < 1000; ++turn) take_completions();
  nlohmann::json counters = nlohmann::json::object();
  for (const auto& [name, value] : device_.counters()) counters[name] = value - counters_before_[name];
  exchange_.send({{"received", total_received_}, {"wrong_bytes", wrong_bytes_}, {"counters", counters}});
  return Next::none;
}

std::optional<size_t> ServedRun::serve() {
  if (plan_.idle_ms != 0) {
    // No call here drives the device: the server's program sleeps.
    while (answer(exchange_.receive(24 * 3600 * 1000)) != Next::none) continue;
    return std::nullopt;
  }
  const bool pings = plan_.mode == Mode::latency && plan_.op == Op::write && plan_.touch == Touch::warm;
  for (uint32_t turn = 0;; ++turn) {
    take_completions();
    if (pings) answer_pings();
    if (turn % kTurnsBetweenLooks != 0) continue;
    const auto message = exchange_.try_receive();
    if (!message) continue;
    switch (answer(*message)) {
      case Next::same:
        break;
      case Next::other:
        return next_;
      case Next::none:
        return std::nullopt;
    }
  }
}

/// Serves the requested run and those that the client prepares with it. One run at a time is served.
void serve_runs(Exchange& exchange, const PerfDevice& device, const nlohmann::json& first) {
  constexpr size_t kMostRuns = 2;
  std::vector<std::unique_ptr<ServedRun>> runs;
  runs.push_back(std::make_unique<ServedRun>(exchange, device, first));
  for (size_t left = std::min(first.value("to_follow", size_t{0}), kMostRuns - 1); left != 0; --left)
    runs.push_back(std::make_unique<ServedRun>(exchange, device, exchange.receive()));
  size_t served = 0;
  for (size_t ended = 0; ended != runs.size();) {
    const std::optional<size_t> next = runs[served]->serve();
    if (!next)
      ++ended;
    else if (*next < runs.size())
      served = *next;
    else
      throw ExchangeError("the client asked for the turn of a run that is not there");
  }
}

}  // namespace

void serve_client(Exchange& exchange, const PerfDevice& device) {
  for (;;) {
    const nlohmann::json message = exchange.receive(24 * 3600 * 1000);
    const auto what = message.at("do").get<std::string>();
    if (what == "bye") return;
    try {
      if (what == "hello") {
        exchange.send({{"version", 1}, {"mtu", device.max_mtu_bytes()}});
      } else if (what == "limits") {
        exchange.send({{"ok", true}});
        const double rate =
            faultline_measure_port_rx(device.context(), message.at("milliseconds").get<unsigned>());
        exchange.send({{"packets_per_second", rate}});
      } else if (what == "run") {
        serve_runs(exchange, device, message);
      } else {
        throw ExchangeError("unknown request \"" + what + "\"");
      }
    } catch (const VerbsError& error) {
      exchange.send({{"error", error.what()}});
      throw;
    }
  }
}

}  // namespace faultline::perf
