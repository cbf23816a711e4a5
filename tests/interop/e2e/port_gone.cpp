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
using faultline::e2e::Side;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kBytes = 8192;
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
  /// Posts one WRITE after the other for so long; the status of the first that failed.
  ibv_wc_status stream(const Address& to, Clock::duration time, uint64_t& written) {
    const auto end = Clock::now() + time;
    uint32_t under_way = 0;
    while (Clock::now() < end || under_way != 0) {
      for (; under_way < 8 && Clock::now() < end; ++under_way) post_write(to);
      ibv_wc completion;
      if (ibv_poll_cq(side.cq, 1, &completion) != 1) continue;
      if (completion.status != IBV_WC_SUCCESS) return completion.status;
      --under_way;
      ++written;
    }
    return IBV_WC_SUCCESS;
  }
  bool next_event(ibv_event_type wanted) {
    const auto end = Clock::now() + 20s;
    while (Clock::now() < end) {
      pollfd wait{side.context->async_fd, POLLIN, 0};
      if (poll(&wait, 1, 100) != 1) continue;
      ibv_async_event event;
      if (ibv_get_async_event(side.context, &event) != 0) continue;
      const ibv_event_type type = event.event_type;
      ibv_ack_async_event(&event);
      std::printf("event: %s\n", ibv_event_type_str(type));
      if (type == wanted) return true;
    }
    return false;
  }
  void take_down() {
    side.destroy_qp();
    expect(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
    expect(ibv_destroy_cq(side.cq) == 0, "ibv_destroy_cq");
    expect(ibv_dealloc_pd(side.pd) == 0, "ibv_dealloc_pd");
    expect(ibv_close_device(side.context) == 0, "ibv_close_device");
  }
  [[nodiscard]] bool becomes_active() const {
    const auto end = Clock::now() + 20s;
    while (!port_is_active() && Clock::now() < end) std::this_thread::sleep_for(10ms);
    return port_is_active();
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
  expect(a.becomes_active() && b.becomes_active(), "active ports");
  a.side.make_qp(16);
  b.side.make_qp(16);
  a.side.connect(b.address());
  b.side.connect(a.address());
  uint64_t written = 0;
  expect(a.stream(b.address(), 300ms, written) == IBV_WC_SUCCESS && written != 0, "a stream");

  std::thread remover([] {
    std::this_thread::sleep_for(200ms);
    run("ip link del fl-a");
  });
  const ibv_wc_status status = a.stream(b.address(), 20s, written);
  remover.join();
  std::printf("%lu writes, then: %s\n", written, ibv_wc_status_str(status));
  // The transport's timers may end before the device looks at its port.
  expect(status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_RETRY_EXC_ERR, "the stream's error");
  expect(a.next_event(IBV_EVENT_PORT_ERR), "PORT_ERR");
  expect(a.next_event(IBV_EVENT_DEVICE_FATAL), "DEVICE_FATAL");
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
  side.connect(theirs);
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
    expect(end.next_event(IBV_EVENT_PORT_ACTIVE), "PORT_ACTIVE");
    expect(end.port_is_active(), "an active port");
    Address theirs;
    expect(read(sockets[0], &theirs, sizeof theirs) == sizeof theirs, "the peer's address");
    side.make_qp(16);
    side.connect(theirs);
    const Address own = end.address();
    char ready = 0;
    expect(write(sockets[0], &own, sizeof own) == sizeof own && read(sockets[0], &ready, 1) == 1,
           "a peer that is ready");
    std::thread killer([peer] {
      std::this_thread::sleep_for(300ms);
      kill(peer, SIGKILL);
    });
    uint64_t written = 0;
    const ibv_wc_status status = end.stream(theirs, 20s, written);
    killer.join();
    waitpid(peer, nullptr, 0);
    close(sockets[0]);
    std::printf("%lu writes, then: %s\n", written, ibv_wc_status_str(status));
    expect(written != 0 && status == IBV_WC_RETRY_EXC_ERR, "the stream's error");
    expect(end.next_event(IBV_EVENT_PORT_ERR), "PORT_ERR");
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
