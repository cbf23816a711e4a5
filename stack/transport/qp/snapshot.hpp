// SPDX-License-Identifier: BSD-3-Clause
// A QP's state as another process reads it.
#pragma once

#include "stack/status/rows.hpp"
#include "stack/transport/qp/config.hpp"
#include "stack/transport/shared/types.hpp"

namespace faultline::transport {

class QueuePair;

struct QpSnapshot {
  status::RowIndex row = status::kNoRow;
  status::QpLive live;
};

/// Adds the completed sends to the QP's counters; before the send ring is cleared, too. Owner thread.
void count_completed_sends(QueuePair& qp);

/// Unacknowledged packets that the requester may have: what losses have left of the configured window, and
/// what rate control allows.
[[nodiscard]] int32_t window_packets_of(const QueuePair& qp, const CoreConfig& config);
/// The same if losses had not cut the window.
[[nodiscard]] uint32_t whole_window_packets_of(const QueuePair& qp, const CoreConfig& config);
/// What the next packet of the QP's own requests waits for. Owner thread.
[[nodiscard]] status::WaitsFor requests_wait_of(QueuePair& qp, int32_t window_packets, TimeNs now);

/// Returns a snapshot, and extends the QP's counters. Owner thread.
[[nodiscard]] QpSnapshot snapshot_of(QueuePair& qp, const CoreConfig& config, TimeNs now);

}  // namespace faultline::transport
