// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/world/scripted_memory.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "stack/wire/packet/icrc.hpp"

namespace faultline::sim {

using odp::Outcome;

namespace {

constexpr uint32_t kWriteNeeds = odp::kLocalWrite | odp::kRemoteWrite | odp::kRemoteAtomic;
constexpr uint64_t kRegionSpacing = uint64_t{1} << 36;
constexpr uint32_t kFirstWindowIndex = 0x800000;

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
  limits.resize(count, PageLimit::none);
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
    limits.at(page - first_page) = PageLimit::hole;
}

void Region::drop_pages(uint64_t first, uint64_t count, PageState left) {
  for (uint64_t page = first; page < std::min<uint64_t>(first + count, pages.size()); ++page)
    pages[page] = std::min(pages[page], left);
}

namespace {

/// Returns the bytes of the region on some of its pages, as offset and length.
std::pair<uint64_t, uint64_t> bytes_of_pages(const Region& region, uint64_t first, uint64_t count) {
  const uint64_t lead = region.base % region.page_bytes;
  const uint64_t from = std::max(first * region.page_bytes, lead) - lead;
  const uint64_t to = std::min<uint64_t>((first + count) * region.page_bytes - lead, region.bytes.size());
  return {from, to - from};
}

}  // namespace

void Region::zero_pages(TimeNs now, uint64_t first, uint64_t count) {
  drop_pages(first, count, PageState::absent);
  const auto [offset, length] = bytes_of_pages(*this, first, count);
  std::memset(bytes.data() + offset, 0, length);
  zeroings.push_back({now, offset, length});
}

void Region::take_pages(TimeNs now, uint64_t first, uint64_t count, PageLimit limit) {
  drop_pages(first, count, limit == PageLimit::read_only ? PageState::read : PageState::absent);
  for (uint64_t page = first; page < std::min<uint64_t>(first + count, pages.size()); ++page)
    limits[page] = std::max(limits[page], limit);
  const auto [offset, length] = bytes_of_pages(*this, first, count);
  takings.push_back({now, kNever, offset, length, limit});
}

void Region::deregister(TimeNs now) {
  registered = false;
  drop_pages(0, pages.size(), PageState::absent);
  takings.push_back({now, kNever, 0, bytes.size(), PageLimit::dead});
}

void Region::restore(TimeNs now) {
  registered = true;
  std::fill(limits.begin(), limits.end(), PageLimit::none);
  for (Taking& taking : takings) taking.to_ns = std::min(taking.to_ns, now);
}

bool Region::was_zeroed(uint64_t va, TimeNs since_ns, TimeNs until_ns) const {
  return std::any_of(zeroings.begin(), zeroings.end(), [&](const Zeroing& zeroing) {
    return zeroing.at_ns >= since_ns && zeroing.at_ns <= until_ns && va - base >= zeroing.offset &&
           va - base - zeroing.offset < zeroing.length;
  });
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

Window& ScriptedMemory::add_window(odp::ProtectionDomain domain, odp::WindowType type) {
  Window window;
  const auto index = kFirstWindowIndex + static_cast<uint32_t>(windows_.size());
  window.key = index << 8 | static_cast<uint32_t>(random_.below(256));
  window.domain = domain;
  window.type = type;
  return windows_.emplace_back(window);
}

Window* ScriptedMemory::find_window(odp::Key key) {
  for (Window& window : windows_)
    if (window.key == key) return &window;
  return nullptr;
}

Region* ScriptedMemory::allowed(const odp::Target& target, uint64_t va, uint64_t length) {
  Region* region = find(target.key);
  if (region == nullptr) {
    const Window* window = find_window(target.key);
    if (window == nullptr || !window->bound || window->domain != target.domain) return nullptr;
    if (window->type == odp::WindowType::type2 && window->qpn != target.qpn) return nullptr;
    if ((window->access & target.need) != target.need || va < window->va || length > window->length ||
        va - window->va > window->length - length)
      return nullptr;
    region = find(window->region);
    return region != nullptr && region->registered && region->contains(va, length) ? region : nullptr;
  }
  const bool granted = region->registered && region->domain == target.domain &&
                       (region->access & target.need) == target.need && region->contains(va, length);
  return granted ? region : nullptr;
}

Outcome ScriptedMemory::check(const odp::Target& target, uint64_t va, uint64_t length_bytes) {
  if (length_bytes == 0) return Outcome::done;
  return allowed(target, va, length_bytes) != nullptr ? Outcome::done : Outcome::violation;
}

uint64_t ScriptedMemory::resident(const Region& region, uint64_t va, uint64_t length, bool writable) const {
  if (region.extent_bytes != 0) return length;
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

Outcome ScriptedMemory::missing(const Region& region, uint64_t va) {
  const uint64_t page = va / region.page_bytes - region.base / region.page_bytes;
  return region.limits[page] == PageLimit::dead ? Outcome::violation : Outcome::miss;
}

Outcome ScriptedMemory::probe(const odp::Target& target, uint64_t va, uint64_t length_bytes) {
  if (length_bytes == 0) return Outcome::done;
  if (check(target, va, length_bytes) != Outcome::done) return Outcome::violation;
  const bool writable = (target.need & kWriteNeeds) != 0;
  const Region& region = *allowed(target, va, length_bytes);
  const uint64_t there = resident(region, va, length_bytes, writable);
  return there == length_bytes ? Outcome::done : missing(region, va + there);
}

// On a miss, the bytes before the missing page are already copied, as the contract allows.
Outcome ScriptedMemory::write(const odp::Target& target, uint64_t va, std::span<const uint8_t> from) {
  if (from.empty()) return Outcome::done;
  Region* const below = allowed(target, va, from.size());
  if (below == nullptr) return Outcome::violation;
  Region& region = *below;
  maybe_invalidate(region, va, from.size());
  const uint64_t there = resident(region, va, from.size(), true);
  std::memcpy(region.at(va), from.data(), there);
  if (there != from.size()) return missing(region, va + there);
  constexpr size_t kLong = 256;
  if (beside_write_ != nullptr && !beside_write_->done && from.size() >= kLong) {
    beside_write_->crc = wire::icrc_update(beside_write_->crc, beside_write_->bytes);
    beside_write_->done = true;
  }
  return Outcome::done;
}

Outcome ScriptedMemory::read(const odp::Target& target, uint64_t va, std::span<uint8_t> to) {
  if (to.empty()) return Outcome::done;
  Region* const below = allowed(target, va, to.size());
  if (below == nullptr) return Outcome::violation;
  Region& region = *below;
  maybe_invalidate(region, va, to.size());
  const uint64_t there = resident(region, va, to.size(), false);
  std::memcpy(to.data(), region.at(va), there);
  return there == to.size() ? Outcome::done : missing(region, va + there);
}

Outcome ScriptedMemory::read_with_crc(const odp::Target& target, uint64_t va, std::span<uint8_t> to,
                                      uint32_t& crc) {
  const Outcome outcome = read(target, va, to);
  if (outcome == Outcome::done) crc = wire::icrc_update(crc, to);
  return outcome;
}

Outcome ScriptedMemory::atomic(const odp::Target& target, uint64_t va, const odp::AtomicRequest& request,
                               uint64_t& original) {
  Region* const region = allowed(target, va, 8);
  if (region == nullptr) return Outcome::violation;
  maybe_invalidate(*region, va, 8);
  if (const uint64_t there = resident(*region, va, 8, true); there != 8) return missing(*region, va + there);
  std::memcpy(&original, region->at(va), 8);
  uint64_t value = request.operand;
  if (request.op == odp::AtomicOp::fetch_add) value += original;
  ++atomics;
  if (request.op == odp::AtomicOp::compare_swap && original != request.compare) return Outcome::done;
  std::memcpy(region->at(va), &value, 8);
  return Outcome::done;
}

Outcome ScriptedMemory::flush(const odp::Target& target, uint64_t va, uint64_t length_bytes,
                              odp::FlushKind /*kind*/) {
  if (check(target, va, length_bytes) != Outcome::done) return Outcome::violation;
  ++flushes;
  return Outcome::done;
}

bool ScriptedMemory::range_of(odp::Key key, uint64_t& va, uint64_t& length_bytes) {
  if (const Region* region = find(key); region != nullptr) {
    if (!region->registered) return false;
    va = region->base;
    length_bytes = region->bytes.size();
    return true;
  }
  const Window* window = find_window(key);
  if (window == nullptr || !window->bound) return false;
  va = window->va;
  length_bytes = window->length;
  return true;
}

Outcome ScriptedMemory::bind_window(const odp::WindowBinding& binding) {
  Window* const window = find_window(binding.window);
  const Region* const region = find(binding.region);
  if (window == nullptr || window->type != binding.type || window->domain != binding.domain ||
      binding.new_key >> 8 != binding.window >> 8)
    return Outcome::violation;
  if (window->type == odp::WindowType::type2 && (window->bound || binding.length_bytes == 0))
    return Outcome::violation;
  if (binding.length_bytes != 0) {
    if (region == nullptr || region->domain != binding.domain ||
        (region->access & odp::kMemoryWindowBind) == 0 || !region->contains(binding.va, binding.length_bytes))
      return Outcome::violation;
    if ((binding.access & kWriteNeeds) != 0 && (region->access & odp::kLocalWrite) == 0)
      return Outcome::violation;
  }
  window->key = binding.new_key;
  window->bound = binding.length_bytes != 0;
  window->qpn = binding.qpn;
  window->region = binding.region;
  window->va = binding.va;
  window->length = binding.length_bytes;
  window->access = binding.access;
  return Outcome::done;
}

Outcome ScriptedMemory::invalidate(odp::Key key, odp::ProtectionDomain domain, uint32_t qpn,
                                   bool /*remote*/) {
  Window* const window = find_window(key);
  if (window == nullptr || !window->bound || window->type != odp::WindowType::type2 ||
      window->domain != domain || window->qpn != qpn)
    return Outcome::violation;
  window->bound = false;
  return Outcome::done;
}

bool ScriptedMemory::serve_fault(const odp::FaultRequest& request) {
  // Without the option no random number is drawn, so that other runs stay as they are.
  if (script_.serve_at_once_permille == 0 || !random_.chance(script_.serve_at_once_permille) ||
      serve(request) != Outcome::done)
    return false;
  ++served_at_once;
  return true;
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
  Region* const region = allowed(request.target, request.va, 1);
  if (region == nullptr) return Outcome::violation;
  const uint64_t length =
      std::min<uint64_t>(request.length_bytes, region->base + region->bytes.size() - request.va);
  if (length == 0) return Outcome::done;
  const PageState state = (request.target.need & kWriteNeeds) != 0 ? PageState::write : PageState::read;
  const uint64_t first_page = region->base / region->page_bytes;
  for (uint64_t page = request.va / region->page_bytes;
       page <= (request.va + length - 1) / region->page_bytes; ++page) {
    const PageLimit limit = region->limits[page - first_page];
    if (limit >= PageLimit::hole || (limit == PageLimit::read_only && state == PageState::write))
      return Outcome::violation;
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
