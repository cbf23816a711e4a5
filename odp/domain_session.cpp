// SPDX-License-Identifier: BSD-3-Clause
#include "odp/domain_session.hpp"

#include <algorithm>
#include <mutex>

#include <sys/mman.h>

#include "odp/copy/tolerant_atomic.hpp"
#include "odp/copy/tolerant_copy.hpp"
#include "odp/copy/tolerant_copy_crc.hpp"
#include "odp/invalidation/program_call.hpp"
#include "odp/regions/address_space.hpp"
#include "stack/base/clock.hpp"

namespace faultline::odp {

DomainSession::~DomainSession() {
  leave();
  parts_.pager.close_port(port_);
  Resolution left;
  while (port_.resolutions.try_pop(left)) {
  }
  parts_.quiescence.detach(slot_);
}

void DomainSession::enter() {
  signals_.enter();
  gated_ = parts_.quiescence.enter(slot_);
  prepare_ticket(ticket_);
  tracks_use_ = parts_.pins.tracks_use() || parts_.children.tracks_use();
  reads_files_ = parts_.pager.reads_files();
  fast_path_allowed_ = !gated_ && !tracks_use_ && !reads_files_;
}

// Inlined into each kind of access: three calls per access would cost as much as their work.
[[gnu::always_inline]] inline DomainSession::Place DomainSession::find(const Target& target, uint64_t va,
                                                                       uint64_t length_bytes) const {
  Region* const region = parts_.keys.find(target.key);
  if (region == nullptr) return find_in_window(target, va, length_bytes);
  return {grants(*region, target, va, length_bytes) ? region : nullptr, va};
}

Outcome DomainSession::check(const Target& target, uint64_t va, uint64_t length_bytes) {
  if (length_bytes == 0) return Outcome::done;
  return find(target, va, length_bytes).region != nullptr ? Outcome::done : Outcome::violation;
}

Violation DomainSession::explain(const Target& target, uint64_t va, uint64_t length_bytes) {
  if (check(target, va, length_bytes) == Outcome::done) return Violation::none;
  if (const Region* const region = parts_.keys.find(target.key); region != nullptr) {
    if (region->domain != target.domain) return Violation::domain;
    return (target.need & ~region->access) != 0 ? Violation::right : Violation::range;
  }
  const Window* const window = parts_.keys.find_window(target.key);
  if (window == nullptr) return Violation::key;
  const WindowView view = window->view();
  if (window->domain != target.domain) return Violation::domain;
  if (view.key != target.key || view.region == nullptr) return Violation::window;
  if (window->type == WindowType::type2 && view.qpn != target.qpn) return Violation::window;
  const bool has_right = target.need != kLocalRead && (target.need & ~view.access) == 0;
  return has_right ? Violation::range : Violation::right;
}

DomainSession::Place DomainSession::find_in_window(const Target& target, uint64_t va,
                                                   uint64_t length_bytes) const {
  const Window* const window = parts_.keys.find_window(target.key);
  if (window == nullptr) return {};
  const WindowView view = window->view();
  if (view.key != target.key || view.region == nullptr || window->domain != target.domain) return {};
  if (window->type == WindowType::type2 && view.qpn != target.qpn) return {};
  // A window's key is for remote access: it grants no local right (IBA 10.6.7.1).
  if (target.need == kLocalRead || (target.need & ~view.access) != 0) return {};
  const uint64_t offset = (view.access & kZeroBased) != 0 ? va : va - view.va;
  if (offset > view.length_bytes || length_bytes > view.length_bytes - offset) return {};
  return {view.region, view.va + offset};
}

[[gnu::always_inline]] inline Outcome DomainSession::admit(const Target& target, uint64_t va,
                                                           uint64_t length_bytes, Place& place) const {
  place = find(target, va, length_bytes);
  if (place.region == nullptr) return Outcome::violation;
  // Classic regions too: a munmap of the region may be in progress, and must not return before the engine
  // stops.
  return gated_ ? Outcome::miss : Outcome::done;
}

[[gnu::always_inline]] inline Outcome DomainSession::open(Region& region, uint64_t va, uint64_t length_bytes,
                                                          bool write, Access& access) {
  access = {&region, region.address + (va - region.iova), pages_of(region, va, length_bytes)};
  const size_t end = access.pages.first + access.pages.count;
  if (!region.on_demand) {
    if (!region.has_barred_pages.load(std::memory_order_acquire)) return Outcome::done;
    for (size_t page = access.pages.first; page < end; ++page) {
      const PageState state = region.pages.state(page);
      if (state == PageState::dead) return Outcome::violation;
      // A call that unmaps the page is in progress. The call's end decides.
      if (state == PageState::doomed) return Outcome::miss;
    }
    return Outcome::done;
  }
  // Nearly always one page: testing the loop's end costs as much as the page.
  size_t page = access.pages.first;
  do {
    const PageState state = region.pages.state(page);
    if (!allows(state, write)) [[unlikely]]
      return state == PageState::dead ? Outcome::violation : Outcome::miss;
  } while (++page != end);
  if (tracks_use_) [[unlikely]] {
    for (size_t granule = access.pages.first / kGranulePages; granule * kGranulePages < end; ++granule) {
      std::atomic<uint8_t>& used = region.granule_used[granule];
      if (used.load(std::memory_order_relaxed) == 0) used.store(1, std::memory_order_relaxed);
    }
  }
  if (reads_files_ && region.has_unpinnable.load(std::memory_order_relaxed)) [[unlikely]]
    return check_reclaimed_pages(access);
  return Outcome::done;
}

/// A copy would wait for the disk and stall all QPs. The packets of a message would wait one after the
/// other, so that their requester may consider the engine dead. A page that is reclaimed between this check
/// and the copy still has that effect.
/// mincore(2) waits for mmap_lock, and a copy of a page that is in memory does not: while a call may hold
/// that lock for long (MADV_COLLAPSE: for seconds), nothing is checked.
Outcome DomainSession::check_reclaimed_pages(const Access& access) {
  if (AddressSpaceCall::any_in_progress()) return Outcome::done;
  const size_t end = access.pages.first + access.pages.count;
  for (size_t page = access.pages.first; page < end;) {
    std::array<unsigned char, 16> in_core{};
    const size_t pages = std::min(end - page, in_core.size());
    const uint64_t start = access.region->start_page_address() + page * kPageBytes;
    // mincore(2). If it fails, the copy detects the fault.
    if (mincore(reinterpret_cast<void*>(start), pages * kPageBytes, in_core.data()) != 0)
      return Outcome::done;
    const auto is_out = [](unsigned char core) { return (core & 1U) == 0; };
    if (std::any_of(in_core.begin(), in_core.begin() + static_cast<long>(pages), is_out)) {
      parts_.counters.departures_seen.add();
      return forget(access);
    }
    page += pages;
  }
  return Outcome::done;
}

template <typename Touch>
Outcome DomainSession::for_each_piece(const Place& place, uint64_t length_bytes, bool write, Touch touch) {
  Access access;
  if (place.region->children == nullptr) [[likely]] {
    const Outcome outcome = open(*place.region, place.va, length_bytes, write, access);
    if (outcome != Outcome::done) return outcome;
    const size_t copied = touch(access, size_t{0}, length_bytes);
    if (copied == length_bytes) [[likely]]
      return Outcome::done;
    revoked_ = copied == kRevoked;
    return revoked_ ? Outcome::miss : after_copy_fault(access);
  }
  for (uint64_t done = 0; done < length_bytes;) {
    const uint64_t va = place.va + done;
    const uint64_t piece = std::min(length_bytes - done, kChildBytes - va % kChildBytes);
    Region* const child = place.region->children->find(va);
    if (child == nullptr) return Outcome::miss;
    const Outcome outcome = open(*child, va, piece, write, access);
    if (outcome != Outcome::done) return outcome;
    const size_t copied = touch(access, static_cast<size_t>(done), piece);
    revoked_ = copied == kRevoked;
    if (revoked_) return Outcome::miss;
    if (copied != piece) return after_copy_fault(access);
    done += piece;
  }
  return Outcome::done;
}

template <typename Attempt>
Outcome DomainSession::retry_while_revoked(Attempt attempt) {
  for (;;) {
    const Outcome outcome = attempt();
    if (!revoked_) [[likely]]
      return outcome;
    revoked_ = false;
    prepare_ticket(ticket_);
    gated_ = parts_.quiescence.gate_is_up();
    fast_path_allowed_ = fast_path_allowed_ && !gated_;
  }
}

Outcome DomainSession::after_copy_fault(const Access& access) {
  parts_.counters.copy_faults_caught.add();
  // A classic region must be resident: no pager restores it.
  if (!access.region->on_demand) return Outcome::violation;
  return forget(access);
}

/// Removed without an event (mprotect, truncation, shmdt, reclaim): the pager must look again, and its
/// resolution decides.
Outcome DomainSession::forget(const Access& access) {
  const size_t dropped =
      access.region->pages.apply_range(access.pages.first, access.pages.count, PageEvent::drop);
  access.region->resident_pages.fetch_sub(dropped, std::memory_order_relaxed);
  parts_.counters.num_odp_mr_pages.subtract(dropped);
  return Outcome::miss;
}

/// Fast path: returns the address of an access that is allowed without further checks, as nearly all are:
/// within one page of a plain region. Returns nullptr if the access needs the slow path, which finds the
/// reason.
[[gnu::always_inline]] inline void* DomainSession::fast_translate(const Target& target, uint64_t va,
                                                                  uint64_t length_bytes, bool write) const {
  const Region* const region = parts_.keys.find(target.key);
  if (region == nullptr || !grants(*region, target, va, length_bytes)) return nullptr;
  if (!fast_path_allowed_ || region->children != nullptr) return nullptr;
  const uint64_t address = region->address + (va - region->iova);
  if (!region->on_demand) {
    const bool whole = !region->has_barred_pages.load(std::memory_order_acquire);
    return whole ? reinterpret_cast<void*>(address) : nullptr;
  }
  const uint64_t page = address >> kPageShift;
  if ((address + length_bytes - 1) >> kPageShift != page) return nullptr;
  if (!allows(region->pages.state(page - region->first_page), write)) return nullptr;
  return reinterpret_cast<void*>(address);
}

Outcome DomainSession::probe(const Target& target, uint64_t va, uint64_t length_bytes) {
  if (length_bytes == 0) return Outcome::done;
  const bool write = (target.need & kWriteRights) != 0;
  if (fast_translate(target, va, length_bytes, write) != nullptr) [[likely]]
    return Outcome::done;
  return probe_slow(target, va, length_bytes);
}

[[gnu::noinline]] Outcome DomainSession::probe_slow(const Target& target, uint64_t va,
                                                    uint64_t length_bytes) {
  Place place;
  const Outcome outcome = admit(target, va, length_bytes, place);
  if (outcome != Outcome::done) return outcome;
  return for_each_piece(place, length_bytes, (target.need & kWriteRights) != 0,
                        [](const Access&, size_t, uint64_t length) { return static_cast<size_t>(length); });
}

Outcome DomainSession::write(const Target& target, uint64_t va, std::span<const uint8_t> from) {
  if (from.empty()) return Outcome::done;
  if (beside_write_ == nullptr) [[likely]] {
    void* const to = fast_translate(target, va, from.size(), true);
    if (to != nullptr && guarded_copy(to, from.data(), from.size(), ticket_) == from.size())
      return Outcome::done;
  }
  return write_slow(target, va, from);
}

[[gnu::noinline]] Outcome DomainSession::write_slow(const Target& target, uint64_t va,
                                                    std::span<const uint8_t> from) {
  const auto copy = [this, from](const Access& access, size_t first, uint64_t length) {
    auto* const to = reinterpret_cast<void*>(access.address);
    const uint8_t* const bytes = from.data() + first;
    return beside_write_ == nullptr || beside_write_->done
               ? guarded_copy(to, bytes, length, ticket_)
               : guarded_copy_beside(to, bytes, length, *beside_write_, ticket_);
  };
  return retry_while_revoked([&] {
    Place place;
    const Outcome outcome = admit(target, va, from.size(), place);
    return outcome == Outcome::done ? for_each_piece(place, from.size(), true, copy) : outcome;
  });
}

template <typename Copy>
Outcome DomainSession::read_by(const Target& target, uint64_t va, std::span<uint8_t> to, Copy copy) {
  if (to.empty()) return Outcome::done;
  return retry_while_revoked([&] {
    Place place;
    const Outcome outcome = admit(target, va, to.size(), place);
    if (outcome != Outcome::done) return outcome;
    return for_each_piece(place, to.size(), (target.need & kWriteRights) != 0,
                          [&](const Access& access, size_t first, uint64_t length) {
                            const auto* from = reinterpret_cast<const void*>(access.address);
                            return copy(to.data() + first, from, static_cast<size_t>(length));
                          });
  });
}

Outcome DomainSession::read(const Target& target, uint64_t va, std::span<uint8_t> to) {
  if (to.empty()) return Outcome::done;
  const bool write = (target.need & kWriteRights) != 0;
  const void* const from = fast_translate(target, va, to.size(), write);
  if (from != nullptr && guarded_copy(to.data(), from, to.size(), ticket_) == to.size()) [[likely]]
    return Outcome::done;
  return read_slow(target, va, to);
}

[[gnu::noinline]] Outcome DomainSession::read_slow(const Target& target, uint64_t va, std::span<uint8_t> to) {
  return read_by(target, va, to, [this](void* out, const void* from, size_t length_bytes) {
    return guarded_copy(out, from, length_bytes, ticket_);
  });
}

Outcome DomainSession::read_with_crc(const Target& target, uint64_t va, std::span<uint8_t> to,
                                     uint32_t& crc) {
  // The pieces of an implicit region continue the same CRC: all of them or none.
  const uint32_t before = crc;
  const auto copy = [&](void* out, const void* from, size_t length_bytes) {
    if (out == to.data()) crc = before;
    return guarded_copy_crc(out, from, length_bytes, crc, ticket_);
  };
  return read_by(target, va, to, copy);
}

Outcome DomainSession::atomic(const Target& target, uint64_t va, const AtomicRequest& request,
                              uint64_t& original) {
  const auto operate = [&](const Access& access, size_t, uint64_t length) -> size_t {
    switch (guarded_atomic(reinterpret_cast<void*>(access.address), request, original, ticket_)) {
      case GuardedAtomic::done:
        return length;
      case GuardedAtomic::fault:
        return 0;
      case GuardedAtomic::revoked:
        break;
    }
    return kRevoked;
  };
  return retry_while_revoked([&] {
    Place place;
    const Outcome outcome = admit(target, va, sizeof original, place);
    if (outcome != Outcome::done) return outcome;
    // An address aligned in the region is not aligned in memory if the two differ by a non-multiple of
    // eight.
    if ((place.region->address + (place.va - place.region->iova)) % sizeof original != 0)
      return Outcome::violation;
    return for_each_piece(place, sizeof original, true, operate);
  });
}

/// The copies are plain stores of this CPU: a full fence makes them globally visible. Persistence needs
/// persistent memory, which no region offers (Domain refuses kFlushPersistent).
Outcome DomainSession::flush(const Target& target, uint64_t va, uint64_t length_bytes, FlushKind /*kind*/) {
  if (find(target, va, length_bytes).region == nullptr) return Outcome::violation;
#if defined(__x86_64__)
  __builtin_ia32_mfence();
#else
  asm volatile("dmb ish" : : : "memory");  // std::atomic_thread_fence is not for ThreadSanitizer
#endif
  return Outcome::done;
}

bool DomainSession::range_of(Key key, uint64_t& va, uint64_t& length_bytes) {
  if (const Region* region = parts_.keys.find(key); region != nullptr) {
    va = region->iova;
    length_bytes = region->length_bytes;
    return true;
  }
  const Window* const window = parts_.keys.find_window(key);
  const WindowView view = window == nullptr ? WindowView{} : window->view();
  if (view.key != key || view.region == nullptr) return false;
  va = (view.access & kZeroBased) != 0 ? 0 : view.va;
  length_bytes = view.length_bytes;
  return true;
}

void DomainSession::page_out(Key key, uint64_t va) {
  const Region* region = parts_.keys.find(key);
  if (region == nullptr)
    if (const Window* const window = parts_.keys.find_window(key); window != nullptr)
      region = window->view().region;
  if (region == nullptr || !region->on_demand) return;
  uint64_t start = region->address / kPageBytes * kPageBytes;
  uint64_t length_bytes = region->address + region->length_bytes - start;
  if (region->children != nullptr) {
    start = va / kChildBytes * kChildBytes;
    length_bytes = kChildBytes;
  }
  // Others may wait for this session meanwhile, and the region may end.
  leave();
  drop_marks(start, start + length_bytes);
  {
    const AddressSpaceCall call;
    static_cast<void>(madvise(reinterpret_cast<void*>(start), length_bytes, MADV_PAGEOUT));
  }
  enter();
}

Outcome DomainSession::bind_window(const WindowBinding& binding) {
  Window* const window = parts_.keys.find_window(binding.window);
  if (window == nullptr || window->type != binding.type || window->domain != binding.domain ||
      binding.new_key >> 8 != binding.window >> 8)
    return Outcome::violation;
  const bool unbind = binding.length_bytes == 0;
  // Only type 1 is unbound by a bind of zero length, or rebound while it is bound (IBA 10.6.7.2.2).
  if (unbind && binding.type == WindowType::type2) return Outcome::violation;
  Region* region = nullptr;
  if (!unbind) {
    region = parts_.keys.find(binding.region);
    constexpr uint32_t kWindowRights = kRemoteWrite | kRemoteRead | kRemoteAtomic | kZeroBased | kFlushGlobal;
    if (region == nullptr || (binding.access & ~kWindowRights) != 0 ||
        !grants(*region, {binding.region, binding.domain, kMemoryWindowBind}, binding.va,
                binding.length_bytes))
      return Outcome::violation;
    if ((binding.access & (kRemoteWrite | kRemoteAtomic)) != 0 && (region->access & kLocalWrite) == 0)
      return Outcome::violation;
    if ((binding.access & kFlushGlobal) != 0 && (region->access & kFlushGlobal) == 0)
      return Outcome::violation;
  }
  const std::lock_guard lock(*window);
  const WindowView before = window->view();
  if (before.region != nullptr && binding.type == WindowType::type2) return Outcome::violation;
  if (region != nullptr && !region->bind_one()) return Outcome::violation;
  window->set({.key = binding.new_key,
               .region = region,
               .qpn = binding.qpn,
               .access = binding.access,
               .va = binding.va,
               .length_bytes = binding.length_bytes});
  if (before.region != nullptr) before.region->unbind_one();
  return Outcome::done;
}

Outcome DomainSession::invalidate(Key key, ProtectionDomain domain, uint32_t qpn, bool /*remote*/) {
  Window* const window = parts_.keys.find_window(key);
  if (window == nullptr || window->type != WindowType::type2 || window->domain != domain)
    return Outcome::violation;
  const std::lock_guard lock(*window);
  const WindowView before = window->view();
  if (before.key != key || before.region == nullptr || before.qpn != qpn) return Outcome::violation;
  window->set({.key = key});
  before.region->unbind_one();
  return Outcome::done;
}

/// The pager answers as soon as the first chunk of a request is resident. If that chunk were resident
/// before, an access that extends into a hole would be retried for ever.
void DomainSession::trim_to_first_miss(FaultRequest& request) const {
  if (gated_) return;  // the gate caused the miss
  const Region* const region = parts_.keys.find(request.target.key);
  if (region == nullptr || !region->on_demand ||
      !grants(*region, request.target, request.va, request.length_bytes))
    return;
  const bool write = (request.target.need & kWriteRights) != 0;
  for (uint64_t done = 0; done < request.length_bytes;) {
    const uint64_t va = request.va + done;
    const Region* const piece = region->children == nullptr ? region : region->children->find(va);
    if (piece == nullptr || !allows(piece->pages.state(pages_of(*piece, va, 1).first), write)) {
      request.va = va;
      request.length_bytes -= done;
      return;
    }
    done += kPageBytes - (piece->address + (va - piece->iova)) % kPageBytes;
  }
}

/// The request as the pager understands it: of a region, from its first absent page on.
FaultRequest DomainSession::for_pager(const FaultRequest& asked) const {
  FaultRequest request = asked;
  if (parts_.keys.find(asked.target.key) == nullptr) {
    // The pager knows only regions: what a window permits a peer, its region permits locally.
    const Place place = find_in_window(asked.target, asked.va, 0);
    if (place.region != nullptr) {
      request.target.key = place.region->key;
      request.target.need = (asked.target.need & kWriteRights) != 0 ? kLocalWrite : kLocalRead;
      request.va = place.va;
    }
  }
  trim_to_first_miss(request);
  return request;
}

bool DomainSession::serve_fault(const FaultRequest& asked) {
  return parts_.pager.serve_at_once(for_pager(asked));
}

bool DomainSession::request_fault(const FaultRequest& asked) {
  if (outstanding_ == FaultRings::kMaxOutstanding) return false;
  if (!port_.requests.try_push({for_pager(asked), monotonic_ns()})) return false;
  ++outstanding_;
  parts_.pager.wake();
  return true;
}

size_t DomainSession::take_resolutions(std::span<Resolution> out) {
  size_t taken = 0;
  while (taken < out.size() && port_.resolutions.try_pop(out[taken])) ++taken;
  outstanding_ -= taken;
  return taken;
}

}  // namespace faultline::odp
