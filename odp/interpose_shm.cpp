// SPDX-License-Identifier: BSD-3-Clause
// shmat(2) and shmdt(2), of which userfaultfd reports nothing, in libfaultline.so.
#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>

#include <sys/shm.h>

#include "odp/address_space.hpp"
#include "odp/invalidation_monitor.hpp"
#include "odp/next_definition.hpp"
#include "odp/page_map.hpp"
#include "odp/program_call.hpp"
#include "odp/shm_segments.hpp"

namespace {

using faultline::odp::AddressSpaceCall;
using faultline::odp::attached_pieces;
using faultline::odp::AttachedPieces;
using faultline::odp::InvalidationMonitor;
using faultline::odp::kPageBytes;
using faultline::odp::PageEvent;
using faultline::odp::ProgramCall;

uint64_t number_of(const void* address) {
  return reinterpret_cast<uint64_t>(address);
}
uint64_t page_end(uint64_t start, uint64_t bytes) {
  return (start + bytes + kPageBytes - 1) & ~(kPageBytes - 1);
}

/// 0 where the kernel does not answer.
uint64_t bytes_of(int segment) {
  const int errno_before = errno;
  shmid_ds facts{};
  const bool answered = shmctl(segment, IPC_STAT, &facts) == 0;
  errno = errno_before;
  return answered ? facts.shm_segsz : 0;
}

void* attach(int segment, const void* address, int flags) {
  const AddressSpaceCall in_progress;
  return faultline::odp::next::shmat(segment, address, flags);
}
void* const kFailed = reinterpret_cast<void*>(-1);

/// 0 or an errno.
int detach(const void* address) {
  std::array<std::optional<ProgramCall>, AttachedPieces::kMax> guards;
  AttachedPieces attached;
  if (const InvalidationMonitor::CallGuard domains; domains.monitor != nullptr)
    attached = attached_pieces(number_of(address));
  for (size_t i = 0; i < attached.count; ++i)
    guards[i].emplace(attached.pieces[i].start, attached.pieces[i].end, PageEvent::kill);
  const AddressSpaceCall in_progress;
  if (faultline::odp::next::shmdt(address) != 0) {
    const int error = errno;
    for (size_t i = 0; i < attached.count; ++i) guards[i]->fail();
    return error;
  }
  faultline::odp::forget_attachment(number_of(address));
  // More than the segment perhaps: what is still mapped lives on.
  if (!attached.is_exact && attached.count != 0) guards[0]->fail();
  return 0;
}

}  // namespace

#define FAULTLINE_CALL extern "C" __attribute__((visibility("default")))

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
  const int errno_before = errno;
  const int error = detach(address);
  errno = error == 0 ? errno_before : error;
  return error == 0 ? 0 : -1;
}
