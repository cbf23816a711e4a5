// SPDX-License-Identifier: BSD-3-Clause
// Two QPs of one process: on one device, whose packets to its own address turn round inside it, and on two
// devices joined by net_ring. WRITE, READ and SEND with every byte compared; then the memory that goes away:
// munmap under a live region is an access error on that QP alone, on on-demand and on classic regions, and
// what DONTNEED dropped reads as zeros.
//   one_process loopback|ring
#include <filesystem>
#include <fstream>
#include <vector>

#include <sys/mman.h>

#include "tests/interop/e2e/side.hpp"

namespace {

using faultline::e2e::Address;
using faultline::e2e::fail;
using faultline::e2e::Side;

constexpr size_t kBytes = 256 * 1024;
constexpr int kAllRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

uint8_t byte_at(size_t i) {
  return static_cast<uint8_t>(i * 31 + i / 251);
}

struct Memory {
  Memory(const Side& side, int access) {
    bytes = static_cast<uint8_t*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mr = ibv_reg_mr(side.pd, bytes, kBytes, access);
    if (bytes == MAP_FAILED || mr == nullptr) fail("memory", "registration");
  }
  [[nodiscard]] uint64_t va(size_t offset = 0) const { return reinterpret_cast<uint64_t>(bytes) + offset; }
  uint8_t* bytes = nullptr;
  ibv_mr* mr = nullptr;
};

/// The status that a completion of `from` brings, `to` being driven meanwhile.
ibv_wc_status wait_for(const Side& from, const Side& to, uint64_t wr_id) {
  ibv_wc completion;
  faultline::e2e::await_true("wait", "no completion", [&] {
    faultline_progress(to.context);
    return ibv_poll_cq(from.cq, 1, &completion) == 1 && completion.wr_id == wr_id;
  });
  return completion.status;
}

ibv_wc_status post(const Side& from, const Side& to, ibv_wr_opcode opcode, const Memory& local,
                   uint64_t remote_va, uint32_t rkey, uint32_t length, size_t offset = 0) {
  static uint64_t next_id = 1;
  ibv_sge piece{local.va(offset), length, local.mr->lkey};
  ibv_send_wr request{};
  request.wr_id = ++next_id;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma = {remote_va, rkey};
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(from.qp, &request, &bad) != 0) fail("post", "ibv_post_send");
  return wait_for(from, to, request.wr_id);
}

void expect(bool truth, const char* what) {
  if (!truth) fail("expected", what);
}

void connect_pair(Side& a, Side& b) {
  a.make_qp(16);
  b.make_qp(16);
  a.connect({b.qp->qp_num, 0, 0, b.gid, false});
  b.connect({a.qp->qp_num, 0, 0, a.gid, false});
}

void move_data(Side& a, Side& b, int access) {
  connect_pair(a, b);
  const Memory source(a, access);
  const Memory back(a, access);
  const Memory target(b, access);
  for (size_t i = 0; i < kBytes; ++i) source.bytes[i] = byte_at(i);
  expect(post(a, b, IBV_WR_RDMA_WRITE, source, target.va(), target.mr->rkey, kBytes) == IBV_WC_SUCCESS,
         "WRITE");
  expect(std::memcmp(source.bytes, target.bytes, kBytes) == 0, "the bytes of the WRITE");
  expect(post(a, b, IBV_WR_RDMA_READ, back, target.va(), target.mr->rkey, kBytes) == IBV_WC_SUCCESS, "READ");
  expect(std::memcmp(source.bytes, back.bytes, kBytes) == 0, "the bytes of the READ");

  std::memset(target.bytes, 0, kBytes);
  ibv_sge piece{target.va(), 5000, target.mr->lkey};
  ibv_recv_wr receive{.wr_id = 7, .next = nullptr, .sg_list = &piece, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  expect(ibv_post_recv(b.qp, &receive, &bad) == 0, "ibv_post_recv");
  expect(post(a, b, IBV_WR_SEND, source, 0, 0, 5000) == IBV_WC_SUCCESS, "SEND");
  expect(wait_for(b, a, 7) == IBV_WC_SUCCESS, "the receive");
  expect(std::memcmp(source.bytes, target.bytes, 5000) == 0, "the bytes of the SEND");
  a.destroy_qp();
  b.destroy_qp();
  for (const Memory* memory : {&source, &back, &target})
    expect(ibv_dereg_mr(memory->mr) == 0, "ibv_dereg_mr");
}

void lose_memory(Side& a, Side& b, int access) {
  const Memory local(a, access);
  const Memory target(b, access);
  const Memory other(b, access);
  std::memset(local.bytes, 0x77, kBytes);
  connect_pair(a, b);
  expect(post(a, b, IBV_WR_RDMA_WRITE, local, target.va(), target.mr->rkey, kBytes) == IBV_WC_SUCCESS,
         "WRITE");
  expect(madvise(target.bytes, 4096, MADV_DONTNEED) == 0, "madvise");
  expect(post(a, b, IBV_WR_RDMA_READ, local, target.va(), target.mr->rkey, 8192) == IBV_WC_SUCCESS, "READ");
  expect(local.bytes[0] == 0 && local.bytes[4095] == 0 && local.bytes[4096] == 0x77,
         "zeros where DONTNEED dropped");

  expect(munmap(target.bytes + kBytes / 2, kBytes / 2) == 0, "munmap");
  expect(post(a, b, IBV_WR_RDMA_WRITE, local, target.va(), target.mr->rkey, 4096) == IBV_WC_SUCCESS,
         "a WRITE beside the hole");
  expect(post(a, b, IBV_WR_RDMA_WRITE, local, target.va(kBytes / 2), target.mr->rkey, 4096) ==
             IBV_WC_REM_ACCESS_ERR,
         "an access error from a WRITE into the hole");
  a.destroy_qp();
  b.destroy_qp();
  connect_pair(a, b);
  expect(post(a, b, IBV_WR_RDMA_READ, local, target.va(kBytes / 2), target.mr->rkey, 4096) ==
             IBV_WC_REM_ACCESS_ERR,
         "an access error from a READ of the hole");
  a.destroy_qp();
  b.destroy_qp();
  connect_pair(a, b);
  expect(post(a, b, IBV_WR_RDMA_WRITE, local, other.va(), other.mr->rkey, kBytes) == IBV_WC_SUCCESS,
         "another region goes on");
  expect(munmap(local.bytes, kBytes) == 0, "munmap of the source");
  expect(post(a, b, IBV_WR_RDMA_WRITE, local, other.va(), other.mr->rkey, 4096) == IBV_WC_LOC_PROT_ERR,
         "a local protection error from an unmapped source");
  a.destroy_qp();
  b.destroy_qp();
  for (const Memory* memory : {&local, &target, &other})
    expect(ibv_dereg_mr(memory->mr) == 0, "ibv_dereg_mr");
}

}  // namespace

int main(int argc, char** argv) {
  const bool ring = argc > 1 && std::string(argv[1]) == "ring";
  std::string folder = (std::filesystem::temp_directory_path() / "faultline-one-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) fail("main", "mkdtemp");
  const std::string config = folder + "/devices.toml";
  {
    std::ofstream file(config);
    for (const char side : {'a', 'b'}) {
      file << "[[device]]\nname = \"faultline" << side << "\"\nip = \"198.18.0." << (side == 'a' ? 1 : 2)
           << "/24\"\n[device.port]\nkind = \"ring\"\nwire = \"w0\"\nside = \"" << side << "\"\n";
    }
  }
  {
    Side a("a", config, 0);
    Side b("b", "", ring ? 1 : 0);
    for (const int on_demand : {0, static_cast<int>(IBV_ACCESS_ON_DEMAND)}) {
      move_data(a, b, kAllRights | on_demand);
      lose_memory(a, b, kAllRights | on_demand);
    }
    if (a.counter(ring ? "port.rx_frames" : "port.loopback_frames") == 0)
      fail("main", "the packets went another way");
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  std::printf("ok\n");
  return 0;
}
