// SPDX-License-Identifier: BSD-3-Clause
#include "odp/engine_door.hpp"

#include "odp/fault_handler.hpp"
#include "odp/tolerant_copy.hpp"

namespace faultline::odp {

EngineDoor::~EngineDoor() {
  leave();
  parts_.pager.close_port(port_);
  Resolution left;
  while (port_.resolutions.try_pop(left)) {
  }
  parts_.quiescence.detach(slot_);
}

void EngineDoor::enter() {
  thread_local bool fault_signals_open = false;
  if (!fault_signals_open) {
    unblock_fault_signals();
    fault_signals_open = true;
  }
  gated_ = parts_.quiescence.enter(slot_);
  tracks_use_ = parts_.pins.tracks_use();
}

Outcome EngineDoor::check(const Target& target, uint64_t va, uint64_t length_bytes) {
  if (length_bytes == 0) return Outcome::done;
  const Region* region = parts_.keys.find(target.key);
  return region != nullptr && grants(*region, target, va, length_bytes) ? Outcome::done : Outcome::violation;
}

Outcome EngineDoor::open(const Target& target, uint64_t va, uint64_t length_bytes, bool write,
                         Access& access) {
  Region* region = parts_.keys.find(target.key);
  if (region == nullptr || !grants(*region, target, va, length_bytes)) return Outcome::violation;
  // Classic regions too: a munmap of theirs is under way perhaps, and its caller must not get back before we
  // stop.
  if (gated_) return Outcome::miss;
  access = {region, region->address + (va - region->iova), pages_of(*region, va, length_bytes)};
  const size_t end = access.pages.first + access.pages.count;
  if (!region->on_demand) {
    if (!region->has_dead_pages.load(std::memory_order_acquire)) return Outcome::done;
    for (size_t page = access.pages.first; page < end; ++page) {
      if (region->pages.state(page) == PageState::dead) return Outcome::violation;
    }
    return Outcome::done;
  }
  for (size_t page = access.pages.first; page < end; ++page) {
    const PageState state = region->pages.state(page);
    if (allows(state, write)) continue;
    return state == PageState::dead ? Outcome::violation : Outcome::miss;
  }
  if (tracks_use_) {
    for (size_t granule = access.pages.first / kGranulePages; granule * kGranulePages < end; ++granule) {
      std::atomic<uint8_t>& used = region->granule_used[granule];
      if (used.load(std::memory_order_relaxed) == 0) used.store(1, std::memory_order_relaxed);
    }
  }
  return Outcome::done;
}

Outcome EngineDoor::after_copy_fault(const Access& access) {
  parts_.counters.copy_faults_caught.add();
  // A classic region promised to be there: no pager will bring it back.
  if (!access.region->on_demand) return Outcome::violation;
  // Gone without an event (mprotect, truncation, shmdt): the pager must look again, and its answer decides.
  const size_t dropped =
      access.region->pages.apply_range(access.pages.first, access.pages.count, PageEvent::drop);
  access.region->resident_pages.fetch_sub(dropped, std::memory_order_relaxed);
  parts_.counters.num_odp_mr_pages.subtract(dropped);
  return Outcome::miss;
}

Outcome EngineDoor::probe(const Target& target, uint64_t va, uint64_t length_bytes) {
  if (length_bytes == 0) return Outcome::done;
  Access access;
  return open(target, va, length_bytes, (target.need & kWriteRights) != 0, access);
}

Outcome EngineDoor::write(const Target& target, uint64_t va, std::span<const uint8_t> from) {
  if (from.empty()) return Outcome::done;
  Access access;
  const Outcome outcome = open(target, va, from.size(), true, access);
  if (outcome != Outcome::done) return outcome;
  if (tolerant_copy(reinterpret_cast<void*>(access.address), from.data(), from.size()) == from.size())
    return Outcome::done;
  return after_copy_fault(access);
}

Outcome EngineDoor::read(const Target& target, uint64_t va, std::span<uint8_t> to) {
  if (to.empty()) return Outcome::done;
  Access access;
  const Outcome outcome = open(target, va, to.size(), (target.need & kWriteRights) != 0, access);
  if (outcome != Outcome::done) return outcome;
  if (tolerant_copy(to.data(), reinterpret_cast<const void*>(access.address), to.size()) == to.size())
    return Outcome::done;
  return after_copy_fault(access);
}

Outcome EngineDoor::atomic(const Target& /*target*/, uint64_t /*va*/, const AtomicRequest& /*request*/,
                           uint64_t& /*original*/) {
  return Outcome::violation;
}

Outcome EngineDoor::flush(const Target& target, uint64_t va, uint64_t length_bytes, FlushKind /*kind*/) {
  return check(target, va, length_bytes);
}

bool EngineDoor::range_of(Key key, uint64_t& va, uint64_t& length_bytes) {
  const Region* region = parts_.keys.find(key);
  if (region == nullptr) return false;
  va = region->iova;
  length_bytes = region->length_bytes;
  return true;
}

Outcome EngineDoor::bind_window(const WindowBinding& /*binding*/) {
  return Outcome::violation;
}

Outcome EngineDoor::invalidate(Key /*key*/, ProtectionDomain /*domain*/, uint32_t /*qpn*/, bool /*remote*/) {
  return Outcome::violation;
}

bool EngineDoor::request_fault(const FaultRequest& request) {
  if (outstanding_ == SessionPort::kMaxOutstanding) return false;
  if (!port_.requests.try_push({request, monotonic_ns()})) return false;
  ++outstanding_;
  parts_.pager.wake();
  return true;
}

size_t EngineDoor::take_resolutions(std::span<Resolution> out) {
  size_t taken = 0;
  while (taken < out.size() && port_.resolutions.try_pop(out[taken])) ++taken;
  outstanding_ -= taken;
  return taken;
}

}  // namespace faultline::odp
