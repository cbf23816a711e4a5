// SPDX-License-Identifier: BSD-3-Clause
// A program with live regions, traffic under way and an implicit region forks, again and again. The child
// looks at its memory, writes all over it, calls verbs on what it inherited, opens the device for itself (a
// ring is each process's own) and uses it, and exits as programs do: it must neither hang nor change a byte
// of the parent's. The parent's traffic goes on and sees nothing of the child.
//   fork_with_traffic dedicated|inline
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hang_limit.hpp"
#include "tests/interop/e2e/side.hpp"

namespace {

using faultline::e2e::fail;
using faultline::e2e::kPatientTimeout;
using faultline::e2e::Side;

constexpr size_t kBytes = 1 << 20;
constexpr int kForks = 20;
constexpr int kAllRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

uint8_t* map_anonymous() {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("memory", "mmap");
  return static_cast<uint8_t*>(memory);
}

ibv_wc_status copy(const Side& side, const uint8_t* from, uint32_t lkey, const uint8_t* to, uint32_t rkey) {
  ibv_sge piece{reinterpret_cast<uint64_t>(from), kBytes, lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(to);
  request.wr.rdma.rkey = rkey;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(side.qp, &request, &bad) != 0) fail("post", "ibv_post_send");
  ibv_wc completion{};
  faultline::e2e::await_true("wait", "no completion",
                             [&] { return ibv_poll_cq(side.cq, 1, &completion) == 1; });
  return completion.status;
}

[[noreturn]] void be_the_child(const Side& side, uint8_t* from, uint8_t* to, ibv_mr* mr, uint8_t round) {
  for (size_t i = 0; i < kBytes; ++i)
    if (from[i] != round) std::_Exit(3);
  std::memset(from, 0xee, kBytes);
  std::memset(to, 0xee, kBytes);
  ibv_wc completion;
  for (int i = 0; i < 1000; ++i) ibv_poll_cq(side.cq, 1, &completion);
  faultline_progress(side.context);
  munmap(to, kBytes / 2);
  if (ibv_reg_mr(side.pd, from, kBytes, kAllRights) != nullptr) std::_Exit(4);
  if (ibv_dereg_mr(mr) != 0) std::_Exit(5);
  if (ibv_destroy_qp(side.qp) != 0) std::_Exit(6);
  Side own("child", "");
  own.make_qp(16);
  own.connect({.qpn = own.qp->qp_num, .gid = own.gid});
  uint8_t* const target = map_anonymous();
  const ibv_mr* const source = ibv_reg_mr(own.pd, from, kBytes, kAllRights | IBV_ACCESS_ON_DEMAND);
  const ibv_mr* const sink = ibv_reg_mr(own.pd, target, kBytes, kAllRights | IBV_ACCESS_ON_DEMAND);
  if (source == nullptr || sink == nullptr) std::_Exit(7);
  if (copy(own, from, source->lkey, target, sink->rkey) != IBV_WC_SUCCESS) std::_Exit(8);
  if (std::memcmp(from, target, kBytes) != 0) std::_Exit(9);
  std::exit(0);
}

/// The child's end, or a kill where it hangs.
int status_of(pid_t child) {
  const auto end = std::chrono::steady_clock::now() + faultline::test::hang_limit();
  while (std::chrono::steady_clock::now() < end) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  fail("child", "it hangs");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string progress = argv[1];
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("faultline-fork-" + std::to_string(getpid()) + ".toml");
  std::ofstream(path) << "[[device]]\nname = \"faultline0\"\nip = \"198.18.0.1/24\"\nprogress = \""
                      << progress << "\"\n"
                      << (progress == "dedicated" ? "lcore = 1\n" : "")
                      << "[device.port]\nkind = \"ring\"\nwire = \"w\"\nside = \"a\"\n";
  Side side("side", path.string());
  std::filesystem::remove(path);
  side.make_qp(16);
  side.connect({.qpn = side.qp->qp_num, .gid = side.gid}, kPatientTimeout);
  uint8_t* const from = map_anonymous();
  uint8_t* const to = map_anonymous();
  ibv_mr* const mr = ibv_reg_mr(side.pd, from, kBytes, kAllRights | IBV_ACCESS_ON_DEMAND);
  ibv_mr* const all = ibv_reg_mr(side.pd, nullptr, SIZE_MAX, kAllRights | IBV_ACCESS_ON_DEMAND);
  if (mr == nullptr || all == nullptr) fail("memory", "registration");
  for (int round = 1; round <= kForks; ++round) {
    std::memset(from, round, kBytes);
    const pid_t child = fork();
    if (child < 0) fail("fork", "fork");
    if (child == 0) be_the_child(side, from, to, mr, static_cast<uint8_t>(round));
    // While the child writes its copies, and after it.
    for (int turn = 0; turn < 2; ++turn) {
      if (copy(side, from, mr->lkey, to, all->rkey) != IBV_WC_SUCCESS) fail("copy", "not done");
      for (size_t i = 0; i < kBytes; ++i)
        if (from[i] != round || to[i] != round) fail("copy", "a wrong byte");
      if (turn == 0 && status_of(child) != 0) fail("child", "it failed");
    }
  }
  if (side.counter("transport.timeouts") != 0) fail("fork", "a time-out");
  if (ibv_dereg_mr(mr) != 0 || ibv_dereg_mr(all) != 0) fail("memory", "deregistration");
  std::printf("ok: %d forks, %s progress\n", kForks, progress.c_str());
  return 0;
}
