// SPDX-License-Identifier: BSD-3-Clause
// Two ends of several RC QPs: SENDs, some before their receive is posted, WRITEs and READs, in on-demand
// memory of which the program takes pages away. When all is complete, each end prints "complete PID" and
// waits for the end of standard input. conservation_test.py then compares what each QP has counted.
//   conversation [--rounds N] CONFIG_A CONFIG_B   two processes
//   conversation [--rounds N] CONFIG              two devices of one process
// A capture of the first device is the file 0.pcapng next to its CONFIG, and 1.pcapng of the second.
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "captured_frames.hpp"
#include "tests/hang_limit.hpp"
#include "tests/interop/e2e/peer.hpp"

namespace {

using faultline::e2e::Address;
using faultline::e2e::CapturedFrames;
using faultline::e2e::Exchange;
using faultline::e2e::fail;
using faultline::e2e::Side;
using Clock = std::chrono::steady_clock;

constexpr size_t kQps = 4;
constexpr uint32_t kSendBytes = 6000;
constexpr uint32_t kWriteBytes = 20'000;
constexpr uint32_t kReadBytes = 10'000;
constexpr uint32_t kSlotBytes = 32 * 1024;
/// 10.24 ms (IBA table 45). While an end without receives does not run, the peer's requests come again that
/// often. With 0.01 ms they fill the capture's queue.
constexpr uint8_t kRnrTimer = 20;
constexpr uint32_t kAreas = 4;  ///< of a QP: source, sink of receives, sink of READs, target of the peer

class End {
 public:
  /// `config` empty: the process is configured already.
  End(const char* name, const std::string& config, int device, int socket, const std::string& capture)
      : side_(name, config, device), exchange_(socket), name_(name), captured_(capture) {
    const size_t bytes = size_t{kQps} * kAreas * kSlotBytes;
    memory_ = static_cast<uint8_t*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mr_ = ibv_reg_mr(
        side_.pd, memory_, bytes,
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);
    if (memory_ == MAP_FAILED || mr_ == nullptr) fail(name, "registration");
    faultline::e2e::wait_for_link(side_, name);
    for (ibv_qp*& qp : qps_) {
      side_.make_qp(16);
      qp = side_.qp;
    }
    for (size_t i = 0; i < kQps; ++i)
      exchange_.send(
          Address{qps_[i]->qp_num, mr_->rkey, reinterpret_cast<uint64_t>(area(i, 3)), side_.gid, false});
    for (size_t i = 0; i < kQps; ++i) {
      if (!exchange_.receive(peers_[i])) fail(name, "no address of the peer");
      side_.qp = qps_[i];
      side_.connect(peers_[i], faultline::e2e::kPatientTimeout, kRnrTimer);
    }
    meet();
  }

  void run(uint32_t rounds) {
    for (uint32_t round = 0; round < rounds; ++round) {
      const bool late = round % 8 == 5;  // the peer's SENDs find no receive
      const uint64_t refused = late ? side_.counter("transport.rnr_naks_sent") : 0;
      if (!late) post_receives();
      for (size_t i = 0; i < kQps; ++i) post_sends(i);
      if (late) {
        await_that([&] { return side_.counter("transport.rnr_naks_sent") > refused; }, "no RNR NAK");
        post_receives();
      }
      awaited_ += kQps * 4;
      await_that([&] { return completed_ >= awaited_; }, "completions are missing");
      meet();
      if (captured_.is_open()) await_capture();
      // The pages of half the areas are gone, so the next round faults at both ends.
      if (round % 3 == 1)
        for (size_t i = round % 2; i < kQps; i += 2) madvise(area(i, 0), kAreas * kSlotBytes, MADV_DONTNEED);
    }
    std::printf("complete %d\n", getpid());
    std::fflush(stdout);
  }

 private:
  [[nodiscard]] uint8_t* area(size_t qp, uint32_t number) const {
    return memory_ + (qp * kAreas + number) * kSlotBytes;
  }

  void post_receives() {
    for (size_t i = 0; i < kQps; ++i) {
      ibv_sge piece{reinterpret_cast<uint64_t>(area(i, 1)), kSlotBytes, mr_->lkey};
      ibv_recv_wr request{.wr_id = i, .next = nullptr, .sg_list = &piece, .num_sge = 1};
      ibv_recv_wr* bad = nullptr;
      if (ibv_post_recv(qps_[i], &request, &bad) != 0) fail(name_, "ibv_post_recv");
    }
  }

  void post_sends(size_t i) {
    const auto post = [&](ibv_wr_opcode opcode, uint32_t local, uint32_t bytes) {
      ibv_sge piece{reinterpret_cast<uint64_t>(area(i, local)), bytes, mr_->lkey};
      ibv_send_wr request{};
      request.wr_id = i;
      request.sg_list = &piece;
      request.num_sge = 1;
      request.opcode = opcode;
      request.send_flags = IBV_SEND_SIGNALED;
      request.wr.rdma = {peers_[i].va, peers_[i].rkey};
      ibv_send_wr* bad = nullptr;
      if (ibv_post_send(qps_[i], &request, &bad) != 0) fail(name_, "ibv_post_send");
    };
    post(IBV_WR_SEND, 0, kSendBytes);
    post(IBV_WR_RDMA_WRITE, 0, kWriteBytes);
    post(IBV_WR_RDMA_READ, 2, kReadBytes);
  }

  void poll() {
    std::array<ibv_wc, 16> completions;
    const int count = ibv_poll_cq(side_.cq, completions.size(), completions.data());
    for (int i = 0; i < count; ++i)
      if (completions[static_cast<size_t>(i)].status != IBV_WC_SUCCESS)
        fail(name_, ibv_wc_status_str(completions[static_cast<size_t>(i)].status));
    completed_ += static_cast<uint64_t>(count);
  }

  template <typename Condition>
  void await_that(Condition condition, const char* what) {
    const auto limit = Clock::now() + faultline::test::hang_limit();
    while (!condition()) {
      poll();
      if (Clock::now() > limit) fail(name_, what);
    }
  }

  /// Lets the writer of the capture catch up. Its queue has room for the packets of several rounds.
  void await_capture() {
    const uint64_t packets = side_.counter("transport.tx_packets") + side_.counter("transport.rx_packets") +
                             side_.counter("port.chaos_lost");
    await_that(
        [&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          if (side_.counter("port.capture_missed") != 0) fail(name_, "the capture lacks frames");
          return captured_.count() >= packets;
        },
        "the capture does not get the frames");
  }

  /// Both ends have come here. Polls meanwhile, since the peer may need acknowledgements.
  void meet() {
    exchange_.send('x');
    const auto limit = Clock::now() + faultline::test::hang_limit();
    for (char byte = 0;;) {
      const Exchange::Arrival arrival = exchange_.try_receive(byte);
      if (arrival == Exchange::Arrival::byte) return;
      if (arrival == Exchange::Arrival::end || Clock::now() > limit) fail(name_, "the peer is gone");
      poll();
    }
  }

  Side side_;
  const Exchange exchange_;
  const char* const name_;
  CapturedFrames captured_;
  uint8_t* memory_ = nullptr;
  ibv_mr* mr_ = nullptr;
  std::array<ibv_qp*, kQps> qps_{};
  std::array<Address, kQps> peers_{};
  uint64_t completed_ = 0;
  uint64_t awaited_ = 0;
};

/// The capture is complete once the device is closed, at the process's end.
void await_end_of_input() {
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

std::string capture_of(const std::string& config, int device) {
  return std::filesystem::path(config).replace_filename(std::to_string(device) + ".pcapng").string();
}

void in_one_process(const std::string& config, uint32_t rounds) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) fail("main", "socketpair");
  if (faultline_configure(config.c_str()) != 0) fail("main", faultline_last_error());
  std::thread other([&] { End("b", "", 1, sockets[1], capture_of(config, 1)).run(rounds); });
  End("a", "", 0, sockets[0], capture_of(config, 0)).run(rounds);
  other.join();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  std::string rounds = "150";
  if (words.size() > 2 && words[0] == "--rounds") {
    rounds = words[1];
    words.erase(words.begin(), words.begin() + 2);
  }
  const auto count = static_cast<uint32_t>(std::stoul(rounds));
  if (words.size() == 1) {
    in_one_process(words[0], count);
  } else if (words.size() == 2) {
    faultline::e2e::Peer peer({"--rounds", rounds, "end", words[1]}, [] {});
    const int socket = peer.socket();
    End("a", words[0], 0, socket, capture_of(words[0], 0)).run(count);
    await_end_of_input();
    peer.exchange().send('e');
    peer.finish();
    return 0;
  } else if (words.size() == 3 && words[0] == "end") {
    const int socket = std::stoi(words[2]);
    End("b", words[1], 0, socket, capture_of(words[1], 1)).run(count);
    char byte = 0;
    static_cast<void>(Exchange(socket).receive(byte));
    return 0;
  } else {
    std::fprintf(stderr, "conversation: usage: conversation [--rounds N] CONFIG [CONFIG]\n");
    return 2;
  }
  await_end_of_input();
  return 0;
}
