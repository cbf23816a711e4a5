// SPDX-License-Identifier: BSD-3-Clause
// Many connections over a wire that loses, duplicates and reorders, between programs that act at random. Both
// sides always end in consistent states, and nothing is left over. Arbitrary datagrams are tested as well.
#include <map>

#include <gtest/gtest.h>

#include "tests/unit/cm/network.hpp"

namespace faultline::cm::test::chaos_test {
namespace {

constexpr uint64_t kService = wire::ip_service_id(0x0106, 7174);
constexpr uint64_t kDatagramService = wire::ip_service_id(0x0111, 7174);

/// A program on one node: it responds to events after a delay, and accepts most requests.
class Program {
 public:
  Program(Network& network, Node& node, Node& peer) : network_(network), node_(node), peer_(peer) {
    Id id = 0;
    EXPECT_EQ(node.manager().listen({.service_id = kService, .backlog = 4}, id), 0);
    EXPECT_EQ(node.manager().listen({.service_id = kDatagramService, .backlog = 4}, id), 0);
  }

  struct Fate {
    bool active = false, asked = false, answered = false, stood = false, ended = false;
    int stands = 0, ends = 0;  ///< number of established and ended events
  };

  void connect(uint32_t qpn) {
    Id id = 0;
    ASSERT_EQ(node_.manager().connect(node_.request_to(peer_, kService, qpn), network_.now(), id), 0);
    fates[id].active = true;
  }
  void resolve() {
    Id id = 0;
    ASSERT_EQ(
        node_.manager().resolve(
            {.service_id = kDatagramService, .path = node_.path_to(peer_), .ip = node_.addressing_to(peer_)},
            network_.now(), id),
        0);
    questions[id] = 0;
  }

  void step() {
    for (Event event; node_.manager().take_event(event);) note(event);
    std::vector<std::pair<TimeNs, Event>> due;
    std::erase_if(to_do_, [&](const auto& item) {
      if (item.first > network_.now()) return false;
      due.push_back(item);
      return true;
    });
    for (const auto& [at, event] : due) act(event);
  }

  std::map<Id, Fate> fates;
  std::map<Id, int> questions;  ///< answers to each event
  std::vector<TimeNs> accepted;

 private:
  void later(Event event) {
    const uint64_t most_ns = network_.chance(10) == 0 ? 20 * kSecond : 300 * kMs;
    to_do_.emplace_back(network_.now() + network_.chance(static_cast<uint32_t>(most_ns / 1'000)) * 1'000ULL,
                        event);
  }

  void note(const Event& event) {
    switch (event.kind) {
      case EventKind::requested:
        EXPECT_FALSE(fates.contains(event.id)) << "told twice of one request";
        fates[event.id].asked = true;
        return later(event);
      case EventKind::service_requested:
        return later(event);
      case EventKind::replied:
        EXPECT_FALSE(std::exchange(fates.at(event.id).answered, true));
        return later(event);
      case EventKind::established:
        ++fates.at(event.id).stands;
        fates.at(event.id).stood = true;
        if (network_.chance(2) == 0) later(event);
        return;
      case EventKind::rejected:
      case EventKind::unreachable:
      case EventKind::disconnected:
        ++fates.at(event.id).ends;
        fates.at(event.id).ended = true;
        return later(event);
      case EventKind::time_wait_over:
        EXPECT_TRUE(fates.at(event.id).ended);
        return;
      case EventKind::service_resolved:
      case EventKind::service_unreachable:
        ++questions.at(event.id);
        return;
    }
  }

  void act(const Event& event) {
    Manager& manager = node_.manager();
    const TimeNs now = network_.now();
    const uint32_t luck = network_.chance(20);
    // Calls may fail because the other side has acted in the meantime.
    switch (event.kind) {
      case EventKind::requested:
        if (luck == 0) return manager.destroy(event.id, now);
        if (luck == 1)
          return static_cast<void>(
              manager.reject(event.id, wire::RejectReason::consumer_defined, {}, {}, now));
        if (luck < 5) static_cast<void>(manager.delay(event.id, 18, {}, now));
        return static_cast<void>(manager.accept(event.id, {.qpn = 0x800000 | event.remote_qpn}, now));
      case EventKind::replied:
        if (luck == 0) return manager.destroy(event.id, now);
        if (luck == 1)
          return static_cast<void>(
              manager.reject(event.id, wire::RejectReason::consumer_defined, {}, {}, now));
        if (manager.confirm(event.id, {}, now) == 0) {
          fates.at(event.id).stood = true;
          if (luck < 12) later({.kind = EventKind::established, .id = event.id});
        }
        return;
      case EventKind::established:
        return static_cast<void>(manager.disconnect(event.id, {}, now));
      case EventKind::disconnected:
        static_cast<void>(manager.disconnect(event.id, {}, now));
        return;
      case EventKind::service_requested:
        if (luck != 0) static_cast<void>(manager.answer(event.id, {.qpn = 5}, now));
        return manager.destroy(event.id, now);
      default:
        return;
    }
  }

  Network& network_;
  Node& node_;
  Node& peer_;
  std::vector<std::pair<TimeNs, Event>> to_do_;
};

class Chaos : public testing::TestWithParam<uint64_t> {};

TEST_P(Chaos, EverythingEnds) {
  Network net(GetParam());
  Node& left = net.add();
  Node& right = net.add();
  net.script = {.delay_ns = 20'000,
                .jitter_ns = net.chance(2) == 0 ? 0 : 100 * kMs,
                .loss_permille = net.chance(300),
                .duplicate_permille = net.chance(300)};
  Program programs[]{Program(net, left, right), Program(net, right, left)};
  constexpr uint32_t kConnections = 30;
  for (uint32_t i = 0; i < 60'000; ++i) {
    if (i % 100 == 0 && i / 100 < kConnections) {
      programs[0].connect(0x100 + i / 100);
      programs[1].connect(0x400 + i / 100);
      programs[i / 100 % 2].resolve();
    }
    net.run_for(10 * kMs);
    for (Program& program : programs) program.step();
  }
  // Destroys the established connections ten minutes later.
  left.manager().destroy_all(net.now());
  right.manager().destroy_all(net.now());
  net.run_for(200 * kSecond);
  uint32_t stood = 0;
  for (const Program& program : programs) {
    for (const auto& [id, fate] : program.fates) {
      EXPECT_LE(fate.stands, 1) << id;
      EXPECT_LE(fate.ends, 1) << id;
      stood += fate.stood ? 1 : 0;
    }
    for (const auto& [id, answers] : program.questions) EXPECT_EQ(answers, 1) << id;
  }
  EXPECT_GT(stood, kConnections) << "most of them, on either side";
  for (Node* node : {&left, &right}) {
    EXPECT_EQ(node->manager().next_deadline(), kNever);
    EXPECT_FALSE(node->has_event());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Chaos, testing::Range(uint64_t{1}, uint64_t{41}));

// Valid messages with random bytes changed. Such a message is at most dropped, answered once, or opens and
// ends what its bytes request.
TEST(Garbage, IsTakenCalmly) {
  Network net(7);
  Node& client = net.add();
  Node& server = net.add();
  Id listener = 0;
  ASSERT_EQ(server.manager().listen({.service_id = kService}, listener), 0);
  ASSERT_EQ(server.manager().listen({.service_id = kDatagramService}, listener), 0);
  std::vector<wire::MadBytes> seeds;
  for (uint32_t round = 0; round < 8; ++round) {
    Id id = 0;
    ASSERT_EQ(client.manager().connect(client.request_to(server, kService, 0x100 + round), net.now(), id), 0);
    net.settle();
    const Event requested = server.next_event();
    ASSERT_EQ(server.manager().accept(requested.id, {.qpn = 0x200 + round}, net.now()), 0);
    net.settle();
    ASSERT_EQ(client.next_event().kind, EventKind::replied);
    ASSERT_EQ(client.manager().confirm(id, {}, net.now()), 0);
    net.settle();
    static_cast<void>(server.next_event());
    if (round % 2 == 0) {
      ASSERT_EQ(client.manager().disconnect(id, {}, net.now()), 0);
    }
    net.settle();
    if (round % 2 == 0) static_cast<void>(server.next_event());
    if (round % 4 == 0) {
      ASSERT_EQ(server.manager().disconnect(requested.id, {}, net.now()), 0);
    }
    net.settle();
    ASSERT_EQ(client.manager().resolve({.service_id = kDatagramService,
                                        .path = client.path_to(server),
                                        .ip = client.addressing_to(server)},
                                       net.now(), id),
              0);
    net.settle();
    ASSERT_EQ(server.manager().answer(server.next_event().id, {.qpn = 4}, net.now()), 0);
    net.settle();
    for (Event event; client.manager().take_event(event);) ASSERT_NE(event.kind, EventKind::rejected);
  }
  for (Node* node : {&client, &server})
    for (const wire::MadBytes& mad : node->sent) seeds.push_back(mad);
  ASSERT_GT(seeds.size(), 40U);
  net.loses = [](const wire::CmMad&) { return true; };
  for (uint32_t i = 0; i < 200'000; ++i) {
    wire::MadBytes mad = seeds[net.chance(static_cast<uint32_t>(seeds.size()))];
    for (uint32_t flips = net.chance(4); flips > 0; --flips)
      mad[net.chance(4) == 0 ? net.chance(wire::kMadBytes) : wire::kMadHeaderBytes + net.chance(64)] ^=
          static_cast<uint8_t>(net.chance(256));
    Node& node = net.chance(2) == 0 ? server : client;
    const Node& from = net.chance(8) == 0 ? node : (&node == &server ? client : server);
    const size_t sent_before = node.sent.size();
    node.receive(mad, {.reply = node.path_to(from).av}, net.now());
    EXPECT_LE(node.sent.size(), sent_before + 2) << "at most a rejection and a DREQ";
    for (Event event; node.manager().take_event(event);)
      if (net.chance(2) == 0) node.manager().destroy(event.id, net.now());
    if (i % 64 == 0) {
      net.run_for(net.chance(100) * kMs);
      client.sent.clear();
      server.sent.clear();
    }
  }
  client.manager().destroy_all(net.now());
  server.manager().destroy_all(net.now());
  net.run_for(24ULL * 3600 * kSecond);
  EXPECT_EQ(client.manager().next_deadline(), kNever);
  EXPECT_EQ(server.manager().next_deadline(), kNever);
}

}  // namespace
}  // namespace faultline::cm::test::chaos_test
