// SPDX-License-Identifier: BSD-3-Clause
// What a page in swap adds to a WRITE of 64 bytes over memif, beside what the kernel alone takes to bring
// such a page back (MADV_POPULATE_WRITE of one page), of the same laps. Prints one line of JSON.
//   odp_swap_latency [--laps N]      where there is swap: see tests/interop/e2e/with_zram.sh
#include <algorithm>
#include <fstream>
#include <numeric>
#include <random>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <sys/mman.h>

#include "tests/interop/e2e/peer.hpp"
#include "tests/interop/e2e/side.hpp"

namespace {

using namespace std::chrono_literals;
using faultline::e2e::Address;
using faultline::e2e::Exchange;
using faultline::e2e::fail;
using faultline::e2e::Peer;
using faultline::e2e::Side;
using Clock = std::chrono::steady_clock;

constexpr size_t kPages = 2048;
constexpr size_t kPageBytes = 4096;
constexpr uint32_t kMessageBytes = 64;
constexpr int kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

struct Options {
  unsigned laps = 8;
  std::string folder;
  int peer_socket = -1;
};

/// A lap's region, and which of its pages are in swap.
struct Lap {
  uint32_t rkey = 0;
  std::array<uint8_t, kPages> in_swap{};
};

struct Percentiles {
  double p50_us = 0, p99_us = 0;
  uint64_t count = 0;
};

Percentiles percentiles(std::vector<uint32_t>& samples_ns) {
  if (samples_ns.empty()) return {};
  std::sort(samples_ns.begin(), samples_ns.end());
  const auto at_us = [&samples_ns](double share) {
    return samples_ns[static_cast<size_t>(share * static_cast<double>(samples_ns.size() - 1))] / 1e3;
  };
  return {at_us(0.5), at_us(0.99), samples_ns.size()};
}

uint32_t ns_since(Clock::time_point start) {
  return static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

/// A CPU to each side, the pager with its engine.
void stay_on_cpu(size_t wanted) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  size_t cpu = 0;
  for (size_t seen = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && seen++ == wanted) break;
  CPU_ZERO(&allowed);
  CPU_SET(cpu, &allowed);
  sched_setaffinity(0, sizeof allowed, &allowed);
}

std::vector<size_t> shuffled_pages() {
  static std::mt19937 random(1);
  std::vector<size_t> order(kPages);
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

// --- the server -----------------------------------------------------------

/// Pages whose contents compress like a program's, not like zeros, which zram does not even store.
class Memory {
 public:
  Memory() {
    bytes_ = static_cast<uint8_t*>(mmap(nullptr, kPages * kPageBytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (bytes_ == MAP_FAILED || madvise(bytes_, kPages * kPageBytes, MADV_NOHUGEPAGE) != 0)
      fail("server", "mmap");
    pagemap_ = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (pagemap_ < 0) fail("server", "/proc/self/pagemap");
  }
  [[nodiscard]] uint8_t* page(size_t number) const { return bytes_ + number * kPageBytes; }

  void page_out() {
    ++version_;
    for (size_t number = 0; number < kPages; ++number)
      for (size_t at = 0; at < kPageBytes; at += sizeof(uint64_t)) {
        const uint64_t word = (number << 20 | at >> 6) * 0x9e3779b97f4a7c15U + version_;
        std::memcpy(page(number) + at, &word, sizeof word);
      }
    if (madvise(bytes_, kPages * kPageBytes, MADV_PAGEOUT) != 0) fail("server", "MADV_PAGEOUT");
  }
  /// Linux Documentation/admin-guide/mm/pagemap.rst: bit 62.
  [[nodiscard]] bool is_in_swap(size_t number) const {
    uint64_t entry = 0;
    const auto at = static_cast<off_t>(reinterpret_cast<uint64_t>(page(number)) / kPageBytes * sizeof entry);
    if (pread(pagemap_, &entry, sizeof entry, at) != sizeof entry) fail("server", "reading the page map");
    return (entry >> 62 & 1U) != 0;
  }

 private:
  uint8_t* bytes_ = nullptr;
  int pagemap_ = -1;
  uint64_t version_ = 0;
};

void populate(Memory& memory, std::vector<uint32_t>& samples_ns) {
  memory.page_out();
  for (const size_t number : shuffled_pages()) {
    if (!memory.is_in_swap(number)) continue;
    const auto start = Clock::now();
    if (madvise(memory.page(number), kPageBytes, MADV_POPULATE_WRITE) != 0)
      fail("server", "MADV_POPULATE_WRITE");
    samples_ns.push_back(ns_since(start));
  }
}

int serve(const Options& options) {
  const Exchange exchange(options.peer_socket);
  Side side("server", options.folder + "/server.toml");
  side.make_qp(16);
  Memory region;
  Memory beside;  // never registered
  exchange.send(Address{side.qp->qp_num, 0, reinterpret_cast<uint64_t>(region.page(0)), side.gid, false});
  Address client;
  if (!exchange.receive(client)) fail("server", "the client has gone");
  side.connect(client);
  exchange.send('r');

  std::vector<uint32_t> populate_ns;
  ibv_mr* mr = nullptr;
  constexpr uint32_t kTurnsBetweenLooks = 1024;
  for (uint32_t turn = 1;; ++turn) {
    ibv_wc completion;
    if (ibv_poll_cq(side.cq, 1, &completion) != 0) fail("server", "a completion of nothing");
    if (turn % kTurnsBetweenLooks != 0) continue;
    char word = 0;
    const Exchange::Arrival arrival = exchange.try_receive(word);
    if (arrival == Exchange::Arrival::end) fail("server", "the client has gone");
    if (arrival == Exchange::Arrival::nothing) continue;
    // A region of its own for each lap: nothing of it is pinned yet, so that all of it can be swapped out.
    if (mr != nullptr && ibv_dereg_mr(mr) != 0) fail("server", "ibv_dereg_mr");
    if (word == 'e') break;
    populate(beside, populate_ns);
    region.page_out();
    mr = ibv_reg_mr(side.pd, region.page(0), kPages * kPageBytes, kRights | IBV_ACCESS_ON_DEMAND);
    if (mr == nullptr) fail("server", "ibv_reg_mr");
    Lap lap;
    lap.rkey = mr->rkey;
    for (size_t number = 0; number < kPages; ++number)
      lap.in_swap[number] = region.is_in_swap(number) ? 1 : 0;
    exchange.send(lap);
  }
  exchange.send(percentiles(populate_ns));
  side.destroy_qp();
  return 0;
}

// --- the client ------------------------------------------------------------

uint32_t time_write(const Side& side, const ibv_sge& source, uint64_t remote_va, uint32_t rkey) {
  ibv_sge piece = source;
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma = {remote_va, rkey};
  ibv_send_wr* bad = nullptr;
  const auto start = Clock::now();
  if (ibv_post_send(side.qp, &request, &bad) != 0) fail("client", "ibv_post_send");
  ibv_wc completion;
  for (uint32_t turn = 1; ibv_poll_cq(side.cq, 1, &completion) == 0; ++turn)
    if (turn % (1U << 20) == 0 && Clock::now() - start > 20s) fail("client", "no completion for 20 s");
  if (completion.status != IBV_WC_SUCCESS) fail("client", ibv_wc_status_str(completion.status));
  return ns_since(start);
}

nlohmann::json to_json(const Percentiles& figures) {
  return {{"p50", figures.p50_us}, {"p99", figures.p99_us}};
}

int drive(const Options& options) {
  for (const char* role : {"server", "client"}) {
    std::ofstream file(options.folder + "/" + role + ".toml");
    file << "[[device]]\nname = \"faultline0\"\nip = \"198.18.0." << (role[0] == 's' ? 1 : 2)
         << "/24\"\n[device.port]\nkind = \"memif\"\nrole = \"" << role << "\"\nsocket = \"" << options.folder
         << "/wire.sock\"\n";
  }
  Peer peer({"--folder", options.folder, "--peer"}, [] { stay_on_cpu(0); });
  stay_on_cpu(1);
  const auto server = peer.await<Address>();
  Side side("client", options.folder + "/client.toml");
  faultline::e2e::wait_for_link(side, "client");
  side.make_qp(16);
  std::array<uint8_t, kMessageBytes> bytes{};
  ibv_mr* mr = ibv_reg_mr(side.pd, bytes.data(), bytes.size(), kRights);
  if (mr == nullptr) fail("client", "ibv_reg_mr");
  const ibv_sge source{reinterpret_cast<uint64_t>(bytes.data()), kMessageBytes, mr->lkey};
  peer.exchange().send(Address{side.qp->qp_num, 0, 0, side.gid, false});
  side.connect(server);
  static_cast<void>(peer.await<char>());

  std::vector<uint32_t> cold_ns;
  std::vector<uint32_t> warm_ns;
  for (unsigned number = 0; number < options.laps; ++number) {
    peer.exchange().send('p');
    const auto lap = peer.await<Lap>();
    for (const size_t page : shuffled_pages()) {
      const uint64_t va = server.va + page * kPageBytes;
      const uint32_t first_ns = time_write(side, source, va, lap.rkey);
      if (lap.in_swap[page] == 0) continue;
      cold_ns.push_back(first_ns);
      warm_ns.push_back(time_write(side, source, va, lap.rkey));
    }
  }
  peer.exchange().send('e');
  const auto populated = peer.await<Percentiles>();
  peer.finish();
  if (cold_ns.empty()) fail("client", "no page was in swap");
  const Percentiles cold = percentiles(cold_ns);
  const Percentiles warm = percentiles(warm_ns);
  const nlohmann::json figures = {
      {"pages", cold.count},
      {"cold_us", to_json(cold)},
      {"warm_us", to_json(warm)},
      {"added_us", {{"p50", cold.p50_us - warm.p50_us}, {"p99", cold.p99_us - warm.p99_us}}},
      {"populate_us", to_json(populated)},
      {"timeouts", side.counter("transport.timeouts")}};
  std::printf("%s\n", figures.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("odp_swap_latency");
  app.add_option("--laps", options.laps)->check(CLI::Range(1U, 10000U));
  app.add_option("--folder", options.folder);
  app.add_option("--peer", options.peer_socket);
  CLI11_PARSE(app, argc, argv);
  if (options.peer_socket >= 0) return serve(options);
  options.folder = (std::filesystem::temp_directory_path() / "faultline-swap-XXXXXX").string();
  if (mkdtemp(options.folder.data()) == nullptr) fail("main", "mkdtemp");
  const int status = drive(options);
  std::error_code ignored;
  std::filesystem::remove_all(options.folder, ignored);
  return status;
}
