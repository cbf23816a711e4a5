// SPDX-License-Identifier: BSD-3-Clause
// Memory with page faults, in plain vectors: regions with keys, page maps, and a pager that resolves faults
// by script in virtual time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "odp/regions/memory_access.hpp"
#include "stack/transport/shared/types.hpp"
#include "tests/sim/world/random.hpp"

namespace faultline::sim {

struct MemoryScript {
  uint32_t page_bytes = 4096;
  uint64_t resolve_min_ns = 2'000;  ///< minimum and maximum service time of a fault
  uint64_t resolve_max_ns = 20'000;
  uint32_t serve_at_once_permille = 0;    ///< a request is served on the engine's own thread
  uint32_t queue_capacity = 1024;         ///< fault requests in flight
  uint32_t queue_full_permille = 0;       ///< a request is refused although the queue has room
  uint32_t invalidate_permille = 0;       ///< before an access, some of its pages become absent
  uint32_t invalidations_limit = 0;       ///< bounds the invalidations, so that a run ends
  uint32_t write_protect_permille = 250;  ///< an invalidation removes only the write permission
};

/// A memory window over a region.
struct Window {
  odp::Key key = 0;
  odp::ProtectionDomain domain = 0;
  odp::WindowType type = odp::WindowType::type2;
  bool bound = false;
  uint32_t qpn = 0;
  odp::Key region = 0;
  uint64_t va = 0;
  uint64_t length = 0;
  uint32_t access = 0;
};

enum class PageState : uint8_t { absent, read, write };

/// What the program has left of a page.
enum class PageLimit : uint8_t {
  none,
  read_only,  ///< by mprotect(2): the pager finds no write permission
  hole,       ///< unmapped, or beyond the end of a file: the pager finds no page
  dead        ///< unmapped with a hook or an event: an access fails without a fault request
};

/// The program takes away a part of a region and gives it back later.
struct Taking {
  TimeNs from_ns = 0;
  TimeNs to_ns = kNever;
  uint64_t offset = 0;
  uint64_t length = 0;
  PageLimit limit = PageLimit::hole;

  [[nodiscard]] bool overlaps(uint64_t other_offset, uint64_t other_length) const {
    return offset < other_offset + other_length && other_offset < offset + length;
  }
};

/// Bytes that were zero at a time, by MADV_DONTNEED or a hole in a file.
struct Zeroing {
  TimeNs at_ns = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
};

struct Region {
  odp::Key key = 0;
  odp::ProtectionDomain domain = 0;
  uint32_t access = 0;
  uint64_t base = 0;
  bool on_demand = false;
  uint32_t page_bytes = 4096;
  std::vector<uint8_t> bytes;
  /// Length of a pinned region that is longer than its bytes: the bytes repeat.
  uint64_t extent_bytes = 0;
  std::vector<PageState> pages;
  std::vector<PageLimit> limits;
  bool registered = true;
  bool zeroable = false;  ///< the program may zero its pages
  // The program's operations on the region, for the model.
  std::vector<Taking> takings;
  std::vector<Zeroing> zeroings;

  /// Appends `length` random bytes and returns their address.
  uint64_t extend(uint64_t length, Random& random);
  [[nodiscard]] bool contains(uint64_t va, uint64_t length) const {
    const uint64_t all = std::max<uint64_t>(bytes.size(), extent_bytes);
    return va >= base && length <= all && va - base <= all - length;
  }
  void set_pages(uint64_t va, uint64_t length, PageState state);
  void add_hole(uint64_t va, uint64_t length);
  /// Returns the byte at `va`; the access must not straddle the end of the repeating bytes.
  [[nodiscard]] uint8_t* at(uint64_t va) { return bytes.data() + (va - base) % bytes.size(); }

  // Operations of the program on whole pages. Page numbers count from the region's first page.
  /// Reduces the pages to at most the state `left`: paged out or moved (absent), shared by fork(2) (read).
  void drop_pages(uint64_t first, uint64_t count, PageState left);
  void zero_pages(TimeNs now, uint64_t first, uint64_t count);
  void take_pages(TimeNs now, uint64_t first, uint64_t count, PageLimit limit);
  void deregister(TimeNs now);
  /// Restores everything that was taken, and registers the region again under its old key.
  void restore(TimeNs now);
  [[nodiscard]] bool was_zeroed(uint64_t va, TimeNs since_ns, TimeNs until_ns = kNever) const;
};

class ScriptedMemory final : public odp::MemoryAccess {
 public:
  ScriptedMemory(const MemoryScript& script, Random random) : script_(script), random_(random) {}

  Region& add_region(odp::ProtectionDomain domain, uint32_t access, bool on_demand);
  Window& add_window(odp::ProtectionDomain domain, odp::WindowType type);
  [[nodiscard]] Region* find(odp::Key key);
  [[nodiscard]] Window* find_window(odp::Key key);
  [[nodiscard]] std::deque<Region>& regions() { return regions_; }
  [[nodiscard]] MemoryScript& script() { return script_; }

  /// Advances virtual time: resolves the faults that are due.
  void advance(TimeNs now);
  [[nodiscard]] TimeNs next_event() const;

  [[nodiscard]] odp::Outcome check(const odp::Target& target, uint64_t va, uint64_t length_bytes) override;
  [[nodiscard]] odp::Outcome probe(const odp::Target& target, uint64_t va, uint64_t length_bytes) override;
  [[nodiscard]] odp::Outcome write(const odp::Target& target, uint64_t va,
                                   std::span<const uint8_t> from) override;
  [[nodiscard]] odp::Outcome read(const odp::Target& target, uint64_t va, std::span<uint8_t> to) override;
  void offer_beside_write(odp::CrcBeside* sum) override { beside_write_ = sum; }
  [[nodiscard]] odp::Outcome read_with_crc(const odp::Target& target, uint64_t va, std::span<uint8_t> to,
                                           uint32_t& crc) override;
  [[nodiscard]] odp::Outcome atomic(const odp::Target& target, uint64_t va, const odp::AtomicRequest& request,
                                    uint64_t& original) override;
  [[nodiscard]] odp::Outcome flush(const odp::Target& target, uint64_t va, uint64_t length_bytes,
                                   odp::FlushKind kind) override;
  [[nodiscard]] bool range_of(odp::Key key, uint64_t& va, uint64_t& length_bytes) override;
  [[nodiscard]] odp::Outcome bind_window(const odp::WindowBinding& binding) override;
  [[nodiscard]] odp::Outcome invalidate(odp::Key key, odp::ProtectionDomain domain, uint32_t qpn,
                                        bool remote) override;
  [[nodiscard]] bool serve_fault(const odp::FaultRequest& request) override;
  [[nodiscard]] bool request_fault(const odp::FaultRequest& request) override;
  [[nodiscard]] size_t take_resolutions(std::span<odp::Resolution> out) override;

  uint64_t faults = 0;  ///< accepted requests
  uint64_t served_at_once = 0;
  uint64_t refused = 0;  ///< requests refused because the queue was full
  uint64_t invalidations = 0;
  uint64_t atomics = 0;  ///< executed
  uint64_t flushes = 0;
  std::vector<odp::FaultRequest> requests;  ///< all accepted requests, for the directed tests

 private:
  /// Returns how many bytes of [va, va + length), counted from `va`, are resident with the required
  /// permission.
  [[nodiscard]] uint64_t resident(const Region& region, uint64_t va, uint64_t length, bool writable) const;
  void maybe_invalidate(Region& region, uint64_t va, uint64_t length);
  /// Returns the outcome for the first byte after the resident ones.
  [[nodiscard]] static odp::Outcome missing(const Region& region, uint64_t va);
  /// Returns the region of a key if the access is within its rights; nullptr otherwise.
  [[nodiscard]] Region* allowed(const odp::Target& target, uint64_t va, uint64_t length);
  [[nodiscard]] odp::Outcome serve(const odp::FaultRequest& request);

  odp::CrcBeside* beside_write_ = nullptr;
  MemoryScript script_;
  Random random_;
  TimeNs now_ = 0;
  std::deque<Region> regions_;
  std::deque<Window> windows_;
  std::multimap<TimeNs, odp::FaultRequest> in_service_;
  std::deque<odp::Resolution> resolutions_;
};

}  // namespace faultline::sim
