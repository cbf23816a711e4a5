// SPDX-License-Identifier: BSD-3-Clause
// A program maps memory of its own with MAP_FIXED at 0xFF000000, over whatever is there, as OpenSHMEM does
// with its symmetric heap, while its device is open: DPDK's memory must not be there.
//   fixed_maps
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "tests/interop/e2e/side.hpp"

namespace {

using faultline::e2e::Address;
using faultline::e2e::fail;
using faultline::e2e::Side;

constexpr uintptr_t kPlace = 0xFF000000;
constexpr size_t kBytes = size_t{512} << 20;

/// Mappings of others there.
int others_at_the_place() {
  int found = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2) continue;
    if (begin >= kPlace + kBytes || end <= kPlace) continue;
    std::fprintf(stderr, "in the way: %s\n", line.c_str());
    ++found;
  }
  return found;
}

/// A SEND to itself.
void send(Side& side, ibv_mr* mr) {
  ibv_sge piece{reinterpret_cast<uint64_t>(mr->addr), 64, mr->lkey};
  ibv_recv_wr receive{};
  receive.sg_list = &piece;
  receive.num_sge = 1;
  ibv_recv_wr* bad_receive = nullptr;
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_recv(side.qp, &receive, &bad_receive) != 0 || ibv_post_send(side.qp, &request, &bad) != 0)
    fail("main", "post");
  for (int left = 2; left != 0;) {
    ibv_wc completion;
    if (ibv_poll_cq(side.cq, 1, &completion) == 0) continue;
    if (completion.status != IBV_WC_SUCCESS) fail("main", "completion");
    --left;
  }
}

}  // namespace

int main() {
  Side side("main", "");
  side.make_qp(16);
  side.connect(Address{.qpn = side.qp->qp_num, .gid = side.gid}, faultline::e2e::kPatientTimeout);
  std::vector<uint8_t> buffer(4096);
  ibv_mr* const mr = ibv_reg_mr(side.pd, buffer.data(), buffer.size(), IBV_ACCESS_LOCAL_WRITE);
  if (mr == nullptr) fail("main", "ibv_reg_mr");
  send(side, mr);
  const int others = others_at_the_place();
  void* const heap = mmap(reinterpret_cast<void*>(kPlace), kBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  if (heap == MAP_FAILED) fail("main", "mmap");
  for (int i = 0; i < 1000; ++i) send(side, mr);
  return others == 0 ? 0 : 1;
}
