// SPDX-License-Identifier: BSD-3-Clause
// The pitfalls of on-demand paging that were published of hardware (ISPASS 2021), over a port: two requests
// close together that both fault while packets are lost, and 128 QPs that fault on the same pages at once.
// Neither may see a time-out, nor more than one retransmission of any packet per fault beside what was lost.
//   odp_pitfalls
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "tests/interop/e2e/side.hpp"

namespace {

using faultline::e2e::Address;
using faultline::e2e::fail;
using faultline::e2e::kPatientTimeout;
using faultline::e2e::Side;
using Clock = std::chrono::steady_clock;

constexpr int kRights =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND;
constexpr size_t kBytes = 1 << 20;
constexpr unsigned kCrowd = 128;

struct Memory {
  explicit Memory(const Side& side) {
    void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("memory", "mmap");
    madvise(memory, kBytes, MADV_NOHUGEPAGE);
    bytes = static_cast<uint8_t*>(memory);
    mr = ibv_reg_mr(side.pd, bytes, kBytes, kRights);
    if (mr == nullptr) fail("memory", "ibv_reg_mr");
  }
  void make_cold() const { madvise(bytes, kBytes, MADV_DONTNEED); }
  uint8_t* bytes = nullptr;
  ibv_mr* mr = nullptr;
};

void post(ibv_qp* qp, ibv_wr_opcode opcode, const Memory& local, const Memory& remote, size_t offset,
          uint32_t length) {
  ibv_sge piece{reinterpret_cast<uint64_t>(local.bytes + offset), length, local.mr->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(remote.bytes + offset);
  request.wr.rdma.rkey = remote.mr->rkey;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(qp, &request, &bad) != 0) fail("post", "ibv_post_send");
}

/// Both ends are driven; every completion must be a success.
void await(const Side& from, const Side& to, unsigned completions) {
  faultline::e2e::await_true("await", "not all were completed", [&] {
    ibv_wc completion{};
    if (ibv_poll_cq(from.cq, 1, &completion) == 1) {
      if (completion.status != IBV_WC_SUCCESS) fail("await", ibv_wc_status_str(completion.status));
      --completions;
    }
    faultline_progress(to.context);
    return completions == 0;
  });
}

std::vector<ibv_qp*> connect_crowd(Side& a, Side& b, unsigned count) {
  std::vector<ibv_qp*> qps;
  for (unsigned i = 0; i < count; ++i) {
    a.make_qp(16);
    b.make_qp(16);
    const Address of_a{.qpn = a.qp->qp_num, .gid = a.gid};
    const Address of_b{.qpn = b.qp->qp_num, .gid = b.gid};
    a.connect(of_b, kPatientTimeout);
    b.connect(of_a, kPatientTimeout);
    qps.push_back(a.qp);
  }
  return qps;
}

/// 128 QPs, one cold page: its service makes all of them go on.
void flood(const Side& a, const Side& b, const std::vector<ibv_qp*>& crowd, const Memory& local,
           const Memory& remote) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    const uint64_t repeated = a.counter("transport.retransmitted_packets");
    const uint64_t served = b.counter("odp.num_page_faults");
    remote.make_cold();
    std::memset(local.bytes, 0x5a, kBytes);
    const auto start = Clock::now();
    for (ibv_qp* const qp : crowd) post(qp, opcode, local, remote, 0, 512);
    await(a, b, kCrowd);
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    const uint64_t again = a.counter("transport.retransmitted_packets") - repeated;
    std::printf("%s: %u QPs on one cold page: %.0f us, %lu services, %lu packets repeated\n",
                opcode == IBV_WR_RDMA_WRITE ? "WRITE" : "READ", kCrowd, took.count(),
                b.counter("odp.num_page_faults") - served, again);
    if (again > kCrowd) fail("flood", "packets were repeated more than once a fault");
    if (b.counter("odp.num_page_faults") == served) fail("flood", "nothing faulted");
    const uint8_t expected = opcode == IBV_WR_RDMA_WRITE ? 0x5a : 0;
    for (size_t i = 0; i < 512; ++i)
      if ((opcode == IBV_WR_RDMA_WRITE ? remote : local).bytes[i] != expected) fail("flood", "a wrong byte");
  }
}

/// Two requests close together, both on cold pages, on a wire that loses a packet in thirty.
void dam(const Side& a, const Side& b, ibv_qp* qp, const Memory& local, const Memory& remote) {
  constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
  for (int round = 0; round < 200; ++round) {
    remote.make_cold();
    local.make_cold();
    post(qp, kOpcodes[round % 2], local, remote, 0, 3000);
    post(qp, kOpcodes[round / 2 % 2], local, remote, kBytes / 2, 3000);
    await(a, b, 2);
  }
  const uint64_t lost = a.counter("port.chaos_lost") + b.counter("port.chaos_lost");
  const uint64_t again = a.counter("transport.retransmitted_packets");
  std::printf("two at a time, 200 times: %lu packets lost, %lu repeated\n", lost, again);
  if (lost == 0) fail("dam", "nothing was lost");
}

}  // namespace

int main() {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("faultline-pitfalls-" + std::to_string(getpid()) + ".toml");
  {
    std::ofstream file(path);
    for (const char side : {'a', 'b', 'c', 'd'}) {
      const bool lossy = side >= 'c';
      file << "[[device]]\nname = \"" << side << "\"\nip = \"198.18.0." << side - 'a' + 1
           << "/24\"\n[device.port]\nkind = \"ring\"\nwire = \"" << (lossy ? "lossy" : "whole")
           << "\"\nside = \"" << (side == 'a' || side == 'c' ? 'a' : 'b') << "\"\n";
      if (lossy) file << "[device.chaos]\nseed = " << int{side} << "\nloss = 0.03\n";
    }
  }
  {
    Side a("a", path.string(), 0);
    Side b("b", "", 1);
    const std::vector<ibv_qp*> crowd = connect_crowd(a, b, kCrowd);
    const Memory local(a);
    const Memory remote(b);
    flood(a, b, crowd, local, remote);
    if (a.counter("transport.timeouts") + b.counter("transport.timeouts") != 0) fail("flood", "a time-out");
  }
  {
    Side a("c", "", 2);
    Side b("d", "", 3);
    const std::vector<ibv_qp*> pair = connect_crowd(a, b, 1);
    const Memory local(a);
    const Memory remote(b);
    dam(a, b, pair[0], local, remote);
    if (a.counter("transport.timeouts") + b.counter("transport.timeouts") != 0) fail("dam", "a time-out");
  }
  std::filesystem::remove(path);
  std::printf("ok\n");
  return 0;
}
