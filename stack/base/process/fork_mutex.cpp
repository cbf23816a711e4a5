// SPDX-License-Identifier: BSD-3-Clause
#include "stack/base/process/fork_mutex.hpp"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <memory>

#include "stack/base/process/fork_generation.hpp"

namespace faultline {
namespace {

/// docs/design/process-state.md lists them all.
constexpr size_t kMostMutexes = 8;
/// Filled from the front, never emptied.
constinit std::array<std::atomic<ForkMutex*>, kMostMutexes> enrolled{};
/// Mutexes that lock_all() has locked. Guarded by the first of them.
constinit size_t locked_by_fork = 0;

}  // namespace

void ForkMutex::lock() {
  enroll();
  mutex_.lock();
}

bool ForkMutex::try_lock() {
  enroll();
  return mutex_.try_lock();
}

void ForkMutex::enroll() {
  // Watches forks, and calls reset_all() in a child for which no handler ran.
  static_cast<void>(fork_generation());
  if (is_enrolled_.load(std::memory_order_acquire)) return;
  for (std::atomic<ForkMutex*>& slot : enrolled) {
    ForkMutex* found = nullptr;
    // Another thread may have stored this mutex first.
    if (!slot.compare_exchange_strong(found, this, std::memory_order_acq_rel) && found != this) continue;
    is_enrolled_.store(true, std::memory_order_release);
    return;
  }
  std::abort();  // kMostMutexes is too small
}

void ForkMutex::lock_all() {
  size_t count = 0;
  for (; count < enrolled.size(); ++count) {
    ForkMutex* const mutex = enrolled[count].load(std::memory_order_acquire);
    if (mutex == nullptr) break;
    mutex->mutex_.lock();
  }
  if (count != 0) locked_by_fork = count;
}

void ForkMutex::unlock_all() {
  if (enrolled[0].load(std::memory_order_acquire) == nullptr) return;
  // The first is unlocked last. A mutex enrolled since lock_all() is not among them.
  for (size_t i = locked_by_fork; i > 0; --i)
    enrolled[i - 1].load(std::memory_order_relaxed)->mutex_.unlock();
}

void ForkMutex::reset_all() {
  for (const std::atomic<ForkMutex*>& slot : enrolled)
    if (ForkMutex* const mutex = slot.load(std::memory_order_relaxed)) std::construct_at(&mutex->mutex_);
}

}  // namespace faultline
