// SPDX-License-Identifier: BSD-3-Clause
// EAL in a forked child. EAL cannot start twice in one process image, so the child continues with a copy of
// EAL's memory and tables. The parent's ports in that memory are unusable. The child recreates the interrupt
// thread and resets the frame pool (frame_pool.hpp).
#pragma once

namespace faultline::glue {

/// Records this process as the owner of EAL's files. Call when EAL starts.
void own_eal();

/// Makes EAL's memory shareable by descriptor. Call before EAL starts. A fork then shares the memory instead
/// of copying it, so revive_eal() must not be called.
void share_eal_memory();

/// Restores EAL in the child, before any other use of EAL. Returns false with errno on failure.
[[nodiscard]] bool revive_eal();

}  // namespace faultline::glue
