// SPDX-License-Identifier: BSD-3-Clause
// [device.chaos] of a running device: every kind of damage on a net_ring wire, and yet every byte is right
// and every completion a success; what was done is counted. A page fault takes as long as it was told to, and
// one that is to fail ends in an access error.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <vector>

#include <sys/mman.h>

#include "tests/interop/e2e/side.hpp"

namespace {

using faultline::e2e::fail;
using faultline::e2e::Side;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kBytes = 64 * 1024;
constexpr uint32_t kRounds = 60;
// 67 ms. One thread drives both ends: none waits for the other while the machine does something else.
constexpr uint8_t kTimeout = 14;
constexpr int kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

void expect(bool truth, const char* what) {
  if (!truth) fail("expected", what);
}

struct Memory {
  Memory(const Side& side, int access) {
    bytes = static_cast<uint8_t*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mr = ibv_reg_mr(side.pd, bytes, kBytes, access);
    expect(bytes != MAP_FAILED && mr != nullptr, "registration");
  }
  [[nodiscard]] uint64_t va() const { return reinterpret_cast<uint64_t>(bytes); }
  uint8_t* bytes = nullptr;
  ibv_mr* mr = nullptr;
};

ibv_wc_status wait_for(const Side& from, const Side& to, uint64_t wr_id) {
  ibv_wc completion;
  faultline::e2e::await_true("wait", "no completion", [&] {
    faultline_progress(to.context);
    return ibv_poll_cq(from.cq, 1, &completion) == 1 && completion.wr_id == wr_id;
  });
  return completion.status;
}

ibv_wc_status post(const Side& from, const Side& to, ibv_wr_opcode opcode, const Memory& local,
                   const Memory& remote, uint32_t length) {
  static uint64_t next_id = 1;
  ibv_sge piece{local.va(), length, local.mr->lkey};
  ibv_send_wr request{};
  request.wr_id = ++next_id;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma = {remote.va(), remote.mr->rkey};
  ibv_send_wr* bad = nullptr;
  expect(ibv_post_send(from.qp, &request, &bad) == 0, "ibv_post_send");
  return wait_for(from, to, request.wr_id);
}

void connect_pair(Side& a, Side& b) {
  a.make_qp(16);
  b.make_qp(16);
  a.connect({b.qp->qp_num, 0, 0, b.gid, false}, kTimeout);
  b.connect({a.qp->qp_num, 0, 0, a.gid, false}, kTimeout);
}

void through_a_bad_link(Side& a, Side& b) {
  connect_pair(a, b);
  const Memory source(a, kRights);
  const Memory back(a, kRights);
  const Memory target(b, kRights);
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t i = 0; i < kBytes; ++i)
      source.bytes[i] = static_cast<uint8_t>(round * 17 + i * 31 + i / 251);
    const uint32_t length = kBytes - round * 997 % 5000;
    expect(post(a, b, IBV_WR_RDMA_WRITE, source, target, length) == IBV_WC_SUCCESS, "WRITE");
    expect(std::memcmp(source.bytes, target.bytes, length) == 0, "the bytes of the WRITE");
    std::memset(back.bytes, 0, length);
    expect(post(a, b, IBV_WR_RDMA_READ, back, target, length) == IBV_WC_SUCCESS, "READ");
    expect(std::memcmp(source.bytes, back.bytes, length) == 0, "the bytes of the READ");
    std::memset(target.bytes, 0, length);
    ibv_sge piece{target.va(), length, target.mr->lkey};
    ibv_recv_wr receive{.wr_id = 1, .next = nullptr, .sg_list = &piece, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    expect(ibv_post_recv(b.qp, &receive, &bad) == 0, "ibv_post_recv");
    expect(post(a, b, IBV_WR_SEND, source, target, length) == IBV_WC_SUCCESS, "SEND");
    expect(wait_for(b, a, 1) == IBV_WC_SUCCESS, "the receive");
    expect(std::memcmp(source.bytes, target.bytes, length) == 0, "the bytes of the SEND");
  }
  a.destroy_qp();
  b.destroy_qp();
  for (const char* name :
       {"port.chaos_lost", "port.chaos_duplicated", "port.chaos_corrupted", "port.chaos_delayed"}) {
    const uint64_t count = a.counter(name) + b.counter(name);
    std::printf("%s %lu\n", name, count);
    expect(count != 0, name);
  }
  expect(a.counter("transport.retransmitted_packets") != 0, "retransmissions");
}

/// Marks come, congestion is told to the sender, and the data is right.
void through_a_marking_link(Side& a, Side& b) {
  connect_pair(a, b);
  const Memory source(a, kRights);
  const Memory target(b, kRights);
  for (uint32_t round = 0; round < 4; ++round) {
    for (uint32_t i = 0; i < kBytes; ++i) source.bytes[i] = static_cast<uint8_t>(round + i * 31 + i / 251);
    expect(post(a, b, IBV_WR_RDMA_WRITE, source, target, kBytes) == IBV_WC_SUCCESS, "WRITE");
    expect(std::memcmp(source.bytes, target.bytes, kBytes) == 0, "the bytes of the WRITE");
  }
  const uint64_t marked = b.counter("port.chaos_marked") + a.counter("port.chaos_marked");
  std::printf("marked %lu, seen %lu, CNPs sent %lu, received %lu\n", marked,
              b.counter("transport.ecn_marked_received"), b.counter("transport.cnps_sent"),
              a.counter("transport.cnps_received"));
  expect(marked != 0 && b.counter("transport.ecn_marked_received") != 0, "marks");
  expect(b.counter("transport.cnps_sent") != 0 && a.counter("transport.cnps_received") != 0, "CNPs");
  a.destroy_qp();
  b.destroy_qp();
}

void on_a_slow_page(Side& a, Side& b, std::chrono::microseconds delay) {
  connect_pair(a, b);
  const Memory source(a, kRights);
  const Memory target(b, kRights | IBV_ACCESS_ON_DEMAND);
  const auto start = Clock::now();
  expect(post(a, b, IBV_WR_RDMA_WRITE, source, target, 4096) == IBV_WC_SUCCESS, "a WRITE to a cold page");
  expect(Clock::now() - start >= delay, "the fault's delay");
  expect(b.counter("transport.faults_responder") != 0, "a fault");
  a.destroy_qp();
  b.destroy_qp();
}

void on_a_page_that_cannot_be_had(Side& a, Side& b) {
  connect_pair(a, b);
  const Memory source(a, kRights);
  const Memory target(b, kRights | IBV_ACCESS_ON_DEMAND);
  expect(post(a, b, IBV_WR_RDMA_WRITE, source, target, 4096) == IBV_WC_REM_ACCESS_ERR,
         "an access error from a fault that fails");
  a.destroy_qp();
  b.destroy_qp();
}

}  // namespace

int main() {
  constexpr auto kFaultDelay = std::chrono::milliseconds(20);
  std::string folder = (std::filesystem::temp_directory_path() / "faultline-chaos-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) fail("main", "mkdtemp");
  const std::string config = folder + "/devices.toml";
  {
    // Four wires: a bad link, slow pages, pages that cannot be had, marks of congestion.
    const std::array<std::string, 4> chaos{
        "loss = 0.02\nduplicate = 0.02\ncorrupt = 0.02\nreorder = 0.02\ndelay_us = 10\ndelay_jitter_us = "
        "10\n",
        "fault_delay_us = " + std::to_string(std::chrono::microseconds(kFaultDelay).count()) + "\n",
        "fault_failure = 1.0\n", "ecn_mark = 0.2\n"};
    std::ofstream file(config);
    file << "[transport.congestion]\nalgorithm = \"dcqcn\"\n";
    for (size_t wire = 0; wire < chaos.size(); ++wire)
      for (const char side : {'a', 'b'})
        file << "[[device]]\nname = \"faultline" << wire << side << "\"\nip = \"198.18." << wire << '.'
             << (side == 'a' ? 1 : 2) << "/24\"\n[device.port]\nkind = \"ring\"\nwire = \"w" << wire
             << "\"\nside = \"" << side << "\"\n[device.chaos]\n"
             << chaos[wire] << "seed = " << wire + 1 << "\n";
  }
  {
    Side a("a", config, 0);
    Side b("b", "", 1);
    through_a_bad_link(a, b);
  }
  {
    Side a("a", "", 2);
    Side b("b", "", 3);
    on_a_slow_page(a, b, kFaultDelay);
  }
  {
    Side a("a", "", 4);
    Side b("b", "", 5);
    on_a_page_that_cannot_be_had(a, b);
  }
  {
    Side a("a", "", 6);
    Side b("b", "", 7);
    through_a_marking_link(a, b);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  std::printf("ok\n");
  return 0;
}
