// SPDX-License-Identifier: BSD-3-Clause
// How a process handles a switch that dies, is silent, or answers late. The test holds the switch's end of
// the control socket. When the library starts a switch, it starts this program, which acts as a file
// specifies.
#include "pmd_glue/wires/wire_attachment.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "pmd_glue/wires/sealed_memory.hpp"
#include "pmd_glue/wires/switch_place.hpp"
#include "tests/hang_limit.hpp"
#include "tests/unit/switch/switch_end.hpp"

namespace faultline::glue {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
namespace fs = std::filesystem;

size_t open_descriptors() {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

// ---- a switch started by the library ----

/// Each start decrements the number in $XDG_RUNTIME_DIR/deaths and exits; at 0 it serves one attachment.
int serve_as_switch() {
  const std::string file = std::string(std::getenv("XDG_RUNTIME_DIR")) + "/deaths";
  int deaths = 0;
  std::ifstream(file) >> deaths;
  if (deaths > 0) {
    std::ofstream(file) << deaths - 1;
    return 1;
  }
  if (fork() != 0) return 0;
  const UniqueFd listener(3);
  const Asker asker = accept_request(listener);
  if (!asker.connection) return 1;
  grant(asker, Doorbells());
  SwitchRequest request;
  while (recv(asker.connection.get(), &request, sizeof request, 0) == ssize_t{sizeof request})
    answer(asker.connection, request.number);
  return 0;
}

class Seat : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "seat.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
    setenv("FAULTLINE_SWITCH", fs::read_symlink("/proc/self/exe").c_str(), 1);
    std::string error;
    place_ = place_of_wire("w", error).value();
    wanted_.wire = "w";
    const milliseconds limit = faultline::test::hang_limit();
    patience_ = {.attach = limit, .ask = limit, .stopped = limit};
  }
  void TearDown() override { fs::remove_all(folder_); }

  UniqueFd listen() {
    bool died = false;
    UniqueFd listener = listen_on_wire(place_, died);
    fcntl(listener.get(), F_SETFL, 0);
    return listener;
  }
  /// The test's switch grants the next request.
  [[nodiscard]] std::thread grant_next(const UniqueFd& listener, const SwitchAnswer& reply = {}) {
    return std::thread([this, &listener, reply] {
      here_ = accept_request(listener);
      grant(here_, doorbells_, reply);
    });
  }
  /// Attaches to the test's switch.
  std::shared_ptr<WireAttachment> take_here(const UniqueFd& listener, const SwitchAnswer& reply = {}) {
    std::thread at_switch = grant_next(listener, reply);
    std::string error;
    auto seat = WireAttachment::take(wanted_, patience_, error, holders_);
    at_switch.join();
    EXPECT_NE(seat, nullptr) << error;
    return seat;
  }
  void die_at_start(int times) { std::ofstream(folder_ + "/deaths") << times; }
  /// Runs until a switch is attached again. Bounded, so that an attachment that never returns fails the test.
  static bool keep_until_attached(WireAttachment& seat) {
    const auto latest = steady_clock::now() + faultline::test::hang_limit();
    std::string line;
    while (seat.switch_descriptor() < 0 && !seat.is_lost() && steady_clock::now() < latest) {
      static_cast<void>(seat.keep(line));
      std::this_thread::sleep_for(milliseconds(5));
    }
    return seat.switch_descriptor() >= 0;
  }
  void lose_switch(WireAttachment& seat) {
    here_.connection.reset();
    std::string line;
    static_cast<void>(seat.keep(line));
  }

  std::string folder_;
  SwitchPlace place_;
  WireRequest wanted_;
  std::optional<SwitchGrant> holders_;
  WireAttachment::Patience patience_;
  Asker here_;
  Doorbells doorbells_;
};

TEST_F(Seat, ASwitchThatDiesWhileItStartsIsStartedAgain) {
  die_at_start(2);
  std::string error;
  EXPECT_NE(WireAttachment::take(wanted_, patience_, error, holders_), nullptr) << error;
}

TEST_F(Seat, OneThatCannotStartIsNamed) {
  die_at_start(1'000);
  std::string error;
  EXPECT_EQ(WireAttachment::take(wanted_, patience_, error, holders_), nullptr);
  EXPECT_NE(error.find("the switch has ended"), std::string::npos) << error;
}

TEST_F(Seat, TheNextSwitchMayDieWhileItStarts) {
  std::shared_ptr<WireAttachment> seat;
  {
    const UniqueFd listener = listen();
    seat = take_here(listener);
  }
  die_at_start(3);
  lose_switch(*seat);
  EXPECT_TRUE(keep_until_attached(*seat));
  EXPECT_EQ(seat->claim_service(7), 0);
}

// A switch that a program started would have no uplink, and the user's could not start any more.
TEST_F(Seat, ASwitchWithAnUplinkIsNotReplacedByAProgram) {
  std::shared_ptr<WireAttachment> seat;
  {
    const UniqueFd listener = listen();
    seat = take_here(listener);
  }
  ASSERT_TRUE(note_uplink(place_, true));
  die_at_start(1'000);
  lose_switch(*seat);
  std::string line;
  for (int step = 0; step < 50; ++step) {
    EXPECT_TRUE(seat->keep(line)) << line;
    std::this_thread::sleep_for(milliseconds(2));
  }
  int deaths = 0;
  std::ifstream(folder_ + "/deaths") >> deaths;
  EXPECT_EQ(deaths, 1'000);
  // The user starts one.
  const UniqueFd listener = listen();
  std::thread at_switch = grant_next(listener);
  EXPECT_TRUE(keep_until_attached(*seat));
  at_switch.join();
  EXPECT_EQ(here_.request.range, 3U);
  EXPECT_EQ(here_.request.port, 4U);
}

/// The grant of a switch whose sockets have an address.
SwitchAnswer socket_grant(uint32_t ipv4) {
  SwitchAnswer reply;
  reply.grant.by_sockets = 1;
  reply.grant.address_count = 1;
  reply.grant.addresses[0] = {wire::Gid::from_ipv4(ipv4).bytes, 120};
  return reply;
}

TEST_F(Seat, ItHasTheStateOfAnUplinkBySockets) {
  const UniqueFd listener = listen();
  const auto plain = take_here(listener);
  EXPECT_TRUE(plain->is_uplink_up());
  const auto seat = take_here(listener, socket_grant(0x0a000005));
  EXPECT_FALSE(seat->is_uplink_up());
  std::string error;
  for (const bool is_up : {true, false}) {
    SwitchAnswer message;
    message.message = SwitchMessage::uplink;
    message.grant.uplink_up = is_up ? 1 : 0;
    send_message(here_.connection, message, {});
    EXPECT_TRUE(seat->keep(error)) << error;
    EXPECT_EQ(seat->is_uplink_up(), is_up);
  }
}

// The program's GIDs are those of the first switch, and its packets' ICRCs are for its kind of uplink.
TEST_F(Seat, ANewSwitchNeedsTheSameUplink) {
  for (const SwitchAnswer& next : {SwitchAnswer{}, socket_grant(0x0a000006), socket_grant(0x0a000005)}) {
    UniqueFd listener = listen();
    const auto seat = take_here(listener, socket_grant(0x0a000005));
    here_.connection.reset();
    std::thread at_next = grant_next(listener, next);
    const bool is_same = next.grant.addresses == socket_grant(0x0a000005).grant.addresses;
    std::string line;
    static_cast<void>(seat->keep(line));
    EXPECT_EQ(keep_until_attached(*seat), is_same);
    at_next.join();
    EXPECT_EQ(seat->is_lost(), !is_same);
  }
}

TEST_F(Seat, ANewProgramWaitsForASwitchWithAnUplinkForAWhile) {
  ASSERT_TRUE(note_uplink(place_, true));
  patience_.replaced = milliseconds(50);
  std::string error;
  EXPECT_EQ(WireAttachment::take(wanted_, patience_, error, holders_), nullptr);
  EXPECT_NE(error.find("which had an uplink, has ended; start it again"), std::string::npos) << error;

  patience_.replaced = faultline::test::hang_limit();
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(50));
    const UniqueFd listener = listen();
    here_ = accept_request(listener);
    grant(here_, doorbells_);
  });
  error.clear();
  EXPECT_NE(WireAttachment::take(wanted_, patience_, error, holders_), nullptr) << error;
  late.join();
}

TEST_F(Seat, ASwitchWithoutAnUplinkIsStartedAgainAfterTheNoteIsRemoved) {
  ASSERT_TRUE(note_uplink(place_, true));
  ASSERT_TRUE(note_uplink(place_, false));
  ASSERT_TRUE(note_uplink(place_, false));
  die_at_start(0);
  std::string error;
  EXPECT_NE(WireAttachment::take(wanted_, patience_, error, holders_), nullptr) << error;
}

TEST_F(Seat, AnAnswerThatComesLateIsNobodyElses) {
  const UniqueFd listener = listen();
  patience_.ask = patience_.stopped = milliseconds(1);
  const auto seat = take_here(listener);
  EXPECT_EQ(seat->claim_service(1), ETIMEDOUT);
  // Until the switch has answered, no further request blocks the callers' locks for as long again.
  EXPECT_EQ(seat->claim_service(2), ETIMEDOUT);
  const SwitchRequest late = next_request(here_.connection);
  EXPECT_EQ(late.service_id, 1U);
  // The claim may have succeeded, so it is released.
  const SwitchRequest undone = next_request(here_.connection);
  EXPECT_EQ(undone.verb, SwitchVerb::release_service);
  EXPECT_EQ(undone.service_id, 1U);
  answer(here_.connection, late.number);
  answer(here_.connection, undone.number);
  // The switch answers again, so requests are sent again; an answer to another request must not be taken for
  // that of request 3. The time-out is a millisecond, so several may pass.
  std::thread at_switch([&] {
    SwitchRequest request;
    while (recv(here_.connection.get(), &request, sizeof request, 0) == ssize_t{sizeof request}) {
      // The answer to an earlier request arrives after this one was sent.
      answer(here_.connection, late.number);
      answer(here_.connection, request.number,
             request.verb == SwitchVerb::claim_service && request.service_id == 3 ? EADDRINUSE : 0);
    }
  });
  int error = ETIMEDOUT;
  while (error == ETIMEDOUT) error = seat->claim_service(3);
  EXPECT_EQ(error, EADDRINUSE);
  error = ETIMEDOUT;
  while (error == ETIMEDOUT) error = seat->claim_service(4);
  EXPECT_EQ(error, 0);
  shutdown(here_.connection.get(), SHUT_RDWR);
  at_switch.join();
}

TEST_F(Seat, KeepingItNeverWaitsForAnAnswer) {
  std::shared_ptr<WireAttachment> seat;
  UniqueFd listener = listen();
  seat = take_here(listener);
  here_.connection.reset();
  // The next switch accepts and is silent: no step waits for the time-out of twenty seconds.
  std::string line;
  EXPECT_TRUE(seat->keep(line));
  const Asker again = accept_request(listener);
  EXPECT_EQ(again.request.range, 3U);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(seat->keep(line)) << line;
  EXPECT_EQ(seat->switch_descriptor(), -1);
  grant(again, doorbells_);
  EXPECT_TRUE(keep_until_attached(*seat));
}

/// The inbox that the process gave with its latest request, as a peer sees it.
std::unique_ptr<Inbox> inbox_of(Asker& asker) {
  return asker.inbox.size() == kInboxDescriptors
             ? Inbox::adopt(std::move(asker.inbox[0]), std::move(asker.inbox[1]))
             : nullptr;
}

TEST_F(Seat, ARestartLeavesNoDescriptors) {
  UniqueFd listener = listen();
  const auto seat = take_here(listener);
  auto first = seat->take_seat();
  ASSERT_TRUE(first.has_value());
  const std::shared_ptr<Inbox> own = first->own_inbox;
  first.reset();
  here_.inbox.clear();
  const size_t before = open_descriptors();
  for (int restart = 0; restart < 20; ++restart) {
    lose_switch(*seat);
    here_ = accept_request(listener);
    grant(here_, doorbells_);
    ASSERT_TRUE(keep_until_attached(*seat));
    auto next = seat->take_seat();
    ASSERT_TRUE(next.has_value());
    EXPECT_FALSE(seat->take_seat().has_value());
    EXPECT_EQ(next->own_inbox, own);
    EXPECT_FALSE(next->lost_descriptors);
    // The new switch rings in the same inbox, and wakes the process.
    own->set_asleep();
    const auto as_switch_sees_it = inbox_of(here_);
    ASSERT_NE(as_switch_sees_it, nullptr);
    as_switch_sees_it->ring(kSwitchSeat);
    uint64_t rings = 0;
    EXPECT_EQ(read(seat->event(), &rings, sizeof rings), ssize_t{sizeof rings});
    EXPECT_EQ(rings, 1U);
    here_.inbox.clear();
  }
  EXPECT_EQ(seat->seat_count(), 21U);
  EXPECT_EQ(open_descriptors(), before);
}

// Test programs compare their descriptors before and after a step.
TEST_F(Seat, ASeatThatIsTakenAgainHasTheNumbersOfBefore) {
  UniqueFd listener = listen();
  const auto seat = take_here(listener);
  ASSERT_TRUE(seat->take_seat().has_value());
  const int number = seat->switch_descriptor();
  for (int device = 0; device < 3; ++device) {
    const UniqueFd former = std::move(here_.connection);
    std::thread at_switch = grant_next(listener);
    std::string error;
    EXPECT_TRUE(seat->await_seat(error).has_value()) << error;
    at_switch.join();
    EXPECT_TRUE(keep_until_attached(*seat));
    EXPECT_EQ(seat->switch_descriptor(), number);
    char byte = 0;
    EXPECT_EQ(recv(former.get(), &byte, 1, MSG_DONTWAIT), 0);  // ended
  }
}

SwitchAnswer link_to(uint32_t port) {
  SwitchAnswer link;
  link.message = SwitchMessage::link;
  link.grant.port = port;
  link.grant.ipv4 = 0xc6120007;
  return link;
}

// A link is announced at any time, also between a request and its answer.
TEST_F(Seat, LinksAreTakenFromBetweenTheAnswers) {
  const UniqueFd listener = listen();
  const auto seat = take_here(listener);
  const UniqueFd memory = create_sealed_memory("link", kLinkBytes);
  const Doorbells peer;
  std::thread at_switch([&] {
    const SwitchRequest request = next_request(here_.connection);
    send_message(here_.connection, link_to(9),
                 std::array{memory.get(), peer.inbox->memory(), peer.event.get()});
    answer(here_.connection, request.number);
  });
  EXPECT_EQ(seat->claim_service(1), 0);
  at_switch.join();
  auto news = seat->take_link_news();
  ASSERT_EQ(news.size(), 1U);
  EXPECT_EQ(news[0].what, WireAttachment::LinkNews::What::begins);
  EXPECT_EQ(news[0].peer.port, 9U);
  EXPECT_TRUE(news[0].memory && news[0].inbox != nullptr);
  EXPECT_TRUE(seat->take_link_news().empty());
}

// What is not sealed memory of the right size, or no event, is not mapped and not written to.
TEST_F(Seat, LinksAreCheckedBeforeTheyAreUsed) {
  const UniqueFd listener = listen();
  const auto seat = take_here(listener);
  const UniqueFd memory = create_sealed_memory("link", kLinkBytes);
  const UniqueFd small = create_sealed_memory("link", kLinkBytes - 1);
  const UniqueFd unsealed(memfd_create("link", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), kLinkBytes), 0);
  const Doorbells peer;
  const int page = peer.inbox->memory();
  const int event = peer.event.get();
  const std::vector<std::vector<int>> wrong{{},
                                            {memory.get(), page},
                                            {small.get(), page, event},
                                            {unsealed.get(), page, event},
                                            {memory.get(), page, memory.get()},
                                            {memory.get(), event, event}};
  for (const auto& descriptors : wrong) send_message(here_.connection, link_to(9), descriptors);
  send_message(here_.connection, link_to(1024), std::array{memory.get(), page, event});
  std::string line;
  EXPECT_TRUE(seat->keep(line)) << line;
  EXPECT_TRUE(seat->take_link_news().empty());
}

TEST_F(Seat, ANewSwitchIsToldOfTheLinks) {
  UniqueFd listener = listen();
  const auto seat = take_here(listener);
  const UniqueFd memory = create_sealed_memory("link", kLinkBytes);
  const Doorbells peer;
  const std::array descriptors{memory.get(), peer.inbox->memory(), peer.event.get()};
  for (const uint32_t port : {9U, 30U, 31U}) send_message(here_.connection, link_to(port), descriptors);
  std::string line;
  EXPECT_TRUE(seat->keep(line));
  EXPECT_EQ(seat->take_link_news().size(), 3U);
  seat->end_link(30, false);
  SwitchAnswer ended = link_to(31);
  ended.message = SwitchMessage::link_ended;
  send_message(here_.connection, ended, {});
  EXPECT_TRUE(seat->keep(line));
  EXPECT_EQ(seat->take_link_news().at(0).what, WireAttachment::LinkNews::What::ended);
  lose_switch(*seat);
  here_ = accept_request(listener);
  grant(here_, doorbells_);
  std::thread at_switch([&] {
    const SwitchRequest request = next_request(here_.connection);
    EXPECT_EQ(request.verb, SwitchVerb::keep_link);
    EXPECT_EQ(request.port, 9U);
    answer(here_.connection, request.number);
  });
  EXPECT_TRUE(keep_until_attached(*seat));
  at_switch.join();
}

// Like a daemon that closes all descriptors and then opens other files.
TEST_F(Seat, DescriptorsThatTheProgramClosedAreNotTouched) {
  UniqueFd listener = listen();
  const auto seat = take_here(listener);
  const auto first = seat->take_seat();
  ASSERT_TRUE(first.has_value());
  const UniqueFd link = create_sealed_memory("link", kLinkBytes);
  send_message(here_.connection, link_to(9),
               std::array{link.get(), doorbells_.inbox->memory(), doorbells_.event.get()});
  std::string line;
  EXPECT_TRUE(seat->keep(line));
  EXPECT_EQ(seat->take_link_news().size(), 1U);
  const std::vector<int> numbers{seat->switch_descriptor(), seat->event(), first->own_inbox->memory()};
  const UniqueFd file(memfd_create("program", MFD_CLOEXEC));
  for (const int number : numbers) ASSERT_GE(dup2(file.get(), number), 0);
  lose_switch(*seat);
  here_ = accept_request(listener);
  grant(here_, doorbells_);
  ASSERT_TRUE(keep_until_attached(*seat));
  const auto next = seat->take_seat();
  ASSERT_TRUE(next.has_value());
  EXPECT_TRUE(next->lost_descriptors);
  EXPECT_NE(next->own_inbox, first->own_inbox);
  const auto news = seat->take_link_news();
  ASSERT_EQ(news.size(), 1U);
  EXPECT_EQ(news[0].what, WireAttachment::LinkNews::What::lost);
  for (const int fd : numbers) {
    struct stat kept {
    }, program{};
    ASSERT_EQ(fstat(fd, &kept), 0);
    ASSERT_EQ(fstat(file.get(), &program), 0);
    EXPECT_EQ(kept.st_ino, program.st_ino);
    EXPECT_EQ(kept.st_size, 0);
    close(fd);
  }
}

TEST_F(Seat, AFullBacklogEndsInALine) {
  const UniqueFd listener = listen();
  const UniqueFd signature = lock_as_switch(place_);
  std::vector<UniqueFd> waiting;
  for (UniqueFd one = connect_to_wire(place_, {}); one; one = connect_to_wire(place_, {}))
    waiting.push_back(std::move(one));
  ASSERT_EQ(errno, ETIMEDOUT);
  patience_.attach = milliseconds(50);
  std::string error;
  EXPECT_EQ(WireAttachment::take(wanted_, patience_, error, holders_), nullptr);
  EXPECT_NE(error.find("its switch accepts nobody"), std::string::npos) << error;
}

TEST_F(Seat, ALockThatIsHeldEndsInALineThatNamesItsHolder) {
  const UniqueFd lock = lock_wire(place_, {});
  ASSERT_TRUE(lock);
  patience_.attach = milliseconds(50);
  std::string error;
  EXPECT_EQ(WireAttachment::take(wanted_, patience_, error, holders_), nullptr);
  EXPECT_NE(error.find("w.lock locked; process " + std::to_string(getpid())), std::string::npos) << error;
}

TEST_F(Seat, AStoppedSwitchIsNamedWithWhatToDo) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const UniqueFd listener = listen();
  const pid_t child = fork();
  if (child == 0) {
    const UniqueFd signature = lock_as_switch(place_);
    static_cast<void>(!write(ready[1], "x", 1));
    raise(SIGSTOP);
    _exit(0);
  }
  char one = 0;
  ASSERT_EQ(read(ready[0], &one, 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  patience_.attach = milliseconds(50);
  std::string error;
  EXPECT_EQ(WireAttachment::take(wanted_, patience_, error, holders_), nullptr);
  EXPECT_NE(error.find("process " + std::to_string(child) + " is stopped: continue it with kill -CONT"),
            std::string::npos)
      << error;
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  for (const int fd : ready) close(fd);
}

// A lock on a removed file would let two processes start a switch at once. A process that opens the file
// before its removal and locks it afterwards must not hold the lock.
TEST_F(Seat, ALockOnARemovedFileIsNone) {
  constexpr int kRounds = 300;
  std::atomic<int> holders{0};
  std::atomic<int> together{0};
  const auto take_turns = [&] {
    for (int rounds = 0; rounds < kRounds;) {
      const UniqueFd lock = lock_wire(place_, {});
      if (!lock) continue;
      if (holders.fetch_add(1) != 0) together.fetch_add(1);
      std::this_thread::yield();
      // After the removal the next thread may hold a lock.
      holders.fetch_sub(1);
      remove_files(place_);
      ++rounds;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(take_turns);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together.load(), 0);
}

}  // namespace
}  // namespace faultline::glue

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "--listener") == 0) return faultline::glue::serve_as_switch();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
