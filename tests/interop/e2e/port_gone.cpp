// SPDX-License-Identifier: BSD-3-Clause
// The port goes away under the device while it sends (CVE-2024-57795 is what a stack did that went on using
// it): programs are told by asynchronous events, what was under way ends in errors, nothing crashes, and all
// objects can be taken down in their order.
//   port_gone tap inline|dedicated     in a network namespace of its own, where fl-a and fl-b get bridged;
//   fl-a is
//                                      deleted under a stream: IBV_EVENT_PORT_ERR, IBV_EVENT_DEVICE_FATAL
//   port_gone memif                    the peer is killed: IBV_EVENT_PORT_ERR; a new one comes:
//   IBV_EVENT_PORT_ACTIVE
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/interop/e2e/side.hpp"

namespace {

using namespace std::chrono_literals;
using faultline::e2e::Address;
using faultline::e2e::fail;
using faultline::e2e::kLossyTimeout;
using faultline::e2e::Side;

constexpr uint32_t kBytes = 8192;
constexpr uint64_t kWrites = 500;  ///< before the port goes
constexpr int kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

void expect(bool truth, const char* what) {
  if (!truth) fail("expected", what);
}

void run(const std::string& command) {
  if (std::system(command.c_str()) != 0) fail("run", command.c_str());
}

/// A side with memory that its peer may write to.
struct End {
  explicit End(Side& one) : side(one), bytes(kBytes) {
    mr = ibv_reg_mr(side.pd, bytes.data(), bytes.size(), kRights);
    expect(mr != nullptr, "ibv_reg_mr");
    fcntl(side.context->async_fd, F_SETFL, fcntl(side.context->async_fd, F_GETFL) | O_NONBLOCK);
  }
  [[nodiscard]] Address address() const {
    return {side.qp->qp_num, mr->rkey, reinterpret_cast<uint64_t>(bytes.data()), side.gid, false};
  }
  void post_write(const Address& to) {
    ibv_sge piece{reinterpret_cast<uint64_t>(bytes.data()), kBytes, mr->lkey};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma = {to.va, to.rkey};
    ibv_send_wr* bad = nullptr;
    expect(ibv_post_send(side.qp, &request, &bad) == 0, "ibv_post_send");
  }
  /// Posts one WRITE after the other until one fails, and returns its status. After kWrites of them, which
  /// have to be successes, it calls `disturb` once, in another thread.
  template <typename Disturb>
  ibv_wc_status stream(const Address& to, Disturb disturb) {
    std::thread disturber;
    uint32_t under_way = 0;
    uint64_t written = 0;
    ibv_wc completion;
    faultline::e2e::await_true("main", "the stream has no end", [&] {
      for (; under_way < 8; ++under_way) post_write(to);
      if (ibv_poll_cq(side.cq, 1, &completion) != 1) return false;
      if (completion.status != IBV_WC_SUCCESS) return true;
      --under_way;
      if (++written == kWrites) disturber = std::thread(disturb);
      return false;
    });
    std::printf("%lu writes, then: %s\n", written, ibv_wc_status_str(completion.status));
    expect(written >= kWrites, "a stream before that");
    disturber.join();
    return completion.status;
  }
  void await_event(ibv_event_type wanted) {
    faultline::e2e::await_true("expected", ibv_event_type_str(wanted), [&] {
      pollfd wait{side.context->async_fd, POLLIN, 0};
      if (poll(&wait, 1, 100) != 1) return false;
      ibv_async_event event;
      if (ibv_get_async_event(side.context, &event) != 0) return false;
      const ibv_event_type type = event.event_type;
      ibv_ack_async_event(&event);
      std::printf("event: %s\n", ibv_event_type_str(type));
      return type == wanted;
    });
  }
  void take_down() {
    side.destroy_qp();
    expect(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
    expect(ibv_destroy_cq(side.cq) == 0, "ibv_destroy_cq");
    expect(ibv_dealloc_pd(side.pd) == 0, "ibv_dealloc_pd");
    expect(ibv_close_device(side.context) == 0, "ibv_close_device");
  }
  void await_active() const {
    faultline::e2e::await_true("expected", "an active port", [this] {
      std::this_thread::sleep_for(1ms);
      return port_is_active();
    });
  }
  [[nodiscard]] bool port_is_active() const {
    ibv_port_attr attributes{};
    expect(ibv_query_port(side.context, 1, &attributes) == 0, "ibv_query_port");
    return attributes.state == IBV_PORT_ACTIVE;
  }

  Side& side;
  std::vector<uint8_t> bytes;
  ibv_mr* mr = nullptr;
};

void delete_tap_under_traffic(const std::string& folder, const std::string& progress) {
  const std::string config = folder + "/devices.toml";
  {
    std::ofstream file(config);
    for (const char side : {'a', 'b'})
      file << "[[device]]\nname = \"faultline" << side << "\"\nip = \"198.18.0." << (side == 'a' ? 1 : 2)
           << "/24\"\nprogress = \"" << progress << "\"\n[device.port]\nkind = \"tap\"\ninterface = \"fl-"
           << side << "\"\n";
  }
  Side one("a", config, 0);
  Side other("b", "", 1);
  End a(one);
  End b(other);
  run("ip link add fl-br type bridge && ip link set fl-br up && ip link set fl-a master fl-br up && "
      "ip link set fl-b master fl-br up");
  a.await_active();
  b.await_active();
  a.side.make_qp(16);
  b.side.make_qp(16);
  a.side.connect(b.address(), kLossyTimeout);
  b.side.connect(a.address(), kLossyTimeout);
  const ibv_wc_status status = a.stream(b.address(), [] { run("ip link del fl-a"); });
  // The transport's timers may end before the device looks at its port.
  expect(status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_RETRY_EXC_ERR, "the stream's error");
  a.await_event(IBV_EVENT_PORT_ERR);
  a.await_event(IBV_EVENT_DEVICE_FATAL);
  expect(!a.port_is_active(), "a port that is down");
  expect(b.port_is_active(), "the other device's port");

  // It answers, and does nothing.
  ibv_ah_attr nowhere{};
  nowhere.is_global = 1;
  nowhere.port_num = 1;
  nowhere.grh.dgid = b.side.gid;
  nowhere.grh.dgid.raw[15] = 77;
  expect(ibv_create_ah(a.side.pd, &nowhere) == nullptr, "no neighbour on a port that is gone");
  a.take_down();
  b.take_down();
}

/// The peer of `memif`: sends its address and waits to be killed.
[[noreturn]] void be_peer(const std::string& config, int socket) {
  Side side("peer", config, 0);
  End end(side);
  side.make_qp(16);
  const Address own = end.address();
  Address theirs;
  if (write(socket, &own, sizeof own) != sizeof own || read(socket, &theirs, sizeof theirs) != sizeof theirs)
    fail("peer", "exchange");
  side.connect(theirs, kLossyTimeout);
  if (write(socket, "r", 1) != 1) fail("peer", "exchange");
  while (true) {
    ibv_wc completion;
    static_cast<void>(ibv_poll_cq(side.cq, 1, &completion));
  }
}

void kill_memif_peer(const std::string& folder, const std::string& program) {
  for (const char* role : {"server", "client"}) {
    std::ofstream file(folder + "/" + role + ".toml");
    file << "[[device]]\nname = \"faultline0\"\nip = \"198.18.0." << (role[0] == 's' ? 1 : 2)
         << "/24\"\n[device.port]\nkind = \"memif\"\nrole = \"" << role << "\"\nsocket = \"" << folder
         << "/wire.sock\"\n";
  }
  Side side("server", folder + "/server.toml", 0);
  End end(side);
  for (int life = 0; life < 2; ++life) {
    int sockets[2];
    expect(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
    const pid_t peer = fork();
    if (peer == 0) {
      const std::string config = folder + "/client.toml";
      const std::string fd = std::to_string(sockets[1]);
      execl(program.c_str(), program.c_str(), "peer", config.c_str(), fd.c_str(), nullptr);
      _exit(127);
    }
    close(sockets[1]);
    end.await_event(IBV_EVENT_PORT_ACTIVE);
    expect(end.port_is_active(), "an active port");
    Address theirs;
    expect(read(sockets[0], &theirs, sizeof theirs) == sizeof theirs, "the peer's address");
    side.make_qp(16);
    side.connect(theirs, kLossyTimeout);
    const Address own = end.address();
    char ready = 0;
    expect(write(sockets[0], &own, sizeof own) == sizeof own && read(sockets[0], &ready, 1) == 1,
           "a peer that is ready");
    const ibv_wc_status status = end.stream(theirs, [peer] { kill(peer, SIGKILL); });
    waitpid(peer, nullptr, 0);
    close(sockets[0]);
    expect(status == IBV_WC_RETRY_EXC_ERR, "the stream's error");
    end.await_event(IBV_EVENT_PORT_ERR);
    expect(!end.port_is_active(), "a port that is down");
    if (life == 0) side.destroy_qp();
  }
  end.take_down();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "peer" && argc == 4) be_peer(argv[2], std::atoi(argv[3]));
  std::string folder = (std::filesystem::temp_directory_path() / "faultline-gone-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) fail("main", "mkdtemp");
  if (what == "tap" && argc == 3)
    delete_tap_under_traffic(folder, argv[2]);
  else if (what == "memif")
    kill_memif_peer(folder, std::filesystem::read_symlink("/proc/self/exe"));
  else
    fail("main", "tap inline|dedicated, or memif");
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  std::printf("ok\n");
  return 0;
}
