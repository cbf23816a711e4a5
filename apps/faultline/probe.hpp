// SPDX-License-Identifier: BSD-3-Clause
// The probe: this program started again with the library preloaded. It represents a verbs program of the user
// that does not know the library, and reports what such a program gets.
#pragma once

namespace faultline::cli {

/// Hidden first argument of a probe; the second is one of the following.
inline constexpr const char* kProbeOption = "--probe-of-this-process";
inline constexpr const char* kProbeGuards = "guards";      ///< opens no device
inline constexpr const char* kProbeDevices = "devices";    ///< opens and queries each device
inline constexpr const char* kProbeTransfer = "transfer";  ///< also moves data on the first device

/// Writes a ProbeReport as JSON to stdout. Returns the exit status.
[[nodiscard]] int run_probe(const char* what);

}  // namespace faultline::cli
