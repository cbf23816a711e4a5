// SPDX-License-Identifier: BSD-3-Clause
// Messages of the wire's control socket with file descriptors (SCM_RIGHTS, unix(7)). No call waits.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sys/types.h>

#include "stack/base/unique_fd.hpp"

namespace faultline::glue {

/// Descriptors of one message.
inline constexpr size_t kMostPassed = 4;

/// As send(2). Passes at most kMostPassed descriptors.
[[nodiscard]] ssize_t send_with_descriptors(int connection, const void* bytes, size_t size_bytes,
                                            std::span<const int> descriptors);
/// As recv(2) with MSG_TRUNC; appends the message's descriptors.
[[nodiscard]] ssize_t receive_with_descriptors(int connection, void* bytes, size_t size_bytes,
                                               std::vector<UniqueFd>& descriptors);

}  // namespace faultline::glue
