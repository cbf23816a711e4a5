// SPDX-License-Identifier: BSD-3-Clause
// A process-wide singleton that a forked child continues with, for objects that the child may still pass to
// the library: see process_local.hpp for those that the child starts anew.
#pragma once

#include <mutex>
#include <utility>

#include "stack/base/process/fork_mutex.hpp"

namespace faultline {

/// Must have static storage, so that it needs no construction. Nothing is destroyed: programs exit with
/// devices open.
template <typename Object>
class Inherited {
 public:
  /// The object, under its lock.
  class Access {
   public:
    Access(std::unique_lock<ForkMutex> lock, Object& object) : lock_(std::move(lock)), object_(object) {}
    [[nodiscard]] Object* operator->() const { return &object_; }

   private:
    std::unique_lock<ForkMutex> lock_;
    Object& object_;
  };

  /// Waits for the lock. Makes the object if there is none.
  [[nodiscard]] Access access() {
    std::unique_lock lock(mutex_);
    if (object_ == nullptr) object_ = new Object;
    return {std::move(lock), *object_};
  }

 private:
  ForkMutex mutex_;
  Object* object_ = nullptr;  ///< guarded by mutex_
};

}  // namespace faultline
