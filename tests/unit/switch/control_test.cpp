// SPDX-License-Identifier: BSD-3-Clause
// The control socket of the local network, with real connections from this process and a simulated clock.
#include "apps/switch/control.hpp"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "apps/switch/linked_pairs.hpp"
#include "pmd_glue/wires/passed_descriptors.hpp"
#include "pmd_glue/wires/sealed_memory.hpp"

namespace faultline::switching::control_test {
namespace {

using glue::SwitchAnswer;
using glue::SwitchRequest;
using glue::SwitchVerb;

/// Ports without a data path.
class Ports final : public Seats {
 public:
  void with_stations(const std::function<void(StationTable&)>& use) override { use(stations_); }
  std::optional<PortIndex> take_port(std::optional<PortIndex> wanted, std::string& error) override {
    if (wanted && *wanted < kMaxPorts && !taken.test(*wanted)) {
      taken.set(*wanted);
      return wanted;
    }
    for (PortIndex port = 0; port < kMaxPorts; ++port)
      if (!taken.test(port)) {
        taken.set(port);
        return port;
      }
    error = "full";
    return std::nullopt;
  }
  void give_back(PortIndex port) override { taken.reset(port); }
  void leave(PortIndex port) override {
    stations_.detach(port);
    pairs.leave(port);
    taken.reset(port);
  }
  bool begin_ring(PortIndex /*port*/, int memory, std::unique_ptr<glue::Inbox> inbox) override {
    return glue::is_sealed_memory(memory, glue::kSeatBytes) && inbox != nullptr;
  }
  std::vector<PortIndex> take_offenders() override { return std::exchange(offenders, {}); }
  uint32_t mtu_bytes() const override { return 4200; }
  std::optional<bool> take_uplink_change() override { return std::exchange(uplink_change, std::nullopt); }
  void describe(SwitchStatus& status) const override { status.counters.forwarded = 77; }
  std::vector<Pair> take_new_pairs() override { return pairs.take_new(); }
  void note_link(const Pair& pair, LinkState state) override { pairs.note(pair, state); }
  PortSet linked_to(PortIndex port) override { return pairs.linked_to(port); }

  PortSet taken;
  LinkedPairs pairs;
  std::vector<PortIndex> offenders;
  std::optional<bool> uplink_change;

 private:
  StationTable stations_;
};

class ControlSocket : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "control.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    address_.sun_family = AF_UNIX;
    (folder_ + "/s").copy(address_.sun_path, sizeof address_.sun_path - 1);
    UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_), 0);
    ASSERT_EQ(listen(listener.get(), 64), 0);
    control_ = std::make_unique<Control>(
        "test", std::move(listener), ports_, *inbox_, 0,
        Control::Host{.now = [this] { return now_; }, .note = [](const std::string&) {}});
    ASSERT_TRUE(control_->open());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  UniqueFd connect() {
    UniqueFd connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    EXPECT_EQ(::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_), 0);
    return connection;
  }
  void ask(const UniqueFd& connection, SwitchVerb verb, uint64_t number, uint64_t service_id = 0) {
    SwitchRequest request;
    request.number = number;
    request.verb = verb;
    request.service_id = service_id;
    request.shared = 1;
    const std::array<int, glue::kInboxDescriptors> inbox{process_inbox_->memory(), process_event_.get()};
    send_request(connection, request,
                 verb == SwitchVerb::attach ? std::span<const int>(inbox) : std::span<const int>());
  }
  static void send_request(const UniqueFd& connection, const SwitchRequest& request,
                           std::span<const int> descriptors = {}) {
    EXPECT_EQ(glue::send_with_descriptors(connection.get(), &request, sizeof request, descriptors),
              ssize_t{sizeof request});
  }
  /// Serves until nothing is immediately pending.
  void serve() {
    for (int round = 0; round < 20; ++round) control_->serve(0);
  }
  static bool has_ended(const UniqueFd& connection) {
    char first = 0;
    return recv(connection.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  }
  static std::optional<SwitchAnswer> answer_on(const UniqueFd& connection) {
    SwitchAnswer answer;
    if (recv(connection.get(), &answer, sizeof answer, MSG_DONTWAIT) != ssize_t{sizeof answer}) return {};
    return answer;
  }
  UniqueFd seat() {
    UniqueFd connection = connect();
    ask(connection, SwitchVerb::attach, 1);
    serve();
    const auto answer = answer_on(connection);
    EXPECT_TRUE(answer && answer->error == 0 && answer->number == 1);
    return connection;
  }
  static size_t descriptors() {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                             std::filesystem::directory_iterator()));
  }

  Ports ports_;
  const std::unique_ptr<glue::Inbox> inbox_ = glue::Inbox::create();
  // Of the processes that attach.
  const std::unique_ptr<glue::Inbox> process_inbox_ = glue::Inbox::create();
  const UniqueFd process_event_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::unique_ptr<Control> control_;
  TimeNs now_ = 1'000'000'000;

 private:
  std::string folder_;
  sockaddr_un address_{};
};

TEST_F(ControlSocket, FramesAreReportedWhileTheirDescriptorIsReadable) {
  const UniqueFd frames(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  int reports = 0;
  control_->watch_frames(frames.get(), [&] { ++reports; });
  serve();
  EXPECT_EQ(reports, 0);
  uint64_t count = 1;
  ASSERT_EQ(write(frames.get(), &count, sizeof count), ssize_t{sizeof count});
  control_->serve(10'000);
  control_->serve(10'000);
  EXPECT_EQ(reports, 2);
  ASSERT_EQ(read(frames.get(), &count, sizeof count), ssize_t{sizeof count});
  serve();
  EXPECT_EQ(reports, 2);
}

TEST_F(ControlSocket, AStatusNeedsNoSeatAndNamesThoseOfOthers) {
  const UniqueFd program = seat();
  const UniqueFd connection = connect();
  for (const uint32_t json : {0U, 1U}) {
    SwitchRequest request;
    request.number = 5 + json;
    request.verb = SwitchVerb::status;
    request.json = json;
    send_request(connection, request);
    serve();
    SwitchAnswer answer;
    std::vector<UniqueFd> file;
    ASSERT_EQ(glue::receive_with_descriptors(connection.get(), &answer, sizeof answer, file),
              ssize_t{sizeof answer});
    EXPECT_EQ(answer.error, 0);
    EXPECT_EQ(answer.number, request.number);
    ASSERT_EQ(file.size(), 1U);
    std::array<char, 4096> bytes{};
    ASSERT_GT(pread(file[0].get(), bytes.data(), bytes.size() - 1, 0), 0);
    const std::string text = bytes.data();
    const std::string pid = std::to_string(getpid());
    EXPECT_NE(text.find(json != 0 ? "\"forwarded\":77" : "forwarded 77"), std::string::npos) << text;
    EXPECT_NE(text.find(json != 0 ? "\"seat\":0,\"pid\":" + pid : "seat 0, process " + pid),
              std::string::npos)
        << text;
  }
  EXPECT_FALSE(has_ended(program));
}

TEST_F(ControlSocket, AnAnswerHasItsRequestsNumber) {
  const UniqueFd connection = seat();
  for (const uint64_t number : {5U, 900U, 7U}) ask(connection, SwitchVerb::claim_service, number, number);
  serve();
  for (const uint64_t number : {5U, 900U, 7U}) EXPECT_EQ(answer_on(connection).value().number, number);
  ask(connection, SwitchVerb::attach, 8);
  const UniqueFd stranger = connect();
  ask(stranger, SwitchVerb::join_group, 9);
  serve();
  EXPECT_EQ(answer_on(connection).value().number, 8U);
  EXPECT_EQ(answer_on(stranger).value().number, 9U);
}

TEST_F(ControlSocket, ThousandWhoSayNothingKeepNobodyOut) {
  const UniqueFd early = seat();
  const size_t before = descriptors();
  std::vector<UniqueFd> silent;
  size_t most = 0;
  for (int i = 0; i < 400; ++i) {
    silent.push_back(connect());
    if (i % 8 == 7) control_->serve(0);
    most = std::max(most, descriptors() - silent.size());
  }
  serve();
  EXPECT_FALSE(has_ended(early));
  // Two descriptors for each at the switch: the connection and the process.
  EXPECT_LE(most, before + 2 * Control::kMostStrangers + 16);
  const UniqueFd late = seat();
  EXPECT_FALSE(has_ended(late));
  EXPECT_EQ(ports_.taken.count(), 2U);
  // The oldest connections are closed at once, and the others after a time-out.
  EXPECT_TRUE(has_ended(silent.front()));
  EXPECT_FALSE(has_ended(silent.back()));
  now_ += Control::kSilentNs;
  serve();
  for (const UniqueFd& connection : silent) EXPECT_TRUE(has_ended(connection));
  silent.clear();
  serve();
  EXPECT_EQ(ports_.taken.count(), 2U);
}

TEST_F(ControlSocket, AConnectionHasItsTimeToAsk) {
  const UniqueFd silent = connect();
  serve();
  now_ += Control::kSilentNs - 1;
  serve();
  EXPECT_FALSE(has_ended(silent));
  // A request is accepted up to the last moment.
  const UniqueFd slow = connect();
  serve();
  ask(slow, SwitchVerb::attach, 1);
  now_ += 1;
  serve();
  EXPECT_TRUE(has_ended(silent));
  now_ += 10 * Control::kSilentNs;
  serve();
  EXPECT_EQ(answer_on(slow).value().error, 0);
  EXPECT_FALSE(has_ended(slow));
}

TEST_F(ControlSocket, WithoutDescriptorsItRefusesAndDoesNotSpin) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const UniqueFd first = connect();
  const UniqueFd second = connect();
  // The highest descriptor in use limits the next one.
  std::vector<UniqueFd> fill;
  rlimit low = before;
  low.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  for (;;) {
    UniqueFd one(dup(first.get()));
    if (!one) break;
    fill.push_back(std::move(one));
  }
  serve();
  const auto refused = answer_on(first);
  EXPECT_TRUE(refused && refused->error == EMFILE);
  EXPECT_TRUE(answer_on(second).has_value());
  fill.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(has_ended(seat()));
}

struct Received {
  SwitchAnswer message;
  std::vector<UniqueFd> descriptors;
};

std::optional<Received> next_message(const UniqueFd& connection) {
  Received received;
  if (glue::receive_with_descriptors(connection.get(), &received.message, sizeof received.message,
                                     received.descriptors) != ssize_t{sizeof received.message})
    return std::nullopt;
  return received;
}

SwitchRequest link_request(SwitchVerb verb, uint32_t port) {
  SwitchRequest request;
  request.number = 2;
  request.verb = verb;
  request.port = port;
  return request;
}

TEST_F(ControlSocket, ASeatComesWithItsRingAndTheSwitchsInbox) {
  const UniqueFd connection = connect();
  ask(connection, SwitchVerb::attach, 1);
  serve();
  const auto granted = next_message(connection);
  ASSERT_TRUE(granted && granted->message.error == 0);
  ASSERT_EQ(granted->descriptors.size(), glue::kLinkDescriptors);
  EXPECT_TRUE(glue::is_sealed_memory(granted->descriptors[0].get(), glue::kSeatBytes));
  EXPECT_TRUE(glue::is_sealed_memory(granted->descriptors[1].get(), glue::Inbox::kBytes));
  EXPECT_TRUE(glue::is_event(granted->descriptors[2].get()));
}

// A process that opens its device again keeps its address while others attach.
TEST_F(ControlSocket, AProcessGetsItsSeatAgainBeforeItsOldConnectionEnds) {
  const std::array<int, glue::kInboxDescriptors> inbox{process_inbox_->memory(), process_event_.get()};
  const auto attach = [&](const SwitchRequest& request) {
    UniqueFd connection = connect();
    send_request(connection, request, inbox);
    serve();
    return connection;
  };
  SwitchRequest request;
  request.number = 1;
  const UniqueFd first = attach(request);
  const glue::SwitchGrant granted = next_message(first).value().message.grant;
  const UniqueFd other = attach(request);
  request.ipv4 = granted.ipv4;
  request.range = granted.range;
  request.port = granted.port;
  const UniqueFd again = attach(request);
  const auto same = next_message(again);
  ASSERT_TRUE(same && same->message.error == 0) << same->message.line.data();
  EXPECT_EQ(same->message.grant.ipv4, granted.ipv4);
  EXPECT_EQ(same->message.grant.port, granted.port);
  EXPECT_TRUE(has_ended(first));
  EXPECT_FALSE(has_ended(other));
  EXPECT_EQ(ports_.taken.count(), 2U);
}

// Neither a file that may shrink under the switch nor a pipe that blocks its writer is an inbox.
TEST_F(ControlSocket, AnInboxIsCheckedBeforeItsProcessGetsASeat) {
  const UniqueFd growing(memfd_create("unsealed", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(growing.get(), glue::Inbox::kBytes), 0);
  const UniqueFd small = glue::create_sealed_memory("small", 8);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd reads(ends[0]);
  const UniqueFd writes(ends[1]);
  const int page = process_inbox_->memory();
  const int event = process_event_.get();
  const std::vector<std::vector<int>> wrong{{},
                                            {page},
                                            {page, writes.get()},
                                            {growing.get(), event},
                                            {small.get(), event},
                                            {event, page},
                                            {page, event, event}};
  for (const std::vector<int>& descriptors : wrong) {
    const UniqueFd connection = connect();
    SwitchRequest request;
    request.number = 1;
    send_request(connection, request, descriptors);
    serve();
    EXPECT_EQ(answer_on(connection).value().error, EPROTO) << descriptors.size();
  }
  EXPECT_EQ(ports_.taken.count(), 0U);
}

TEST_F(ControlSocket, APairThatTalksGetsOneLink) {
  const UniqueFd one = seat();
  const UniqueFd other = seat();
  ports_.pairs.add(0, 1);
  serve();
  auto first = next_message(one);
  auto second = next_message(other);
  ASSERT_TRUE(first && second);
  for (const auto& [link, side, peer] : {std::tuple(&*first, 0U, 1U), std::tuple(&*second, 1U, 0U)}) {
    EXPECT_EQ(link->message.message, glue::SwitchMessage::link);
    EXPECT_EQ(link->message.number, 0U);
    EXPECT_EQ(link->message.link_side, side);
    EXPECT_EQ(link->message.grant.port, peer);
    EXPECT_EQ(link->descriptors.size(), glue::kLinkDescriptors);
  }
  EXPECT_NE(first->message.grant.range, 0U);
  EXPECT_TRUE(ports_.pairs.is_known(0, 1) && ports_.pairs.is_known(1, 0));
  serve();
  EXPECT_FALSE(next_message(one).has_value());
}

TEST_F(ControlSocket, TheEndOfAProcessEndsItsLinks) {
  const UniqueFd one = seat();
  UniqueFd other = seat();
  const UniqueFd third = seat();
  ports_.pairs.add(0, 1);
  serve();
  ASSERT_TRUE(next_message(one).has_value());
  other.reset();
  serve();
  const auto ended = next_message(one);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->message.message, glue::SwitchMessage::link_ended);
  EXPECT_EQ(ended->message.grant.port, 1U);
  EXPECT_FALSE(next_message(third).has_value());
  EXPECT_FALSE(ports_.pairs.is_known(0, 1));
}

TEST_F(ControlSocket, ProgramsUnderTheHostsAddressesHearOfTheUplink) {
  ports_.with_stations([](StationTable& stations) {
    const glue::IpNetwork address{wire::Gid::from_ipv4(0x0a000005), 120};
    stations.set_uplink(kUplinkPort);
    stations.set_host_of_sockets({&address, 1}, glue::mac_of(address.gid), 8);
  });
  const std::array<int, glue::kInboxDescriptors> inbox{process_inbox_->memory(), process_event_.get()};
  const UniqueFd of_host = connect();
  SwitchRequest request;
  request.number = 1;
  send_request(of_host, request, inbox);
  const UniqueFd of_wire = connect();
  request.ipv4 = 0xc6120001;
  send_request(of_wire, request, inbox);
  const UniqueFd stranger = connect();
  serve();
  const auto granted = next_message(of_host);
  ASSERT_TRUE(granted && granted->message.error == 0) << granted->message.line.data();
  EXPECT_EQ(granted->message.grant.uplink_up, 0U);
  ASSERT_TRUE(next_message(of_wire).has_value());
  for (const bool is_up : {true, false}) {
    ports_.uplink_change = is_up;
    serve();
    const auto told = next_message(of_host);
    ASSERT_TRUE(told.has_value());
    EXPECT_EQ(told->message.message, glue::SwitchMessage::uplink);
    EXPECT_EQ(told->message.grant.uplink_up != 0, is_up);
    EXPECT_FALSE(next_message(of_host).has_value());
    EXPECT_FALSE(next_message(of_wire).has_value());
    EXPECT_FALSE(next_message(stranger).has_value());
  }
}

TEST_F(ControlSocket, AnIdleLinkMayBeMadeAgainAndABarredOneNot) {
  const UniqueFd one = seat();
  const UniqueFd other = seat();
  ports_.pairs.add(0, 1);
  serve();
  send_request(one, link_request(SwitchVerb::end_link, 1));
  serve();
  EXPECT_FALSE(ports_.pairs.is_known(0, 1));
  ports_.pairs.add(0, 1);
  serve();
  while (next_message(other)) continue;
  send_request(one, link_request(SwitchVerb::bar_link, 1));
  serve();
  EXPECT_EQ(next_message(other).value().message.message, glue::SwitchMessage::link_ended);
  EXPECT_TRUE(ports_.pairs.is_known(0, 1));
  // The other end cannot lift the bar.
  send_request(other, link_request(SwitchVerb::end_link, 0));
  serve();
  EXPECT_TRUE(ports_.pairs.is_known(0, 1));
  for (const uint32_t nowhere : {1023U, 1024U, 0xffffffffU}) {
    send_request(one, link_request(SwitchVerb::bar_link, nowhere));
    serve();
  }
  EXPECT_FALSE(has_ended(one));
}

// A process keeps its links over the death of a switch. Another process that gets a seat meanwhile has none.
TEST_F(ControlSocket, AKeptLinkEndsIfAnotherProcessGetsTheSeat) {
  const UniqueFd one = seat();
  send_request(one, link_request(SwitchVerb::keep_link, 1));
  serve();
  EXPECT_EQ(next_message(one).value().message.error, 0);
  EXPECT_TRUE(ports_.pairs.is_known(0, 1));
  const UniqueFd other = seat();
  EXPECT_EQ(next_message(one).value().message.message, glue::SwitchMessage::link_ended);
  EXPECT_FALSE(ports_.pairs.is_known(0, 1));
}

TEST_F(ControlSocket, AnOffenderLosesItsSeat) {
  const UniqueFd honest = seat();
  const UniqueFd offender = seat();
  ports_.offenders = {1};
  serve();
  EXPECT_TRUE(has_ended(offender));
  EXPECT_FALSE(has_ended(honest));
  EXPECT_EQ(ports_.taken.count(), 1U);
}

// In one round of events: A ends; B is accepted and gets a descriptor that A had; then an event of A follows.
TEST_F(ControlSocket, AnEventOfWhoHasGoneIsNobodyElses) {
  for (int round = 0; round < 50; ++round) {
    UniqueFd gone = seat();
    gone.reset();
    const UniqueFd comes = connect();
    ask(comes, SwitchVerb::attach, 1);
    serve();
    EXPECT_EQ(answer_on(comes).value().error, 0);
    EXPECT_FALSE(has_ended(comes));
    EXPECT_EQ(ports_.taken.count(), 1U);
  }
}

}  // namespace
}  // namespace faultline::switching::control_test
