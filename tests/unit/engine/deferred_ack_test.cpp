// SPDX-License-Identifier: BSD-3-Clause
// The ACK that a turn of the program leaves to the next turn (docs/design/packet.md).
#include "tests/unit/engine/frames.hpp"

namespace faultline::glue::test::deferred_ack_test {
namespace {

/// Within CallerTracker::kAtOnceNs, and beyond it.
constexpr TimeNs kAtOnce = kMicrosecond;
constexpr TimeNs kLate = CallerTracker::kAtOnceNs + 1;

class DeferredAck : public WithFrames {
 protected:
  explicit DeferredAck(const FakePort::Offloads& offloads = {})
      : program(StationSetup{.addresses = {"198.18.0.1/24"}, .offloads = offloads}),
        peer(StationSetup{.addresses = {"198.18.0.2/24"}, .offloads = offloads}) {}

  void SetUp() override {
    WithFrames::SetUp();
    qp.connect(peer_qp, peer);
    peer_qp.connect(qp, program);
    for (int i = 0; i < 512; ++i) qp.post_receive();
    settle(program, peer);
  }

  /// The peer sends messages; they wait at the program's port.
  void send_to_program(int messages = 1) {
    for (int i = 0; i < messages; ++i) peer_qp.send();
    peer.turn();
    ASSERT_EQ(carry(peer, program), static_cast<size_t>(messages));
  }
  /// Frames that the program's station has sent; the peer receives them.
  std::vector<wire::Opcode> sent_by_program() {
    const std::vector<Frame> frames = program.port.take_sent();
    for (const Frame& frame : frames) peer.port.deliver(frame);
    peer.turn();
    return opcodes_of(frames);
  }
  /// Makes the program one that polls again at once after each message.
  void become_prompt() {
    for (uint32_t i = 0; i < CallerTracker::kReturns; ++i) {
      send_to_program();
      program.turn_of_program();
      ASSERT_EQ(sent_by_program(), kAck) << "message " << i;
      VirtualClock::advance(kAtOnce);
      program.turn_of_program();
    }
    ASSERT_EQ(qp.received().size(), CallerTracker::kReturns);
  }

  /// Receives a message, whose ACK waits, and posts one in return, within the program's call.
  void answer_message() {
    peer_qp.post_receive();
    peer.turn();
    ASSERT_EQ(carry(peer, program), 0U);
    send_to_program();
    program.turn_of_program();
    ASSERT_EQ(sent_by_program(), kNothing);
    ASSERT_TRUE(program.engine.may_serve_posted());
    qp.send();
    program.engine.serve_posted(qp.get());
  }

  const std::vector<wire::Opcode> kAck{wire::Opcode::rc_acknowledge};
  const std::vector<wire::Opcode> kNothing;
  Station program;
  Station peer;
  TestQp qp{program};
  TestQp peer_qp{peer};
};

TEST_F(DeferredAck, ATurnOfAPromptProgramThatCompletesOneReceiveLeavesTheAckToTheNextTurn) {
  become_prompt();
  send_to_program();
  EXPECT_TRUE(program.turn_of_program());
  EXPECT_EQ(qp.received(), succeeded(1)) << "the completion is delivered first";
  EXPECT_EQ(sent_by_program(), kNothing);
  VirtualClock::advance(kAtOnce);
  program.turn_of_program();
  EXPECT_EQ(sent_by_program(), kAck);
  EXPECT_EQ(peer_qp.sent().size(), CallerTracker::kReturns + 1);
}

TEST_F(DeferredAck, ATurnOfTheProgressThreadSendsTheAckItself) {
  become_prompt();
  send_to_program();
  program.turn();
  EXPECT_EQ(qp.received(), succeeded(1));
  EXPECT_EQ(sent_by_program(), kAck);
}

TEST_F(DeferredAck, ATurnOfTheProgressThreadSendsWhatTheProgramsTurnLeft) {
  become_prompt();
  send_to_program();
  program.turn_of_program();
  ASSERT_EQ(sent_by_program(), kNothing);
  program.turn();
  EXPECT_EQ(sent_by_program(), kAck);
}

TEST_F(DeferredAck, AProgramThatReturnedLateOnceIsPromptAgainAfter128Messages) {
  become_prompt();
  send_to_program();
  program.turn_of_program();
  VirtualClock::advance(kLate);
  program.turn_of_program();
  ASSERT_EQ(sent_by_program(), kAck);
  ASSERT_EQ(qp.received(), succeeded(1));
  become_prompt();  // expects an ACK in the turn of each message
  send_to_program();
  program.turn_of_program();
  EXPECT_EQ(sent_by_program(), kNothing);
}

TEST_F(DeferredAck, ATurnThatCompletesTwoReceivesSendsTheirAck) {
  become_prompt();
  send_to_program(2);
  program.turn_of_program();
  EXPECT_EQ(qp.received(), succeeded(2));
  EXPECT_EQ(sent_by_program(), kAck) << "one for both";
}

TEST_F(DeferredAck, AtMostFourTurnsInARowLeaveTheirAck) {
  become_prompt();
  for (int turns = 0; turns < 4; ++turns) {
    send_to_program();
    program.turn_of_program();
    EXPECT_EQ(sent_by_program(), kNothing) << turns;
    VirtualClock::advance(kAtOnce);
  }
  send_to_program();
  program.turn_of_program();
  EXPECT_EQ(qp.received(), succeeded(5));
  EXPECT_EQ(sent_by_program(), kAck) << "one for all five";
}

TEST_F(DeferredAck, SendOwedSendsTheAckOnce) {
  become_prompt();
  program.engine.poll_deferred();
  EXPECT_EQ(sent_by_program(), kNothing) << "nothing is owed";
  send_to_program();
  program.turn_of_program();
  program.engine.poll_deferred();
  EXPECT_EQ(sent_by_program(), kAck);
  program.engine.poll_deferred();
  EXPECT_EQ(sent_by_program(), kNothing);
}

TEST_F(DeferredAck, AMessageThatTheProgramPostsLeavesBeforeTheAck) {
  become_prompt();
  answer_message();
  EXPECT_EQ(sent_by_program(), std::vector<wire::Opcode>{wire::Opcode::rc_send_only});
  EXPECT_FALSE(program.engine.may_serve_posted()) << "once a turn";
  VirtualClock::advance(kAtOnce);
  program.turn_of_program();
  EXPECT_EQ(sent_by_program(), kAck);
}

TEST_F(DeferredAck, ATurnThatMovesManyFramesLeavesPostsToTheNextTurn) {
  send_to_program(2);
  program.turn_of_program();
  EXPECT_TRUE(program.engine.may_serve_posted());
  send_to_program(3);
  program.turn_of_program();
  EXPECT_FALSE(program.engine.may_serve_posted());
}

/// A call of such a port is a system call.
struct DeferredAckBySocket : DeferredAck {
  DeferredAckBySocket() : DeferredAck(FakePort::Offloads{.headers = true}) {}
};

TEST_F(DeferredAckBySocket, SharesTheCallOfTheMessageThatTheProgramPosts) {
  become_prompt();
  const unsigned calls = program.port.transmit_calls;
  answer_message();
  EXPECT_EQ(program.port.transmit_calls, calls + 1);
  EXPECT_EQ(sent_by_program(),
            (std::vector<wire::Opcode>{wire::Opcode::rc_send_only, wire::Opcode::rc_acknowledge}));
  EXPECT_EQ(peer_qp.sent().size(), CallerTracker::kReturns + 1);
  VirtualClock::advance(kAtOnce);
  program.turn_of_program();
  EXPECT_EQ(sent_by_program(), kNothing) << "the ACK is sent once";
}

TEST_F(DeferredAckBySocket, AReturnWithinTheTimeOfSystemCallsIsPrompt) {
  become_prompt();
  for (int messages = 0; messages < 2; ++messages) {
    send_to_program();
    program.turn_of_program();
    EXPECT_EQ(sent_by_program(), kNothing) << messages;
    VirtualClock::advance(kLate);
    program.turn_of_program();
    EXPECT_EQ(sent_by_program(), kAck) << messages;
  }
}

TEST_F(DeferredAckBySocket, IsNotSentIfNoneIsOwed) {
  peer_qp.post_receive();
  peer.turn();
  program.turn_of_program();
  qp.send();
  program.engine.serve_posted(qp.get());
  EXPECT_EQ(sent_by_program(), std::vector<wire::Opcode>{wire::Opcode::rc_send_only});
}

}  // namespace
}  // namespace faultline::glue::test::deferred_ack_test
