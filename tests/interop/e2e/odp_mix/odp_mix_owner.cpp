// SPDX-License-Identifier: BSD-3-Clause
// The owner of odp_mix: the arenas, two threads that call the kernel about them, and the main thread, which
// drives the engine and brings failed QPs back.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>

#include "tests/interop/e2e/odp_mix/odp_mix.hpp"
#include "tests/interop/e2e/odp_mix/odp_mix_calls.hpp"
#include "tests/interop/e2e/side.hpp"

namespace faultline::e2e::mix {
namespace {

constexpr const char* kOwnerRole = "owner";

class Owner {
 public:
  Owner(const std::string& config, const Shared& shared, const OwnerOptions& options)
      : shared_(shared), head_(shared.head()), options_(options), side_(kOwnerRole, config) {
    const std::string folder = std::filesystem::path(config).parent_path().string();
    for (size_t i = 0; i < shared.plans().size(); ++i) {
      arenas_.push_back(std::make_unique<Arena>(shared, i, side_.pd, folder, findings_));
      arena_list_.push_back(arenas_.back().get());
      arenas_.back()->register_and_post(shared.plans()[i].pages);
    }
    fcntl(side_.context->async_fd, F_SETFL, fcntl(side_.context->async_fd, F_GETFL) | O_NONBLOCK);
    for (size_t i = 0; i < kQps; ++i) {
      side_.make_qp(kDepth);
      qps_[i] = side_.qp;
      head_.connections[i].owner_qpn.store(side_.qp->qp_num, std::memory_order_relaxed);
    }
    head_.owner_gid = side_.gid;
    while (!head_.peer_ready.load(std::memory_order_acquire)) drive();
    // The first connections, which wait for the wire, do not count as pauses.
    drive();
    pauses_ = {};
    head_.driven_at_ns.store(now_ns(), std::memory_order_relaxed);
    head_.owner_ready.store(true, std::memory_order_release);
  }

  int run() {
    std::atomic<bool> stop{false};
    std::vector<std::unique_ptr<Caller>> callers;
    std::vector<std::thread> threads;
    std::atomic<size_t> living{kThreads};
    if (options_.fill_descriptors) fill_descriptors();
    for (size_t i = 0; i < kThreads; ++i) {
      callers.push_back(std::make_unique<Caller>(arena_list_, options_.calls, counts_, offer_, head_.doing[i],
                                                 shared_.seed() * 31 + i));
      threads.emplace_back([&living, &stop, caller = callers.back().get()] {
        caller->run(stop);
        living.fetch_sub(1, std::memory_order_acq_rel);
      });
    }
    const uint64_t hang = now_ns() + kMostNs;
    for (uint64_t turns = 0; living.load(std::memory_order_acquire) != 0; ++turns) {
      drive();
      if (turns % 4096 == 0 && (work().is_enough() || now_ns() > hang))
        stop.store(true, std::memory_order_release);
    }
    for (std::thread& thread : threads) thread.join();
    head_.stop.store(true, std::memory_order_release);
    const uint64_t deadline = now_ns() + kHangNs;
    while (!head_.peer_done.load(std::memory_order_acquire)) {
      drive();
      if (now_ns() > deadline) fail(kOwnerRole, "the peer does not end");
    }
    head_.driven_at_ns.store(0, std::memory_order_relaxed);
    for (const auto& arena : arenas_) arena->deregister_and_check(arena->page_count());
    return report();
  }

 private:
  /// EMFILE for whatever wants a descriptor from now on, in the program and in the library.
  static void fill_descriptors() {
    // More are open than the new limit, perhaps: that is allowed (getrlimit(2)).
    constexpr rlim_t kMost = 256;
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) fail(kOwnerRole, "getrlimit");
    limit.rlim_cur = std::min(limit.rlim_max, kMost);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) fail(kOwnerRole, "setrlimit");
    while (fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0) >= 0) {
    }
    if (errno != EMFILE && errno != EINVAL) fail(kOwnerRole, "filling the descriptor table");
  }

  void drive() {
    pauses_.note();
    head_.longest_away_ns.store(pauses_.longest_ns(), std::memory_order_release);
    if (head_.driven_at_ns.load(std::memory_order_relaxed) != 0)
      head_.driven_at_ns.store(now_ns(), std::memory_order_relaxed);
    std::array<ibv_wc, 16> completions;
    if (ibv_poll_cq(side_.cq, completions.size(), completions.data()) < 0) fail(kOwnerRole, "ibv_poll_cq");
    for (size_t i = 0; i < kQps; ++i) {
      Connection& connection = head_.connections[i];
      if (connection.stage.load(std::memory_order_acquire) == Stage::wanted) answer(connection, qps_[i]);
    }
    if (++drives_ % 64 == 0) take_events();
    if (head_.peer_failed.load(std::memory_order_acquire)) end_after_peer();
  }

  /// Says what may explain why the peer has failed.
  [[noreturn]] void end_after_peer() {
    tell_counters(kOwnerRole, side_.context);
    pauses_.tell(kOwnerRole);
    std::fflush(stdout);
    for (ibv_qp* qp : qps_) {
      ibv_qp_attr attr{};
      ibv_qp_init_attr init{};
      if (ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_RQ_PSN, &init) == 0)
        std::fprintf(stderr, "odp_mix: owner: QP %u in state %d, expects PSN %u\n", qp->qp_num,
                     static_cast<int>(attr.qp_state), attr.rq_psn);
    }
    std::_Exit(1);
  }

  void answer(Connection& connection, ibv_qp* qp) {
    const uint32_t psn = connection.peer_psn.load(std::memory_order_relaxed);
    const uint32_t own_psn = psn ^ 0x555555;
    connect(qp, kOwnerRole, connection.peer_qpn.load(std::memory_order_relaxed), head_.peer_gid, psn, own_psn,
            shared_.retries());
    connection.owner_psn.store(own_psn, std::memory_order_relaxed);
    connection.stage.store(Stage::answered, std::memory_order_release);
  }

  /// Its beginning, and its end where the peer was the first to go.
  [[nodiscard]] bool is_of_the_wire(ibv_event_type event) const {
    if (event == IBV_EVENT_PORT_ERR) return head_.peer_done.load(std::memory_order_acquire);
    return event == IBV_EVENT_COMM_EST || event == IBV_EVENT_PORT_ACTIVE;
  }

  /// The peer's errors come as events of the QPs; nothing else may.
  void take_events() {
    pollfd ready{.fd = side_.context->async_fd, .events = POLLIN, .revents = 0};
    while (poll(&ready, 1, 0) == 1) {
      ibv_async_event event;
      if (ibv_get_async_event(side_.context, &event) != 0) return;
      if (event.event_type == IBV_EVENT_QP_ACCESS_ERR) {
        ++access_events_;
      } else if (!is_of_the_wire(event.event_type)) {
        std::fprintf(stderr, "odp_mix: owner: unexpected event: %s\n", ibv_event_type_str(event.event_type));
        findings_.wrong.fetch_add(1, std::memory_order_relaxed);
      }
      ibv_ack_async_event(&event);
    }
  }

  /// What this run has done, and the least that it has to.
  Work work() const {
    Work work(options_.amount);
    const PeerWork& peer = head_.peer_work;
    work.add("WRITEs", peer.writes.load(), 200);
    work.add("READs", peer.reads.load(), 150);
    work.add("FETCH_ADDs", peer.adds.load(), 80);
    work.add("bytes verified by READs", peer.bytes_verified.load(), 500'000);
    work.add("bytes verified by the owner", findings_.bytes_verified.load(), 500'000);
    work.add("page faults", side_.counter("odp.num_page_faults"), 100);
    for (size_t i = 0; i < kCalls; ++i) {
      if (options_.calls[i]) work.add(calls_of_mix()[i], counts_.made[i].load(), least_of(i));
    }
    const auto makes = [this](Call call) { return options_.calls[static_cast<size_t>(call)]; };
    if (makes(Call::unmap_and_map)) work.add("access errors", peer.access_errors.load(), 5);
    if (makes(Call::dont_need)) work.add("invalidations", side_.counter("odp.num_invalidations"), 30);
    return work;
  }

  int report() {
    const uint64_t timeouts = side_.counter("transport.timeouts");
    std::printf("owner: calls:");
    for (size_t i = 0; i < kCalls; ++i) {
      if (!options_.calls[i]) continue;
      const uint64_t made = counts_.made[i].load();
      const uint64_t refused = counts_.refused[i].load();
      std::printf(" %s %llu", calls_of_mix()[i], static_cast<unsigned long long>(made));
      if (refused != 0) std::printf(" (%llu refused)", static_cast<unsigned long long>(refused));
    }
    std::printf("; %llu places taken by others\n",
                static_cast<unsigned long long>(counts_.taken_places.load()));
    std::printf("owner: odp:");
    for (const char* name :
         {"num_page_faults", "num_page_fault_pages", "num_invalidations", "num_failed_resolutions",
          "invalidations_faults_contentions", "copy_faults_caught", "pin_evictions", "pin_fallbacks"})
      std::printf(" %s %llu", name,
                  static_cast<unsigned long long>(side_.counter((std::string("odp.") + name).c_str())));
    std::printf(
        "\nowner: %llu QP access events, %llu timeouts, %llu stale writes, %llu torn, %llu cut, %llu wrong\n",
        static_cast<unsigned long long>(access_events_), static_cast<unsigned long long>(timeouts),
        static_cast<unsigned long long>(findings_.stale_writes.load()),
        static_cast<unsigned long long>(findings_.torn.load()),
        static_cast<unsigned long long>(findings_.cut.load()),
        static_cast<unsigned long long>(findings_.wrong.load()));
    pauses_.tell(kOwnerRole);
    std::fflush(stdout);
    const Work work = this->work();
    work.tell_missing(kOwnerRole);
    return work.is_enough() && timeouts == 0 && findings_.stale_writes.load() == 0 &&
                   findings_.wrong.load() == 0
               ? 0
               : 1;
  }

  const Shared& shared_;
  SharedHead& head_;
  const OwnerOptions& options_;
  Side side_;
  Findings findings_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::vector<Arena*> arena_list_;
  std::array<ibv_qp*, kQps> qps_{};
  CallCounts counts_;
  Offer offer_;
  Pauses pauses_;
  uint64_t drives_ = 0;
  uint64_t access_events_ = 0;
};

}  // namespace

int run_owner(const std::string& config, const Shared& shared, const OwnerOptions& options) {
  return std::make_unique<Owner>(config, shared, options)->run();
}

}  // namespace faultline::e2e::mix
