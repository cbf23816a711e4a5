// SPDX-License-Identifier: BSD-3-Clause
#include "stack/verbs/objects/live_objects.hpp"

#include <array>
#include <cstddef>
#include <mutex>

#include <pthread.h>

#include "stack/base/spin_lock.hpp"

namespace faultline::verbs {

namespace {

// At a device's limit of address handles or regions, a bucket holds about sixteen.
constexpr size_t kBucketBits = 16;
constexpr size_t kLocks = 64;

struct Table {
  std::array<LiveObject*, size_t{1} << kBucketBits> buckets{};
  std::array<SpinLock, kLocks> locks;
};
Table table;  // zero pages until they are used

// In a forked child no thread exists that would release a lock held by another thread. Each chain is
// consistent at any moment, so the locks are simply released.
[[maybe_unused]] const int at_fork = ::pthread_atfork(nullptr, nullptr, [] {
  for (SpinLock& lock : table.locks) lock.unlock();
});

size_t bucket_of(const void* object) {
  // Fibonacci hashing spreads neighbouring addresses.
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
  return static_cast<size_t>((reinterpret_cast<uint64_t>(object) * kGolden) >> (64 - kBucketBits));
}

}  // namespace

LiveObject::LiveObject(const void* object, ObjectKind kind) : object_(object), kind_(kind) {
  const size_t bucket = bucket_of(object);
  const std::lock_guard lock(table.locks[bucket % kLocks]);
  next_ = table.buckets[bucket];
  table.buckets[bucket] = this;
}

LiveObject::~LiveObject() {
  const size_t bucket = bucket_of(object_);
  const std::lock_guard lock(table.locks[bucket % kLocks]);
  LiveObject** link = &table.buckets[bucket];
  while (*link != this) link = &(*link)->next_;
  *link = next_;
}

bool is_live(const void* object, ObjectKind kind) {
  const size_t bucket = bucket_of(object);
  const std::lock_guard lock(table.locks[bucket % kLocks]);
  const LiveObject* at = table.buckets[bucket];
  while (at != nullptr && (at->object_ != object || at->kind_ != kind)) at = at->next_;
  return at != nullptr;
}

}  // namespace faultline::verbs
