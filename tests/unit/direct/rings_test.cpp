// SPDX-License-Identifier: BSD-3-Clause
// Doorbells, rings in shared memory, and the receiver that looks only at rings with frames.
#include <cerrno>
#include <random>
#include <set>

#include <sys/mman.h>
#include <unistd.h>

#include "pmd_glue/direct/active_rings.hpp"
#include "pmd_glue/direct/shared_ring.hpp"
#include "tests/unit/direct/direct_frames.hpp"
#include "tests/unit/engine/eal_pool.hpp"

namespace faultline::glue::test::rings_test {
namespace {

std::set<uint32_t> rings_in(Inbox& inbox) {
  std::set<uint32_t> seats;
  inbox.take_rings([&](uint32_t seat) { seats.insert(seat); });
  return seats;
}

TEST(Inbox, TellsWhoRang) {
  const OwnInbox own;
  const auto peer = own.for_peer();
  ASSERT_NE(peer, nullptr);
  EXPECT_FALSE(own.inbox->has_rings());
  for (const uint32_t seat : {0U, 63U, 64U, 500U, 1023U}) peer->ring(seat);
  peer->ring(63);
  EXPECT_TRUE(own.inbox->has_rings());
  EXPECT_EQ(rings_in(*own.inbox), (std::set<uint32_t>{0, 63, 64, 500, 1023}));
  EXPECT_TRUE(rings_in(*own.inbox).empty());
}

TEST(Inbox, WakesItsOwnerOnlyIfItSleeps) {
  const OwnInbox own;
  const auto peer = own.for_peer();
  peer->ring(1);
  EXPECT_EQ(own.take_wakes(), 0U);
  own.inbox->set_asleep();
  peer->ring(1);
  peer->ring(2);
  EXPECT_EQ(own.take_wakes(), 1U);
  own.inbox->set_asleep();
  own.inbox->set_awake();
  peer->ring(3);
  EXPECT_EQ(own.take_wakes(), 0U);
}

// A program that polls its CQ takes acknowledgements itself. Waking its progress thread would take the CPU
// from it.
TEST(Inbox, IsNotWokenByAcknowledgementsThatTheOwnerLeaves) {
  const OwnInbox own;
  const auto peer = own.for_peer();
  own.inbox->set_asleep(WakeFor::requests);
  EXPECT_EQ(peer->wakes_for(), WakeFor::requests);
  peer->ring(1, true);
  EXPECT_EQ(own.take_wakes(), 0U);
  EXPECT_EQ(rings_in(*own.inbox), std::set<uint32_t>{1}) << "the next turn finds it";
  peer->ring(2, false);
  EXPECT_EQ(own.take_wakes(), 1U);
  own.inbox->set_asleep(WakeFor::all_frames);
  peer->ring(1, true);
  EXPECT_EQ(own.take_wakes(), 1U);
}

TEST(Inbox, IsNotTakenFromMemoryThatMayShrinkNorWithAnotherFile) {
  const OwnInbox own;
  const auto event = [&] { return UniqueFd(dup(own.event.get())); };
  const auto page = [&] { return UniqueFd(dup(own.inbox->memory())); };
  UniqueFd unsealed(memfd_create("inbox", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), Inbox::kBytes), 0);
  EXPECT_EQ(Inbox::adopt(std::move(unsealed), event()), nullptr);
  EXPECT_EQ(Inbox::adopt(create_sealed_memory("inbox", Inbox::kBytes - 1), event()), nullptr);
  EXPECT_EQ(Inbox::adopt(page(), page()), nullptr);
  EXPECT_EQ(Inbox::adopt(event(), event()), nullptr);
  EXPECT_NE(Inbox::adopt(page(), event()), nullptr);
}

// Another process may write anything to the page: no seat beyond the table is reported.
TEST(Inbox, GarbageRingsForSeatsAlone) {
  const OwnInbox own;
  auto* const page = static_cast<uint8_t*>(
      mmap(nullptr, Inbox::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, own.inbox->memory(), 0));
  ASSERT_NE(page, MAP_FAILED);
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    for (int i = 0; i < 64; ++i) page[random() % 256] = static_cast<uint8_t>(random());
    own.inbox->take_rings([](uint32_t seat) { EXPECT_LT(seat, Inbox::kSeats); });
  }
  munmap(page, Inbox::kBytes);
}

/// Both ends of one ring: seat 1 has side 0, and seat 2 side 1.
struct Ends {
  OwnInbox inbox_1;
  OwnInbox inbox_2;
  UniqueFd memory = create_sealed_memory("link", kLinkBytes);
  std::unique_ptr<SharedRing> end_1 =
      SharedRing::begin(memory.get(), SharedRing::kLink, 0, inbox_2.for_peer(), 1);
  std::unique_ptr<SharedRing> end_2 =
      SharedRing::begin(memory.get(), SharedRing::kLink, 1, inbox_1.for_peer(), 2);
};

class Rings : public WithFrames {
 protected:
  [[nodiscard]] static size_t send(SharedRing& ring, const std::vector<Bytes>& frames) {
    std::vector<rte_mbuf*> mbufs;
    for (const Bytes& frame : frames) mbufs.push_back(mbuf_of(pool(), frame));
    const size_t sent = ring.transmit(mbufs);
    for (size_t i = sent; i < mbufs.size(); ++i) rte_pktmbuf_free(mbufs[i]);
    return sent;
  }
  [[nodiscard]] static std::vector<Bytes> receive(SharedRing& ring) {
    std::array<rte_mbuf*, 32> burst;
    std::vector<Bytes> frames;
    while (const size_t received = ring.receive(pool(), 0, burst))
      for (size_t i = 0; i < received; ++i) frames.push_back(take_bytes(burst[i]));
    return frames;
  }
  [[nodiscard]] static Bytes frame(size_t length_bytes, uint8_t value) { return Bytes(length_bytes, value); }
};

TEST_F(Rings, CarryFramesOfEveryLengthBothWaysInOrder) {
  const Ends ends;
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    std::vector<Bytes> frames;
    for (uint32_t i = 0; i < 1 + random() % 12; ++i)
      frames.push_back(frame(14 + random() % 4500, static_cast<uint8_t>(random())));
    SharedRing& from = round % 2 == 0 ? *ends.end_1 : *ends.end_2;
    SharedRing& to = round % 2 == 0 ? *ends.end_2 : *ends.end_1;
    ASSERT_EQ(send(from, frames), frames.size());
    EXPECT_TRUE(to.has_frames());
    EXPECT_EQ(receive(to), frames);
    EXPECT_FALSE(to.has_frames());
  }
}

TEST_F(Rings, TakeAsManyFramesAsFitAndTheRestLater) {
  const Ends ends;
  const std::vector<Bytes> small(300, frame(64, 1));
  EXPECT_EQ(send(*ends.end_1, small), size_t{1} << SharedRing::kLink.log2_size);
  EXPECT_EQ(send(*ends.end_1, {frame(64, 2)}), 0U);
  EXPECT_EQ(receive(*ends.end_2).size(), size_t{1} << SharedRing::kLink.log2_size);
  EXPECT_EQ(send(*ends.end_1, {frame(64, 2)}), 1U);
  EXPECT_EQ(receive(*ends.end_2).size(), 1U);
}

TEST_F(Rings, TakeNoFramesBeforeTheOtherEndHasAttachedNorOnceItCloses) {
  const OwnInbox inbox;
  const UniqueFd memory = create_sealed_memory("link", kLinkBytes);
  const auto one = SharedRing::begin(memory.get(), SharedRing::kLink, 0, inbox.for_peer(), 1);
  EXPECT_FALSE(one->takes_frames());
  const auto other = SharedRing::begin(memory.get(), SharedRing::kLink, 1, inbox.for_peer(), 2);
  EXPECT_TRUE(one->takes_frames());
  EXPECT_TRUE(other->takes_frames());
  one->set_closing();
  EXPECT_FALSE(one->takes_frames());
  EXPECT_EQ(other->other_state(), SharedRing::State::closing);
}

TEST_F(Rings, RingOnlyWhileTheOtherEndAsksForIt) {
  const Ends ends;
  ASSERT_EQ(send(*ends.end_1, {frame(64, 1)}), 1U);  // armed from the beginning
  EXPECT_EQ(rings_in(*ends.inbox_2.inbox), (std::set<uint32_t>{1}));
  ends.end_2->disarm();
  ASSERT_EQ(send(*ends.end_1, {frame(64, 1)}), 1U);
  EXPECT_FALSE(ends.inbox_2.inbox->has_rings());
  ends.end_2->arm();
  ASSERT_EQ(send(*ends.end_1, {frame(64, 1)}), 1U);
  EXPECT_TRUE(ends.inbox_2.inbox->has_rings());
  EXPECT_EQ(receive(*ends.end_2).size(), 3U);
}

TEST_F(Rings, MemoryThatIsTooSmallOrMayShrinkIsNotMapped) {
  const OwnInbox inbox;
  EXPECT_EQ(SharedRing::begin(create_sealed_memory("link", SharedRing::kLink.bytes() - 1).get(),
                              SharedRing::kLink, 0, inbox.for_peer(), 1),
            nullptr);
  UniqueFd unsealed(memfd_create("link", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), kLinkBytes), 0);
  EXPECT_EQ(SharedRing::begin(unsealed.get(), SharedRing::kLink, 0, inbox.for_peer(), 1), nullptr);
}

/// One receiver with the rings of several senders, whose seats are 1, 2, ...
class Receiver : public Rings {
 protected:
  static constexpr uint32_t kSenders = 5;

  void SetUp() override {
    WithFrames::SetUp();
    for (uint32_t seat = 1; seat <= kSenders; ++seat) {
      const UniqueFd memory = create_sealed_memory("link", kLinkBytes);
      own_.push_back(SharedRing::begin(memory.get(), SharedRing::kLink, 0, senders_.for_peer(), 0));
      theirs_.push_back(SharedRing::begin(memory.get(), SharedRing::kLink, 1, inbox_.for_peer(), seat));
      active_.add(seat, *own_.back());
    }
  }
  size_t turn() {
    size_t received = 0;
    active_.receive([&](uint16_t seat) {
      ++looks_;
      received += receive(*own_[seat - 1]).size();
      return true;
    });
    return received;
  }
  void make_idle() {
    for (uint32_t looks = 0; looks <= ActiveRings::kIdleLooks; ++looks) EXPECT_EQ(turn(), 0U);
  }
  [[nodiscard]] size_t send_from(uint32_t seat) { return send(*theirs_[seat - 1], {frame(64, 1)}); }

  OwnInbox inbox_;
  OwnInbox senders_;
  std::vector<std::unique_ptr<SharedRing>> own_;
  std::vector<std::unique_ptr<SharedRing>> theirs_;
  ActiveRings active_{*inbox_.inbox};
  size_t looks_ = 0;
};

TEST_F(Receiver, LooksOnlyAtRingsThatHaveSomething) {
  EXPECT_EQ(active_.active(), kSenders);
  make_idle();
  EXPECT_EQ(active_.active(), 0U);
  looks_ = 0;
  EXPECT_EQ(turn(), 0U);
  EXPECT_EQ(looks_, 0U);
  ASSERT_EQ(send_from(3), 1U);
  EXPECT_EQ(turn(), 1U);
  EXPECT_EQ(looks_, 1U);
  // Now it is looked at without a ring.
  ASSERT_EQ(send_from(3), 1U);
  EXPECT_FALSE(inbox_.inbox->has_rings());
  EXPECT_EQ(turn(), 1U);
}

TEST_F(Receiver, FindsEveryFrameWhereverTheSenderIsInterrupted) {
  // A frame is written before, while or after its ring becomes idle: in each look of two whole cycles.
  for (uint32_t at = 0; at < 2 * ActiveRings::kIdleLooks + 8; ++at) {
    if (at % 97 != 0 && at % ActiveRings::kIdleLooks > 4 && at % ActiveRings::kIdleLooks < 1020) continue;
    make_idle();
    ASSERT_EQ(send_from(1), 1U);
    EXPECT_EQ(turn(), 1U);
    for (uint32_t looks = 0; looks < at; ++looks) EXPECT_EQ(turn(), 0U);
    ASSERT_EQ(send_from(1), 1U);
    EXPECT_EQ(turn(), 1U) << at;
  }
}

// The receiver has just looked, finds nothing, and is about to leave the ring to its sender.
TEST_F(Receiver, FindsAFrameThatComesBetweenItsLastLookAndTheArming) {
  bool is_sent = false;
  for (uint32_t looks = 0; !is_sent && looks < ActiveRings::kIdleLooks; ++looks)
    active_.receive([&](uint16_t seat) {
      EXPECT_TRUE(receive(*own_[seat - 1]).empty());
      if (seat == 1 && looks + 1 == ActiveRings::kIdleLooks) is_sent = send_from(seat) == 1;
      return !is_sent;
    });
  ASSERT_TRUE(is_sent);
  EXPECT_FALSE(inbox_.inbox->has_rings());
  EXPECT_EQ(turn(), 1U);
}

TEST_F(Receiver, IsWokenByEachSenderWhileItIsArmed) {
  active_.arm();
  EXPECT_EQ(turn(), 0U);
  EXPECT_EQ(active_.active(), 0U);
  ASSERT_EQ(send_from(4), 1U);
  EXPECT_EQ(inbox_.take_wakes(), 1U);
  active_.disarm();
  EXPECT_EQ(turn(), 1U);
  ASSERT_EQ(send_from(4), 1U);
  EXPECT_EQ(inbox_.take_wakes(), 0U);
  EXPECT_EQ(turn(), 1U);
}

// The program may take a turn while the progress thread sleeps: later frames wake the thread all the same.
TEST_F(Receiver, StaysArmedInATurnOfTheProgram) {
  for (int round = 0; round < 5; ++round) {
    active_.arm();
    EXPECT_EQ(turn(), 0U);
    ASSERT_EQ(send_from(2), 1U);
    EXPECT_EQ(inbox_.take_wakes(), 1U);
    EXPECT_EQ(turn(), 1U);       // by the program
    inbox_.inbox->set_asleep();  // the thread sleeps again
    ASSERT_EQ(send_from(2), 1U);
    EXPECT_EQ(inbox_.take_wakes(), 1U) << round;
    EXPECT_EQ(turn(), 1U);
    active_.disarm();
  }
}

TEST_F(Receiver, AFrameBeforeTheSleepIsFoundInTheLastLook) {
  ASSERT_EQ(send_from(5), 1U);
  EXPECT_EQ(turn(), 1U);
  ASSERT_EQ(send_from(5), 1U);  // no ring: it is active
  active_.arm();
  EXPECT_EQ(turn(), 1U);
}

TEST_F(Receiver, ABusySenderDoesNotKeepTheOthersWaiting) {
  for (uint32_t seat = 1; seat <= kSenders; ++seat)
    for (int i = 0; i < 40; ++i) ASSERT_EQ(send_from(seat), 1U);
  std::set<uint16_t> first;
  for (uint32_t i = 0; i < kSenders; ++i)
    active_.receive([&](uint16_t seat) {
      first.insert(seat);
      std::array<rte_mbuf*, 8> burst;
      const size_t received = own_[seat - 1]->receive(pool(), 0, burst);
      for (size_t frame = 0; frame < received; ++frame) rte_pktmbuf_free(burst[frame]);
      return false;  // no room for more
    });
  EXPECT_EQ(first.size(), kSenders);
  while (turn() != 0) continue;
}

TEST_F(Receiver, RingsForSeatsWithoutARingAreIgnored) {
  make_idle();
  active_.remove(2);
  const auto anybody = inbox_.for_peer();
  for (const uint32_t seat : {2U, 0U, 700U, 1023U}) anybody->ring(seat);
  EXPECT_EQ(turn(), 0U);
  EXPECT_EQ(active_.active(), 0U);
}

}  // namespace
}  // namespace faultline::glue::test::rings_test
