// SPDX-License-Identifier: BSD-3-Clause
// An on-demand region larger than the memory that its process may have. A server in a memory cgroup registers
// it; a client outside writes it full, then writes and reads at random places, then reads it all once more.
// Each block of 4 KiB carries its address and version in every word, and the client knows the last version of
// each. No process may be killed, no byte be wrong, no timeout be counted, no more be pinned than the budget.
//   odp_pressure swap|file --config-folder F --cgroup F --region-mib N --limit-mib N [--above-base]
//                          --pin-mib N --operations N [--qps N] [--seed N] [--file F]
#include <algorithm>
#include <fstream>
#include <random>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/hang_limit.hpp"
#include "tests/interop/e2e/peer.hpp"
#include "tests/interop/e2e/pressure/memory_cgroup.hpp"
#include "tests/interop/e2e/side.hpp"

namespace {

using faultline::e2e::Exchange;
using faultline::e2e::fail;
using faultline::e2e::MemoryCgroup;
using faultline::e2e::Peer;
using faultline::e2e::Side;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kBlockBytes = 4096;
constexpr uint32_t kMaxBlocks = 16;  // of one operation
constexpr uint32_t kMaxQps = 64;
constexpr int kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

struct Options {
  std::string mode;
  std::string config_folder;
  std::string cgroup;
  std::string file;
  uint64_t region_mib = 256;
  uint64_t limit_mib = 64;
  uint64_t pin_mib = 16;
  bool above_base = false;  ///< the limit is what the server uses before its region, plus limit_mib
  uint64_t operations = 20'000;
  uint32_t qps = 8;
  uint64_t seed = 0;  ///< 0: another one each time
  int peer_socket = -1;

  [[nodiscard]] bool is_file() const { return mode == "file"; }
  [[nodiscard]] uint64_t region_bytes() const { return region_mib * kMiB; }
};

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app("odp_pressure");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("mode", options.mode)->required()->check(CLI::IsMember({"swap", "file"}));
  app.add_option("--config-folder", options.config_folder)->required();
  app.add_option("--cgroup", options.cgroup)->required();
  app.add_option("--file", options.file);
  app.add_option("--region-mib", options.region_mib)->check(CLI::Range(1U, 1U << 20));
  app.add_option("--limit-mib", options.limit_mib)->check(CLI::Range(1U, 1U << 20));
  app.add_option("--pin-mib", options.pin_mib);
  app.add_flag("--above-base", options.above_base);
  app.add_option("--operations", options.operations);
  app.add_option("--qps", options.qps)->check(CLI::Range(1U, kMaxQps));
  app.add_option("--seed", options.seed);
  app.add_option("--peer", options.peer_socket);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  if (options.is_file() == options.file.empty()) {
    std::fprintf(stderr, "odp_pressure: --file goes with the mode file\n");
    std::exit(2);
  }
  return options;
}

struct Endpoint {
  uint64_t va = 0;
  uint32_t rkey = 0;
  ibv_gid gid{};
  std::array<uint32_t, kMaxQps> qpns{};
};

/// The server's state; `most` over the time so far.
struct Report {
  uint64_t timeouts = 0;
  uint64_t faults = 0;
  uint64_t evictions = 0;
  uint64_t fault_service_ns_max = 0;
  uint64_t pinned_bytes_most = 0;
  uint64_t swapped_bytes_most = 0;
  uint64_t major_faults = 0;
};

/// QPs of one side, each connected to its like of the other.
class Qps {
 public:
  Qps(Side& side, uint32_t count) : side_(side) {
    for (uint32_t i = 0; i < count; ++i) {
      side.make_qp(4);
      qps_.push_back(side.qp);
    }
  }
  [[nodiscard]] ibv_qp* operator[](size_t i) const { return qps_[i]; }
  [[nodiscard]] Endpoint endpoint(uint64_t va, uint32_t rkey) const {
    Endpoint own{va, rkey, side_.gid, {}};
    for (size_t i = 0; i < qps_.size(); ++i) own.qpns[i] = qps_[i]->qp_num;
    return own;
  }
  void connect(const Endpoint& to) {
    for (size_t i = 0; i < qps_.size(); ++i) {
      side_.qp = qps_[i];
      side_.connect({to.qpns[i], to.rkey, to.va, to.gid, false}, faultline::e2e::kPatientTimeout);
    }
  }

 private:
  Side& side_;
  std::vector<ibv_qp*> qps_;
};

// --- the server -----------------------------------------------------------

/// A line of /proc/self/status in bytes.
uint64_t own_status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key + ":", 0) == 0) return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10) << 10;
  fail("server", key.c_str());
}

void* map_region(const Options& options) {
  void* region = MAP_FAILED;
  if (options.is_file()) {
    const int file = open(options.file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, static_cast<off_t>(options.region_bytes())) != 0)
      fail("server", options.file.c_str());
    region = mmap(nullptr, options.region_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
  } else {
    region = mmap(nullptr, options.region_bytes(), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  if (region == MAP_FAILED) fail("server", "mmap");
  return region;
}

void look(const Side& side, Report& report) {
  report.timeouts = side.counter("transport.timeouts");
  report.faults = side.counter("odp.num_page_faults");
  report.evictions = side.counter("odp.pin_evictions");
  report.fault_service_ns_max = side.counter("odp.fault_service_ns_max");
  report.pinned_bytes_most = std::max(report.pinned_bytes_most, side.counter("odp.pinned_bytes"));
}

int serve(const Options& options) {
  const Exchange exchange(options.peer_socket);
  Side side("server", options.config_folder + "/server.toml");
  Qps qps(side, options.qps);
  void* region = map_region(options);
  ibv_mr* mr = ibv_reg_mr(side.pd, region, options.region_bytes(), kRights | IBV_ACCESS_ON_DEMAND);
  if (mr == nullptr) fail("server", "ibv_reg_mr");
  exchange.send(qps.endpoint(reinterpret_cast<uint64_t>(region), mr->rkey));
  Endpoint client;
  if (!exchange.receive(client)) fail("server", "the client has gone");
  qps.connect(client);
  exchange.send('r');

  Report report;
  const auto sample_memory = [&report] {
    report.swapped_bytes_most = std::max(report.swapped_bytes_most, own_status("VmSwap"));
  };
  constexpr uint32_t kTurnsBetweenLooks = 16384;
  for (uint32_t turn = 1;; ++turn) {
    ibv_wc completion;
    if (ibv_poll_cq(side.cq, 1, &completion) != 0) fail("server", "a completion of nothing");
    if (turn % kTurnsBetweenLooks != 0) continue;
    look(side, report);
    char word = 0;
    const Exchange::Arrival arrival = exchange.try_receive(word);
    if (arrival == Exchange::Arrival::end) fail("server", "the client has gone");
    if (arrival == Exchange::Arrival::nothing) continue;
    if (word == 'e') break;
    sample_memory();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    report.major_faults = static_cast<uint64_t>(usage.ru_majflt);
    exchange.send(report);
  }
  std::array<faultline_counter, 256> counters;
  const int count = std::min(faultline_query_counters(side.context, counters.data(), counters.size()), 256);
  for (int i = 0; i < count; ++i) {
    const faultline_counter& counter = counters[static_cast<size_t>(i)];
    if (counter.value != 0 && std::strncmp(counter.name, "odp.", 4) == 0)
      std::printf("  server %-36s %lu\n", counter.name, counter.value);
  }
  // Of the thread that polls, and is the engine: what it waited for itself.
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  std::printf("  server, major faults of the polling thread   %ld\n", usage.ru_majflt);
  std::fflush(stdout);
  for (uint32_t i = 0; i < options.qps; ++i)
    if (ibv_destroy_qp(qps[i]) != 0) fail("server", "ibv_destroy_qp");
  if (ibv_dereg_mr(mr) != 0) fail("server", "ibv_dereg_mr");
  if (munmap(region, options.region_bytes()) != 0) fail("server", "munmap");
  return 0;
}

// --- what is in a block ----------------------------------------------------

uint64_t mixed(uint64_t value) {  // splitmix64's finalizer
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9U;
  value = (value ^ value >> 27) * 0x94d049bb133111ebU;
  return value ^ value >> 31;
}

/// The address, the version, and words made of both that are the same within a cache line only: what lands
/// elsewhere is seen, and zram can still compress it.
struct Block {
  static constexpr size_t kWords = kBlockBytes / sizeof(uint64_t);

  Block(uint64_t number, uint32_t version)
      : address(number * kBlockBytes), version64(version), base(mixed(address ^ uint64_t{version} << 40)) {}
  [[nodiscard]] uint64_t word(size_t i) const { return i == 0 ? address : i == 1 ? version64 : base + i / 8; }
  void write_to(uint8_t* bytes) const {
    std::array<uint64_t, kWords> words;
    for (size_t i = 0; i < kWords; ++i) words[i] = word(i);
    std::memcpy(bytes, words.data(), kBlockBytes);
  }
  [[nodiscard]] bool is_in(const uint8_t* bytes) const {
    std::array<uint64_t, kWords> words;
    std::memcpy(words.data(), bytes, kBlockBytes);
    uint64_t difference = 0;
    for (size_t i = 0; i < kWords; ++i) difference |= words[i] ^ word(i);
    return difference == 0;
  }
  void tell_difference(const uint8_t* bytes) const {
    std::array<uint64_t, kWords> words;
    std::memcpy(words.data(), bytes, kBlockBytes);
    size_t first = kWords;
    size_t wrong = 0;
    for (size_t i = 0; i < kWords; ++i) {
      if (words[i] == word(i)) continue;
      first = std::min(first, i);
      ++wrong;
    }
    std::printf(
        "WRONG: block at %#lx: version %lu expected; %zu words differ, the first at %zu is %#lx; it says "
        "address "
        "%#lx, version %lu\n",
        address, version64, wrong, first * sizeof(uint64_t), words[first], words[0], words[1]);
  }

  uint64_t address;
  uint64_t version64;
  uint64_t base;
};

// --- the client ------------------------------------------------------------

struct Operation {
  bool write = false;
  uint64_t first = 0;
  uint32_t blocks = 0;
};

/// One QP with one operation under way at most, so that its time is its own.
struct Lane {
  Operation under_way;
  bool busy = false;
  Clock::time_point posted_at;
};

class Client {
 public:
  Client(Side& side, const Qps& qps, const Options& options, Peer& peer)
      : side_(side),
        qps_(qps),
        peer_(peer),
        lanes_(options.qps),
        versions_(options.region_bytes() / kBlockBytes),
        buffer_(options.qps * kMaxBlocks * kBlockBytes) {
    mr_ = ibv_reg_mr(side.pd, buffer_.data(), buffer_.size(), kRights);
    if (mr_ == nullptr) fail("client", "ibv_reg_mr");
  }

  void aim_at(const Endpoint& server) { server_ = server; }
  [[nodiscard]] uint64_t blocks() const { return versions_.size(); }
  [[nodiscard]] uint64_t wrong_blocks() const { return wrong_blocks_; }
  [[nodiscard]] uint64_t bytes_moved() const { return bytes_moved_; }
  [[nodiscard]] uint64_t writes() const { return writes_; }
  [[nodiscard]] std::vector<uint32_t>& samples_ns() { return samples_ns_; }
  void forget_figures() {
    samples_ns_.clear();
    bytes_moved_ = writes_ = 0;
  }

  [[nodiscard]] bool touches_one_under_way(const Operation& operation) const {
    return std::any_of(lanes_.begin(), lanes_.end(), [&operation](const Lane& lane) {
      const Operation& other = lane.under_way;
      return lane.busy && operation.first < other.first + other.blocks &&
             other.first < operation.first + operation.blocks;
    });
  }

  /// Does what `next` says, until it says no more (an operation without blocks).
  template <typename Next>
  void run(Next next) {
    bool more = true;
    uint32_t under_way = 0;
    last_completion_ = Clock::now();
    for (uint32_t turn = 1; more || under_way != 0; ++turn) {
      for (size_t i = 0; more && under_way < lanes_.size() && i < lanes_.size(); ++i) {
        if (lanes_[i].busy) continue;
        const Operation operation = next();
        more = operation.blocks != 0;
        if (!more) break;
        post(i, operation);
        ++under_way;
      }
      under_way -= take_completions();
      if (turn % 65536 == 0) watch();
    }
  }

  /// The region's file, once the server has ended.
  void check_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<uint8_t> bytes(kBlockBytes);
    for (uint64_t block = 0; block < blocks(); ++block) {
      if (!file.read(reinterpret_cast<char*>(bytes.data()), kBlockBytes)) fail("client", "reading the file");
      check(block, bytes.data());
    }
  }

 private:
  [[nodiscard]] uint8_t* buffer_of(size_t lane) { return buffer_.data() + lane * kMaxBlocks * kBlockBytes; }

  void post(size_t index, const Operation& operation) {
    Lane& lane = lanes_[index];
    uint8_t* bytes = buffer_of(index);
    if (operation.write) {
      for (uint32_t i = 0; i < operation.blocks; ++i)
        Block(operation.first + i, ++versions_[operation.first + i]).write_to(bytes + i * kBlockBytes);
    } else {
      std::memset(bytes, 0xee, operation.blocks * kBlockBytes);
    }
    ibv_sge piece{reinterpret_cast<uint64_t>(bytes), static_cast<uint32_t>(operation.blocks * kBlockBytes),
                  mr_->lkey};
    ibv_send_wr request{};
    request.wr_id = index;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = operation.write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma = {server_.va + operation.first * kBlockBytes, server_.rkey};
    lane = {operation, true, Clock::now()};
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(qps_[index], &request, &bad) != 0) fail("client", "ibv_post_send");
  }

  uint32_t take_completions() {
    std::array<ibv_wc, 16> completions;
    const int count = ibv_poll_cq(side_.cq, completions.size(), completions.data());
    if (count <= 0) return 0;
    last_completion_ = Clock::now();
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = completions[static_cast<size_t>(i)];
      Lane& lane = lanes_[completion.wr_id];
      if (completion.status != IBV_WC_SUCCESS) {
        std::fprintf(stderr, "a %s of %u blocks at %#lx: %s\n", lane.under_way.write ? "WRITE" : "READ",
                     lane.under_way.blocks, lane.under_way.first * kBlockBytes,
                     ibv_wc_status_str(completion.status));
        if (peer_.has_ended()) peer_.fail_with_it();
        fail("client", "an operation failed");
      }
      samples_ns_.push_back(static_cast<uint32_t>(
          std::chrono::duration_cast<std::chrono::nanoseconds>(last_completion_ - lane.posted_at).count()));
      bytes_moved_ += lane.under_way.blocks * kBlockBytes;
      writes_ += lane.under_way.write ? 1 : 0;
      if (!lane.under_way.write)
        for (uint32_t block = 0; block < lane.under_way.blocks; ++block)
          check(lane.under_way.first + block, buffer_of(completion.wr_id) + block * kBlockBytes);
      lane.busy = false;
    }
    return static_cast<uint32_t>(count);
  }

  void check(uint64_t number, const uint8_t* bytes) {
    const Block block(number, versions_[number]);
    if (block.is_in(bytes)) return;
    constexpr uint64_t kTold = 8;
    if (++wrong_blocks_ <= kTold) block.tell_difference(bytes);
  }

  void watch() {
    if (peer_.has_ended()) peer_.fail_with_it();
    if (Clock::now() - last_completion_ > faultline::test::hang_limit()) fail("client", "nothing completes");
  }

  Side& side_;
  const Qps& qps_;
  Peer& peer_;
  Endpoint server_;
  std::vector<Lane> lanes_;
  std::vector<uint32_t> versions_;
  std::vector<uint8_t> buffer_;
  ibv_mr* mr_ = nullptr;
  std::vector<uint32_t> samples_ns_;
  Clock::time_point last_completion_;
  uint64_t bytes_moved_ = 0;
  uint64_t writes_ = 0;
  uint64_t wrong_blocks_ = 0;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Every block once, in order.
void sweep(Client& client, bool write) {
  const auto start = Clock::now();
  uint64_t next = 0;
  client.run([&] {
    const Operation operation{write, next,
                              static_cast<uint32_t>(std::min<uint64_t>(kMaxBlocks, client.blocks() - next))};
    next += operation.blocks;
    return operation;
  });
  std::printf("%s all of it: %.2f s\n", write ? "wrote" : "read", seconds_since(start));
  std::fflush(stdout);
}

double random_operations(Client& client, uint64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto start = Clock::now();
  client.run([&] {
    Operation operation;
    if (count-- == 0) return operation;
    do {
      operation.write = random() % 2 == 0;
      operation.blocks = static_cast<uint32_t>(1 + random() % kMaxBlocks);
      operation.first = random() % (client.blocks() - operation.blocks + 1);
    } while (client.touches_one_under_way(operation));
    return operation;
  });
  return seconds_since(start);
}

Report ask(Peer& peer, Side& side) {
  peer.exchange().send('r');
  // Whoever waits must not keep its own engine from answering.
  faultline_progress(side.context);
  return peer.await<Report>();
}

void expect(bool truth, const char* what, bool& good) {
  if (truth) return;
  std::printf("FAILED: expected %s\n", what);
  good = false;
}

int drive(const Options& options, std::vector<std::string> arguments) {
  const uint64_t seed = options.seed != 0 ? options.seed : std::random_device()() | 1U;
  const MemoryCgroup cgroup(options.cgroup);
  arguments.emplace_back("--peer");
  Peer peer(std::move(arguments), [&cgroup] { cgroup.join(); });
  peer.explain([&cgroup] { return "; killed for want of memory: " + std::to_string(cgroup.kills()); });
  const auto server = peer.await<Endpoint>();
  Side side("client", options.config_folder + "/client.toml");
  faultline::e2e::wait_for_link(side, "client");
  Qps qps(side, options.qps);
  Client client(side, qps, options, peer);
  client.aim_at(server);
  peer.exchange().send(qps.endpoint(0, 0));
  qps.connect(server);
  static_cast<void>(peer.await<char>());

  const uint64_t base_bytes = cgroup.used_bytes();
  const uint64_t limit_bytes = options.limit_mib * kMiB + (options.above_base ? base_bytes : 0);
  cgroup.limit(limit_bytes);
  std::printf(
      "%s: a region of %lu MiB in %lu MiB of memory, of which %lu MiB were in use before; at most %lu MiB "
      "pinned; "
      "%u QPs, seed %lu\n",
      options.mode.c_str(), options.region_mib, limit_bytes / kMiB, base_bytes / kMiB, options.pin_mib,
      options.qps, seed);
  std::fflush(stdout);

  sweep(client, true);
  const Report before = ask(peer, side);
  client.forget_figures();
  const double seconds = random_operations(client, options.operations, seed);
  const Report after = ask(peer, side);
  std::vector<uint32_t>& samples = client.samples_ns();
  std::sort(samples.begin(), samples.end());
  const auto at_us = [&samples](double share) {
    return samples[static_cast<size_t>(share * static_cast<double>(samples.size() - 1))] / 1e3;
  };
  const auto operations = static_cast<double>(samples.size());
  std::printf("%.0f operations/s (%.0f %% WRITEs), %.3f GB/s, for %.1f s\n", operations / seconds,
              100.0 * static_cast<double>(client.writes()) / operations,
              static_cast<double>(client.bytes_moved()) / seconds / 1e9, seconds);
  std::printf("latency of an operation: p50 %.1f us, p99 %.1f us, p99.9 %.1f us, max %.1f us\n", at_us(0.5),
              at_us(0.99), at_us(0.999), at_us(1));
  std::printf(
      "num_page_faults %lu (%.0f/s), evictions %lu (%.0f/s), longest service so far %.1f us, major faults "
      "%lu\n",
      after.faults - before.faults, static_cast<double>(after.faults - before.faults) / seconds,
      after.evictions - before.evictions, static_cast<double>(after.evictions - before.evictions) / seconds,
      static_cast<double>(after.fault_service_ns_max) / 1e3, after.major_faults - before.major_faults);
  std::fflush(stdout);
  sweep(client, false);

  const Report last = ask(peer, side);
  const uint64_t timeouts = side.counter("transport.timeouts") + last.timeouts;
  const uint64_t waits = cgroup.times_at_limit();
  std::printf(
      "timeouts %lu, RNR NAKs %lu, retransmitted packets %lu; most pinned %.1f MiB, most swapped %.1f MiB, "
      "at the limit %lu times, kills %lu, wrong blocks %lu\n",
      timeouts, side.counter("transport.rnr_naks_received"), side.counter("transport.retransmitted_packets"),
      static_cast<double>(last.pinned_bytes_most) / static_cast<double>(kMiB),
      static_cast<double>(last.swapped_bytes_most) / static_cast<double>(kMiB), waits, cgroup.kills(),
      client.wrong_blocks());
  peer.exchange().send('e');
  peer.finish();
  if (options.is_file()) client.check_file(options.file);

  bool good = true;
  expect(client.wrong_blocks() == 0, "every byte right", good);
  expect(timeouts == 0, "no timeout", good);
  expect(cgroup.kills() == 0, "nobody killed for memory", good);
  expect(last.pinned_bytes_most <= options.pin_mib * kMiB, "no more pinned than the budget", good);
  expect(after.faults != before.faults, "page faults", good);
  // Otherwise all of it was in memory, and nothing is shown.
  expect(after.major_faults != before.major_faults, "pages that had left the memory", good);
  if (!options.is_file()) {
    expect(last.swapped_bytes_most >= options.region_bytes() / 4,
           "a quarter of the region or more swapped out", good);
    expect(after.evictions != before.evictions, "evictions of pinned pages", good);
  }
  std::printf(good ? "ok\n" : "FAILED\n");
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (options.peer_socket >= 0) return serve(options);
  return drive(options, {argv + 1, argv + argc});
}
