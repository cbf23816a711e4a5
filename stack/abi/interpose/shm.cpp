// SPDX-License-Identifier: BSD-3-Clause
// shmat(2) and shmdt(2), which userfaultfd does not report, in libfaultline.so.
#include <array>
#include <cstdint>
#include <optional>

#include <sys/shm.h>

#include "odp/invalidation/invalidation_monitor.hpp"
#include "odp/invalidation/program_call.hpp"
#include "odp/mappings/shm_segments.hpp"
#include "odp/regions/address_space.hpp"
#include "odp/regions/page_map.hpp"
#include "stack/abi/interpose/next_definition.hpp"
#include "stack/abi/interpose/program_range.hpp"
#include "stack/base/process/errno_kept.hpp"

namespace {

using faultline::ErrnoKept;
using faultline::abi::number_of;
using faultline::abi::page_end;
using faultline::odp::AddressSpaceCall;
using faultline::odp::AttachedPieces;
using faultline::odp::InvalidationMonitor;
using faultline::odp::kPageBytes;
using faultline::odp::PageEvent;
using faultline::odp::ProgramCall;
namespace next = faultline::odp::next;

/// Returns the segment's size, or 0 if the kernel does not report it.
uint64_t bytes_of(int segment) {
  const ErrnoKept kept;
  shmid_ds facts{};
  return shmctl(segment, IPC_STAT, &facts) == 0 ? facts.shm_segsz : 0;
}

void* attach(int segment, const void* address, int flags) {
  const AddressSpaceCall in_progress;
  return next::shmat(segment, address, flags);
}
void* const kFailed = reinterpret_cast<void*>(-1);

AttachedPieces pieces_of(const void* address) {
  const InvalidationMonitor::CallGuard domains;
  if (domains.monitor == nullptr) return {};
  const ErrnoKept kept;
  return faultline::odp::attached_pieces(number_of(address));
}

}  // namespace

FAULTLINE_CALL void* shmat(int segment, const void* address, int flags) noexcept {
  const uint64_t bytes = bytes_of(segment);
  const auto note = [bytes](void* attached) {
    if (attached != kFailed && bytes != 0) faultline::odp::note_attachment(number_of(attached), bytes);
    return attached;
  };
  if ((flags & SHM_REMAP) == 0 || bytes == 0) return note(attach(segment, address, flags));
  // shmat(2): SHM_RND rounds the address down.
  const uint64_t start = number_of(address) & ~(kPageBytes - 1);
  ProgramCall guard(start, page_end(start, bytes), PageEvent::kill);
  void* const result = attach(segment, address, flags);
  if (result == kFailed) guard.fail();
  return note(result);
}

FAULTLINE_CALL int shmdt(const void* address) noexcept {
  const AttachedPieces attached = pieces_of(address);
  std::array<std::optional<ProgramCall>, AttachedPieces::kMax> guards;
  for (size_t i = 0; i < attached.count; ++i)
    guards[i].emplace(attached.pieces[i].start, attached.pieces[i].end, PageEvent::kill);
  const AddressSpaceCall in_progress;
  const int result = next::shmdt(address);
  if (result == 0) faultline::odp::forget_attachment(number_of(address));
  // The pieces may contain more than the segment: fail() keeps what is still mapped valid.
  if (result != 0 || !attached.is_exact)
    for (size_t i = 0; i < attached.count; ++i) guards[i]->fail();
  return result;
}
