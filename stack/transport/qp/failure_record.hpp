// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "stack/status/failure.hpp"
#include "stack/transport/qp/events.hpp"

namespace faultline::transport {

/// Returns the record of a QP's failure. A QP whose peer is silent while the port's link is down fails
/// because of the link.
[[nodiscard]] status::FailureRecord record_of(const QpFailure& failure, bool link_up, TimeNs now);

}  // namespace faultline::transport
