// SPDX-License-Identifier: BSD-3-Clause
// Memory that processes of one wire share, as a file of fixed size (memfd_create(2)). The seals keep either
// end from truncating it: an access to a truncated page raises SIGBUS.
#pragma once

#include <cstddef>

#include "stack/base/unique_fd.hpp"

namespace faultline::glue {

/// Creates zeroed memory. Returns an invalid descriptor with errno on failure.
[[nodiscard]] UniqueFd create_sealed_memory(const char* name, size_t size_bytes);

/// Maps memory of a peer, and keeps the mapping from forked children. Returns nullptr with errno if it is too
/// short or may be truncated.
[[nodiscard]] void* map_sealed_memory(int fd, size_t size_bytes);

/// Returns whether the descriptor is memory that map_sealed_memory() would accept.
[[nodiscard]] bool is_sealed_memory(int fd, size_t size_bytes);
/// Returns whether the descriptor is an eventfd(2) that does not block, the only kind to which a wake-up is
/// written.
[[nodiscard]] bool is_event(int fd);

}  // namespace faultline::glue
