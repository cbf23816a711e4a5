// SPDX-License-Identifier: BSD-3-Clause
// The control socket of the local network, with real connections from this process and a simulated clock.
#include "apps/switch/control.hpp"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace faultline::switching {
namespace {

using glue::SwitchAnswer;
using glue::SwitchRequest;
using glue::SwitchVerb;

/// Ports without a data path.
class Ports final : public Seats {
 public:
  void with_stations(const std::function<void(StationTable&)>& use) override { use(stations_); }
  std::optional<PortIndex> take_port(std::optional<PortIndex> wanted, glue::WakeFlag& /*wake_flag*/,
                                     std::string& error) override {
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
    taken.reset(port);
  }
  const std::string& socket_of(PortIndex /*port*/) const override { return socket_; }
  uint32_t mtu_bytes() const override { return 4200; }

  PortSet taken;

 private:
  StationTable stations_;
  const std::string socket_ = "none";
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
        "test", std::move(listener), ports_, 0,
        Control::Host{.now = [this] { return now_; }, .note = [](const std::string&) {}});
    ASSERT_TRUE(control_->open());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  UniqueFd connect() {
    UniqueFd connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    EXPECT_EQ(::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_), 0);
    return connection;
  }
  static void ask(const UniqueFd& connection, SwitchVerb verb, uint64_t number, uint64_t service_id = 0) {
    SwitchRequest request;
    request.number = number;
    request.verb = verb;
    request.service_id = service_id;
    request.shared = 1;
    EXPECT_EQ(send(connection.get(), &request, sizeof request, MSG_NOSIGNAL), ssize_t{sizeof request});
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
  std::unique_ptr<Control> control_;
  TimeNs now_ = 1'000'000'000;

 private:
  std::string folder_;
  sockaddr_un address_{};
};

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
}  // namespace faultline::switching
