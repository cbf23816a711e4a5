// SPDX-License-Identifier: BSD-3-Clause
// Ports of kinds vhost and virtio_user whose peer is absent, silent or someone else, and the time limit of
// their sockets. Two live ends need two processes: tests/interop.
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <rte_ethdev.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "pmd_glue/eal/own_socket.hpp"
#include "stack/verbs/objects/backend.hpp"

namespace faultline::vhost_user_test {
namespace {

using namespace std::chrono_literals;

class TestSocket {
 public:
  explicit TestSocket(int domain = AF_UNIX) : fd_(socket(domain, SOCK_STREAM, 0)) {}
  explicit TestSocket(const TestSocket& listener, std::nullptr_t)
      : fd_(accept(listener.fd_, nullptr, nullptr)) {}
  ~TestSocket() { close(fd_); }
  TestSocket(const TestSocket&) = delete;
  TestSocket& operator=(const TestSocket&) = delete;

  void serve(const std::string& path, int backlog = 8) const {
    const sockaddr_un address = address_of(path);
    ASSERT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(listen(fd_, backlog), 0);
  }
  void join(const std::string& path) const {
    const sockaddr_un address = address_of(path);
    ASSERT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  [[nodiscard]] std::chrono::seconds limit(int option) const {
    timeval limit{};
    socklen_t bytes = sizeof limit;
    EXPECT_EQ(getsockopt(fd_, SOL_SOCKET, option, &limit, &bytes), 0);
    return std::chrono::seconds(limit.tv_sec);
  }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  static sockaddr_un address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    return address;
  }
  int fd_;
};

class VhostUser : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    char pattern[] = "/tmp/faultline-test-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    directory = pattern;
    std::ofstream file(directory / "test.toml");
    file << "[eal]\nmemory_mib = 128\n[odp]\nmonitor = false\n";
    add(file, "back", "vhost", "server", "queues = 2");
    add(file, "front", "virtio_user", "client");
    add(file, "lost", "vhost", "server", "", "absent/");
    file.close();
    verbs::configure(directory / "test.toml");
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(directory); }
  void TearDown() override { std::filesystem::remove(path("back")), std::filesystem::remove(path("front")); }

  static void add(std::ofstream& file, const std::string& name, const std::string& kind,
                  const std::string& role, const std::string& more = "", const std::string& folder = "") {
    file << "[[device]]\nname = \"" << name << "\"\nip = \"198.18.0." << ++hosts
         << "/24\"\n[device.port]\nkind = \"" << kind << "\"\nrole = \"" << role << "\"\nsocket = \""
         << (directory / (folder + name + ".sock")).string() << "\"\n"
         << more << "\n";
  }
  static std::string path(const std::string& name) { return directory / (name + ".sock"); }

  /// Returns the error of opening the device, which must fail.
  static std::string fault_of(const std::string& name) {
    std::string error;
    EXPECT_EQ(verbs::open_device(name, error), nullptr);
    return error;
  }

  static inline std::filesystem::path directory;
  static inline int hosts = 0;
};

TEST_F(VhostUser, ASocketOfTheLimitedThreadWaitsNoLonger) {
  const glue::SocketTimeLimit limit(1s);
  const TestSocket socket;
  EXPECT_EQ(socket.limit(SO_RCVTIMEO), 1s);
  EXPECT_EQ(socket.limit(SO_SNDTIMEO), 1s);
  socket.serve(path("back"));
  EXPECT_EQ(accept(socket.fd(), nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(VhostUser, AConnectionHasTheLimitOfItsListener) {
  const auto limit = std::make_unique<glue::SocketTimeLimit>(1s);
  const TestSocket listener;
  listener.serve(path("back"));
  std::thread elsewhere([&] {
    const TestSocket client;
    client.join(path("back"));
    const TestSocket connection(listener, nullptr);
    EXPECT_EQ(connection.limit(SO_RCVTIMEO), 1s);
    char byte = 0;
    EXPECT_EQ(recv(connection.fd(), &byte, 1, 0), -1);
    EXPECT_EQ(errno, EAGAIN);
  });
  elsewhere.join();
}

TEST_F(VhostUser, OtherSocketsHaveNoLimit) {
  {
    const glue::SocketTimeLimit limit(1s);
    EXPECT_EQ(TestSocket(AF_INET).limit(SO_RCVTIMEO), 0s);
    std::thread([] { EXPECT_EQ(TestSocket().limit(SO_RCVTIMEO), 0s); }).join();
  }
  const TestSocket listener;
  EXPECT_EQ(listener.limit(SO_RCVTIMEO), 0s);
  listener.serve(path("back"));
  const TestSocket client;
  client.join(path("back"));
  EXPECT_EQ(TestSocket(listener, nullptr).limit(SO_RCVTIMEO), 0s);
}

TEST_F(VhostUser, AFrontEndNeedsABackEnd) {
  EXPECT_NE(fault_of("front").find("no vhost-user back end listens on"), std::string::npos);
}

TEST_F(VhostUser, ABackEndThatNeverAnswersIsOneFault) {
  const TestSocket silent;
  silent.serve(path("front"));
  EXPECT_NE(fault_of("front").find("has not answered in 20 s"), std::string::npos);
}

TEST_F(VhostUser, AStoppedBackEndWithAFullQueueIsOneFault) {
  const TestSocket stopped;
  stopped.serve(path("front"), 0);
  const TestSocket waiting;
  waiting.join(path("front"));
  EXPECT_NE(fault_of("front").find("no vhost-user back end listens on"), std::string::npos);
}

TEST_F(VhostUser, APathOfAnotherServerStaysItsOwn) {
  const TestSocket other;
  other.serve(path("back"));
  EXPECT_NE(fault_of("back").find("is served by another process"), std::string::npos);
  const TestSocket client;
  client.join(path("back"));
}

TEST_F(VhostUser, AFileThatIsNoSocketStays) {
  std::ofstream(path("back")) << "text";
  EXPECT_NE(fault_of("back").find("exists and is not a socket"), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(path("back")), 4U);
}

TEST_F(VhostUser, AnAbsentFolderIsNamed) {
  EXPECT_NE(fault_of("lost").find("absent must exist and be readable and writable"), std::string::npos);
}

TEST_F(VhostUser, ABackEndReplacesTheFileOfAKilledServerAndHasEachQueue) {
  { TestSocket().serve(path("back")); }
  std::string error;
  const auto device = verbs::open_device("back", error);
  ASSERT_NE(device, nullptr) << error;
  uint16_t port = 0;
  ASSERT_EQ(rte_eth_dev_get_port_by_name("net_vhost_back", &port), 0);
  rte_eth_dev_info info{};
  ASSERT_EQ(rte_eth_dev_info_get(port, &info), 0);
  EXPECT_EQ(info.nb_rx_queues, 2);
  EXPECT_EQ(info.nb_tx_queues, 2);
}

}  // namespace
}  // namespace faultline::vhost_user_test
