// SPDX-License-Identifier: BSD-3-Clause
// The program's part of a plan: madvise, mprotect, munmap, fork and similar calls on regions, at points of
// virtual time that are independent of packets.
#include <algorithm>

#include "tests/sim/flows/plan.hpp"

namespace faultline::sim {

using namespace transport;

namespace {

constexpr odp::ProtectionDomain kMixDomain = 1;

struct Pages {
  uint64_t first = 0;
  uint64_t count = 0;
};

Pages draw_pages(Random& random, const Region& region) {
  const uint64_t first = random.below(region.pages.size());
  const uint64_t left = region.pages.size() - first;
  if (random.chance(100)) return {0, region.pages.size()};
  return {first, 1 + random.below(random.chance(500) ? std::min<uint64_t>(left, 3) : left)};
}

}  // namespace

void Plan::add_lost_regions(SimHost& host) {
  HostMemory& memory = lost_.emplace_back();
  const HostMemory& kept = memories_[host.number];
  constexpr uint32_t kAccess =
      odp::kLocalWrite | odp::kRemoteWrite | odp::kRemoteRead | odp::kRemoteAtomic | odp::kFlushGlobal;
  const auto add = [&](std::vector<Region*>& to, uint32_t access) {
    const uint64_t count = random_.between(1, 2);
    for (uint64_t i = 0; i < count; ++i) {
      Region& region = host.memory.add_region(kMixDomain, access, true);
      region.zeroable = random_.chance(500);
      region.extend(random_.below(5000), random_);
      to.push_back(&region);
      lost_regions_.push_back(&region);
    }
  };
  add(memory.local, odp::kLocalWrite);
  add(memory.remote, kAccess);
  // Adds memory that stays, so that not every request needs lost memory. The first region of a host is
  // pinned.
  memory.local.push_back(kept.local.front());
  memory.remote.push_back(kept.remote.front());
}

void Plan::add_connection_on_lost_memory() {
  for (SimHost* host : world_.hosts()) add_lost_regions(*host);
  on_lost_memory_ = true;
  add_connection(false);
  on_lost_memory_ = false;
}

/// Picks a byte of lost memory that the request needs. Returns nullptr if it needs none.
Region* Plan::needed_by(Flow& flow, const PlannedSend& send, uint64_t& va) {
  const SendRequest& request = send.request;
  std::vector<std::pair<Region*, uint64_t>> needed;
  const auto add = [&](Region* region, uint64_t at, uint64_t length) {
    const bool lost = std::find(lost_regions_.begin(), lost_regions_.end(), region) != lost_regions_.end();
    if (lost && length != 0) needed.emplace_back(region, at + random_.below(length));
  };
  for (const Sge& sge : request.sges) add(flow.from().host().memory.find(sge.lkey), sge.va, sge.length_bytes);
  if (request.rkey != 0)
    add(flow.to().host().memory.find(request.rkey), request.remote_va, request.length_bytes());
  if (needed.empty()) return nullptr;
  const auto& [region, at] = needed[random_.below(needed.size())];
  va = at;
  return region;
}

/// Takes memory away at times before `until_ns`, and restores everything at that time.
void Plan::take_away(TimeNs until_ns, Flow& flow) {
  PlannedFailure& failure = *flow.failure;
  failure.allowed = {CompletionStatus::local_protection, CompletionStatus::remote_access,
                     CompletionStatus::remote_operation, CompletionStatus::retry_exceeded};
  failure.receive_status = CompletionStatus::local_protection;
  failure.by_program = true;
  const TimeNs start = world_.now();
  const uint64_t count = 1 + random_.below(5);
  for (uint64_t i = 0; i < count; ++i) {
    Region* aim = lost_regions_[random_.below(lost_regions_.size())];
    Pages pages = draw_pages(random_, *aim);
    TimeNs from = start + random_.below(until_ns - start - 1);
    if (const PlannedSend& send = flow.sends[random_.below(flow.sends.size())]; random_.chance(800)) {
      // Around the time of the post, including memory that the request needs.
      from = std::min(send.post_ns + random_.below(40'000), until_ns - 2);
      uint64_t va = 0;
      if (Region* const used = needed_by(flow, send, va); used != nullptr) {
        aim = used;
        pages = {va / aim->page_bytes - aim->base / aim->page_bytes, random_.between(1, 3)};
      }
    }
    Region& region = *aim;
    const TimeNs to = from + random_.below(random_.chance(300) ? std::min<TimeNs>(until_ns - from, 100'000)
                                                               : until_ns - from);
    if (random_.chance(200)) {
      world_.at(from, [this, &region] { region.deregister(world_.now()); });
      world_.at(to, [this, &region] { region.restore(world_.now()); });
      continue;
    }
    const auto limit = static_cast<PageLimit>(random_.between(1, 3));
    const bool other_memory = region.zeroable && limit != PageLimit::read_only && random_.chance(700);
    world_.at(from, [this, &region, pages, limit] {
      region.take_pages(world_.now(), pages.first, pages.count, limit);
    });
    world_.at(to, [this, &region, pages, other_memory] {
      if (other_memory) region.zero_pages(world_.now(), pages.first, pages.count);
      region.restore(world_.now());
    });
  }
}

/// Calls that leave the memory usable: its pages are dropped, become copies, or become zeros.
void Plan::run_program(SimHost& host) {
  const HostMemory& memory = memories_[host.number];
  std::vector<Region*> regions = lost_regions_;
  regions.insert(regions.end(), memory.local.begin(), memory.local.end());
  regions.insert(regions.end(), memory.remote.begin(), memory.remote.end());
  std::erase_if(regions, [&](const Region* region) {
    return !region->on_demand || region->pages.empty() || host.memory.find(region->key) != region;
  });
  const uint64_t count = 1 + random_.below(random_.chance(300) ? 300 : 40);
  const TimeNs span = fabric_.spread_ns * 2 + random_.below(400'000);
  for (uint64_t i = 0; i < count; ++i) {
    Region& region = *regions[random_.below(regions.size())];
    const Pages pages = draw_pages(random_, region);
    const TimeNs when = world_.now() + random_.below(span);
    const bool lost = std::find(lost_regions_.begin(), lost_regions_.end(), &region) != lost_regions_.end();
    if (region.zeroable && !lost && random_.chance(500)) {
      world_.at(when, [this, &region, pages] { region.zero_pages(world_.now(), pages.first, pages.count); });
      continue;
    }
    const PageState left = random_.chance(300) ? PageState::read : PageState::absent;
    world_.at(when, [&region, pages, left] { region.drop_pages(pages.first, pages.count, left); });
  }
}

}  // namespace faultline::sim
