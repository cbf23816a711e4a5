// SPDX-License-Identifier: BSD-3-Clause
// Tables of `faultline top` as lines of text. Only the rows that are shown are formatted.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/faultline/top/device_state.hpp"

namespace faultline::cli {

enum class QpOrder : uint8_t { sent, received, retransmitted, in_flight, round_trip, wait, number, count_ };
[[nodiscard]] std::string_view name_of(QpOrder order);

/// A table: `header`, and the rows [first, first + rows.size()) of `total`.
struct Table {
  std::string header;
  std::vector<std::string> rows;
  size_t total = 0;
};

/// Which rows of a table are formatted.
struct Range {
  size_t first = 0;
  size_t most = SIZE_MAX;
};

struct QpSelection {
  QpOrder order = QpOrder::sent;
  bool reversed = false;
  std::string filter;  ///< part of a row's text, without regard to case; "": all
};

/// One QP in the order of a selection.
struct QpReference {
  const DeviceState* device = nullptr;
  const QpState* qp = nullptr;
};
[[nodiscard]] std::vector<QpReference> select_qps(const TopState& state, const QpSelection& selection);

[[nodiscard]] Table device_table(const TopState& state, Range range = {});
[[nodiscard]] Table qp_table(const std::vector<QpReference>& qps, Range range = {});
/// Regions, those with most faults a second first, then those with most faults.
[[nodiscard]] Table region_table(const TopState& state, Range range = {});
/// Kinds of page faults of each device with the distribution of their service times.
[[nodiscard]] Table fault_table(const TopState& state, Range range = {});
/// Failures, those of each device newest first.
[[nodiscard]] Table failure_table(const TopState& state, Range range = {});
/// Counters that are not zero, of all devices.
[[nodiscard]] Table counter_table(const TopState& state, Range range = {});
/// Everything that is known of a QP, a line for each fact.
[[nodiscard]] std::vector<std::string> qp_page(const TopState& state, const QpReference& qp);

}  // namespace faultline::cli
