// SPDX-License-Identifier: BSD-3-Clause
// Connections of the system's librdmacm, one group after the other: all of a group are open at once, carry a
// message each and end. None may be refused, and nothing may be left of them.
//   connections server ADDRESS PORT AT_ONCE GROUPS
//   connections client ADDRESS PORT AT_ONCE GROUPS
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "connections: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

void require(bool holds, const std::string& what) {
  if (!holds) fail(what);
}

/// What the process holds.
struct Held {
  long descriptors = entries("/proc/self/fd");
  long threads = entries("/proc/self/task");
  long resident_kib = status_kib("VmRSS:");

  static long entries(const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator{});
  }
  static long status_kib(std::string_view key) {
    std::ifstream status("/proc/self/status");
    std::string word;
    while (status >> word) {
      if (word != key) continue;
      long kib = 0;
      status >> kib;
      return kib;
    }
    return 0;
  }
};

sockaddr_in address_of(const char* ip, const char* port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
  if (inet_pton(AF_INET, ip, &address.sin_addr) != 1) {
    std::fprintf(stderr, "connections: %s is no IPv4 address\n", ip);
    std::exit(2);
  }
  return address;
}

void make_qp(rdma_cm_id* id) {
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = init.cap.max_recv_wr = 2;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  init.sq_sig_all = 1;
  require(rdma_create_qp(id, nullptr, &init) == 0, "rdma_create_qp");
}

/// Of a send or a receive. Sleeps until it is there: a thread that polls takes the CPU from those that it
/// waits for.
ibv_wc completion(rdma_cm_id* id, int (*get)(rdma_cm_id*, ibv_wc*)) {
  ibv_wc wc{};
  require(get(id, &wc) == 1, "a completion");
  if (wc.status != IBV_WC_SUCCESS) {
    std::fprintf(stderr, "connections: a completion of status %d\n", wc.status);
    std::exit(1);
  }
  return wc;
}

void end(std::vector<rdma_cm_id*>& ids) {
  for (rdma_cm_id* id : ids) rdma_disconnect(id);
  for (rdma_cm_id* id : ids) {
    rdma_destroy_qp(id);
    require(rdma_destroy_id(id) == 0, "rdma_destroy_id");
  }
  ids.clear();
}

/// Takes a group of requests and one message on each of its connections.
void serve_group(rdma_cm_id* listener, uint32_t at_once) {
  std::vector<rdma_cm_id*> ids;
  for (uint32_t i = 0; i < at_once; ++i) {
    rdma_cm_id* id = nullptr;
    require(rdma_get_request(listener, &id) == 0, "rdma_get_request");
    make_qp(id);
    // Of no bytes: the message is its immediate.
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    require(ibv_post_recv(id->qp, &wr, &bad) == 0, "ibv_post_recv");
    require(rdma_accept(id, nullptr) == 0, "rdma_accept of connection " + std::to_string(i));
    ids.push_back(id);
  }
  for (uint32_t i = 0; i < at_once; ++i)
    require(ntohl(completion(ids[i], rdma_get_recv_comp).imm_data) == i, "a message of another connection");
  end(ids);
}

/// In one piece and touched beforehand: what it allocated between the connections would keep freed memory
/// apart.
class QpnLog {
 public:
  void note(uint32_t qpn) {
    uint32_t& last = last_[qpn];
    if (last == 0)
      ++distinct_;
    else
      shortest_ = std::min(shortest_, count_ - last);
    last = count_++;
  }
  [[nodiscard]] uint32_t distinct() const { return distinct_; }
  /// QPs from one to the next with its number; 0: none came again.
  [[nodiscard]] uint32_t shortest() const {
    return shortest_ == std::numeric_limits<uint32_t>::max() ? 0 : shortest_;
  }

 private:
  std::vector<uint32_t> last_ = std::vector<uint32_t>(1U << 24);  ///< by QPN; 0: never
  uint32_t count_ = 1, distinct_ = 0;
  uint32_t shortest_ = std::numeric_limits<uint32_t>::max();
};

/// Returns how many were refused.
uint32_t connect_group(sockaddr_in address, uint32_t at_once, QpnLog& qpns) {
  constexpr int kPatienceMs = 20'000;
  std::vector<rdma_cm_id*> ids;
  uint32_t refused = 0;
  for (uint32_t i = 0; i < at_once; ++i) {
    rdma_cm_id* id = nullptr;
    require(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
    require(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&address), kPatienceMs) == 0,
            "rdma_resolve_addr");
    require(rdma_resolve_route(id, kPatienceMs) == 0, "rdma_resolve_route");
    make_qp(id);
    qpns.note(id->qp->qp_num);
    if (rdma_connect(id, nullptr) != 0) ++refused;
    ids.push_back(id);
  }
  // The server waits for all of a group: without one of them there is no way on.
  if (refused != 0) return refused;
  for (uint32_t i = 0; i < at_once; ++i) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = htonl(i);
    ibv_send_wr* bad = nullptr;
    require(ibv_post_send(ids[i]->qp, &wr, &bad) == 0, "ibv_post_send");
  }
  for (rdma_cm_id* id : ids) completion(id, rdma_get_send_comp);
  end(ids);
  return 0;
}

/// As many groups as that have all made that is made once.
constexpr uint32_t kFirstGroups = 5;

void expect_nothing_left(const Held& before, const char* who) {
  Held after;
  // A background thread of the manager may be on its way out.
  constexpr int kTries = 100;
  for (int i = 0; i < kTries && (after.threads > before.threads || after.descriptors > before.descriptors);
       ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    after = Held();
  }
  std::printf("%s: descriptors %ld -> %ld, threads %ld -> %ld, resident %ld -> %ld KiB\n", who,
              before.descriptors, after.descriptors, before.threads, after.threads, before.resident_kib,
              after.resident_kib);
  // The table of QPNs grows to its 768 KiB, and the manager remembers what ended a moment ago.
  constexpr long kMostKib = 32L * 1024;
  errno = 0;
  require(after.descriptors <= before.descriptors, "descriptors are left");
  require(after.threads <= before.threads, "threads are left");
  require(after.resident_kib - before.resident_kib < kMostKib, "memory is left");
}

int serve(sockaddr_in address, uint32_t at_once, uint32_t groups) {
  rdma_cm_id* listener = nullptr;
  require(rdma_create_id(nullptr, &listener, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
  require(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&address)) == 0, "rdma_bind_addr");
  require(rdma_listen(listener, 1024) == 0, "rdma_listen");
  std::puts("listening");
  std::fflush(stdout);
  for (uint32_t group = 0; group < std::min(groups, kFirstGroups); ++group) serve_group(listener, at_once);
  const Held before;
  for (uint32_t group = kFirstGroups; group < groups; ++group) serve_group(listener, at_once);
  expect_nothing_left(before, "server");
  return rdma_destroy_id(listener) == 0 ? 0 : 1;
}

int connect_all(sockaddr_in address, uint32_t at_once, uint32_t groups) {
  QpnLog qpns;
  uint64_t refused = 0;
  uint32_t done = 0;
  const auto start = std::chrono::steady_clock::now();
  for (; done < std::min(groups, kFirstGroups) && refused == 0; ++done)
    refused += connect_group(address, at_once, qpns);
  const Held before;
  for (; done < groups && refused == 0; ++done) refused += connect_group(address, at_once, qpns);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::printf(
      "client: %llu connections, %u at once, in %.1f s; %llu refused; %u QPNs, the soonest again after "
      "%u\n",
      static_cast<unsigned long long>(done) * at_once, at_once, taken.count(),
      static_cast<unsigned long long>(refused), qpns.distinct(), qpns.shortest());
  errno = ECONNREFUSED;
  require(refused == 0, "connection " + std::to_string(uint64_t{done} * at_once));
  expect_nothing_left(before, "client");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view role = argc == 6 ? argv[1] : "";
  if (role != "server" && role != "client") {
    std::fprintf(stderr, "usage: connections server|client ADDRESS PORT AT_ONCE GROUPS\n");
    return 2;
  }
  const sockaddr_in address = address_of(argv[2], argv[3]);
  const auto at_once = static_cast<uint32_t>(std::strtoul(argv[4], nullptr, 10));
  const auto groups = static_cast<uint32_t>(std::strtoul(argv[5], nullptr, 10));
  return role == "server" ? serve(address, at_once, groups) : connect_all(address, at_once, groups);
}
