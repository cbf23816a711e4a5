// SPDX-License-Identifier: BSD-3-Clause
#include "odp/domain.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include <spdlog/spdlog.h>
#include <sys/mman.h>

#include "odp/engine_door.hpp"
#include "odp/fault_handler.hpp"

namespace faultline::odp {
namespace {

constexpr uint32_t kKnownAccess = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic |
                                  kMemoryWindowBind | kZeroBased | kOnDemand | kHugePages | kFlushGlobal |
                                  kRelaxedOrdering;

bool is_valid(const RegionRequest& request) {
  const uint64_t length = request.length_bytes;
  if (request.domain == 0 || length == 0) return false;
  if ((request.access & ~kKnownAccess) != 0) return false;
  // ibv_reg_mr(3): remote write and remote atomic need local write.
  if ((request.access & (kRemoteWrite | kRemoteAtomic)) != 0 && (request.access & kLocalWrite) == 0)
    return false;
  // The last byte and the end of its page must exist as numbers.
  const uint64_t last = request.address + length - 1;
  if (last < request.address || last > ~uint64_t{0} - kPageBytes) return false;
  return request.iova + length - 1 >= request.iova;
}

/// Whether the kernel has MADV_POPULATE_* (Linux 5.14), which everything here rests on.
bool can_populate() {
  LazyArray<uint8_t> page;
  return page.allocate(kPageBytes) && madvise(&page[0], kPageBytes, MADV_POPULATE_READ) == 0;
}

/// True where part of a page-aligned range is not mapped. MS_ASYNC does nothing but look (msync(2), ENOMEM).
bool has_hole(uint64_t start, uint64_t end) {
  return msync(reinterpret_cast<void*>(start), end - start, MS_ASYNC) != 0 && errno == ENOMEM;
}

int populate(const Region& region) {
  constexpr uint64_t kStepBytes = uint64_t{1} << 30;
  const int advice = (region.access & kLocalWrite) != 0 ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  const uint64_t end = region.end_page_address();
  for (uint64_t address = region.start_page_address(); address < end; address += kStepBytes) {
    const uint64_t bytes = std::min(kStepBytes, end - address);
    while (madvise(reinterpret_cast<void*>(address), bytes, advice) != 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      // madvise(2): ENOMEM stands for a hole as well as for no memory.
      return errno == ENOMEM && !has_hole(address, address + bytes) ? ENOMEM : EFAULT;
    }
  }
  return 0;
}

}  // namespace

std::unique_ptr<MemoryDomain> MemoryDomain::create(const DomainConfig& config, std::string& error) {
  try {
    auto domain = std::make_unique<Domain>(config);
    if (!domain->start(error)) return nullptr;
    return domain;
  } catch (const std::bad_alloc&) {
    error = "no memory";
  } catch (const std::system_error&) {
    error = "no threads left";
  }
  return nullptr;
}

Domain::Domain(const DomainConfig& config)
    : config_(config), pins_(effective_pin_budget(config.pin_budget_bytes), counters_) {}

bool Domain::start(std::string& error) {
  if (!can_populate()) {
    error = "on-demand paging needs Linux 5.14 or later (MADV_POPULATE_WRITE)";
    return false;
  }
  if (!keys_.allocate() || !index_.allocate() || !pins_.allocate()) {
    error = "no address space left for the key table";
    return false;
  }
  install_fault_handler();
  if (config_.monitor_invalidations) {
    int reason = 0;
    monitor_ = InvalidationMonitor::instance(config_.realtime_pager, reason);
    if (monitor_ == nullptr) {
      spdlog::warn(
          "odp: no userfaultfd ({}): a transfer into memory that the program has unmapped still ends in an "
          "error and not in a crash, "
          "but memory mapped anew at the same address may be written until its region is deregistered",
          std::strerror(reason));
    } else if (!monitor_->add_sink(*this)) {
      error = "too many device contexts in one process";
      monitor_.reset();
      return false;
    }
  }
  pager_ = std::make_unique<Pager>(Pager::Parts{.keys = keys_,
                                                .readers = readers_,
                                                .quiescence = quiescence_,
                                                .pins = pins_,
                                                .counters = counters_,
                                                .monitor = monitor_.get(),
                                                .realtime = config_.realtime_pager});
  return true;
}

Domain::~Domain() {
  pager_.reset();
  if (monitor_ != nullptr) monitor_->remove_sink(*this);
  while (Region* region = index_.any()) {
    dismantle(*region);
    delete region;
  }
}

RegionResult Domain::register_region(const RegionRequest& request) {
  try {
    return try_register(request);
  } catch (const std::bad_alloc&) {
    return {.error = ENOMEM};
  }
}

RegionResult Domain::try_register(const RegionRequest& request) {
  if (!is_valid(request)) return {.error = EINVAL};
  const bool on_demand = (request.access & kOnDemand) != 0;
  const uint64_t first_page = request.address >> kPageShift;
  const uint64_t last_page = (request.address + request.length_bytes - 1) >> kPageShift;
  // Looked for before anything of ours is mapped, which could fill the hole.
  const bool holed = has_hole(first_page << kPageShift, (last_page + 1) << kPageShift);
  if (holed && !on_demand) return {.error = EFAULT};
  auto region = std::make_unique<Region>();
  region->watch_at_fault = holed;
  region->domain = request.domain;
  region->access = request.access;
  region->on_demand = on_demand;
  region->address = request.address;
  region->length_bytes = request.length_bytes;
  region->iova = request.iova;
  region->first_page = first_page;
  const size_t granules = (region->page_count() + kGranulePages - 1) / kGranulePages;
  if (!region->pages.allocate(region->page_count())) return {.error = ENOMEM};
  if (region->on_demand &&
      !(region->granule_pins.allocate(granules) && region->granule_used.allocate(granules)))
    return {.error = ENOMEM};
  if (!region->on_demand) PinTable::reserve_whole(*region);
  // A program that took the signals over after us is put behind us again.
  install_fault_handler();
  // An munmap of an earlier mapping here may still have its event unread: it must not kill the new region.
  if (monitor_ != nullptr) monitor_->settle();
  if (!keys_.reserve(*region)) return {.error = ENOMEM};
  if (!index_.insert(*region)) {
    keys_.release(region->key);
    return {.error = ENOMEM};
  }
  try {
    watch(*region);
  } catch (const std::bad_alloc&) {
    // Nothing of it is counted as watched, so that dismantle would take away what others count.
    index_.remove(*region);
    keys_.release(region->key);
    throw;
  }
  if (const int error = make_ready(*region); error != 0) {
    dismantle(*region);
    keys_.release(region->key);
    return {.error = error};
  }
  if (region->on_demand) counters_.num_odp_mrs.add();
  const Key key = region->key;
  keys_.publish(*region.release());
  return {.key = key};
}

void Domain::watch(Region& region) {
  if (monitor_ == nullptr) return;
  const int error = monitor_->watch(region.start_page_address(), region.end_page_address());
  if (error == EINVAL) region.watch_at_fault = true;
  if (error == EBUSY || error == EPERM) {
    spdlog::warn(
        "odp: memory at {:#x}, {} bytes, cannot be watched for unmapping ({}): the fault-tolerant copy "
        "alone guards it",
        region.address, region.length_bytes, std::strerror(error));
  }
}

int Domain::make_ready(Region& region) {
  if (region.on_demand) return 0;
  if (const int error = populate(region); error != 0) return error;
  pins_.pin_whole(region);
  return 0;
}

void Domain::dismantle(Region& region) {
  index_.remove(region);
  pins_.unpin_all(region);
  if (monitor_ != nullptr) monitor_->unwatch(region.start_page_address(), region.end_page_address());
}

int Domain::deregister_region(Key key) {
  {
    // Decided before the key goes: a region that stays because of its windows has never been out of sight.
    const ReaderStripes::Guard guard(readers_);
    Region* const region = keys_.find(key);
    if (region == nullptr) return ENOENT;
    if (!region->close_to_windows()) return EBUSY;
  }
  // Ours alone, since we closed it.
  Region* const region = keys_.withdraw(key);
  quiescence_.wait_for(quiescence_.advance());
  readers_.wait();
  dismantle(*region);
  counters_.num_odp_mr_pages.subtract(region->resident_pages.load(std::memory_order_relaxed));
  if (region->on_demand) counters_.num_odp_mrs.subtract(1);
  keys_.release(key);
  delete region;
  return 0;
}

RegionResult Domain::allocate_window(ProtectionDomain domain, WindowType type) {
  if (domain == 0) return {.error = EINVAL};
  std::unique_ptr<Window> window(new (std::nothrow) Window(type, domain));
  if (window == nullptr) return {.error = ENOMEM};
  const Key key = keys_.reserve(*window);
  if (key == 0) return {.error = ENOMEM};
  Window& reserved = *window;
  try {
    const std::lock_guard lock(windows_mutex_);
    windows_.emplace(key >> 8, std::move(window));
  } catch (const std::bad_alloc&) {
    keys_.release_window(key);
    return {.error = ENOMEM};
  }
  // Last: a peer may guess the key before its owner has it.
  keys_.publish(reserved, key);
  return {.key = key};
}

int Domain::deallocate_window(Key key) {
  Window* const window = keys_.withdraw_window(key);
  if (window == nullptr) return ENOENT;
  quiescence_.wait_for(quiescence_.advance());
  readers_.wait();
  const WindowView last = window->view();
  if (last.region != nullptr) last.region->unbind_one();
  {
    const std::lock_guard lock(windows_mutex_);
    windows_.erase(last.key >> 8);
  }
  keys_.release_window(last.key);
  return 0;
}

std::unique_ptr<EngineSession> Domain::attach_engine() {
  Quiescence::Slot* slot = quiescence_.attach();
  if (slot == nullptr) return nullptr;
  SessionPort* port = nullptr;
  try {
    port = pager_->open_port();
    if (port != nullptr)
      return std::make_unique<EngineDoor>(EngineDoor::Parts{.keys = keys_,
                                                            .quiescence = quiescence_,
                                                            .pager = *pager_,
                                                            .pins = pins_,
                                                            .counters = counters_},
                                          *slot, *port);
  } catch (const std::bad_alloc&) {
    if (port != nullptr) pager_->close_port(*port);
  }
  quiescence_.detach(*slot);
  return nullptr;
}

void Domain::hint_will_write(const Target& target, uint64_t va, uint64_t length_bytes) {
  if (length_bytes == 0) return;
  {
    const ReaderStripes::Guard guard(readers_);
    const Region* region = keys_.find(target.key);
    if (region == nullptr || !region->on_demand || !grants(*region, target, va, length_bytes)) return;
    const PageRange pages = pages_of(*region, va, length_bytes);
    size_t page = pages.first;
    while (page < pages.first + pages.count && region->pages.state(page) == PageState::writable) ++page;
    if (page == pages.first + pages.count) return;
  }
  const FaultRequest request{target, va, length_bytes, 0};
  if (pager_->background().try_push({request, nullptr})) pager_->wake();
}

int Domain::prefetch(const Target& target, uint64_t va, uint64_t length_bytes, bool wait) {
  if (target.domain == 0) return EINVAL;
  {
    const ReaderStripes::Guard guard(readers_);
    const Region* region = keys_.find(target.key);
    // rdma-core ibv_advise_mr(3).
    if (region == nullptr) return EFAULT;
    if (region->domain != target.domain) return ENOENT;
    if (!region->on_demand) return EINVAL;
    if ((target.need & ~region->access) != 0) return EPERM;
    if (!grants(*region, target, va, length_bytes)) return EFAULT;
  }
  if (length_bytes == 0) return 0;
  const FaultRequest request{target, va, length_bytes, 0};
  if (!wait) {
    // Advice may be dropped.
    if (pager_->background().try_push({request, nullptr})) pager_->wake();
    return 0;
  }
  PrefetchWait waiting;
  Backoff backoff;
  while (!pager_->background().try_push({request, &waiting})) backoff.pause();
  pager_->wake();
  waiting.state.wait(PrefetchWait::State::waiting, std::memory_order_acquire);
  return waiting.state.load(std::memory_order_acquire) == PrefetchWait::State::done ? 0 : EFAULT;
}

void Domain::invalidate(uint64_t start, uint64_t end, PageEvent event) {
  index_.for_each_in(start, end, [&](Region& region, PageRange pages) {
    // Pages of a classic region whose contents the program drops come back by themselves.
    if (!region.on_demand && event == PageEvent::drop) return;
    const size_t dropped = region.pages.apply_range(pages.first, pages.count, event);
    if (event == PageEvent::kill) region.has_dead_pages.store(true, std::memory_order_release);
    counters_.num_invalidations.add();
    if (!region.on_demand) return;
    region.resident_pages.fetch_sub(dropped, std::memory_order_relaxed);
    counters_.num_invalidation_pages.add(dropped);
    counters_.num_odp_mr_pages.subtract(dropped);
  });
}

void Domain::make_copy_on_write() {
  index_.for_each_in(0, ~uint64_t{0}, [](Region& region, PageRange pages) {
    if (region.on_demand && region.resident_pages.load(std::memory_order_relaxed) != 0)
      region.pages.apply_range(pages.first, pages.count, PageEvent::make_copy_on_write);
  });
}

void Domain::release_pins(uint64_t start, uint64_t end) {
  index_.for_each_in(start, end,
                     [this](Region& region, PageRange pages) { pins_.unpin_pages(region, pages); });
}

}  // namespace faultline::odp
