// SPDX-License-Identifier: BSD-3-Clause
// Forks while another thread holds a mutex. A program that uses this is linked with
// -Wl,--wrap=pthread_mutex_lock, through which every std::mutex of the program's objects passes.
#pragma once

#include <functional>

namespace faultline::test {

/// Calls `hold` on a second thread, stops that thread when it has locked its first mutex, and forks. Then
/// stops it at its second mutex, and so on, until `hold` locks no further mutex. Each child calls `in_child`,
/// which returns true on success. Expects that every child ends, and that `hold` locks at least one mutex.
///
/// The second thread continues if a fork handler waits for a mutex that it holds.
void expect_children_end(const std::function<void()>& hold, const std::function<bool()>& in_child);

}  // namespace faultline::test
