// SPDX-License-Identifier: BSD-3-Clause
// What a process has sent reaches its peer, though it ends in the next moment and the wire's switch has not
// looked yet: that is stopped (SIGSTOP) while the process sends and ends.
//   program_end WIRE
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hang_limit.hpp"
#include "tests/interop/e2e/peer.hpp"

namespace {

using faultline::e2e::Address;
using faultline::e2e::Exchange;
using faultline::e2e::fail;
using faultline::e2e::Side;

constexpr size_t kPieceBytes = 512;
constexpr uint32_t kPieces = 200;  ///< no more than are sent without an answer
constexpr size_t kBytes = kPieceBytes * kPieces;
constexpr uint8_t kWord = 0x5a;
constexpr int kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

enum class Ending { exit, _exit, kill };

/// How many bytes have the word. Each byte is read once: memcmp() reads those that differ again, to compare
/// them, and finds no difference in what has arrived in between, though later bytes are missing still.
size_t count_words(const std::vector<uint8_t>& heard) {
  return static_cast<size_t>(std::count(heard.begin(), heard.end(), kWord));
}

[[noreturn]] void speak(const Exchange& exchange, Ending how) {
  Side side("sender", "");
  side.make_qp(kPieces);
  Address to;
  exchange.send(Address{.qpn = side.qp->qp_num, .gid = side.gid});
  if (!exchange.receive(to)) fail("sender", "nobody is there");
  side.connect(to);
  std::vector<uint8_t> words(kBytes, kWord);
  const ibv_mr* const mr = ibv_reg_mr(side.pd, words.data(), kBytes, kRights);
  if (mr == nullptr) fail("sender", "ibv_reg_mr");
  exchange.send('r');
  char stopped = 0;
  if (!exchange.receive(stopped)) fail("sender", "nobody is there");
  // Of frames that the port has taken: packets are counted when they are built, and SIGKILL may come in
  // between. The switch is stopped, so that no other frame is asked of this port.
  const uint64_t before = side.counter("port.tx_frames");
  for (uint32_t i = 0; i < kPieces; ++i) {
    ibv_sge piece{reinterpret_cast<uint64_t>(words.data()) + i * kPieceBytes, kPieceBytes, mr->lkey};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma.remote_addr = to.va + i * kPieceBytes;
    request.wr.rdma.rkey = to.rkey;
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(side.qp, &request, &bad) != 0) fail("sender", "ibv_post_send");
  }
  ibv_wc completion;
  while (side.counter("port.tx_frames") < before + kPieces) ibv_poll_cq(side.cq, 1, &completion);
  if (how == Ending::exit) std::exit(0);
  if (how == Ending::_exit) _exit(0);
  raise(SIGKILL);
  std::abort();
}

pid_t switch_of(const char* wire) {
  const std::string command = std::string("pgrep -u $(id -u) -f -- 'faultline-switch --wire ") + wire + " '";
  FILE* const found = popen(command.c_str(), "r");
  int pid = 0;
  if (found == nullptr || fscanf(found, "%d", &pid) != 1) pid = 0;
  if (found != nullptr) pclose(found);
  return pid;
}

void listen_to(const Exchange& exchange, pid_t sender, const char* wire) {
  Side side("receiver", "");
  side.make_qp(16);
  Address to;
  if (!exchange.receive(to)) fail("receiver", "nobody is there");
  std::vector<uint8_t> heard(kBytes, 0);
  ibv_mr* const mr = ibv_reg_mr(side.pd, heard.data(), kBytes, kRights);
  if (mr == nullptr) fail("receiver", "ibv_reg_mr");
  side.connect(to);
  exchange.send(Address{.qpn = side.qp->qp_num,
                        .rkey = mr->rkey,
                        .va = reinterpret_cast<uint64_t>(heard.data()),
                        .gid = side.gid});
  char ready = 0;
  const pid_t wires_switch = switch_of(wire);
  if (!exchange.receive(ready) || wires_switch == 0) fail("receiver", "nobody is there");
  kill(wires_switch, SIGSTOP);
  exchange.send('s');
  waitpid(sender, nullptr, 0);
  kill(wires_switch, SIGCONT);
  const auto end = std::chrono::steady_clock::now() + faultline::test::hang_limit();
  size_t words = 0;
  while ((words = count_words(heard)) < kBytes && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (words < kBytes) {
    std::fprintf(stderr, "%zu of %u were heard\n", words / kPieceBytes, kPieces);
    fail("receiver", "last words are lost");
  }
  side.destroy_qp();
  ibv_dereg_mr(mr);
  ibv_destroy_cq(side.cq);
  ibv_dealloc_pd(side.pd);
  ibv_close_device(side.context);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  setenv("FAULTLINE_WIRE", argv[1], 1);
  for (const Ending how : {Ending::exit, Ending::_exit, Ending::kill})
    for (int round = 0; round < 3; ++round) {
      int sockets[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) fail("main", "socketpair");
      const pid_t sender = fork();
      if (sender == 0) {
        close(sockets[0]);
        speak(Exchange(sockets[1]), how);
      }
      close(sockets[1]);
      listen_to(Exchange(sockets[0]), sender, argv[1]);
      close(sockets[0]);
    }
  std::printf("ok: %u frames each time\n", kPieces);
  return 0;
}
