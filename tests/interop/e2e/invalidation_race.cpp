// SPDX-License-Identifier: BSD-3-Clause
// The program gives memory away under a peer's full-speed WRITEs. Two processes on memif: the writer fills
// random blocks of an on-demand region with its tag; in the target one thread drops ranges (MADV_DONTNEED),
// unmaps a range and maps memory of its own at the same place, without pause. What it mapped must keep what
// the program put there: a tag in it is a stale write. An access to the unmapped range must end in an error
// on that QP alone, and a new registration works again.
//   invalidation_race [UNMAPPINGS]
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/interop/e2e/side.hpp"

namespace {

using faultline::e2e::Address;
using faultline::e2e::fail;
using faultline::e2e::Side;

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kPages = 1024;
constexpr uint64_t kRegionBytes = kPages * kPageBytes;
constexpr uint32_t kBlockBytes = 2048;
constexpr uint32_t kDepth = 64;
constexpr uint64_t kTag = 0x5757575757575757;  // what the writer writes
constexpr uint64_t kOwn = 0xa1b2c3d4e5f60718;  // what the program puts where it maps anew
constexpr uint64_t kDropsPerUnmap = 400;
constexpr uint64_t kWritesPerUnmap = 100;  ///< an unmapping without WRITEs beside it shows nothing

class Channel {
 public:
  Channel(int fd, const char* who) : fd_(fd), who_(who) {}
  void send(const Address& address) const {
    if (write(fd_, &address, sizeof address) != sizeof address) fail(who_, "the other process has gone");
  }
  [[nodiscard]] Address receive() const {
    Address address;
    if (read(fd_, &address, sizeof address) != sizeof address) fail(who_, "the other process has gone");
    return address;
  }
  [[nodiscard]] bool has_message() const {
    char byte = 0;
    return recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  }

 private:
  int fd_;
  const char* who_;
};

// ---- the writer ----

int write_until_over(const std::string& config, int fd, std::atomic<uint64_t>& written) {
  const Channel channel(fd, "writer");
  Side side("writer", config);
  std::vector<uint64_t> source(kBlockBytes / 8, kTag);
  const int access = IBV_ACCESS_LOCAL_WRITE;
  ibv_mr* mr = ibv_reg_mr(side.pd, source.data(), kBlockBytes, access);
  if (mr == nullptr) fail("writer", "ibv_reg_mr");
  std::mt19937_64 random(1);
  uint64_t lives = 0;
  for (;;) {
    side.make_qp(kDepth);
    channel.send({side.qp->qp_num, 0, 0, side.gid, false});
    const Address target = channel.receive();
    if (target.over) break;
    side.connect(target);
    ++lives;
    uint32_t outstanding = 0;
    bool alive = true;
    while (alive || outstanding != 0) {
      while (alive && outstanding < kDepth) {
        ibv_sge piece{reinterpret_cast<uint64_t>(source.data()), kBlockBytes, mr->lkey};
        ibv_send_wr request{};
        request.sg_list = &piece;
        request.num_sge = 1;
        request.opcode = IBV_WR_RDMA_WRITE;
        request.send_flags = IBV_SEND_SIGNALED;
        request.wr.rdma = {target.va + random() % (kRegionBytes / kBlockBytes) * kBlockBytes, target.rkey};
        ibv_send_wr* bad = nullptr;
        if (ibv_post_send(side.qp, &request, &bad) != 0) fail("writer", "ibv_post_send");
        ++outstanding;
      }
      std::array<ibv_wc, 16> completions;
      const int count = ibv_poll_cq(side.cq, completions.size(), completions.data());
      for (int i = 0; i < count; ++i) {
        const ibv_wc_status status = completions[static_cast<size_t>(i)].status;
        --outstanding;
        if (status == IBV_WC_SUCCESS) {
          written.fetch_add(1, std::memory_order_relaxed);
          continue;
        }
        // The range is gone, or the QP failed before this: nothing else may happen, a timeout least of all.
        if (status != IBV_WC_REM_ACCESS_ERR && status != IBV_WC_WR_FLUSH_ERR) {
          std::fprintf(stderr, "invalidation_race: writer: %s\n", ibv_wc_status_str(status));
          std::_Exit(1);
        }
        alive = false;
      }
    }
    side.destroy_qp();
  }
  std::printf("writer: %llu WRITEs, %llu connections, %llu RNR NAKs, %llu timeouts\n",
              static_cast<unsigned long long>(written.load()), static_cast<unsigned long long>(lives),
              static_cast<unsigned long long>(side.counter("transport.rnr_naks_received")),
              static_cast<unsigned long long>(side.counter("transport.timeouts")));
  return 0;
}

// ---- the target ----

class Target {
 public:
  Target(const std::string& config, int fd, const std::atomic<uint64_t>& written)
      : channel_(fd, "target"), side_("target", config), written_(written) {
    memory_ = static_cast<uint8_t*>(mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (memory_ == MAP_FAILED) fail("target", "mmap");
  }

  int run(uint64_t unmaps) {
    while (unmaps_ < unmaps) live();
    // The writer waits for a new connection: there is none.
    static_cast<void>(channel_.receive());
    channel_.send({0, 0, 0, {}, true});
    std::printf(
        "target: %llu drops, %llu unmappings, %llu page faults, %llu invalidations, %llu faults caught in "
        "the copy; "
        "%llu stale writes, %llu wrong words\n",
        static_cast<unsigned long long>(drops_), static_cast<unsigned long long>(unmaps_),
        static_cast<unsigned long long>(side_.counter("odp.num_page_faults")),
        static_cast<unsigned long long>(side_.counter("odp.num_invalidations")),
        static_cast<unsigned long long>(side_.counter("odp.copy_faults_caught")),
        static_cast<unsigned long long>(stale_), static_cast<unsigned long long>(wrong_));
    return stale_ == 0 && wrong_ == 0 ? 0 : 1;
  }

 private:
  /// One registration and connection: drops under fire, then one unmapping, which ends it.
  void live() {
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ON_DEMAND;
    ibv_mr* mr = ibv_reg_mr(side_.pd, memory_, kRegionBytes, access);
    if (mr == nullptr) fail("target", "ibv_reg_mr");
    side_.make_qp(kDepth);
    const Address writer = channel_.receive();
    side_.connect(writer);
    channel_.send({side_.qp->qp_num, mr->rkey, reinterpret_cast<uint64_t>(memory_), side_.gid, false});
    std::atomic<bool> done{false};
    std::thread mutator([&] {
      mutate();
      done.store(true, std::memory_order_release);
    });
    // Polling drives the engine. The writer asks for a new connection once its QP has failed.
    ibv_wc completion;
    while (!done.load(std::memory_order_acquire) || !channel_.has_message()) {
      ibv_poll_cq(side_.cq, 1, &completion);
    }
    mutator.join();
    side_.destroy_qp();
    if (ibv_dereg_mr(mr) != 0) fail("target", "ibv_dereg_mr");
    inspect();
  }

  void mutate() {
    const uint64_t before = written_.load(std::memory_order_relaxed);
    for (uint64_t i = 0;
         i < kDropsPerUnmap || written_.load(std::memory_order_relaxed) < before + kWritesPerUnmap; ++i) {
      const uint64_t first = random_() % kPages;
      const uint64_t pages = 1 + random_() % std::min<uint64_t>(32, kPages - first);
      if (madvise(memory_ + first * kPageBytes, pages * kPageBytes, MADV_DONTNEED) != 0)
        fail("target", "madvise");
      ++drops_;
    }
    // All of it, so that the writer is sure to meet it; then memory of our own stands at the same place.
    if (munmap(memory_, kRegionBytes) != 0) fail("target", "munmap");
    void* again = mmap(memory_, kRegionBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (again != memory_) fail("target", "mmap at the same place");
    ++unmaps_;
    auto* words = reinterpret_cast<uint64_t*>(memory_);
    for (uint64_t i = 0; i < kRegionBytes / 8; ++i) words[i] = kOwn;
    // A stale write has a moment to come.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (uint64_t i = 0; i < kRegionBytes / 8; ++i) stale_ += words[i] != kOwn ? 1 : 0;
  }

  /// Nobody writes now: a word is the program's, the writer's, or fresh.
  void inspect() {
    const auto* words = reinterpret_cast<const uint64_t*>(memory_);
    for (uint64_t i = 0; i < kRegionBytes / 8; ++i)
      wrong_ += words[i] != kOwn && words[i] != kTag && words[i] != 0 ? 1 : 0;
  }

  Channel channel_;
  Side side_;
  const std::atomic<uint64_t>& written_;
  uint8_t* memory_ = nullptr;
  std::mt19937_64 random_{2};
  uint64_t drops_ = 0, unmaps_ = 0, stale_ = 0, wrong_ = 0;
};

void write_config(const std::string& path, const char* role, const std::string& socket, const char* ip) {
  std::ofstream(path) << "[[device]]\nname = \"faultline0\"\nip = \"" << ip
                      << "/24\"\n[device.port]\nkind = \"memif\"\nrole = \"" << role << "\"\nsocket = \""
                      << socket << "\"\n";
}

}  // namespace

int main(int argc, char** argv) {
  const bool soak = std::getenv("FAULTLINE_SOAK") != nullptr;
  const uint64_t unmaps = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : (soak ? 2000 : 50);
  std::string folder = (std::filesystem::temp_directory_path() / "faultline-race-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) fail("main", "mkdtemp");
  write_config(folder + "/target.toml", "server", folder + "/wire.sock", "198.18.0.1");
  write_config(folder + "/writer.toml", "client", folder + "/wire.sock", "198.18.0.2");
  void* const shared =
      mmap(nullptr, sizeof(std::atomic<uint64_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) fail("main", "mmap");
  auto& written = *new (shared) std::atomic<uint64_t>(0);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) fail("main", "socketpair");
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    const int status = write_until_over(folder + "/writer.toml", ends[1], written);
    std::fflush(stdout);
    std::_Exit(status);
  }
  close(ends[1]);
  int status = 1;
  {
    Target target(folder + "/target.toml", ends[0], written);
    status = target.run(unmaps);
  }
  int child_status = 0;
  waitpid(child, &child_status, 0);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  const bool writer_well = WIFEXITED(child_status) && WEXITSTATUS(child_status) == 0;
  return writer_well ? status : 1;
}
