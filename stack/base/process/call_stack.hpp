// SPDX-License-Identifier: BSD-3-Clause
// Decides whether the function that runs at exit may take locks.
#pragma once

namespace faultline {

/// Returns whether the stack holds an earlier call into this library besides the caller's own. In that case a
/// signal handler interrupted that call and now exits. This thread may then hold the library's locks or the
/// allocator's. Always false if the library is linked into the program itself, since the program's frames are
/// indistinguishable. Neither allocates nor blocks.
[[nodiscard]] bool has_interrupted_own_call();

}  // namespace faultline
