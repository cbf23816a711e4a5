// SPDX-License-Identifier: BSD-3-Clause
// For the function that runs at exit: may it take locks?
#pragma once

namespace faultline {

/// Whether the caller's stack holds a call into this library besides the caller's own: a signal handler has
/// interrupted that call and exits. Its locks, and the allocator's, may be this thread's. Always false where
/// the library is linked into the program itself, whose frames look the same. Neither allocates nor waits.
[[nodiscard]] bool has_interrupted_own_call();

}  // namespace faultline
