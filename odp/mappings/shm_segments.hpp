// SPDX-License-Identifier: BSD-3-Clause
// System V segments that are attached to this process: shmdt(2) has an address and no length. Lock-free, and
// without allocation: a signal handler may attach and detach.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace faultline::odp {

/// What shmdt(address) is about to take away.
struct AttachedPieces {
  static constexpr size_t kMax = 8;
  struct Piece {
    uint64_t start;
    uint64_t end;
  };
  std::array<Piece, kMax> pieces{};
  size_t count = 0;
  /// False where nothing knows the segment's end: the pieces may be more than it.
  bool is_exact = true;
};

/// Notes the size of an attachment that shmat(2) has made. The oldest one is forgotten where there are many.
void note_attachment(uint64_t address, uint64_t bytes);
void forget_attachment(uint64_t address);

/// From the kernel's list of mappings; where that is out of reach, from what was noted; else all that is
/// mapped from `address` on without a hole.
[[nodiscard]] AttachedPieces attached_pieces(uint64_t address);

}  // namespace faultline::odp
