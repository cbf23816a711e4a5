// SPDX-License-Identifier: BSD-3-Clause
// A program takes the completion of what it received and ends in the next moment, by _exit as forked jobs do:
// its peer, who waits for the acknowledgement, hears of it. An RNIC would have sent that before the program
// could see the completion.
//   last_ack WIRE ROUNDS
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/interop/e2e/peer.hpp"

namespace {

using faultline::e2e::Address;
using faultline::e2e::Exchange;
using faultline::e2e::fail;
using faultline::e2e::Side;

// A program that comes back at once for so many completions is left to send before it acknowledges
// (caller_tracker.hpp).
constexpr uint32_t kMessages = 400;
constexpr uint32_t kBytes = 64;

enum class Ending { _exit, _Exit, quick_exit };

struct Buffer {
  explicit Buffer(const Side& side)
      : mr(ibv_reg_mr(side.pd, bytes.data(), bytes.size(), IBV_ACCESS_LOCAL_WRITE)) {
    if (mr == nullptr) fail("buffer", "ibv_reg_mr");
  }
  [[nodiscard]] ibv_sge piece() const { return {reinterpret_cast<uint64_t>(bytes.data()), kBytes, mr->lkey}; }
  std::vector<uint8_t> bytes = std::vector<uint8_t>(kBytes);
  ibv_mr* mr;
};

void post_receive(const Side& side, const Buffer& buffer) {
  ibv_sge piece = buffer.piece();
  ibv_recv_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (ibv_post_recv(side.qp, &request, &bad) != 0) fail("receiver", "ibv_post_recv");
}

void join(Side& side, const Exchange& exchange) {
  Address to;
  exchange.send(Address{.qpn = side.qp->qp_num, .gid = side.gid});
  if (!exchange.receive(to)) fail("join", "nobody is there");
  side.connect(to, faultline::e2e::kPatientTimeout);
}

[[noreturn]] void receive_and_leave(const Exchange& exchange, Ending how) {
  Side side("receiver", "");
  side.make_qp(16);
  const Buffer buffer(side);
  join(side, exchange);
  for (int i = 0; i < 8; ++i) post_receive(side, buffer);
  exchange.send('r');
  for (uint32_t left = kMessages; left != 0;) {
    ibv_wc completion;
    if (ibv_poll_cq(side.cq, 1, &completion) == 0) continue;
    if (completion.status != IBV_WC_SUCCESS) fail("receiver", "completion");
    if (--left >= 8) post_receive(side, buffer);
  }
  if (how == Ending::_exit) _exit(0);
  if (how == Ending::_Exit) std::_Exit(0);
  std::quick_exit(0);
}

/// One at a time: false where the last one fails.
bool send_all(Side& side, const Buffer& buffer) {
  for (uint32_t i = 0; i < kMessages; ++i) {
    ibv_sge piece = buffer.piece();
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(side.qp, &request, &bad) != 0) fail("sender", "ibv_post_send");
    ibv_wc completion;
    while (ibv_poll_cq(side.cq, 1, &completion) == 0) continue;
    if (completion.status == IBV_WC_SUCCESS) continue;
    std::fprintf(stderr, "message %u of %u: %s\n", i + 1, kMessages, ibv_wc_status_str(completion.status));
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  setenv("FAULTLINE_WIRE", argv[1], 1);
  const long rounds = std::atol(argv[2]);
  std::vector<Exchange> exchanges;
  std::vector<pid_t> receivers;
  // Before this process has a device: each of them opens its own.
  for (long round = 0; round < rounds; ++round) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) fail("main", "socketpair");
    const pid_t receiver = fork();
    if (receiver == 0) {
      close(sockets[0]);
      const Exchange exchange(sockets[1]);
      char turn = 0;
      if (!exchange.receive(turn)) _exit(0);
      receive_and_leave(exchange, static_cast<Ending>(round % 3));
    }
    close(sockets[1]);
    exchanges.emplace_back(sockets[0]);
    receivers.push_back(receiver);
  }
  Side side("sender", "");
  const Buffer buffer(side);
  long lost = 0;
  for (size_t round = 0; round < exchanges.size(); ++round) {
    const Exchange& exchange = exchanges[round];
    exchange.send('g');
    side.make_qp(16);
    join(side, exchange);
    char ready = 0;
    if (!exchange.receive(ready)) fail("sender", "nobody is there");
    if (!send_all(side, buffer)) {
      constexpr std::array kEndings{"_exit", "_Exit", "quick_exit"};
      std::fprintf(stderr, "round %zu: the receiver ended by %s\n", round, kEndings[round % kEndings.size()]);
      ++lost;
    }
    side.destroy_qp();
    int status = 0;
    if (waitpid(receivers[round], &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
      fail("main", "a receiver failed");
  }
  std::printf("%ld of %ld last acknowledgements lost\n", lost, rounds);
  return lost == 0 ? 0 : 1;
}
