// SPDX-License-Identifier: BSD-3-Clause
// What ibv_query_device says that a device can have, it can have, all of it, and no more: on a device with a
// port, where memory, QPNs, keys and the port's filters have to hold it.
//   device_limits [KIND...]     the kinds that are meant, or those that do not take long. Regions and windows
//   are a
//                               million each.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <sys/mman.h>

#include "tests/interop/e2e/side.hpp"

namespace {

using faultline::e2e::fail;
using faultline::e2e::Side;
using Clock = std::chrono::steady_clock;

template <typename Object>
struct Kind {
  const char* name;
  int limit;
  int there;  ///< made before
  std::function<Object*()> make;
  std::function<int(Object*)> destroy;
};

template <typename Object>
void fill(const Kind<Object>& kind) {
  const auto start = Clock::now();
  std::vector<Object*> all;
  all.reserve(static_cast<size_t>(kind.limit));
  for (int i = kind.there; i < kind.limit; ++i) {
    all.push_back(kind.make());
    if (all.back() == nullptr) {
      std::fprintf(stderr, "%d of %d\n", i, kind.limit);
      fail(kind.name, "fewer than the device says");
    }
  }
  errno = 0;
  if (kind.make() != nullptr || errno != ENOMEM) fail(kind.name, "one more than the device says");
  for (Object* one : all)
    if (kind.destroy(one) != 0) fail(kind.name, "destroy");
  // And once more: what was given back can be had.
  Object* const again = kind.make();
  if (again == nullptr || kind.destroy(again) != 0) fail(kind.name, "after all were given back");
  std::printf("%s: %d in %.2f s\n", kind.name, kind.limit,
              std::chrono::duration<double>(Clock::now() - start).count());
  std::fflush(stdout);
}

void fill_groups(Side& side, const ibv_device_attr& device) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = side.cq;
  init.qp_type = IBV_QPT_UD;
  init.cap = {1, 1, 1, 1, 0};
  ibv_qp* const qp = ibv_create_qp(side.pd, &init);
  if (qp == nullptr) fail("groups", "ibv_create_qp");
  const auto group = [](int number) {
    ibv_gid gid{};
    gid.raw[10] = gid.raw[11] = 0xff;
    gid.raw[12] = 239;
    gid.raw[14] = static_cast<uint8_t>(number >> 8);
    gid.raw[15] = static_cast<uint8_t>(number);
    return gid;
  };
  for (int number = 0; number <= device.max_mcast_grp; ++number) {
    const ibv_gid gid = group(number);
    if (ibv_attach_mcast(qp, &gid, 0) != (number == device.max_mcast_grp ? ENOMEM : 0))
      fail("groups", "as many as the device says and no more");
  }
  if (ibv_destroy_qp(qp) != EBUSY) fail("groups", "a QP with groups goes");
  for (int number = 0; number < device.max_mcast_grp; ++number) {
    const ibv_gid gid = group(number);
    if (ibv_detach_mcast(qp, &gid, 0) != 0) fail("groups", "ibv_detach_mcast");
  }
  if (ibv_destroy_qp(qp) != 0) fail("groups", "ibv_destroy_qp");
  std::printf("multicast groups: %d\n", device.max_mcast_grp);
}

void fill_all(Side& side, const std::set<std::string>& wanted) {
  const auto fill_one = [&wanted](const auto& kind) {
    if (wanted.contains(kind.name)) fill(kind);
  };
  ibv_device_attr device{};
  if (ibv_query_device(side.context, &device) != 0) fail("fill_all", "ibv_query_device");
  fill_one(Kind<ibv_srq>{"SRQs", device.max_srq, 0,
                         [&] {
                           ibv_srq_init_attr init{nullptr, {1, 1, 0}};
                           return ibv_create_srq(side.pd, &init);
                         },
                         ibv_destroy_srq});
  std::set<uint32_t> numbers;
  fill_one(Kind<ibv_qp>{"QPs", device.max_qp, 0,
                        [&] {
                          ibv_qp_init_attr init{};
                          init.send_cq = init.recv_cq = side.cq;
                          init.qp_type = IBV_QPT_RC;
                          init.cap = {1, 1, 1, 1, 0};
                          ibv_qp* const qp = ibv_create_qp(side.pd, &init);
                          if (qp != nullptr && !numbers.insert(qp->qp_num).second)
                            fail("QPs", "a number twice");
                          return qp;
                        },
                        [&](ibv_qp* qp) {
                          numbers.erase(qp->qp_num);
                          return ibv_destroy_qp(qp);
                        }});
  fill_one(Kind<ibv_cq>{"CQs", device.max_cq, 1,
                        [&] { return ibv_create_cq(side.context, 1, nullptr, nullptr, 0); }, ibv_destroy_cq});
  fill_one(Kind<ibv_pd>{"PDs", device.max_pd, 1, [&] { return ibv_alloc_pd(side.context); }, ibv_dealloc_pd});
  fill_one(Kind<ibv_ah>{"AHs", device.max_ah, 0,
                        [&] {
                          ibv_ah_attr attributes{};
                          attributes.is_global = 1;
                          attributes.port_num = 1;
                          attributes.grh.dgid = side.gid;
                          return ibv_create_ah(side.pd, &attributes);
                        },
                        ibv_destroy_ah});
  fill_one(Kind<ibv_mw>{"MWs", device.max_mw, 0, [&] { return ibv_alloc_mw(side.pd, IBV_MW_TYPE_2); },
                        ibv_dealloc_mw});
  const size_t bytes = size_t{1} << 21;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  fill_one(Kind<ibv_mr>{
      "MRs", device.max_mr, 0,
      [&] { return ibv_reg_mr(side.pd, memory, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND); },
      ibv_dereg_mr});
  munmap(memory, bytes);
  if (wanted.contains("groups")) fill_groups(side, device);
}

}  // namespace

int main(int argc, char** argv) {
  const std::set<std::string> quick{"QPs", "SRQs", "CQs", "PDs", "AHs", "groups"};
  const std::set<std::string> named(argv + 1, argv + argc);
  std::string folder = (std::filesystem::temp_directory_path() / "faultline-limits-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) fail("main", "mkdtemp");
  const std::string config = folder + "/devices.toml";
  std::ofstream(config) << "[[device]]\nname = \"faultline0\"\nip = \"198.18.0.1/24\"\n[device.port]\n"
                           "kind = \"ring\"\nwire = \"w0\"\nside = \"a\"\n";
  {
    Side side("limits", config);
    fill_all(side, named.empty() ? quick : named);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  std::printf("ok\n");
  return 0;
}
