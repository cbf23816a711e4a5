// SPDX-License-Identifier: BSD-3-Clause
// The counters of a port by the names that tools read below ports/1 in sysfs: those of the IBA in "counters",
// those of mlx5 and of Linux's rxe in "hw_counters".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace faultline::abi {

/// A file that drivers of the kernel have. Its value is the sum of some of the device's counters.
struct StandardCounter {
  std::string_view file;  ///< below the port's folder: "counters/port_xmit_data"
  /// Names of verbs::counter_texts(), separated by spaces. A name that ends in '.' stands for all that begin
  /// with it.
  std::string_view sources;
  uint32_t divisor;       ///< the file's unit, in units of the sources
  std::string_view help;  ///< a phrase without a full stop
};
[[nodiscard]] std::span<const StandardCounter> standard_counters();

struct CounterFile {
  std::string file;  ///< below the port's folder
  uint64_t value;
};
/// A counter by its name in verbs::counter_texts().
struct NamedCounter {
  std::string name;
  uint64_t value;
};
/// Returns the sum of the counters that `sources` names as StandardCounter::sources does.
[[nodiscard]] uint64_t sum_of(std::string_view sources, std::span<const NamedCounter> counters);
/// Returns the standard files, and one in "hw_counters" for each of the counters.
[[nodiscard]] std::vector<CounterFile> counter_files(std::span<const NamedCounter> counters);

}  // namespace faultline::abi
