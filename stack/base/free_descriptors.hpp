// SPDX-License-Identifier: BSD-3-Clause
// How many files this process may still open. What needs several asks first, since a part of it cannot be
// undone.
#pragma once

#include <cstddef>

#include <sys/resource.h>

namespace faultline {

/// Returns RLIMIT_NOFILE.
[[nodiscard]] rlim_t descriptor_limit();

/// Counts descriptors that this process may still open, up to `enough`. Makes a system call for each number
/// that it tries, since /proc may be missing and reading it takes a descriptor.
[[nodiscard]] size_t count_free_descriptors(size_t enough);

}  // namespace faultline
