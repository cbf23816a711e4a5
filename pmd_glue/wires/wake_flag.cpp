// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/wires/wake_flag.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace faultline::glue {

std::unique_ptr<WakeFlag> WakeFlag::create(const UniqueFd& switch_event) {
  std::unique_ptr<WakeFlag> wake_flag(new WakeFlag);
  wake_flag->memory_ = UniqueFd(memfd_create("faultline-wake-flag", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Sealed: a truncation by one end would raise SIGBUS in the other.
  if (!wake_flag->memory_ || ftruncate(wake_flag->memory_.get(), sizeof(Page)) != 0 ||
      fcntl(wake_flag->memory_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return nullptr;
  wake_flag->events_[0] = UniqueFd(fcntl(switch_event.get(), F_DUPFD_CLOEXEC, 0));
  wake_flag->events_[1] = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return wake_flag->events_[0] && wake_flag->events_[1] && wake_flag->map(nullptr, 0) ? std::move(wake_flag)
                                                                                      : nullptr;
}

std::unique_ptr<WakeFlag> WakeFlag::adopt(std::array<UniqueFd, kDescriptors> descriptors) {
  std::unique_ptr<WakeFlag> wake_flag(new WakeFlag);
  wake_flag->memory_ = std::move(descriptors[0]);
  wake_flag->events_ = {std::move(descriptors[1]), std::move(descriptors[2])};
  return wake_flag->map(nullptr, 0) ? std::move(wake_flag) : nullptr;
}

bool WakeFlag::renew(std::array<UniqueFd, kDescriptors> descriptors, bool lost) {
  if (lost) {
    static_cast<void>(memory_.release());
    for (UniqueFd& event : events_) static_cast<void>(event.release());
  }
  memory_ = std::move(descriptors[0]);
  for (size_t i = 0; i < events_.size(); ++i) {
    UniqueFd& renewed = descriptors[i + 1];
    // The number stays the same, since another thread may be about to signal or to wait on it.
    if (!events_[i])
      events_[i] = std::move(renewed);
    else if (dup3(renewed.get(), events_[i].get(), O_CLOEXEC) < 0)
      return false;
  }
  // Mapped over the old page, since an engine may be reading it.
  return map(page_, MAP_FIXED);
}

bool WakeFlag::map(void* place, int flags) {
  void* const mapped =
      mmap(place, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | flags, memory_.get(), 0);
  if (mapped == MAP_FAILED) return false;
  page_ = static_cast<Page*>(mapped);
  for (size_t i = 0; i < events_.size(); ++i) numbers_[i].store(events_[i].get(), std::memory_order_relaxed);
  return true;
}

WakeFlag::~WakeFlag() {
  if (page_ != nullptr) munmap(page_, sizeof(Page));
}

std::array<int, WakeFlag::kDescriptors> WakeFlag::descriptors() const {
  return {memory_.get(), events_[0].get(), events_[1].get()};
}

void WakeFlag::wake(End end) {
  // One wake-up is enough: the end is awake, or about to be, until it sets its flag again.
  if (sleeps(end).exchange(0, std::memory_order_relaxed) == 0) return;
  const uint64_t one = 1;
  // A full counter also wakes the end.
  static_cast<void>(!write(event(end), &one, sizeof one));
}

}  // namespace faultline::glue
