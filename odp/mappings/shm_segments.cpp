// SPDX-License-Identifier: BSD-3-Clause
#include "odp/mappings/shm_segments.hpp"

#include <atomic>

#include "odp/mappings/own_mappings.hpp"
#include "odp/regions/page_map.hpp"

namespace faultline::odp {
namespace {

/// One attachment. Its size is valid while `address` stays the same.
struct Noted {
  std::atomic<uint64_t> address{0};
  std::atomic<uint64_t> bytes{0};
};
constexpr uint64_t kBusy = 1;  ///< not a possible attachment address: those are page-aligned
constinit std::array<Noted, 256> noted;
constinit std::atomic<size_t> next_victim{0};

bool replace(Noted& entry, uint64_t expected, uint64_t address, uint64_t bytes) {
  if (!entry.address.compare_exchange_strong(expected, kBusy)) return false;
  entry.bytes.store(bytes);
  entry.address.store(address);
  return true;
}

/// Returns 0 if the attachment was not noted.
uint64_t noted_bytes(uint64_t address) {
  for (const Noted& entry : noted) {
    if (entry.address.load() != address) continue;
    const uint64_t bytes = entry.bytes.load();
    if (entry.address.load() == address) return bytes;
  }
  return 0;
}

uint64_t end_of_pages(uint64_t address, uint64_t bytes) {
  return (address + bytes + kPageBytes - 1) & ~(kPageBytes - 1);
}

/// As ipc/shm.c, ksys_shmdt(): the first mapping of a segment that lies at its offset from `address`, and
/// then each further such mapping of the same segment.
AttachedPieces listed_pieces(const OwnMappings& mappings, uint64_t address) {
  const uint64_t bytes = noted_bytes(address);
  const uint64_t beyond = bytes != 0 ? end_of_pages(address, bytes) : ~uint64_t{0};
  AttachedPieces found;
  uint64_t inode = 0;
  mappings.for_each_file_from(address, [&](const MappingFacts& facts) {
    if (facts.start >= beyond) return false;
    const bool is_memory = facts.backing == Backing::shared_memory || facts.backing == Backing::huge_pages;
    if (!is_memory || facts.start < address || facts.start - address != facts.offset_bytes) return true;
    if (found.count != 0 && facts.inode != inode) return true;
    inode = facts.inode;
    auto& last = found.pieces[found.count == 0 ? 0 : found.count - 1];
    // The gap between the last pieces may contain a mapping that stays: no peer can write it then, which is
    // safe.
    if (found.count != 0 && (last.end == facts.start || found.count == AttachedPieces::kMax)) {
      last.end = facts.end;
    } else {
      found.pieces[found.count++] = {facts.start, facts.end};
    }
    return true;
  });
  return found;
}

}  // namespace

void note_attachment(uint64_t address, uint64_t bytes) {
  for (Noted& entry : noted)
    if (entry.address.load() == address && replace(entry, address, address, bytes)) return;
  for (Noted& entry : noted)
    if (entry.address.load() == 0 && replace(entry, 0, address, bytes)) return;
  Noted& victim = noted[next_victim.fetch_add(1) % noted.size()];
  // Another thread may be using the entry: then this attachment is not noted.
  const uint64_t old = victim.address.load();
  if (old != kBusy) static_cast<void>(replace(victim, old, address, bytes));
}

void forget_attachment(uint64_t address) {
  for (Noted& entry : noted) {
    uint64_t expected = address;
    entry.address.compare_exchange_strong(expected, 0);
  }
}

AttachedPieces attached_pieces(uint64_t address) {
  if (address % kPageBytes != 0) return {};  // shmdt(2): EINVAL
  const OwnMappings mappings;
  if (mappings.is_open()) return listed_pieces(mappings, address);
  if (const uint64_t bytes = noted_bytes(address); bytes != 0)
    return {.pieces = {{{address, end_of_pages(address, bytes)}}}, .count = 1};
  const uint64_t end = end_of_mapped(address);
  return {.pieces = {{{address, end}}}, .count = end > address ? size_t{1} : 0, .is_exact = false};
}

}  // namespace faultline::odp
