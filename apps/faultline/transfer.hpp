// SPDX-License-Identifier: BSD-3-Clause
// A WRITE between two QPs of one device, every byte compared.
#pragma once

#include "apps/faultline/probe_report.hpp"
#include "apps/faultline/verbs_calls.hpp"

namespace faultline::cli {

inline constexpr uint32_t kTransferBytes = 64U << 10;

/// Writes kTransferBytes from classic to on-demand memory through the device's first GID. The port must be
/// active. If the target cannot be on-demand memory it is classic memory too.
[[nodiscard]] TransferReport transfer(const VerbsCalls& verbs, ibv_context* context);

}  // namespace faultline::cli
