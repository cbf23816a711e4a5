// SPDX-License-Identifier: BSD-3-Clause
// The two pitfalls that Fukuoka, Sato and Taura measured on NICs with on-demand paging (ISPASS 2021). "Packet
// damming": of two requests that fault close together, one is lost until its time-out. "Packet flood": many
// QPs that wait for one page retransmit again and again. Neither case may cause a time-out here. A packet may
// be retransmitted once for each fault, and once more if the wire lost it.
#include <algorithm>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>

#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::odp_pitfalls_test {
namespace {

using transport::CompletionStatus;
using transport::SendOpcode;

/// Time for which the responder parks packets silently, and the fault's service time.
struct Stall {
  const char* name;
  uint64_t park_deadline_ns;
  uint64_t fault_ns;
};

std::string name_of(const testing::TestParamInfo<Stall>& info) {
  return info.param.name;
}

void PrintTo(const Stall& stall, std::ostream* out) {
  *out << "held for " << stall.park_deadline_ns << " ns in a fault of " << stall.fault_ns << " ns";
}

constexpr Stall kStalls[] = {
    {"ParkedThroughAMinorFault", 2 * kMillisecond, 20 * kMicrosecond},
    {"ParkedForAPartOfAMinorFault", 5 * kMicrosecond, 20 * kMicrosecond},
    {"NeverParkedInAMinorFault", 0, 20 * kMicrosecond},
    {"ParkedThroughAMajorFault", 2 * kMillisecond, 1 * kMillisecond},
    {"ParkedForAPartOfAMajorFault", 5 * kMicrosecond, 1 * kMillisecond},
    {"NeverParkedInAMajorFault", 0, 1 * kMillisecond},
};

SimulationScript fabric_of(const Stall& stall, bool selective) {
  SimulationScript script = selective ? selective_fabric() : quiet_fabric();
  for (HostScript* host : {&script.a, &script.b}) {
    host->core.park_deadline_ns = stall.park_deadline_ns;
    host->memory.resolve_min_ns = host->memory.resolve_max_ns = stall.fault_ns;
  }
  return script;
}

/// Identifies a packet of a QP: direction, destination QPN, PSN and opcode. Acknowledgements are not tracked.
using PacketName = std::tuple<bool, uint32_t, uint32_t, std::string>;

struct Transmissions {
  std::map<PacketName, unsigned> copies;
  unsigned lost = 0;
};

Transmissions count_transmissions(const Trace& trace) {
  Transmissions seen;
  for (const TraceEntry& entry : trace.entries()) {
    if (entry.verdict == Verdict::lost) ++seen.lost;
    wire::Packet packet;
    if (wire::parse(entry.frame, packet) != wire::ParseError::none) continue;
    if (packet.info->operation == wire::Operation::acknowledge) continue;
    if (packet.bth.opcode == wire::Opcode::rc_selective_ack) continue;
    ++seen.copies[{entry.from_a(), packet.bth.destination_qpn, packet.bth.psn.value(),
                   std::string(packet.info->name)}];
  }
  return seen;
}

/// Returns the packet that was retransmitted most often, if that exceeds the number of faults and losses;
/// otherwise an empty string.
std::string sent_too_often(const Trace& trace, unsigned faults) {
  const Transmissions seen = count_transmissions(trace);
  const auto worst =
      std::max_element(seen.copies.begin(), seen.copies.end(),
                       [](const auto& one, const auto& other) { return one.second < other.second; });
  if (worst == seen.copies.end() || worst->second <= 1 + faults + seen.lost) return {};
  const auto& [from_a, qpn, psn, opcode] = worst->first;
  return "sent too often: " + opcode + " " + std::to_string(psn) + " " + std::to_string(worst->second) +
         " times for " + std::to_string(faults) + " faults and " + std::to_string(seen.lost) + " losses";
}

enum class Side : uint8_t { requester, responder, both };

/// Two requests that follow each other closely.
struct Case {
  Stall stall;
  bool selective = true;
  bool warm = true;  ///< the round-trip time is known
  SendOpcode first = SendOpcode::rdma_read, second = SendOpcode::rdma_read;
  Side side = Side::responder;
  bool same_page = false;
  uint64_t gap_ns = 0;  ///< between the two posts

  /// Number of missing pages, each of which causes one fault.
  [[nodiscard]] unsigned faults() const {
    const unsigned a_side = same_page && first == second ? 1 : 2;
    return side == Side::both ? 2 * a_side : a_side;
  }
};

/// The n-th packet in its direction, counted from the first post.
struct Loss {
  bool from_a = true;
  uint32_t number = 0;
};
using Losses = std::vector<Loss>;

std::string describe(const Case& test, const Losses& losses) {
  const auto name = [](SendOpcode opcode) { return opcode == SendOpcode::rdma_read ? "READ" : "WRITE"; };
  static constexpr const char* kSides[] = {"requester", "responder", "both sides"};
  std::string text = std::string(name(test.first)) + " and " + name(test.second) + ", faults at " +
                     kSides[static_cast<size_t>(test.side)] + (test.same_page ? " on one page, " : ", ") +
                     std::to_string(test.gap_ns) + " ns apart, " + (test.warm ? "warm, " : "cold, ") +
                     (test.selective ? "selective" : "go-back-n");
  for (const Loss& loss : losses)
    text +=
        std::string(", ") + (loss.from_a ? "a" : "b") + "'s packet " + std::to_string(loss.number) + " lost";
  return text;
}

constexpr uint32_t kMessageBytes = 1500;  // two packets
constexpr uint64_t kSecondInPage = 2000;
constexpr uint64_t kSecondApart = 32768;

class TwoRequests {
 public:
  TwoRequests(const Case& test, const Losses& losses)
      : test_(test),
        losses_(losses),
        pair_(fabric_of(test.stall, test.selective)),
        local_(test.side == Side::responder ? pair_.pinned_a : pair_.paged_a),
        remote_(test.side == Side::requester ? pair_.pinned_b : pair_.paged_b) {}

  /// Returns an empty string, or a description of the failure.
  [[nodiscard]] std::string run() {
    if (test_.warm) warm_up();
    for (const Loss& loss : losses_)
      (loss.from_a ? pair_.simulation.a_to_b : pair_.simulation.b_to_a).script().drop_mask |= uint64_t{1}
                                                                                              << loss.number;
    const TimeNs start = pair_.simulation.now();
    post(test_.first, 0);
    pair_.simulation.at(start + test_.gap_ns,
                        [this] { post(test_.second, test_.same_page ? kSecondInPage : kSecondApart); });
    return pair_.simulation.run() ? judge() : "never ends";
  }

  /// Returns every packet of the run that a drop mask can address.
  [[nodiscard]] Losses packets() const {
    Losses all;
    for (const TraceEntry& entry : pair_.simulation.trace.entries())
      if (entry.number < 64) all.push_back({entry.from_a(), entry.number});
    return all;
  }
  [[nodiscard]] std::string trace() const { return pair_.simulation.trace.text(24); }

 private:
  struct Posted {
    SendOpcode opcode;
    uint64_t local, remote;
    std::vector<uint8_t> expected;
  };

  void warm_up() {
    for (int i = 0; i < 8; ++i) {
      pair_.write(kMessageBytes);
      pair_.read(kMessageBytes);
      pair_.run();
    }
    EXPECT_EQ(pair_.a.poll_sends().size(), 16U);
    EXPECT_EQ(pair_.counters_a().retransmitted_packets, 0U);
    pair_.simulation.trace.clear();
    pair_.simulation.a_to_b.sent = pair_.simulation.b_to_a.sent = 0;
  }

  void post(SendOpcode opcode, uint64_t offset) {
    const auto place = [offset](const Region& region) {
      return (region.page_bytes - region.base % region.page_bytes) + offset;
    };
    SendRequest request = pair_.request(opcode, local_, kMessageBytes, &remote_);
    request.sges[0].va = local_.base + place(local_);
    request.remote_va = remote_.base + place(remote_);
    Region& source = opcode == SendOpcode::rdma_read ? remote_ : local_;
    const auto from = source.bytes.begin() + static_cast<std::ptrdiff_t>(place(source));
    posted_.push_back({opcode, place(local_), place(remote_), {from, from + kMessageBytes}});
    EXPECT_TRUE(pair_.a.post_send(request));
  }

  [[nodiscard]] std::string judge() {
    const auto counters = {pair_.counters_a(), pair_.counters_b()};
    for (const transport::CoreCounters& counter : counters)
      if (counter.timeouts != 0) return "timed out: " + std::to_string(counter.timeouts) + " times";
    const auto statuses = Pair::statuses(pair_.a.poll_sends());
    if (statuses != Statuses{CompletionStatus::success, CompletionStatus::success})
      return "not both have succeeded";
    for (const Posted& posted : posted_) {
      const Region& region = posted.opcode == SendOpcode::rdma_read ? local_ : remote_;
      const uint64_t at = posted.opcode == SendOpcode::rdma_read ? posted.local : posted.remote;
      if (!std::equal(posted.expected.begin(), posted.expected.end(),
                      region.bytes.begin() + static_cast<std::ptrdiff_t>(at)))
        return "wrong bytes";
    }
    return sent_too_often(pair_.simulation.trace, test_.faults());
  }

  const Case test_;
  const Losses losses_;
  Pair pair_;
  Region& local_;
  Region& remote_;
  std::vector<Posted> posted_;
};

/// Collects the failures of many runs: the number of each kind, and the first of each kind in full.
class Verdicts {
 public:
  /// Returns the packets of a run if it succeeded.
  Losses judge(const Case& test, const Losses& losses) {
    TwoRequests exchange(test, losses);
    const std::string error = exchange.run();
    ++runs_;
    if (error.empty()) return exchange.packets();
    Kind& kind = kinds_[error.substr(0, error.find(':'))];
    if (kind.count++ == 0) kind.first = describe(test, losses) + ": " + error + "\n" + exchange.trace();
    return {};
  }

  [[nodiscard]] bool well() const { return kinds_.empty(); }
  [[nodiscard]] std::string text() const {
    std::string text;
    for (const auto& [name, kind] : kinds_)
      text += std::to_string(kind.count) + " of " + std::to_string(runs_) + ": " + name + ", first with " +
              kind.first;
    return text;
  }

 private:
  struct Kind {
    unsigned count = 0;
    std::string first;
  };
  unsigned runs_ = 0;
  std::map<std::string, Kind> kinds_;
};

template <typename Visit>
void for_each_case(const Stall& stall, bool selective, Visit visit) {
  for (const SendOpcode first : {SendOpcode::rdma_read, SendOpcode::rdma_write})
    for (const SendOpcode second : {SendOpcode::rdma_read, SendOpcode::rdma_write})
      for (const Side side : {Side::requester, Side::responder, Side::both})
        for (const bool same_page : {false, true})
          for (const bool warm : {false, true})
            for (const uint64_t gap_ns : {uint64_t{0}, stall.fault_ns / 2, stall.fault_ns + 1'000})
              visit(Case{stall, selective, warm, first, second, side, same_page, gap_ns});
}

class Damming : public testing::TestWithParam<Stall> {};

TEST_P(Damming, TwoRequestsThatFaultCloseTogether) {
  for (const bool selective : {false, true}) {
    Verdicts verdicts;
    for_each_case(GetParam(), selective, [&](const Case& test) { verdicts.judge(test, {}); });
    EXPECT_TRUE(verdicts.well()) << verdicts.text();
  }
}

TEST_P(Damming, AndOnePacketOrTwoAreLost) {
  Verdicts verdicts;
  for_each_case(GetParam(), true, [&](const Case& test) {
    const Losses whole = verdicts.judge(test, {});
    for (const Loss& first : whole) {
      const Losses after = verdicts.judge(test, {first});
      for (const Loss& second : after)
        if (second.from_a != first.from_a || second.number > first.number)
          verdicts.judge(test, {first, second});
    }
  });
  EXPECT_TRUE(verdicts.well()) << verdicts.text();
}

INSTANTIATE_TEST_SUITE_P(Stalls, Damming, testing::ValuesIn(kStalls), name_of);

/// Many QPs between two hosts, whose requests need the same pages at the same time.
class Crowd {
 public:
  static constexpr unsigned kQps = 128;

  Crowd(const SimulationScript& script, Side side)
      : simulation_(script, 1),
        local_(add(simulation_.a, side != Side::responder, 1)),
        remote_(add(simulation_.b, side != Side::requester, 2)) {
    for (unsigned i = 0; i < kQps; ++i) {
      Endpoint& a =
          *a_.emplace_back(std::make_unique<Endpoint>(simulation_, simulation_.a, EndpointScript{}));
      Endpoint& b =
          *b_.emplace_back(std::make_unique<Endpoint>(simulation_, simulation_.b, EndpointScript{}));
      EXPECT_TRUE(connect(simulation_, a, b, {}));
    }
    simulation_.run();
  }

  /// Posts one request per QP. Returns false if virtual time exceeds the limit.
  [[nodiscard]] bool run(SendOpcode opcode, uint32_t length_bytes) {
    const Region& source = opcode == SendOpcode::rdma_read ? remote_ : local_;
    const Region& target = opcode == SendOpcode::rdma_read ? local_ : remote_;
    expected_.assign(source.bytes.begin(), source.bytes.begin() + length_bytes);
    start_ns_ = simulation_.now();
    for (const auto& end : a_) {
      SendRequest request;
      request.opcode = opcode;
      request.sges = {{local_.base, length_bytes, local_.key}};
      request.remote_va = remote_.base;
      request.rkey = remote_.key;
      EXPECT_TRUE(end->post_send(request));
    }
    const bool ended = simulation_.run_until(
        [&] {
          for (const auto& end : a_)
            for (const transport::Completion& completion : end->poll_sends()) {
              EXPECT_EQ(completion.status, CompletionStatus::success);
              ++completed;
              last_ns = simulation_.now() - start_ns_;
            }
          return false;
        },
        10'000'000'000);
    EXPECT_TRUE(std::equal(expected_.begin(), expected_.end(), target.bytes.begin()));
    return ended;
  }

  [[nodiscard]] uint64_t timeouts() {
    return simulation_.a.core().counters().timeouts + simulation_.b.core().counters().timeouts;
  }
  [[nodiscard]] uint64_t no_buffer() const { return simulation_.b.port.rx_no_buffer; }
  [[nodiscard]] const Trace& trace() const { return simulation_.trace; }

  unsigned completed = 0;
  uint64_t last_ns = 0;  ///< from the post to the last completion

 private:
  static Region& add(SimHost& host, bool on_demand, uint64_t noise) {
    Region& region = host.memory.add_region(
        1, odp::kLocalWrite | odp::kRemoteWrite | odp::kRemoteRead | odp::kRemoteAtomic, on_demand);
    Random random(noise);
    region.extend(65536, random);
    return region;
  }

  Simulation simulation_;
  Region& local_;
  Region& remote_;
  std::vector<std::unique_ptr<Endpoint>> a_, b_;
  std::vector<uint8_t> expected_;
  TimeNs start_ns_ = 0;
};

class Flood : public testing::TestWithParam<Stall> {};

TEST_P(Flood, ManyQpsThatFaultOnTheSamePages) {
  constexpr uint32_t kLengths[] = {100, 4096, 16384};
  for (const bool selective : {false, true}) {
    for (const SendOpcode opcode : {SendOpcode::rdma_read, SendOpcode::rdma_write}) {
      for (const Side side : {Side::requester, Side::responder, Side::both}) {
        for (const uint32_t length_bytes : kLengths) {
          SCOPED_TRACE(std::string(opcode == SendOpcode::rdma_read ? "READ" : "WRITE") + " of " +
                       std::to_string(length_bytes) + " bytes, side " +
                       std::to_string(static_cast<int>(side)) + (selective ? ", selective" : ", go-back-n"));
          SimulationScript script = fabric_of(GetParam(), selective);
          script.b.port.rx_buffers = 4096;  // a port has more buffers than a core may park
          Crowd crowd(script, side);
          EXPECT_TRUE(crowd.run(opcode, length_bytes));
          EXPECT_EQ(crowd.completed, Crowd::kQps);
          EXPECT_EQ(crowd.no_buffer(), 0U);
          EXPECT_EQ(crowd.timeouts(), 0U);
          const unsigned faults = side == Side::both ? 2 : 1;
          // An ordinary requester retransmits the whole message after an RNR NAK, and again whatever found no
          // room. 128 messages of 16 packets are twice what a core may park.
          const bool overflows = !selective && opcode == SendOpcode::rdma_write && length_bytes == 16384;
          EXPECT_EQ(sent_too_often(crowd.trace(), faults + (overflows ? 1 : 0)), "");
          EXPECT_LE(crowd.last_ns, faults * GetParam().fault_ns + kMillisecond);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stalls, Flood, testing::ValuesIn(kStalls), name_of);

}  // namespace
}  // namespace faultline::sim::odp_pitfalls_test
