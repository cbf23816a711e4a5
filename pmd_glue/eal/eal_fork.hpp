// SPDX-License-Identifier: BSD-3-Clause
// EAL in a forked child. It cannot be started twice in one process image, so the child goes on with what it
// has inherited: a copy of EAL's memory, in which the parent's ports are of no use, and its tables. What is
// missing is made anew: the interrupt thread, and the order in the pool of
// frames (frame_pool.hpp).
#pragma once

namespace faultline::glue {

/// When EAL starts: its files are this process's.
void own_eal();

/// In the child, before anything else of EAL is used. False with errno.
[[nodiscard]] bool revive_eal();

}  // namespace faultline::glue
