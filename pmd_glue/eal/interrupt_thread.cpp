// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/eal/interrupt_thread.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include <rte_interrupts.h>
#include <sys/eventfd.h>

#include "stack/base/process/process_local.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::glue {
namespace {

constexpr auto kHoldPatience = std::chrono::milliseconds(100);

/// Tasks for the interrupt thread. EAL's alarms are unsuitable: their descriptor is shared with the parent
/// and cannot be replaced in a forked child.
class Mailbox {
 public:
  Mailbox() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    is_served_ = event_ && handle_ != nullptr && rte_intr_type_set(handle_, RTE_INTR_HANDLE_EXT) == 0 &&
                 rte_intr_fd_set(handle_, event_.get()) == 0 &&
                 rte_intr_callback_register(
                     handle_, [](void* self) { static_cast<Mailbox*>(self)->serve(); }, this) == 0;
  }

  /// Returns false if the interrupt thread does not serve the mailbox.
  [[nodiscard]] bool post(std::function<void()> task) {
    if (!is_served_) return false;
    const std::lock_guard guard(mutex_);
    tasks_.push_back(std::move(task));
    const uint64_t one = 1;
    static_cast<void>(!write(event_.get(), &one, sizeof one));
    return true;
  }

 private:
  void serve() {
    uint64_t posts = 0;
    static_cast<void>(!read(event_.get(), &posts, sizeof posts));
    for (;;) {
      std::function<void()> task;
      {
        const std::lock_guard guard(mutex_);
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  const UniqueFd event_;
  rte_intr_handle* const handle_ = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
  bool is_served_ = false;
  std::mutex mutex_;
  std::deque<std::function<void()>> tasks_;
};
ProcessLocal<Mailbox> mailbox;

/// An event that one thread waits for.
class Signal {
 public:
  void set() {
    const std::lock_guard guard(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_set_; });
  }
  void wait_for(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [this] { return is_set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

struct Hold {
  Signal is_held, is_released;
};
/// The hold of the fork that is under way; the thread may reach it long after that fork.
std::shared_ptr<Hold> current_hold;

}  // namespace

void run_on_interrupt_thread(std::function<void()> task) {
  const auto done = std::make_shared<Signal>();
  const bool posted = mailbox.get().post([&task, done] {
    task();
    done->set();
  });
  if (posted)
    done->wait();
  else
    task();  // out of descriptors: run it here, since a port that never stops is worse than the race
}

void post_to_interrupt_thread(std::function<void()> task) {
  // Out of descriptors: no thread would run the task, so it is dropped.
  static_cast<void>(mailbox.get().post(std::move(task)));
}

void hold_interrupt_thread() {
  current_hold.reset();  // in a child: the parent's hold, which holds no thread here
  Mailbox* const box = mailbox.find();
  if (box == nullptr) return;
  const auto hold = std::make_shared<Hold>();
  const bool posted = box->post([hold] {
    hold->is_held.set();
    hold->is_released.wait();
  });
  if (!posted) return;
  hold->is_held.wait_for(kHoldPatience);
  current_hold = hold;
}

void release_interrupt_thread() {
  if (current_hold != nullptr) current_hold->is_released.set();
  current_hold.reset();
}

}  // namespace faultline::glue
