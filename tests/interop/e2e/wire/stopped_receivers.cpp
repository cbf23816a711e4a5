// SPDX-License-Identifier: BSD-3-Clause
// Receivers on a wire that are stopped, and a sender that does not care: wire_neighbours_test.py runs them.
//   stopped_receivers sink FILE        a UD QP; its GID and QPN go to FILE; until it is killed
//   stopped_receivers flood N FILE...  sends N datagrams to each of them
#include <fstream>
#include <iomanip>
#include <iostream>
#include <vector>

#include <unistd.h>

#include "tests/interop/e2e/side.hpp"

namespace {

using faultline::e2e::fail;
using faultline::e2e::Side;

constexpr uint32_t kQkey = 0x11223344;
constexpr uint32_t kBytes = 64;
constexpr uint32_t kDepth = 64;

int sink(const char* file) {
  Side side("sink", "");
  side.make_ud_qp(kDepth, kQkey);
  {
    std::ofstream out(std::string(file) + ".new");
    out << side.qp->qp_num;
    for (const uint8_t byte : side.gid.raw) out << ' ' << unsigned{byte};
    out << '\n';
  }
  if (std::rename((std::string(file) + ".new").c_str(), file) != 0) fail("sink", file);
  for (;;) pause();
}

void flood_one(Side& side, ibv_mr* mr, uint32_t count, const char* file) {
  ibv_gid to{};
  uint32_t qpn = 0;
  std::ifstream in(file);
  in >> qpn;
  for (uint8_t& byte : to.raw) {
    unsigned value = 0;
    in >> value;
    byte = static_cast<uint8_t>(value);
  }
  ibv_ah* const ah = side.make_ah(to);
  const ibv_sge piece{reinterpret_cast<uint64_t>(mr->addr), kBytes, mr->lkey};
  ibv_wc done{};
  for (uint32_t posted = 0, completed = 0; completed < count;) {
    while (posted < count && posted - completed < kDepth / 2) {
      side.post_datagram(piece, ah, qpn, kQkey);
      ++posted;
    }
    if (ibv_poll_cq(side.cq, 1, &done) == 1) ++completed;
  }
  ibv_destroy_ah(ah);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 2 ? argv[1] : "";
  if (role == "sink") return sink(argv[2]);
  if (role != "flood") return 2;
  Side side("flood", "");
  side.make_ud_qp(kDepth, kQkey);
  static std::array<char, kBytes> memory{};
  ibv_mr* const mr = ibv_reg_mr(side.pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  if (mr == nullptr) fail("flood", "ibv_reg_mr");
  for (int i = 3; i < argc; ++i) flood_one(side, mr, static_cast<uint32_t>(std::stoul(argv[2])), argv[i]);
  return 0;
}
