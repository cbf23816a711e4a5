// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/switch_bell.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace faultline::glue {

std::unique_ptr<SwitchBell> SwitchBell::create(const UniqueFd& switch_event) {
  std::unique_ptr<SwitchBell> bell(new SwitchBell);
  bell->memory_ = UniqueFd(memfd_create("faultline-bell", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Sealed: whoever shortened it would have the other end die of SIGBUS.
  if (!bell->memory_ || ftruncate(bell->memory_.get(), sizeof(Page)) != 0 ||
      fcntl(bell->memory_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return nullptr;
  bell->events_[0] = UniqueFd(fcntl(switch_event.get(), F_DUPFD_CLOEXEC, 0));
  bell->events_[1] = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return bell->events_[0] && bell->events_[1] && bell->map() ? std::move(bell) : nullptr;
}

std::unique_ptr<SwitchBell> SwitchBell::adopt(std::array<UniqueFd, kDescriptors> descriptors) {
  std::unique_ptr<SwitchBell> bell(new SwitchBell);
  bell->memory_ = std::move(descriptors[0]);
  bell->events_ = {std::move(descriptors[1]), std::move(descriptors[2])};
  return bell->map() ? std::move(bell) : nullptr;
}

bool SwitchBell::map() {
  void* const mapped = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0);
  if (mapped == MAP_FAILED) return false;
  page_ = static_cast<Page*>(mapped);
  return true;
}

SwitchBell::~SwitchBell() {
  if (page_ != nullptr) munmap(page_, sizeof(Page));
}

std::array<int, SwitchBell::kDescriptors> SwitchBell::descriptors() const {
  return {memory_.get(), events_[0].get(), events_[1].get()};
}

void SwitchBell::wake(End end) {
  // Once: until the end says again that it sleeps, it is awake or about to be.
  if (sleeps(end).exchange(0, std::memory_order_relaxed) == 0) return;
  const uint64_t one = 1;
  // A full counter wakes as well.
  static_cast<void>(!write(event(end), &one, sizeof one));
}

}  // namespace faultline::glue
