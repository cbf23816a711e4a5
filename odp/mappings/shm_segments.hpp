// SPDX-License-Identifier: BSD-3-Clause
// System V segments that are attached to this process: shmdt(2) takes an address and no length. Lock-free,
// and without allocation: a signal handler may attach and detach.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace faultline::odp {

/// The pieces that shmdt(address) is about to unmap.
struct AttachedPieces {
  static constexpr size_t kMax = 8;
  struct Piece {
    uint64_t start;
    uint64_t end;
  };
  std::array<Piece, kMax> pieces{};
  size_t count = 0;
  /// False if the segment's end is unknown: the pieces may extend beyond the segment.
  bool is_exact = true;
};

/// Records the size of an attachment that shmat(2) has made. If there are too many, the oldest is dropped.
void note_attachment(uint64_t address, uint64_t bytes);
void forget_attachment(uint64_t address);

/// Returns the pieces by the kernel's list of mappings. If that is unavailable, by the recorded size;
/// otherwise all that is mapped from `address` on without a hole.
[[nodiscard]] AttachedPieces attached_pieces(uint64_t address);

}  // namespace faultline::odp
