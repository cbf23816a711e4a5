// SPDX-License-Identifier: BSD-3-Clause
#include "odp/invalidation/watch_book.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <new>
#include <utility>

#include "odp/mappings/mapping_list.hpp"
#include "odp/regions/page_map.hpp"

namespace faultline::odp {
namespace {

/// Returns the graver of two errnos of WatchCalls::watch.
int graver(int one, int other) {
  const auto rank = [](int error) {
    constexpr std::array kOrder{0, EINVAL, EPERM};
    const auto* const found = std::find(kOrder.begin(), kOrder.end(), error);
    if (found != kOrder.end()) return found - kOrder.begin();
    return std::ptrdiff_t{error == EBUSY ? 4 : 3};
  };
  return rank(other) > rank(one) ? other : one;
}

}  // namespace

int WatchBook::watch(uint64_t start, uint64_t end) {
  const Hold hold(*this);
  users_.add(start, end);
  return cover(start, end);
}

void WatchBook::unwatch(uint64_t start, uint64_t end) {
  const Hold hold(*this);
  try {
    users_.remove(start, end, [this](uint64_t from, uint64_t to) { release(from, to); });
  } catch (const std::bad_alloc&) {
    // The range stays counted or watched, which costs events and nothing else.
  }
}

void WatchBook::lift(uint64_t start, uint64_t end) {
  const Hold hold(*this);
  lift_locked(start, end);
}

int WatchBook::restore(uint64_t start, uint64_t end) {
  const Hold hold(*this);
  return restore_locked(start, end);
}

size_t WatchBook::piece_count() {
  const Hold hold(*this);
  return watched_.size();
}

int WatchBook::cover(uint64_t start, uint64_t end) {
  if (watched_.size() >= kMostPieces)
    return is_known_whole(start, end) ? 0 : cover_mappings(start, end, true);
  if (prepare_split(start, start, end) < end) prepare_split(end - kPageBytes, start, end);
  const int error = watch_and_record(start, end, false);
  if (error == 0) return 0;
  // ENOMEM: the program has reached its limit of mappings. A whole mapping can be watched without a split.
  return cover_mappings(start, end, error == ENOMEM);
}

/// Prepares the mapping at `address` unless it already has a piece: then it was prepared before, and its
/// pieces must stay watched. Returns the end of the mapping.
uint64_t WatchBook::prepare_split(uint64_t address, uint64_t start, uint64_t end) {
  MappingFacts mapping;
  if (!calls_.would_stay_split(address, start, end, mapping)) return mapping.end;
  const auto piece = first_at(mapping.start);
  if (piece == watched_.end() || piece->first >= mapping.end) calls_.prepare_split(mapping, start, end);
  return mapping.end;
}

/// Watches one mapping after the other, so that a refusal for one mapping does not affect the others.
int WatchBook::cover_mappings(uint64_t start, uint64_t end, bool whole) {
  int worst = 0;
  for (uint64_t at = start; at < end;) {
    MappingFacts mapping;
    if (!calls_.find_mapping_from(at, mapping)) return graver(worst, watch_and_record(at, end, false));
    if (mapping.start > at) worst = graver(worst, EINVAL);
    if (mapping.start >= end) break;
    const uint64_t from = whole ? mapping.start : std::max(mapping.start, at);
    const uint64_t to = whole ? mapping.end : std::min(mapping.end, end);
    worst = graver(worst, watch_and_record(from, to, whole));
    at = mapping.end;
  }
  return worst;
}

bool WatchBook::is_known_whole(uint64_t start, uint64_t end) const {
  const auto after = watched_.upper_bound(start);
  if (after == watched_.begin()) return false;
  const Piece& piece = std::prev(after)->second;
  return piece.whole && end <= piece.end && piece.unmappings == unmappings_.load(std::memory_order_seq_cst);
}

int WatchBook::watch_and_record(uint64_t start, uint64_t end, bool whole) {
  const uint64_t unmappings = unmappings_.load(std::memory_order_seq_cst);
  const int error = calls_.watch(start, end);
  if (error != 0) return error;
  try {
    record(start, end, whole, unmappings);
  } catch (const std::bad_alloc&) {
    calls_.unwatch(start, end);
    return ENOMEM;
  }
  return 0;
}

/// Returns the first piece that ends after `start`.
WatchBook::Pieces::iterator WatchBook::first_at(uint64_t start) {
  auto it = watched_.upper_bound(start);
  if (it != watched_.begin() && std::prev(it)->second.end > start) --it;
  return it;
}

void WatchBook::record(uint64_t start, uint64_t end, bool whole, uint64_t unmappings) {
  const auto joins = [&](const Pieces::value_type& other) {
    if (other.first < end && other.second.end > start) return true;
    // Exact neighbours are one piece, as the kernel merges their mappings.
    return !whole && !other.second.whole && (other.first == end || other.second.end == start);
  };
  auto first = first_at(start);
  if (first != watched_.begin() && joins(*std::prev(first))) --first;
  auto last = first;
  uint64_t from = start;
  Piece piece{end, unmappings, whole};
  for (; last != watched_.end() && joins(*last); ++last) {
    if (last->first < start || last->second.end > end)
      piece.unmappings = std::min(piece.unmappings, last->second.unmappings);
    from = std::min(from, last->first);
    piece.end = std::max(piece.end, last->second.end);
    piece.whole |= last->second.whole;
  }
  if (first == last) {
    watched_.emplace_hint(last, from, piece);
    return;
  }
  auto node = watched_.extract(first++);
  watched_.erase(first, last);
  node.key() = from;
  node.mapped() = piece;
  watched_.insert(std::move(node));
}

/// Removes [start, end), which is part of a piece, from that piece.
void WatchBook::erase(Pieces::iterator piece, uint64_t start, uint64_t end) {
  const uint64_t first = piece->first;
  const Piece old = piece->second;
  if (end < old.end) watched_.emplace(end, old);
  if (first < start) {
    piece->second.end = start;
  } else {
    watched_.erase(piece);
  }
}

/// Stops watching [start, end), which has no user left.
void WatchBook::release(uint64_t start, uint64_t end) {
  for (auto it = first_at(start); it != watched_.end() && it->first < end;) {
    const auto next = std::next(it);
    uint64_t from = it->first;
    uint64_t to = it->second.end;
    if (!it->second.whole) {
      from = std::max(from, start);
      to = std::min(to, end);
    } else if (users_.any_in(from, to)) {
      it = next;
      continue;
    }
    erase(it, from, to);
    stop(from, to);
    it = next;
  }
}

/// Unregisters only our own registrations. Before Linux 6.17 the kernel does not check whose registration it
/// removes. If the program has unmapped our range and mapped it anew, its own userfaultfd may be registered
/// there.
/// The range is therefore registered again first. This changes nothing if it is ours, and fails with EBUSY
/// if it is not.
void WatchBook::stop(uint64_t start, uint64_t end) {
  if (calls_.watch(start, end) == 0) {
    calls_.unwatch(start, end);
    return;
  }
  MappingFacts mapping;
  for (uint64_t at = start; at < end && calls_.find_mapping_from(at, mapping) && mapping.start < end;
       at = mapping.end) {
    const uint64_t from = std::max(at, mapping.start);
    const uint64_t to = std::min(end, mapping.end);
    if (calls_.watch(from, to) == 0) calls_.unwatch(from, to);
  }
}

void WatchBook::lift_locked(uint64_t start, uint64_t end) {
  try {
    for (auto it = first_at(start); it != watched_.end() && it->first < end;) {
      const auto next = std::next(it);
      const uint64_t from = std::max(it->first, start);
      const uint64_t to = std::min(it->second.end, end);
      erase(it, from, to);
      stop(from, to);
      it = next;
    }
  } catch (const std::bad_alloc&) {
    // The rest stays watched: the program's call may fail, as it would if memory were short.
  }
}

int WatchBook::restore_locked(uint64_t start, uint64_t end) {
  int worst = 0;
  users_.for_each_used(start, end,
                       [&](uint64_t from, uint64_t to) { worst = graver(worst, cover(from, to)); });
  return worst;
}

}  // namespace faultline::odp
