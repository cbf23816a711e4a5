// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/scripted_memory.hpp"

#include <algorithm>
#include <cstring>

namespace faultline::sim {

using odp::Outcome;

namespace {

constexpr uint32_t kWriteNeeds = odp::kLocalWrite | odp::kRemoteWrite | odp::kRemoteAtomic;
constexpr uint64_t kRegionSpacing = uint64_t{1} << 36;

}  // namespace

uint64_t Region::extend(uint64_t length, Random& random) {
  const uint64_t va = base + bytes.size();
  const size_t before = bytes.size();
  bytes.resize(before + length);
  for (size_t i = before; i < bytes.size(); i += 8) {
    const uint64_t noise = random.next();
    std::memcpy(&bytes[i], &noise, std::min<size_t>(8, bytes.size() - i));
  }
  const size_t count = ((base % page_bytes) + bytes.size() + page_bytes - 1) / page_bytes;
  pages.resize(count, on_demand ? PageState::absent : PageState::write);
  holes.resize(count, false);
  return va;
}

void Region::set_pages(uint64_t va, uint64_t length, PageState state) {
  if (length == 0) return;
  const uint64_t first_page = base / page_bytes;
  for (uint64_t page = va / page_bytes; page <= (va + length - 1) / page_bytes; ++page)
    pages.at(page - first_page) = state;
}

void Region::add_hole(uint64_t va, uint64_t length) {
  set_pages(va, length, PageState::absent);
  const uint64_t first_page = base / page_bytes;
  for (uint64_t page = va / page_bytes; page <= (va + length - 1) / page_bytes; ++page)
    holes.at(page - first_page) = true;
}

Region& ScriptedMemory::add_region(odp::ProtectionDomain domain, uint32_t access, bool on_demand) {
  Region region;
  const auto index = static_cast<uint32_t>(regions_.size() + 1);
  region.key = index << 8 | static_cast<uint32_t>(random_.below(256));
  region.domain = domain;
  region.access = access;
  region.base = index * kRegionSpacing + random_.below(script_.page_bytes);
  region.on_demand = on_demand;
  region.page_bytes = script_.page_bytes;
  return regions_.emplace_back(std::move(region));
}

Region* ScriptedMemory::find(odp::Key key) {
  const uint32_t index = key >> 8;
  if (index == 0 || index > regions_.size() || regions_[index - 1].key != key) return nullptr;
  return &regions_[index - 1];
}

Outcome ScriptedMemory::check(const odp::Target& target, uint64_t va, uint64_t length_bytes) {
  if (length_bytes == 0) return Outcome::done;
  const Region* region = find(target.key);
  const bool allowed = region != nullptr && region->domain == target.domain &&
                       (region->access & target.need) == target.need && region->contains(va, length_bytes);
  return allowed ? Outcome::done : Outcome::violation;
}

uint64_t ScriptedMemory::resident(const Region& region, uint64_t va, uint64_t length, bool writable) const {
  const PageState least = writable ? PageState::write : PageState::read;
  const uint64_t first_page = region.base / region.page_bytes;
  uint64_t at = va;
  while (at < va + length) {
    const uint64_t page = at / region.page_bytes;
    if (region.pages[page - first_page] < least) break;
    at = (page + 1) * region.page_bytes;
  }
  return std::min(at - va, length);
}

void ScriptedMemory::maybe_invalidate(Region& region, uint64_t va, uint64_t length) {
  if (!region.on_demand || invalidations >= script_.invalidations_limit ||
      !random_.chance(script_.invalidate_permille))
    return;
  ++invalidations;
  const uint64_t from = va + random_.below(length);
  const uint64_t count = 1 + random_.below(va + length - from);
  const PageState left = random_.chance(script_.write_protect_permille) ? PageState::read : PageState::absent;
  const uint64_t first_page = region.base / region.page_bytes;
  for (uint64_t page = from / region.page_bytes; page <= (from + count - 1) / region.page_bytes; ++page) {
    PageState& state = region.pages[page - first_page];
    state = std::min(state, left);
  }
}

Outcome ScriptedMemory::probe(const odp::Target& target, uint64_t va, uint64_t length_bytes) {
  if (length_bytes == 0) return Outcome::done;
  if (check(target, va, length_bytes) != Outcome::done) return Outcome::violation;
  const bool writable = (target.need & kWriteNeeds) != 0;
  return resident(*find(target.key), va, length_bytes, writable) == length_bytes ? Outcome::done
                                                                                 : Outcome::miss;
}

// A miss comes with the bytes before it already copied, as the contract allows.
Outcome ScriptedMemory::write(const odp::Target& target, uint64_t va, std::span<const uint8_t> from) {
  if (from.empty()) return Outcome::done;
  if (check(target, va, from.size()) != Outcome::done) return Outcome::violation;
  Region& region = *find(target.key);
  maybe_invalidate(region, va, from.size());
  const uint64_t there = resident(region, va, from.size(), true);
  std::memcpy(region.at(va), from.data(), there);
  return there == from.size() ? Outcome::done : Outcome::miss;
}

Outcome ScriptedMemory::read(const odp::Target& target, uint64_t va, std::span<uint8_t> to) {
  if (to.empty()) return Outcome::done;
  if (check(target, va, to.size()) != Outcome::done) return Outcome::violation;
  Region& region = *find(target.key);
  maybe_invalidate(region, va, to.size());
  const uint64_t there = resident(region, va, to.size(), false);
  std::memcpy(to.data(), region.at(va), there);
  return there == to.size() ? Outcome::done : Outcome::miss;
}

bool ScriptedMemory::request_fault(const odp::FaultRequest& request) {
  if (in_service_.size() >= script_.queue_capacity || random_.chance(script_.queue_full_permille)) {
    ++refused;
    return false;
  }
  ++faults;
  requests.push_back(request);
  in_service_.emplace(now_ + random_.between(script_.resolve_min_ns, script_.resolve_max_ns), request);
  return true;
}

size_t ScriptedMemory::take_resolutions(std::span<odp::Resolution> out) {
  size_t taken = 0;
  while (taken < out.size() && !resolutions_.empty()) {
    out[taken++] = resolutions_.front();
    resolutions_.pop_front();
  }
  return taken;
}

Outcome ScriptedMemory::serve(const odp::FaultRequest& request) {
  Region* region = find(request.target.key);
  if (region == nullptr || region->domain != request.target.domain ||
      (region->access & request.target.need) != request.target.need || request.va < region->base ||
      request.va - region->base >= region->bytes.size())
    return Outcome::violation;
  const uint64_t length =
      std::min<uint64_t>(request.length_bytes, region->base + region->bytes.size() - request.va);
  if (length == 0) return Outcome::done;
  const PageState state = (request.target.need & kWriteNeeds) != 0 ? PageState::write : PageState::read;
  const uint64_t first_page = region->base / region->page_bytes;
  for (uint64_t page = request.va / region->page_bytes;
       page <= (request.va + length - 1) / region->page_bytes; ++page) {
    if (region->holes[page - first_page]) return Outcome::violation;
    region->pages[page - first_page] = std::max(region->pages[page - first_page], state);
  }
  return Outcome::done;
}

void ScriptedMemory::advance(TimeNs now) {
  now_ = now;
  while (!in_service_.empty() && in_service_.begin()->first <= now) {
    const odp::FaultRequest request = in_service_.begin()->second;
    in_service_.erase(in_service_.begin());
    resolutions_.push_back({request.waiter, serve(request)});
  }
}

TimeNs ScriptedMemory::next_event() const {
  return in_service_.empty() ? kNever : in_service_.begin()->first;
}

}  // namespace faultline::sim
