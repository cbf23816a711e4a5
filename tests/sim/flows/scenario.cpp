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
        fabric_(draw_fabric(random_, seed >= kFirstOdpMixSeed)),
        simulation_(fabric_.script, random_.next()),
        plan_(fabric_, simulation_, random_.fork()) {}

  ScenarioResult go(const ScenarioOptions& options);

 private:
  void pump();
  void dispatch(const Completion& completion);
  [[nodiscard]] bool done() const;
  [[nodiscard]] std::string first_error() const;
  [[nodiscard]] std::string execute();
  [[nodiscard]] std::string check_quiet() const;
  [[nodiscard]] std::string state_of_cores() const;
  void fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }

  Random random_;
  Fabric fabric_;
  Simulation simulation_;
  Plan plan_;
  std::string error_;
};

void Run::dispatch(const Completion& completion) {
  for (const auto& flow : plan_.flows) {
    if (!flow->owns(completion.wr_id)) continue;
    return Flow::is_receive(completion.wr_id) ? flow->on_receive_completion(completion)
                                              : flow->on_send_completion(completion, simulation_.now());
  }
  for (const auto& flow : plan_.datagrams) {
    if (!flow->owns(completion.wr_id)) continue;
    return Flow::is_receive(completion.wr_id) ? flow->on_receive_completion(completion)
                                              : flow->on_send_completion(completion);
  }
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
  for (const auto& flow : plan_.flows) flow->pump(simulation_.now());
  for (const auto& flow : plan_.datagrams) flow->pump(simulation_.now());
}

std::string Run::first_error() const {
  if (!error_.empty()) return error_;
  if (!plan_.error().empty()) return plan_.error();
  for (const auto& flow : plan_.flows)
    if (!flow->error.empty()) return flow->error;
  for (const auto& flow : plan_.datagrams)
    if (!flow->error.empty()) return flow->error;
  return {};
}

bool Run::done() const {
  if (!first_error().empty()) return true;
  return std::all_of(plan_.flows.begin(), plan_.flows.end(), [](const auto& flow) { return flow->done(); }) &&
         std::all_of(plan_.datagrams.begin(), plan_.datagrams.end(),
                     [](const auto& flow) { return flow->done(); });
}

std::string Run::check_quiet() const {
  for (const SimHost* host : {&simulation_.a, &simulation_.b}) {
    const char* name = host == &simulation_.a ? "a" : "b";
    if (!host->port.fault.empty()) return std::string(name) + ": " + host->port.fault;
    if (host->port.rx_in_use() != 0) return std::string(name) + " keeps received frames though all is done";
    if (host->cq_errors != 0) return std::string(name) + ": a completion queue ran over";
    const CoreCounters counters = host->core().counters();
    // A fault must not cause a time-out: on a lossless wire with a pager that accepts requests there is none.
    // (A QP planned to fail may have dropped a READ response. It then requests it again, from a responder in
    // error.) If a responder without room drops the tail of a message, the probe detects it, or else the
    // time-out.
    const auto steady = [this](const MemoryScript& script) {
      return script.queue_capacity >= 1024 &&
             (script.invalidations_limit == 0 || fabric_.theme != Theme::one_failure);
    };
    const auto asks_early = [](const HostScript& script) {
      return script.core.early_probe || !script.core.selective_ack;
    };
    if (fabric_.harmless_links && counters.timeouts != 0 && steady(fabric_.script.a.memory) &&
        steady(fabric_.script.b.memory) && asks_early(fabric_.script.a) && asks_early(fabric_.script.b))
      return std::string(name) + " timed out on a whole wire";
  }
  return {};
}

std::string Run::execute() {
  if (!plan_.error().empty()) return plan_.error();
  MemoryImage image;
  image.take(simulation_.a);
  image.take(simulation_.b);
  pump();
  const bool in_time = simulation_.run_until(
      [this] {
        pump();
        return done();
      },
      kTimeLimitNs);
  if (std::string error = first_error(); !error.empty()) return error;
  std::string summary;
  for (const auto& flow : plan_.flows) summary += "  " + flow->summary();
  if (!in_time) return "stuck: out of events or time\n" + summary;
  if (!done()) return "stuck: nothing will ever happen again\n" + summary;
  // Packets in flight must not change any byte from now on.
  const bool quiet = simulation_.run_until(
      [this] {
        pump();
        return !first_error().empty();
      },
      simulation_.now() + kTimeLimitNs);
  if (std::string error = first_error(); !error.empty()) return error;
  if (!quiet) return "never comes to rest\n" + summary;
  for (const auto& flow : plan_.flows) flow->check_end();
  for (const auto& flow : plan_.datagrams) flow->check_end();
  if (std::string error = first_error(); !error.empty()) return error;
  image.zero_what_the_program_did();
  for (const auto& flow : plan_.flows) flow->apply(image);
  for (const auto& flow : plan_.datagrams) flow->apply(image);
  if (std::string error = image.compare(); !error.empty()) return error + "\n" + summary;
  return check_quiet();
}

/// Returns the state of both cores, for the report of a failure.
std::string Run::state_of_cores() const {
  std::string text;
  for (const SimHost* host : {&simulation_.a, &simulation_.b}) {
    const CoreCounters counters = host->core().counters();
    text += host == &simulation_.a ? "  a:" : "  b:";
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

ScenarioResult Run::go(const ScenarioOptions& options) {
  ScenarioResult result;
  result.setting = describe(fabric_);
  result.error = execute();
  for (SimHost* host : {&simulation_.a, &simulation_.b}) {
    const CoreCounters counters = host->core().counters();
    result.retransmissions += counters.retransmitted_packets;
    result.timeouts += counters.timeouts;
    result.faults += counters.faults_requester + counters.faults_responder;
    result.rnr_naks += counters.rnr_naks_sent;
  }
  if (!result.error.empty()) result.setting += "\n" + state_of_cores();
  if (result.error.empty()) {
    for (const auto& end : plan_.ends) end->destroy();
    simulation_.a.end();
    simulation_.b.end();
    if (simulation_.a.port.tx_with_core() != 0 || simulation_.b.port.tx_with_core() != 0)
      result.error = "a core died with transmit buffers";
  }
  result.passed = result.error.empty();
  result.packets = simulation_.trace.entries().size();
  result.virtual_ns = simulation_.now();
  if (options.with_trace)
    result.trace = simulation_.trace.text(~size_t{0});
  else if (!result.passed)
    result.trace = simulation_.trace.text(kTraceOfFailure);
  if (!options.pcap_path.empty()) simulation_.trace.write_pcap(options.pcap_path);
  return result;
}

}  // namespace

ScenarioResult run_scenario(uint64_t seed, const ScenarioOptions& options) {
  return Run(seed).go(options);
}

}  // namespace faultline::sim
