// SPDX-License-Identifier: BSD-3-Clause
// Values of rows as text.
#pragma once

#include <cstdint>
#include <string>

#include "stack/status/rows.hpp"

namespace faultline::cli {

[[nodiscard]] std::string qp_type_name(uint8_t type);    ///< of ibv_qp_type
[[nodiscard]] std::string qp_state_name(uint8_t state);  ///< of ibv_qp_state
/// Returns "ADDRESS 0xQPN", or "-" for a QP without a peer.
[[nodiscard]] std::string peer_text(const status::QpLive& live);
/// Returns a number with three digits and a unit of 1000: "12.3M".
[[nodiscard]] std::string short_number(double value);
/// Returns a number with three digits and a unit of 1024: "64.0K".
[[nodiscard]] std::string short_bytes(uint64_t bytes);
/// Returns a duration: "0.56 us", "67 ms"; "-" for 0.
[[nodiscard]] std::string duration_text(uint64_t ns);
/// Returns a latency's bound in us: "<4 us", ">16 ms"; "-" for 0.
[[nodiscard]] std::string bound_text(uint64_t bound_us);

}  // namespace faultline::cli
