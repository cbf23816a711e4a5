// SPDX-License-Identifier: BSD-3-Clause
#include "odp/domain.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include <sys/mman.h>

#include "odp/copy/fault_handler.hpp"
#include "odp/domain_session.hpp"
#include "odp/guards.hpp"
#include "odp/mappings/holes.hpp"
#include "odp/mappings/own_mappings.hpp"
#include "stack/base/log.hpp"

namespace faultline::odp {
namespace {

constexpr uint32_t kKnownAccess = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic |
                                  kMemoryWindowBind | kZeroBased | kOnDemand | kHugePages | kFlushGlobal |
                                  kRelaxedOrdering;

/// ibv_reg_mr(3): remote write and remote atomic need local write.
bool is_valid_access(uint32_t access) {
  return (access & ~kKnownAccess) == 0 &&
         ((access & (kRemoteWrite | kRemoteAtomic)) == 0 || (access & kLocalWrite) != 0);
}

bool is_valid(const RegionRequest& request) {
  const uint64_t length = request.length_bytes;
  if (request.domain == 0 || length == 0) return false;
  if (!is_valid_access(request.access)) return false;
  // The last byte and the end of its page must be representable.
  const uint64_t last = request.address + length - 1;
  if (last < request.address || last > ~uint64_t{0} - kPageBytes) return false;
  return request.iova + length - 1 >= request.iova;
}

/// True if the kernel has MADV_POPULATE_* (Linux 5.14), which this layer requires.
bool can_populate() {
  LazyArray<uint8_t> page;
  return page.allocate(kPageBytes) && madvise(&page[0], kPageBytes, MADV_POPULATE_READ) == 0;
}

int populate(const Region& region) {
  constexpr uint64_t kStepBytes = uint64_t{1} << 30;
  const int advice = (region.access & kLocalWrite) != 0 ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  const uint64_t end = region.end_page_address();
  for (uint64_t address = region.start_page_address(); address < end; address += kStepBytes) {
    const uint64_t bytes = std::min(kStepBytes, end - address);
    while (madvise(reinterpret_cast<void*>(address), bytes, advice) != 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      // madvise(2): VM_IO or VM_PFNMAP.
      if (errno == EINVAL && region.is_of_other_device) return 0;
      // madvise(2): ENOMEM means a hole or short memory.
      return errno == ENOMEM && !has_hole({address, address + bytes}) ? ENOMEM : EFAULT;
    }
  }
  return 0;
}

/// True if each page of a range may be written without a fault. The caller is a reader.
bool is_writable(const Region& region, uint64_t va, uint64_t length_bytes) {
  const auto all_writable = [](const Region& piece, uint64_t from, uint64_t length) {
    const PageRange pages = pages_of(piece, from, length);
    for (size_t page = pages.first; page < pages.first + pages.count; ++page)
      if (piece.pages.state(page) != PageState::writable) return false;
    return true;
  };
  if (region.children == nullptr) return all_writable(region, va, length_bytes);
  for (uint64_t done = 0; done < length_bytes;) {
    const uint64_t piece = std::min(length_bytes - done, kChildBytes - (va + done) % kChildBytes);
    const Region* const child = region.children->find(va + done);
    if (child == nullptr || !all_writable(*child, va + done, piece)) return false;
    done += piece;
  }
  return true;
}

/// Logs once for each reason: there may be very many such regions.
void log_unwatched(const Region& region, int error) {
  static std::atomic<uint64_t> logged{0};
  const uint64_t bit = uint64_t{1} << (static_cast<unsigned>(error) % 64);
  if ((logged.fetch_or(bit, std::memory_order_relaxed) & bit) != 0) return;
  log().warn(
      "cannot watch all of the region at {:#x}, {} bytes: {}; the library's hooks and the fault-tolerant "
      "copy "
      "alone guard it. The counter odp.unwatched_regions has the number of such regions",
      region.address, region.length_bytes, std::strerror(error));
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
    : config_(config),
      pins_(effective_pin_budget(config.pin_budget_bytes), counters_),
      children_(std::max(1U, config.implicit_children)) {}

bool Domain::start(std::string& error) {
  if (!can_populate()) {
    error = "on-demand paging needs Linux 5.14 or later (MADV_POPULATE_WRITE)";
    return false;
  }
  if (!keys_.allocate() || !index_.allocate() || !pins_.allocate() || !children_.allocate()) {
    error = "no address space left for the key table";
    return false;
  }
  install_fault_handler();
  prepare_restartable_copies();
  watch_forks();
  keep_own_mappings();
  const UserfaultLevel wanted = !config_.monitor_invalidations ? UserfaultLevel::none
                                : config_.userfault_async      ? UserfaultLevel::full
                                                               : UserfaultLevel::without_files;
  monitor_ = InvalidationMonitor::instance({.realtime = config_.realtime_pager, .level = wanted});
  guard_ = UnmapGuard(config_, *monitor_);
  note_start({.level = monitor_->level(),
              .wanted = wanted,
              .userfault_error = monitor_->userfault_error(),
              .pin_budget_bytes = pins_.budget_bytes(),
              .allow_unguarded = config_.allow_unguarded});
  log_guards_once();
  pager_ = std::make_unique<Pager>(Pager::Parts{.keys = keys_,
                                                .readers = readers_,
                                                .quiescence = quiescence_,
                                                .pins = pins_,
                                                .children = children_,
                                                .counters = counters_,
                                                .monitor = *monitor_,
                                                .realtime = config_.realtime_pager,
                                                .threads = config_.pager_threads});
  prefetcher_ = std::make_unique<Prefetcher>(*pager_);
  // Last: events are delivered from here on.
  if (!monitor_->add_sink(*this)) {
    error = "too many device contexts in one process";
    monitor_.reset();
    return false;
  }
  return true;
}

Domain::~Domain() {
  prefetcher_.reset();
  if (monitor_ != nullptr) monitor_->remove_sink(*this);
  while (Region* region = index_.any()) {
    // Hidden from the pager, which may be busy with advice.
    static_cast<void>(keys_.withdraw(region->key));
    readers_.wait();
    dismantle(*region);
    delete region;
  }
  pager_.reset();
}

RegionResult Domain::register_region(const RegionRequest& request) {
  if (is_of_parent_process()) return {.error = EIO};
  log_stuck_pins(pins_.take_release_error());
  std::unique_ptr<Region> region;
  if (const int error = prepare(request, region); error != 0) return {.error = error};
  if (region->on_demand) counters_.num_odp_mrs.add();
  const Key key = region->key;
  keys_.publish(*region.release());
  return {.key = key};
}

int Domain::prepare(const RegionRequest& request, std::unique_ptr<Region>& region) {
  const bool is_implicit = request.address == 0 && request.length_bytes == ~uint64_t{0};
  try {
    return is_implicit ? prepare_implicit(request, region) : prepare_range(request, region);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

int Domain::prepare_implicit(const RegionRequest& request, std::unique_ptr<Region>& region) {
  if (request.domain == 0 || !is_valid_access(request.access) || request.iova != 0 ||
      (request.access & kOnDemand) == 0)
    return EINVAL;
  if (const int error = guard_.check_implicit(); error != 0) return error;
  region = std::make_unique<Region>();
  region->domain = request.domain;
  region->access = request.access;
  region->on_demand = true;
  region->length_bytes = kAddressSpaceBytes;
  region->children = std::make_unique<ChildTable>(children_);
  if (!region->children->allocate()) return ENOMEM;
  install_fault_handler();
  monitor_->wait_for_calls({});
  return enlist(*region);
}

int Domain::prepare_range(const RegionRequest& request, std::unique_ptr<Region>& region) {
  if (!is_valid(request) || (request.is_of_other_device && (request.access & kOnDemand) != 0)) return EINVAL;
  const bool on_demand = (request.access & kOnDemand) != 0;
  const uint64_t first_page = request.address >> kPageShift;
  const uint64_t last_page = (request.address + request.length_bytes - 1) >> kPageShift;
  // Checked before the library maps anything, which could fill the hole.
  const bool holed = has_hole({first_page << kPageShift, (last_page + 1) << kPageShift});
  if (holed && !on_demand) return EFAULT;
  if (on_demand) {
    const int error = guard_.check_range(first_page << kPageShift, (last_page + 1) << kPageShift);
    if (error != 0) return error;
  }
  region = std::make_unique<Region>();
  region->watch_at_fault = holed;
  region->domain = request.domain;
  region->access = request.access;
  region->on_demand = on_demand;
  region->is_of_other_device = request.is_of_other_device;
  region->address = request.address;
  region->length_bytes = request.length_bytes;
  region->iova = request.iova;
  region->first_page = first_page;
  const size_t granules = (region->page_count() + kGranulePages - 1) / kGranulePages;
  if (!region->pages.allocate(region->page_count())) return ENOMEM;
  if (region->on_demand &&
      !(region->granule_pins.allocate(granules) && region->granule_used.allocate(granules)))
    return ENOMEM;
  if (!region->on_demand) PinTable::reserve_whole(*region);
  // If the program has installed its own handlers since, ours is installed in front again.
  install_fault_handler();
  // An event of an earlier munmap here may still be unread, or not yet sent: it must not kill the new
  // region.
  monitor_->wait_for_calls({region->start_page_address(), region->end_page_address()});
  if (const int error = enlist(*region); error != 0) return error;
  int watch_error = 0;
  try {
    watch_error = watch(*region);
  } catch (const std::bad_alloc&) {
    // Nothing of the region is counted as watched, so dismantle would remove what other regions count.
    index_.remove(*region);
    keys_.release(region->key);
    throw;
  }
  int error = on_demand ? guard_.check_watched(*region, watch_error) : 0;
  if (error == 0) error = make_ready(*region);
  if (error != 0) {
    dismantle(*region);
    keys_.release(region->key);
    return error;
  }
  return 0;
}

int Domain::enlist(Region& region) {
  if (const int error = keys_.reserve(region); error != 0) return error;
  if (index_.insert(region)) return 0;
  keys_.release(region.key);
  return ENOMEM;
}

int Domain::watch(Region& region) {
  if (region.is_of_other_device) return 0;
  const int error = monitor_->watch(region.start_page_address(), region.end_page_address());
  const bool has_hole = region.watch_at_fault;
  // A mapping that refuses a watch now may be replaced by another; EPERM is permanent (a read-only file).
  region.watch_at_fault = has_hole || (error != 0 && error != EPERM);
  region.is_paged_by_program.store(error == EBUSY, std::memory_order_relaxed);
  const bool is_logged = monitor_->level() == UserfaultLevel::none ||
                         (error == EINVAL && monitor_->level() == UserfaultLevel::without_files);
  // A hole is watched when an access meets it after it was filled.
  if ((error == EINVAL && has_hole) || (error == 0 && monitor_->level() != UserfaultLevel::none))
    return error;
  counters_.unwatched_regions.add();
  if (!is_logged) log_unwatched(region, error);
  return error;
}

int Domain::make_ready(Region& region) {
  if (region.on_demand) return 0;
  if (const int error = populate(region); error != 0 || region.is_of_other_device) return error;
  const int error = pins_.pin_whole(region);
  if (error == 0) return 0;
  return judge_unpinned({.length_bytes = region.length_bytes,
                         .budget_bytes = pins_.budget_bytes(),
                         .wanted_bytes = config_.pin_budget_bytes,
                         .error = error,
                         .refuse = config_.refuse_unpinned_classic});
}

void Domain::dismantle(Region& region) {
  if (region.children != nullptr) {
    pager_->drop_children(region);
    index_.remove(region);
    return;
  }
  index_.remove(region);
  pins_.unpin_all(region);
  if (!region.is_of_other_device) monitor_->unwatch(region.start_page_address(), region.end_page_address());
}

int Domain::close(Key key) {
  // Decided before the key is withdrawn: a region that stays because of its windows remains visible
  // throughout.
  const ReaderStripes::Guard guard(readers_);
  Region* const region = keys_.find(key);
  if (region == nullptr) return ENOENT;
  return region->close_to_windows() ? 0 : EBUSY;
}

void Domain::retire(Region* region) {
  quiescence_.wait_for(quiescence_.advance());
  readers_.wait();
  PageMap::note_loss();  // after the last reader that found the region by its key
  dismantle(*region);
  counters_.num_odp_mr_pages.subtract(region->resident_pages.load(std::memory_order_relaxed));
  if (region->on_demand) counters_.num_odp_mrs.subtract(1);
}

int Domain::deregister_region(Key key) {
  if (is_of_parent_process()) return 0;
  log_stuck_pins(pins_.take_release_error());
  if (const int error = close(key); error != 0) return error;
  // Owned by this thread, which closed the region.
  Region* const region = keys_.withdraw(key);
  retire(region);
  keys_.release(key);
  delete region;
  return 0;
}

int Domain::replace_region(Key key, const RegionRequest& request) {
  if (is_of_parent_process()) return EIO;
  std::unique_ptr<Region> fresh;
  if (const int error = prepare(request, fresh); error != 0) return error;
  if (const int error = close(key); error != 0) {
    dismantle(*fresh);
    keys_.release(fresh->key);
    return error;
  }
  if (fresh->on_demand) counters_.num_odp_mrs.add();
  Region* const old = keys_.replace(key, *fresh.release());
  retire(old);
  delete old;
  return 0;
}

RegionResult Domain::allocate_window(ProtectionDomain domain, WindowType type) {
  if (is_of_parent_process()) return {.error = EIO};
  if (domain == 0) return {.error = EINVAL};
  std::unique_ptr<Window> window(new (std::nothrow) Window(type, domain));
  if (window == nullptr) return {.error = ENOMEM};
  Key key = 0;
  if (const int error = keys_.reserve(*window, key); error != 0) return {.error = error};
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
  if (is_of_parent_process()) return 0;
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
  FaultRings* port = nullptr;
  try {
    port = pager_->open_port();
    if (port != nullptr)
      return std::make_unique<DomainSession>(DomainSession::Parts{.keys = keys_,
                                                                  .quiescence = quiescence_,
                                                                  .pager = *pager_,
                                                                  .pins = pins_,
                                                                  .children = children_,
                                                                  .counters = counters_},
                                             *slot, *port);
  } catch (const std::bad_alloc&) {
    if (port != nullptr) pager_->close_port(*port);
  }
  quiescence_.detach(*slot);
  return nullptr;
}

[[gnu::always_inline]] inline bool Domain::asks_for_pages(const Target& target, const WriteHint& hint) const {
  if (hint.length_bytes == 0) return false;
  const Region* const region = keys_.find(hint.key);
  return region != nullptr && region->on_demand && grants(*region, target, hint.va, hint.length_bytes) &&
         !is_writable(*region, hint.va, hint.length_bytes);
}

/// Sets `settled` to the pages of a hint, if they are writable, and their writable neighbours. The caller is
/// a reader; `losses` was read before.
void Domain::settle(const Target& target, const WriteHint& hint, uint64_t losses,
                    SettledRange& settled) const {
  // About as many as can be checked in the time of the reader's two read-modify-writes.
  constexpr size_t kMostPages = 64;
  const Region* const region = hint.length_bytes == 0 ? nullptr : keys_.find(hint.key);
  if (region == nullptr || region->children != nullptr ||
      !grants(*region, target, hint.va, hint.length_bytes))
    return;
  if (!region->on_demand) {
    settled = {region->iova, region->length_bytes, losses, hint.key};
    return;
  }
  if (!is_writable(*region, hint.va, hint.length_bytes)) return;
  const auto is_there = [region](size_t page) { return region->pages.state(page) == PageState::writable; };
  const PageRange hinted = pages_of(*region, hint.va, hint.length_bytes);
  size_t first = hinted.first;
  size_t end = first + hinted.count;
  const size_t lowest = first / kMostPages * kMostPages;
  const size_t highest = std::min<size_t>(lowest + kMostPages, region->page_count());
  while (first > lowest && is_there(first - 1)) --first;
  while (end < highest && is_there(end)) ++end;
  const uint64_t start_address = std::max(region->address, (region->first_page + first) << kPageShift);
  const uint64_t end_address =
      std::min(region->address + region->length_bytes, (region->first_page + end) << kPageShift);
  settled = {region->iova + (start_address - region->address), end_address - start_address, losses, hint.key};
}

void Domain::hint_will_write(ProtectionDomain domain, std::span<const WriteHint> hints,
                             SettledRange& settled) {
  settled = {};
  if (hints.empty() || is_of_parent_process()) return;
  const uint64_t losses = page_losses().load(std::memory_order_acquire);
  // One guard for all hints, since its two read-modify-writes cost as much as several checks.
  for (size_t next = 0; next < hints.size();) {
    {
      const ReaderStripes::Guard guard(readers_);
      while (next < hints.size() && !asks_for_pages({hints[next].key, domain, kLocalWrite}, hints[next]))
        ++next;
      if (next == hints.size()) {
        settle({hints.back().key, domain, kLocalWrite}, hints.back(), losses, settled);
        return;
      }
    }
    const WriteHint& hint = hints[next++];
    const FaultRequest request{
        .target = {hint.key, domain, kLocalWrite}, .va = hint.va, .length_bytes = hint.length_bytes};
    if (pager_->background().try_push({request, nullptr})) pager_->wake();
  }
}

/// rdma-core ibv_advise_mr(3). Sets `memory` to the range's location in this process.
int Domain::check_prefetch(ProtectionDomain domain, const PrefetchRange& range, PrefetchKind kind,
                           PopulateRange& memory) {
  const ReaderStripes::Guard guard(readers_);
  const Region* const region = keys_.find(range.key);
  if (region == nullptr) return keys_.find_window(range.key) != nullptr ? EINVAL : EFAULT;
  if (region->domain != domain) return EPERM;
  if (!region->on_demand) return EINVAL;
  if (kind == PrefetchKind::write && (region->access & kLocalWrite) == 0) return EPERM;
  if (!grants(*region, {range.key, domain, kLocalRead}, range.va, range.length_bytes)) return EFAULT;
  memory = {region->address + (range.va - region->iova), range.length_bytes};
  return 0;
}

int Domain::prefetch(ProtectionDomain domain, std::span<const PrefetchRange> ranges, PrefetchKind kind,
                     bool wait) {
  if (domain == 0) return EINVAL;
  if (is_of_parent_process()) return EIO;
  PopulateRange memory;
  for (const PrefetchRange& range : ranges) {
    if (const int error = check_prefetch(domain, range, kind, memory); error != 0) return error;
  }
  int result = 0;
  for (const PrefetchRange& range : ranges) {
    if (range.length_bytes == 0) continue;
    // The region was deregistered meanwhile: there is nothing to prefetch.
    if (check_prefetch(domain, range, kind, memory) != 0) continue;
    const FaultRequest request{
        .target = {range.key, domain, kind == PrefetchKind::write ? kLocalWrite : kLocalRead},
        .va = range.va,
        .length_bytes = range.length_bytes,
        .no_fault = kind == PrefetchKind::no_fault};
    if (!wait) {
      prefetcher_->start(request, memory);
    } else if (!prefetcher_->run(request, memory)) {
      result = EFAULT;
    }
  }
  return result;
}

bool Domain::region_counters(Key key, RegionCounters& counters) {
  const ReaderStripes::Guard guard(readers_);
  const Region* const region = keys_.find(key);
  if (region == nullptr) return false;
  const RegionCounterCells& cells = region->own_counters;
  counters = {.page_faults = cells.page_faults.get(),
              .page_invalidations = cells.page_invalidations.get(),
              .page_prefetch = cells.page_prefetch.get(),
              .resident_pages = region->resident_pages.load(std::memory_order_relaxed)};
  if (region->children != nullptr) {
    region->children->for_each_in(0, kAddressSpaceBytes, [&](const Region& child, PageRange) {
      counters.resident_pages += child.resident_pages.load(std::memory_order_relaxed);
    });
  }
  return true;
}

}  // namespace faultline::odp
