// SPDX-License-Identifier: BSD-3-Clause
// Datagrams whose work requests have completed reach their peer, though it takes none for a while (SIGSTOP)
// and the sender ends meanwhile. There are more than the ring between the two holds.
//   last_datagrams WIRE
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/interop/e2e/peer.hpp"

namespace {

using faultline::e2e::Address;
using faultline::e2e::await_true;
using faultline::e2e::Exchange;
using faultline::e2e::fail;
using faultline::e2e::Side;

constexpr uint32_t kQkey = 0x11223344;
constexpr uint32_t kMessageBytes = 4000;
constexpr uint32_t kHeaderBytes = 40;  ///< of the GRH before each message (ibv_post_recv(3))
/// The ring takes 21 of them at once: a few more wait in the core, many more are kept by the link.
constexpr std::array<uint32_t, 2> kCounts{25, 100};
constexpr uint32_t kMost = 100;
/// While the peer is stopped. The library gives it 2 s (DirectLink::kKeptNs).
constexpr auto kStopped = std::chrono::milliseconds(200);

enum class Ending { close, exit, _exit };

/// A UD QP with a receive for each message, and the peer's address.
struct Speaker {
  Speaker(const char* name, const Exchange& exchange) : side(name, ""), memory(kMost * kReceiveBytes, 'x') {
    side.make_ud_qp(kMost, kQkey);
    mr = ibv_reg_mr(side.pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    if (mr == nullptr) fail(name, "ibv_reg_mr");
    for (uint32_t i = 0; i < kMost; ++i) receive(i);
    exchange.send(Address{.qpn = side.qp->qp_num, .gid = side.gid});
    if (!exchange.receive(to)) fail(name, "nobody is there");
    ah = side.make_ah(to.gid);
  }

  void receive(uint64_t place) {
    ibv_sge piece{reinterpret_cast<uint64_t>(memory.data()) + place * kReceiveBytes, kReceiveBytes, mr->lkey};
    ibv_recv_wr request{}, *bad = nullptr;
    request.wr_id = place;
    request.sg_list = &piece;
    request.num_sge = 1;
    if (ibv_post_recv(side.qp, &request, &bad) != 0) fail("speaker", "ibv_post_recv");
  }
  void send() {
    side.post_datagram({reinterpret_cast<uint64_t>(memory.data()), kMessageBytes, mr->lkey}, ah, to.qpn,
                       kQkey);
  }
  /// Counts a completion, if there is one. A received message's buffer is posted again.
  void poll() {
    ibv_wc done{};
    if (ibv_poll_cq(side.cq, 1, &done) != 1) return;
    if (done.status != IBV_WC_SUCCESS) fail("speaker", ibv_wc_status_str(done.status));
    if ((done.opcode & IBV_WC_RECV) == 0) {
      ++sent;
    } else {
      ++received;
      receive(done.wr_id);
    }
  }
  /// Waits until as many have been sent and received in all.
  void await(uint32_t sends, uint32_t receives) {
    await_true("speaker", "completions", [&] {
      poll();
      return sent >= sends && received >= receives;
    });
  }

  static constexpr uint32_t kReceiveBytes = kHeaderBytes + kMessageBytes;
  Side side;
  std::vector<char> memory;
  ibv_mr* mr = nullptr;
  ibv_ah* ah = nullptr;
  Address to;
  uint32_t sent = 0;
  uint32_t received = 0;
};

/// The memory of the link is mapped: further messages take it, and none the ring to the switch.
bool has_link() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("/memfd:faultline-link ") != line.npos) return true;
  return false;
}

bool is_stopped(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.find("State:\tT") == 0) return true;
  return false;
}

[[noreturn]] void speak(const Exchange& exchange, pid_t listener, uint32_t messages, Ending how) {
  Speaker speaker("sender", exchange);
  // Turns with a peer that answers, until a message has taken the link.
  uint32_t turns = 0;
  for (bool had_link = false; !had_link; ++turns) {
    had_link = has_link();
    speaker.send();
    speaker.await(turns + 1, turns + 1);
  }
  exchange.send('l');
  char ready = 0;
  if (!exchange.receive(ready)) fail("sender", "nobody is there");
  kill(listener, SIGSTOP);
  await_true("sender", "the peer stops", [&] { return is_stopped(listener); });
  for (uint32_t i = 0; i < messages; ++i) speaker.send();
  speaker.await(turns + messages, turns);
  std::thread later([listener] {
    std::this_thread::sleep_for(kStopped);
    kill(listener, SIGCONT);
  });
  if (how == Ending::exit) std::exit(0);
  if (how == Ending::_exit) _exit(0);
  ibv_destroy_ah(speaker.ah);
  speaker.side.destroy_qp();
  ibv_dereg_mr(speaker.mr);
  ibv_destroy_cq(speaker.side.cq);
  ibv_dealloc_pd(speaker.side.pd);
  ibv_close_device(speaker.side.context);
  later.join();
  _exit(0);
}

[[noreturn]] void listen_to(const Exchange& exchange, uint32_t messages) {
  Speaker speaker("receiver", exchange);
  // Answers each turn, until the sender has had its last one.
  char last = 0;
  uint32_t turns = 0;
  await_true("receiver", "the last turn", [&] {
    speaker.poll();
    for (; turns < speaker.received; ++turns) speaker.send();
    return exchange.try_receive(last) != Exchange::Arrival::nothing;
  });
  exchange.send('r');
  speaker.await(turns, turns + messages);
  std::_Exit(0);
}

pid_t start(int socket, int other, const auto& role) {
  const pid_t child = fork();
  if (child < 0) fail("main", "fork");
  if (child == 0) {
    close(other);
    role(Exchange(socket));
  }
  return child;
}

void run(uint32_t messages, Ending how) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) fail("main", "socketpair");
  const pid_t listener =
      start(sockets[0], sockets[1], [&](const Exchange& exchange) { listen_to(exchange, messages); });
  const pid_t sender = start(sockets[1], sockets[0],
                             [&](const Exchange& exchange) { speak(exchange, listener, messages, how); });
  close(sockets[0]);
  close(sockets[1]);
  int status = 0;
  if (waitpid(sender, &status, 0) != sender || status != 0) {
    kill(listener, SIGKILL);
    fail("main", "the sender failed");
  }
  kill(listener, SIGCONT);
  if (waitpid(listener, &status, 0) != listener || status != 0) fail("main", "the last datagrams are lost");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  setenv("FAULTLINE_WIRE", argv[1], 1);
  for (const uint32_t messages : kCounts) {
    for (const Ending how : {Ending::close, Ending::exit, Ending::_exit}) run(messages, how);
    std::printf("ok: %u datagrams each time\n", messages);
    std::fflush(stdout);  // not by a child, too
  }
  return 0;
}
