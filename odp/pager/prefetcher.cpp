// SPDX-License-Identifier: BSD-3-Clause
#include "odp/pager/prefetcher.hpp"

#include <algorithm>
#include <new>
#include <system_error>

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/parallel_for.h>
#include <pthread.h>
#include <sys/mman.h>

#include "odp/copy/quiescence.hpp"
#include "odp/regions/address_space.hpp"
#include "stack/base/process/service_thread.hpp"

namespace faultline::odp {
namespace {

/// From this size on, waking a second CPU pays off: 1.3 ms of fresh memory.
constexpr uint64_t kLargeBytes = uint64_t{4} << 20;
/// Size of a task: a huge page, or 512 small ones.
constexpr uint64_t kPieceBytes = uint64_t{2} << 20;

}  // namespace

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stopping_.store(true, std::memory_order_relaxed);
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

/// Ignores errors: the pager checks each page again.
void Prefetcher::populate(const FaultRequest& request, const PopulateRange& memory) const {
  if (request.no_fault || memory.length_bytes < kLargeBytes) return;
  const AddressSpaceCall call;
  const int advice = request.target.need == kLocalRead ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
  const uint64_t start = memory.address & ~(kPageBytes - 1);
  const uint64_t end = (memory.address + memory.length_bytes + kPageBytes - 1) & ~(kPageBytes - 1);
  const uint64_t first = start / kPieceBytes;
  const uint64_t last = (end + kPieceBytes - 1) / kPieceBytes;
  using Pieces = oneapi::tbb::blocked_range<uint64_t>;
  const Pieces all(first, last);
  const auto populate_pieces = [&](const Pieces& pieces) {
    for (uint64_t piece = pieces.begin(); piece != pieces.end() && !stopping_.load(std::memory_order_relaxed);
         ++piece) {
      const uint64_t from = std::max(start, piece * kPieceBytes);
      const uint64_t to = std::min(end, (piece + 1) * kPieceBytes);
      static_cast<void>(madvise(reinterpret_cast<void*>(from), to - from, advice));
    }
  };
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer cannot see how TBB's own library, which is not instrumented, passes tasks between
  // threads.
  populate_pieces(all);
#else
  oneapi::tbb::parallel_for(all, populate_pieces);
#endif
}

bool Prefetcher::run(const FaultRequest& request, const PopulateRange& memory) {
  populate(request, memory);
  PrefetchWait waiting;
  Backoff backoff;
  while (!pager_.background().try_push({request, &waiting})) backoff.pause();
  pager_.wake();
  waiting.state.wait(PrefetchWait::State::waiting, std::memory_order_acquire);
  return waiting.state.load(std::memory_order_acquire) == PrefetchWait::State::done;
}

void Prefetcher::start(const FaultRequest& request, const PopulateRange& memory) {
  if (request.no_fault || memory.length_bytes < kLargeBytes) {
    if (pager_.background().try_push({request, nullptr})) pager_.wake();
    return;
  }
  try {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() == kMaxJobs) return;
    jobs_.push_back({request, memory});
    if (!thread_.joinable()) thread_ = start_service_thread([this] { work(); });
  } catch (const std::bad_alloc&) {
    return;
  } catch (const std::system_error&) {
    return;
  }
  changed_.notify_one();
}

void Prefetcher::work() {
  pthread_setname_np(pthread_self(), "odp-prefetch");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_.load(std::memory_order_relaxed) || !jobs_.empty(); });
    if (stopping_.load(std::memory_order_relaxed)) return;
    const Job job = jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    populate(job.request, job.memory);
    if (pager_.background().try_push({job.request, nullptr})) pager_.wake();
    lock.lock();
  }
}

}  // namespace faultline::odp
