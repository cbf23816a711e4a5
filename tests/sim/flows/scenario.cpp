// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/flows/scenario.hpp"

#include <algorithm>

#include "tests/sim/flows/plan.hpp"

namespace faultline::sim {

using namespace transport;

namespace {

constexpr TimeNs kTimeLimitNs = 60'000'000'000;
constexpr size_t kTraceOfFailure = 120;

class Run {
 public:
  explicit Run(uint64_t seed)
      : random_(seed),
        fabric_(seed >= kFirstManyHostsSeed ? draw_network(random_)
                                            : draw_fabric(random_, seed >= kFirstOdpMixSeed)),
        world_(make_world(fabric_, random_.next())),
        plan_(fabric_, *world_, random_.fork()) {}

  ScenarioResult go(const ScenarioOptions& options);

 private:
  void pump();
  void dispatch(const Completion& completion);
  [[nodiscard]] bool done() const;
  [[nodiscard]] std::string first_error() const;
  [[nodiscard]] std::string execute();
  [[nodiscard]] std::string check_quiet() const;
  [[nodiscard]] std::string state_of_cores() const;
  [[nodiscard]] uint64_t digest() const;
  [[nodiscard]] std::string label_of(const SimHost& host) const {
    const bool two = world_->hosts().size() == 2;
    return two ? (host.number == 0 ? "a" : "b") : "h" + std::to_string(host.number);
  }
  void fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }

  Random random_;
  Fabric fabric_;
  const std::unique_ptr<World> world_;
  Plan plan_;
  std::string error_;
};

void Run::dispatch(const Completion& completion) {
  for (const auto& flow : plan_.flows) {
    if (!flow->owns(completion.wr_id)) continue;
    return Flow::is_receive(completion.wr_id) ? flow->on_receive_completion(completion)
                                              : flow->on_send_completion(completion, world_->now());
  }
  for (const auto& flow : plan_.datagrams) {
    if (!flow->owns(completion.wr_id)) continue;
    return Flow::is_receive(completion.wr_id) ? flow->on_receive_completion(completion)
                                              : flow->on_send_completion(completion);
  }
  for (const auto& pool : plan_.pools)
    if (pool->owns(completion.wr_id)) return pool->on_completion(completion);
  fail("a completion that belongs to no request");
}

void Run::pump() {
  if (plan_.shared_queues.empty()) {
    for (const auto& end : plan_.ends) {
      for (const Completion& completion : end->poll_sends()) dispatch(completion);
      for (const Completion& completion : end->poll_receives()) dispatch(completion);
    }
  } else {
    for (const auto& queue : plan_.shared_queues)
      for (const Completion& completion : Endpoint::drain(*queue)) dispatch(completion);
  }
  for (const auto& flow : plan_.flows) flow->pump(world_->now());
  for (const auto& flow : plan_.datagrams) flow->pump(world_->now());
  for (const auto& pool : plan_.pools) pool->pump(world_->now());
}

std::string Run::first_error() const {
  if (!error_.empty()) return error_;
  if (!plan_.error().empty()) return plan_.error();
  for (const auto& flow : plan_.flows)
    if (!flow->error.empty()) return flow->error;
  for (const auto& flow : plan_.datagrams)
    if (!flow->error.empty()) return flow->error;
  for (const auto& pool : plan_.pools)
    if (!pool->error.empty()) return pool->error;
  return {};
}

bool Run::done() const {
  if (!first_error().empty()) return true;
  return std::all_of(plan_.flows.begin(), plan_.flows.end(), [](const auto& flow) { return flow->done(); }) &&
         std::all_of(plan_.datagrams.begin(), plan_.datagrams.end(),
                     [](const auto& flow) { return flow->done(); });
}

std::string Run::check_quiet() const {
  const auto hosts = world_->hosts();
  // A fault must not cause a time-out: on a lossless wire with a pager that accepts requests there is none.
  // (A QP planned to fail may have dropped a READ response. It then requests it again, from a responder in
  // error.) If a responder without room drops the tail of a message, the probe detects it, or else the
  // time-out.
  const bool may_time_out =
      !fabric_.harmless_links || std::any_of(hosts.begin(), hosts.end(), [this](SimHost* host) {
        const MemoryScript& memory = host->memory.script();
        const CoreConfig& core = host->core().config();
        return memory.queue_capacity < 1024 ||
               (memory.invalidations_limit != 0 && fabric_.theme == Theme::one_failure) ||
               (core.selective_ack && !core.early_probe);
      });
  for (const SimHost* host : hosts) {
    const std::string name = label_of(*host);
    if (!host->port.fault.empty()) return name + ": " + host->port.fault;
    if (host->port.rx_in_use() != 0) return name + " keeps received frames though all is done";
    if (host->cq_errors != 0) return name + ": a completion queue ran over";
    if (!may_time_out && host->core().counters().timeouts != 0) return name + " timed out on a whole wire";
  }
  return {};
}

std::string Run::execute() {
  if (!plan_.error().empty()) return plan_.error();
  MemoryImage image;
  for (SimHost* host : world_->hosts()) image.take(*host);
  pump();
  const bool in_time = world_->run_until(
      [this] {
        pump();
        return done();
      },
      kTimeLimitNs);
  if (std::string error = first_error(); !error.empty()) return error;
  std::string summary;
  for (const auto& flow : plan_.flows) summary += "  " + flow->summary();
  for (const auto& pool : plan_.pools) summary += "  " + pool->summary();
  if (!in_time) return "stuck: out of events or time\n" + summary;
  if (!done()) return "stuck: nothing will ever happen again\n" + summary;
  // Packets in flight must not change any byte from now on.
  const bool quiet = world_->run_until(
      [this] {
        pump();
        return !first_error().empty();
      },
      world_->now() + kTimeLimitNs);
  if (std::string error = first_error(); !error.empty()) return error;
  if (!quiet) return "never comes to rest\n" + summary;
  for (const auto& flow : plan_.flows) flow->check_end();
  for (const auto& flow : plan_.datagrams) flow->check_end();
  for (const auto& pool : plan_.pools) pool->check_end();
  if (std::string error = first_error(); !error.empty()) return error;
  image.zero_what_the_program_did();
  for (const auto& flow : plan_.flows) flow->apply(image);
  for (const auto& flow : plan_.datagrams) flow->apply(image);
  for (const auto& pool : plan_.pools) pool->apply(image);
  if (std::string error = image.compare(); !error.empty()) return error + "\n" + summary;
  return check_quiet();
}

/// Returns the state of all cores, for the report of a failure.
std::string Run::state_of_cores() const {
  std::string text;
  for (const SimHost* host : world_->hosts()) {
    const CoreCounters counters = host->core().counters();
    text += "  " + label_of(*host) + ':';
    const auto count = [&text](const char* name, uint64_t value) {
      if (value != 0) text += std::string(" ") + name + " " + std::to_string(value);
    };
    count("timeouts", counters.timeouts);
    count("retransmitted", counters.retransmitted_packets);
    count("NAKs in", counters.naks_received);
    count("RNR in", counters.rnr_naks_received);
    count("faults requester", counters.faults_requester);
    count("faults responder", counters.faults_responder);
    count("parked", counters.packets_parked);
    count("fault queue full", counters.fault_queue_full);
    for (size_t i = 0; i < counters.drops.size(); ++i)
      count(std::string(name_of(static_cast<DropReason>(i))).c_str(), counters.drops[i]);
    for (const RaisedEvent& event : host->events)
      text += " [qp " + std::to_string(event.qpn) + " event " +
              std::to_string(static_cast<int>(event.event)) + "]";
    text += '\n';
  }
  return text;
}

uint64_t Run::digest() const {
  uint64_t digest = world_->trace.digest();
  for (SimHost* host : world_->hosts())
    for (const Region& region : host->memory.regions()) digest = digest_of(region.bytes, digest);
  return digest;
}

ScenarioResult Run::go(const ScenarioOptions& options) {
  ScenarioResult result;
  result.setting = describe(fabric_);
  result.error = execute();
  for (SimHost* host : world_->hosts()) {
    const CoreCounters counters = host->core().counters();
    result.retransmissions += counters.retransmitted_packets;
    result.timeouts += counters.timeouts;
    result.faults += counters.faults_requester + counters.faults_responder;
    result.rnr_naks += counters.rnr_naks_sent;
  }
  if (!result.error.empty()) result.setting += "\n" + state_of_cores();
  if (result.error.empty()) {
    for (const auto& end : plan_.ends) end->destroy();
    for (const auto& pool : plan_.pools)
      if (pool->srq != nullptr) pool->ends.front()->host().core().destroy_srq(pool->srq);
    for (SimHost* host : world_->hosts()) {
      host->end();
      if (host->port.tx_with_core() != 0) result.error = "a core died with transmit buffers";
    }
  }
  if (options.with_digest) result.digest = digest();
  result.passed = result.error.empty();
  result.packets = world_->trace.entries().size();
  result.virtual_ns = world_->now();
  if (options.with_trace)
    result.trace = world_->trace.text(~size_t{0});
  else if (!result.passed)
    result.trace = world_->trace.text(kTraceOfFailure);
  if (!options.pcap_path.empty()) world_->trace.write_pcap(options.pcap_path);
  return result;
}

}  // namespace

ScenarioResult run_scenario(uint64_t seed, const ScenarioOptions& options) {
  return Run(seed).go(options);
}

}  // namespace faultline::sim
