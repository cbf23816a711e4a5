// SPDX-License-Identifier: BSD-3-Clause
// Two devices of one process on a net_ring wire, with several lcores each, or with more on one end, or looped
// back: QPs on every core of one end talk to QPs on every core of the other, all at once. Every byte is
// compared, every completion is there once and in order; QPs come and go under the others' traffic.
//   lcores CPUS_OF_A CPUS_OF_B [loopback]      such as  lcores 0,1 0,1
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include <sched.h>

#include "tests/interop/e2e/side.hpp"

namespace {

using faultline::e2e::fail;
using faultline::e2e::Side;

constexpr size_t kQps = 8;
constexpr uint32_t kDepth = 4;
constexpr uint32_t kMessageBytes = 9000;  // several packets at every path MTU
constexpr uint32_t kRounds = 60;
constexpr int kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

void expect(bool truth, const char* what) {
  if (!truth) fail("expected", what);
}

uint8_t byte_at(uint32_t round, size_t qp, size_t i) {
  return static_cast<uint8_t>(round * 7 + qp * 131 + i * 31 + i / 251);
}

/// One end: QPs, and for each of them a piece of memory to send from and one to be written to.
struct End {
  explicit End(Side& one) : side(one) {
    source.resize(kQps * kDepth * kMessageBytes);
    target.resize(source.size());
    source_mr = ibv_reg_mr(side.pd, source.data(), source.size(), kRights);
    target_mr = ibv_reg_mr(side.pd, target.data(), target.size(), kRights);
    expect(source_mr != nullptr && target_mr != nullptr, "registration");
  }
  void make_qps() {
    for (size_t i = 0; i < kQps; ++i) {
      side.make_qp(2 * kDepth);
      qps.push_back(side.qp);
    }
  }
  void connect(size_t i, uint32_t to_qpn, const ibv_gid& gid) {
    side.qp = qps[i];
    // A full ring between two cores drops frames.
    side.connect({to_qpn, 0, 0, gid, false}, faultline::e2e::kLossyTimeout);
  }
  void destroy(size_t i) { expect(ibv_destroy_qp(qps[i]) == 0, "ibv_destroy_qp"); }
  [[nodiscard]] static size_t at(size_t qp, uint32_t slot) { return (qp * kDepth + slot) * kMessageBytes; }

  Side& side;
  std::vector<ibv_qp*> qps;
  std::vector<uint8_t> source;
  std::vector<uint8_t> target;
  ibv_mr* source_mr = nullptr;
  ibv_mr* target_mr = nullptr;
};

// Half of the QPs talk to one on the core of the same number, half to one on another.
size_t partner(size_t i) {
  return i / 2 % 2 == 0 ? i : i ^ 1;
}

/// Posts kDepth messages on every QP of `from` and waits for their completions, which come in order.
void round_of(End& from, End& to, ibv_wr_opcode opcode, uint32_t round) {
  const bool sends = opcode == IBV_WR_SEND;
  if (opcode != IBV_WR_RDMA_READ)
    for (size_t qp = 0; qp < kQps; ++qp)
      for (size_t i = 0; i < kDepth * kMessageBytes; ++i)
        from.source[End::at(qp, 0) + i] = byte_at(round, qp, i);
  for (size_t qp = 0; qp < kQps; ++qp)
    for (uint32_t slot = 0; slot < kDepth; ++slot) {
      const size_t far = partner(qp);
      if (sends) {
        ibv_sge into{reinterpret_cast<uint64_t>(to.target.data()) + End::at(far, slot), kMessageBytes,
                     to.target_mr->lkey};
        ibv_recv_wr receive{.wr_id = slot, .next = nullptr, .sg_list = &into, .num_sge = 1};
        ibv_recv_wr* bad = nullptr;
        expect(ibv_post_recv(to.qps[far], &receive, &bad) == 0, "ibv_post_recv");
      }
    }
  for (uint32_t slot = 0; slot < kDepth; ++slot)
    for (size_t qp = 0; qp < kQps; ++qp) {
      ibv_sge piece{reinterpret_cast<uint64_t>(from.source.data()) + End::at(qp, slot), kMessageBytes,
                    from.source_mr->lkey};
      ibv_send_wr request{};
      request.wr_id = qp << 32 | slot;
      request.sg_list = &piece;
      request.num_sge = 1;
      request.opcode = opcode;
      request.send_flags = IBV_SEND_SIGNALED;
      request.wr.rdma = {reinterpret_cast<uint64_t>(to.target.data()) + End::at(partner(qp), slot),
                         to.target_mr->rkey};
      ibv_send_wr* bad = nullptr;
      expect(ibv_post_send(from.qps[qp], &request, &bad) == 0, "ibv_post_send");
    }

  std::array<uint32_t, kQps> done{};
  std::array<uint32_t, kQps> received{};
  uint32_t left = kQps * kDepth * (sends ? 2 : 1);
  faultline::e2e::await_true("main", "not all are completed", [&] {
    for (End* one : {&from, &to}) {
      std::array<ibv_wc, 32> completions;
      const int count = ibv_poll_cq(one->side.cq, completions.size(), completions.data());
      for (int i = 0; i < count; ++i) {
        const ibv_wc& wc = completions[static_cast<size_t>(i)];
        expect(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
        --left;
        if ((wc.opcode & IBV_WC_RECV) != 0) {
          size_t qp = 0;
          while (to.qps[qp]->qp_num != wc.qp_num) ++qp;
          expect(wc.wr_id == received[qp]++, "receives in order");
        } else {
          const size_t qp = wc.wr_id >> 32;
          expect((wc.wr_id & 0xffffffff) == done[qp]++, "sends in order");
        }
      }
      faultline_progress(one->side.context);
    }
    return left == 0;
  });
  for (size_t qp = 0; qp < kQps; ++qp)
    expect(std::memcmp(&from.source[End::at(qp, 0)], &to.target[End::at(partner(qp), 0)],
                       kDepth * kMessageBytes) == 0,
           "every byte");
  if (opcode == IBV_WR_RDMA_READ) std::fill(to.target.begin(), to.target.end(), uint8_t{0});
}

void connect_all(End& a, End& b) {
  for (size_t i = 0; i < kQps; ++i) {
    a.connect(i, b.qps[partner(i)]->qp_num, b.side.gid);
    b.connect(partner(i), a.qps[i]->qp_num, a.side.gid);
  }
}

void talk(End& a, End& b) {
  a.make_qps();
  b.make_qps();
  connect_all(a, b);
  for (uint32_t round = 0; round < kRounds; ++round) {
    round_of(a, b, IBV_WR_RDMA_WRITE, round);
    round_of(a, b, IBV_WR_SEND, round + 1);
    round_of(a, b, IBV_WR_RDMA_READ, round);
    round_of(b, a, IBV_WR_RDMA_WRITE, round + 2);
    // The last pair goes and comes again each time, on whichever core its turn is.
    a.destroy(kQps - 1);
    b.destroy(partner(kQps - 1));
    a.side.make_qp(2 * kDepth);
    a.qps[kQps - 1] = a.side.qp;
    b.side.make_qp(2 * kDepth);
    b.qps[partner(kQps - 1)] = b.side.qp;
    a.connect(kQps - 1, b.qps[partner(kQps - 1)]->qp_num, b.side.gid);
    b.connect(partner(kQps - 1), a.qps[kQps - 1]->qp_num, a.side.gid);
  }
}

bool may_run_on(const std::string& cpus) {
  cpu_set_t affinity;
  CPU_ZERO(&affinity);
  sched_getaffinity(0, sizeof affinity, &affinity);
  for (size_t at = 0; at < cpus.size();
       at = cpus.find(',', at) == std::string::npos ? cpus.size() : cpus.find(',', at) + 1)
    if (!CPU_ISSET(std::stoul(cpus.substr(at)), &affinity)) return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) fail("main", "CPUS_OF_A CPUS_OF_B");
  const std::array<std::string, 2> cpus{argv[1], argv[2]};
  const bool loopback = argc > 3;
  if (!may_run_on(cpus[0]) || !may_run_on(cpus[1])) {
    std::printf("SKIPPED: this process may not run on CPUs %s and %s\n", argv[1], argv[2]);
    return 77;
  }
  std::string folder = (std::filesystem::temp_directory_path() / "faultline-lcores-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) fail("main", "mkdtemp");
  const std::string config = folder + "/devices.toml";
  {
    std::ofstream file(config);
    for (const size_t side : {0, 1})
      file << "[[device]]\nname = \"faultline" << side << "\"\nip = \"198.18.0." << side + 1
           << "/24\"\nprogress = \"dedicated\"\nlcores = [" << cpus[side]
           << "]\n[device.port]\nkind = \"ring\"\nwire = \"w0\"\nside = \"" << (side == 0 ? 'a' : 'b')
           << "\"\n";
  }
  {
    Side one("a", config, 0);
    Side other("b", "", loopback ? 0 : 1);
    End a(one);
    End b(other);
    talk(a, b);
    const uint64_t handed = one.counter("port.handed_over") + other.counter("port.handed_over");
    const uint64_t dropped = one.counter("port.hand_over_dropped") + other.counter("port.hand_over_dropped");
    std::printf("handed over %lu, dropped %lu, received %lu, looped back %lu, timeouts %lu\n", handed,
                dropped, other.counter("port.rx_frames"), one.counter("port.loopback_frames"),
                one.counter("transport.timeouts"));
    if (handed == 0) fail("main", "no frame was handed from core to core");
    if (loopback == (one.counter("port.loopback_frames") == 0)) fail("main", "the packets went another way");
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  std::printf("ok\n");
  return 0;
}
