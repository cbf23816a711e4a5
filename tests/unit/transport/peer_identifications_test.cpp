// SPDX-License-Identifier: BSD-3-Clause
// Which identifications of a peer's packets are accepted: windows, idle times, candidates, the table.
#include "stack/transport/core/peer_identifications.hpp"

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace faultline::transport {
namespace {

using Addresses = PeerIdentifications::Addresses;

constexpr Addresses kPeer = 0xc6120002'c6120001;  // 198.18.0.2 to 198.18.0.1
constexpr TimeNs kMs = 1'000'000;
constexpr uint32_t kAfter = PeerIdentifications::kRunningWindow - PeerIdentifications::kOvertaken - 1;

/// A table, and the time.
struct Table {
  bool accept(uint32_t identification, Addresses addresses = kPeer) {
    return table->accept(addresses, static_cast<uint16_t>(identification), now);
  }
  /// Two packets of a counter, the last one of which has `identification`.
  void confirm(uint32_t identification, Addresses addresses = kPeer) {
    EXPECT_FALSE(accept(identification - 1, addresses));
    EXPECT_TRUE(accept(identification, addresses));
  }
  void wait(uint32_t ms) { now += ms * kMs; }

  std::unique_ptr<PeerIdentifications> table = std::make_unique<PeerIdentifications>();
  TimeNs now = 1'000'000'000;
};

TEST(PeerIdentifications, TheSecondPacketOfACounterIsAccepted) {
  Table table;
  EXPECT_FALSE(table.accept(1000));
  for (uint32_t identification = 1001; identification < 1300; ++identification)
    EXPECT_TRUE(table.accept(identification)) << identification;
}

TEST(PeerIdentifications, APeerMaySendOneIdentificationAlways) {
  Table table;
  EXPECT_FALSE(table.accept(0x4711));
  for (int i = 0; i < 100; ++i, table.wait(1)) EXPECT_TRUE(table.accept(0x4711));
}

TEST(PeerIdentifications, OfARunningPeerAWindowOf64IsAccepted) {
  constexpr uint32_t kLast = 30'000;
  uint32_t accepted = 0;
  for (uint32_t identification = 0; identification <= 0xffff; ++identification) {
    Table table;
    table.confirm(kLast);
    const bool is_in_window =
        identification + PeerIdentifications::kOvertaken >= kLast && identification <= kLast + kAfter;
    ASSERT_EQ(table.accept(identification), is_in_window) << identification;
    accepted += is_in_window ? 1U : 0U;
  }
  EXPECT_EQ(accepted, 64U);
}

TEST(PeerIdentifications, TheCounterWrapsAt65536) {
  Table table;
  EXPECT_FALSE(table.accept(0xfff0));
  for (uint32_t identification = 0xfff1; identification < 0x10000 + 0x100; ++identification)
    EXPECT_TRUE(table.accept(identification)) << identification;
  Table before;
  before.confirm(0xffff);
  EXPECT_FALSE(before.accept(kAfter));
  Table at;
  at.confirm(0xffff);
  EXPECT_TRUE(at.accept(kAfter - 1));
}

TEST(PeerIdentifications, APacketThatWasOvertakenDoesNotMoveTheWindowBack) {
  Table table;
  table.confirm(1000);
  EXPECT_TRUE(table.accept(1000 - PeerIdentifications::kOvertaken));
  EXPECT_TRUE(table.accept(1000 + kAfter));
  // Nor does it make the idle time shorter.
  Table idle;
  idle.confirm(1000);
  idle.wait(100);
  EXPECT_TRUE(idle.accept(990));
  EXPECT_TRUE(idle.accept(1000 + kAfter + 100));
}

TEST(PeerIdentifications, TheWindowGrowsByOneAMillisecondUpToABound) {
  for (const uint32_t idle_ms :
       {0U, 1U, 2U, 100U, 4000U, 8000U, 8128U, 8129U, 9000U, 60'000U, 864'000'000U}) {
    const uint32_t most =
        kAfter + std::min(idle_ms, PeerIdentifications::kWidestWindow - PeerIdentifications::kRunningWindow);
    for (const bool beyond : {false, true}) {
      Table table;
      table.confirm(1000);
      table.wait(idle_ms);
      EXPECT_EQ(table.accept(1000 + most + (beyond ? 1 : 0)), !beyond) << idle_ms;
    }
    Table table;
    table.confirm(1000);
    table.wait(idle_ms);
    EXPECT_FALSE(table.accept(1000 - PeerIdentifications::kOvertaken - 1)) << idle_ms;
  }
}

/// The counter of Linux: ip_idents_reserve in net/ipv4/route.c.
class LinuxCounter {
 public:
  LinuxCounter(uint32_t hz, uint32_t start) : hz_(hz), next_(start) {}
  uint16_t next(TimeNs now) {
    const TimeNs jiffies = now * hz_ / 1'000'000'000;
    if (jiffies != last_jiffies_) next_ += static_cast<uint32_t>(random_() % (jiffies - last_jiffies_));
    last_jiffies_ = jiffies;
    return static_cast<uint16_t>(next_++);
  }

 private:
  std::mt19937_64 random_{7};
  uint32_t hz_;
  uint32_t next_;
  TimeNs last_jiffies_ = 0;
};

TEST(PeerIdentifications, TheCounterOfLinuxStaysInTheWindow) {
  for (const uint32_t hz : {100U, 250U, 1000U}) {
    Table table;
    LinuxCounter counter(hz, 65'000);
    std::mt19937_64 random(hz);
    EXPECT_FALSE(table.accept(counter.next(table.now)));
    for (int packet = 0; packet < 20'000; ++packet) {
      // Mostly at once; at times idle for up to 8 s.
      if (random() % 10 == 0) table.now += random() % (8000 * kMs);
      ASSERT_TRUE(table.accept(counter.next(table.now))) << hz << ' ' << packet;
    }
  }
}

TEST(PeerIdentifications, ACandidateIsConfirmedByAPacketOfItsWindowOnly) {
  Table table;
  EXPECT_FALSE(table.accept(1000));
  EXPECT_FALSE(table.accept(1000 + kAfter + 1));
  EXPECT_FALSE(table.accept(1000));
  EXPECT_FALSE(table.accept(5000));
  EXPECT_FALSE(table.accept(1001));
  EXPECT_TRUE(table.accept(1002));
}

// A management datagram comes again after 4 to 9 s.
TEST(PeerIdentifications, ACandidateIsConfirmedAfterItsPeersLongRetransmissionTimeout) {
  Table table;
  EXPECT_FALSE(table.accept(1000));
  table.wait(9300);
  EXPECT_TRUE(table.accept(1000 + 9300 / 4));
}

TEST(PeerIdentifications, APacketOutsideOfTheWindowDoesNotDisplaceTheConfirmedCounter) {
  Table table;
  table.confirm(1000);
  for (uint32_t other = 0; other < 100; ++other) {
    EXPECT_FALSE(table.accept(20'000 + 300 * other));
    EXPECT_TRUE(table.accept(1001 + other));
  }
}

TEST(PeerIdentifications, ACounterThatAnotherOneDisplacedIsStillFollowed) {
  Table table;
  table.confirm(1000);
  table.confirm(20'000);
  for (uint32_t i = 1; i < 200; ++i) {
    EXPECT_TRUE(table.accept(1000 + i));
    EXPECT_TRUE(table.accept(20'000 + i));
  }
}

TEST(PeerIdentifications, APeerThatStartsAgainIsLearnedAgain) {
  Table table;
  table.confirm(1000);
  table.wait(30);
  table.confirm(40'000);
  for (uint32_t i = 1; i < 200; ++i) EXPECT_TRUE(table.accept(40'000 + i));
}

TEST(PeerIdentifications, AnOldCandidateLeavesNoWideWindowInRunningTraffic) {
  Table table;
  table.confirm(1000);
  EXPECT_FALSE(table.accept(20'000));
  for (uint32_t i = 1; i <= 9000; ++i) {
    table.wait(1);
    ASSERT_TRUE(table.accept(1000 + i)) << i;
  }
  EXPECT_FALSE(table.accept(20'500));
}

TEST(PeerIdentifications, EachPathHasItsOwnCounter) {
  Table table;
  std::vector<Addresses> paths;
  for (uint32_t host = 0; host < 20; ++host) {
    paths.push_back(kPeer + (uint64_t{host} << 32));  // other sources
    paths.push_back(kPeer + 100 + host);              // other destinations
  }
  for (size_t i = 0; i < paths.size(); ++i) table.confirm(static_cast<uint32_t>(1000 + 900 * i), paths[i]);
  for (uint32_t packet = 1; packet < 100; ++packet)
    for (size_t i = 0; i < paths.size(); ++i)
      EXPECT_TRUE(table.accept(static_cast<uint32_t>(1000 + 900 * i + packet), paths[i]));
  EXPECT_FALSE(table.accept(1100, paths[1]));
}

/// Sources whose paths share a place in the table.
std::vector<Addresses> colliding(size_t count) {
  std::vector<Addresses> paths;
  for (uint64_t source = 0xc6120002; paths.size() < count; ++source) {
    const Addresses path = source << 32 | 0xc6120001;
    if (PeerIdentifications::set_of(path) == PeerIdentifications::set_of(kPeer)) paths.push_back(path);
  }
  return paths;
}

TEST(PeerIdentifications, SeveralPeersHaveOnePlaceInTheTable) {
  Table table;
  const std::vector<Addresses> paths = colliding(PeerIdentifications::kWays);
  for (const Addresses path : paths) EXPECT_FALSE(table.accept(7000, path));
  for (uint32_t packet = 1; packet < 100; ++packet)
    for (const Addresses path : paths) EXPECT_TRUE(table.accept(7000 + packet, path));
}

TEST(PeerIdentifications, APlaceOfRunningPeersIsNotGivenToAnotherSource) {
  Table table;
  std::vector<Addresses> paths = colliding(PeerIdentifications::kWays + 50);
  const std::vector<Addresses> others(paths.begin() + PeerIdentifications::kWays, paths.end());
  paths.resize(PeerIdentifications::kWays);
  for (const Addresses path : paths) table.confirm(7000, path);
  for (uint32_t round = 1; round < 100; ++round) {
    for (const Addresses other : others) EXPECT_FALSE(table.accept(100 * round, other));
    for (const Addresses path : paths) EXPECT_TRUE(table.accept(7000 + round, path));
  }
}

TEST(PeerIdentifications, TheOldestCandidateGivesItsPlace) {
  Table table;
  const std::vector<Addresses> paths = colliding(PeerIdentifications::kWays + 1);
  for (const Addresses path : paths) {
    EXPECT_FALSE(table.accept(7000, path));
    table.wait(1);
  }
  EXPECT_TRUE(table.accept(7001, paths.back()));
  EXPECT_TRUE(table.accept(7001, paths[1]));
  EXPECT_FALSE(table.accept(7001, paths[0]));
}

TEST(PeerIdentifications, AConfirmedPeerGivesItsPlaceAfterASilence) {
  Table table;
  const std::vector<Addresses> paths = colliding(PeerIdentifications::kWays + 1);
  for (size_t i = 0; i < PeerIdentifications::kWays; ++i) {
    table.confirm(7000, paths[i]);
    table.wait(1);
  }
  EXPECT_FALSE(table.accept(7000, paths.back()));
  EXPECT_FALSE(table.accept(7001, paths.back()));
  table.wait(PeerIdentifications::kWidestWindow);
  table.confirm(7000, paths.back());
  EXPECT_TRUE(table.accept(7001, paths[1]));
  EXPECT_FALSE(table.accept(7001, paths[0]));
}

// Packets of a train are accepted anyway. They advance a peer's counter that passes them, and make no peer.
TEST(PeerIdentifications, APacketThatIsAcceptedAnywayAdvancesAKnownCounterOnly) {
  Table table;
  table.confirm(0xfffe);
  for (uint16_t identification = 1; identification < 64; ++identification)
    table.table->note_accepted(kPeer, identification, table.now);
  EXPECT_TRUE(table.accept(64));

  Table empty;
  empty.table->note_accepted(kPeer, 62, empty.now);
  empty.table->note_accepted(kPeer, 63, empty.now);
  EXPECT_FALSE(empty.accept(64));
}

}  // namespace
}  // namespace faultline::transport
