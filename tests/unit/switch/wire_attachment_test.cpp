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
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "pmd_glue/wires/switch_place.hpp"

namespace faultline::glue {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
namespace fs = std::filesystem;

size_t open_descriptors() {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

// ---- the switch's end ----

struct Asker {
  UniqueFd connection;
  SwitchRequest request;
};

Asker accept_request(const UniqueFd& listener) {
  Asker asker;
  while (!asker.connection)
    asker.connection = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (recv(asker.connection.get(), &asker.request, sizeof asker.request, 0) != ssize_t{sizeof asker.request})
    asker.connection.reset();
  return asker;
}

SwitchRequest next_request(const UniqueFd& connection) {
  SwitchRequest request;
  EXPECT_EQ(recv(connection.get(), &request, sizeof request, 0), ssize_t{sizeof request});
  return request;
}

void answer(const UniqueFd& connection, uint64_t number, int error = 0) {
  SwitchAnswer reply;
  reply.number = number;
  reply.error = error;
  send(connection.get(), &reply, sizeof reply, MSG_NOSIGNAL);
}

void grant(const Asker& asker, const WakeFlag& wake_flag) {
  SwitchAnswer reply;
  reply.number = asker.request.number;
  reply.grant.ipv4 = 0xc6120001;
  reply.grant.range = 3;
  reply.grant.port = 4;
  reply.grant.mtu_bytes = 4200;
  iovec part{&reply, sizeof reply};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(WakeFlag::kDescriptors * sizeof(int))> control{};
  const auto descriptors = wake_flag.descriptors();
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptors);
  std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof descriptors);
  EXPECT_GT(sendmsg(asker.connection.get(), &message, MSG_NOSIGNAL), 0);
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
  const UniqueFd event(open("/dev/null", O_RDWR));
  const Asker asker = accept_request(listener);
  if (!asker.connection) return 1;
  const auto wake_flag = WakeFlag::create(event);
  grant(asker, *wake_flag);
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
    patience_ = {
        .attach = milliseconds(20'000), .ask = milliseconds(20'000), .stopped = milliseconds(20'000)};
    event_ = UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC));
  }
  void TearDown() override { fs::remove_all(folder_); }

  UniqueFd listen() {
    bool died = false;
    UniqueFd listener = listen_on_wire(place_, died);
    fcntl(listener.get(), F_SETFL, 0);
    return listener;
  }
  /// Attaches to the test's switch.
  std::shared_ptr<WireAttachment> take_here(const UniqueFd& listener) {
    std::thread at_switch([&] {
      here_ = accept_request(listener);
      wake_flag_ = WakeFlag::create(event_);
      grant(here_, *wake_flag_);
    });
    std::string error;
    auto seat = WireAttachment::take(wanted_, patience_, error);
    at_switch.join();
    EXPECT_NE(seat, nullptr) << error;
    return seat;
  }
  void die_at_start(int times) { std::ofstream(folder_ + "/deaths") << times; }
  /// Runs until a switch is attached again. Bounded, so that an attachment that never returns fails the test.
  static bool keep_until_attached(WireAttachment& seat) {
    const auto latest = steady_clock::now() + std::chrono::seconds(60);
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
  WireAttachment::Patience patience_;
  UniqueFd event_;
  Asker here_;
  std::unique_ptr<WakeFlag> wake_flag_;
};

TEST_F(Seat, ASwitchThatDiesWhileItStartsIsStartedAgain) {
  die_at_start(2);
  std::string error;
  EXPECT_NE(WireAttachment::take(wanted_, patience_, error), nullptr) << error;
}

TEST_F(Seat, OneThatCannotStartIsNamed) {
  die_at_start(1'000);
  std::string error;
  EXPECT_EQ(WireAttachment::take(wanted_, patience_, error), nullptr);
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
  grant(again, *wake_flag_);
  EXPECT_TRUE(keep_until_attached(*seat));
}

TEST_F(Seat, ARestartLeavesNoDescriptors) {
  UniqueFd listener = listen();
  const auto seat = take_here(listener);
  const WakeFlag* const wake_flag = &seat->wake_flag();
  const size_t before = open_descriptors();
  for (int restart = 0; restart < 20; ++restart) {
    lose_switch(*seat);
    here_ = accept_request(listener);
    wake_flag_ = WakeFlag::create(event_);
    grant(here_, *wake_flag_);
    ASSERT_TRUE(keep_until_attached(*seat));
    // A store to its page is visible to the new switch.
    seat->wake_flag().set_asleep(WakeFlag::End::device);
    wake_flag_->ring(WakeFlag::End::device);
    uint64_t rings = 0;
    EXPECT_EQ(read(seat->wake_flag().event(WakeFlag::End::device), &rings, sizeof rings),
              ssize_t{sizeof rings});
    EXPECT_EQ(rings, 1U);
  }
  EXPECT_EQ(&seat->wake_flag(), wake_flag);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Seat, DescriptorsThatTheProgramClosedAreNotTouched) {
  UniqueFd listener = listen();
  const auto seat = take_here(listener);
  const int connection = seat->switch_descriptor();
  const int event = seat->wake_flag().event(WakeFlag::End::switch_);
  // Like a daemon that closes all descriptors and then opens other files.
  const UniqueFd file(memfd_create("program", MFD_CLOEXEC));
  ASSERT_GE(dup2(file.get(), connection), 0);
  ASSERT_GE(dup2(file.get(), event), 0);
  lose_switch(*seat);
  here_ = accept_request(listener);
  wake_flag_ = WakeFlag::create(event_);
  grant(here_, *wake_flag_);
  ASSERT_TRUE(keep_until_attached(*seat));
  seat->wake_flag().ring(WakeFlag::End::switch_);
  for (const int fd : {connection, event}) {
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
  EXPECT_EQ(WireAttachment::take(wanted_, patience_, error), nullptr);
  EXPECT_NE(error.find("its switch accepts nobody"), std::string::npos) << error;
}

TEST_F(Seat, ALockThatIsHeldEndsInALineThatNamesItsHolder) {
  const UniqueFd lock = lock_wire(place_, {});
  ASSERT_TRUE(lock);
  patience_.attach = milliseconds(50);
  std::string error;
  EXPECT_EQ(WireAttachment::take(wanted_, patience_, error), nullptr);
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
  EXPECT_EQ(WireAttachment::take(wanted_, patience_, error), nullptr);
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
