// SPDX-License-Identifier: BSD-3-Clause
// Reads the TOML file that describes a fabric and its traffic. docs/fabrics.md lists the keys.
#pragma once

#include <string>

#include "apps/sim/description/description.hpp"

namespace faultline::fabric {

/// Reads and checks the whole file. A trace that it names is read from the file's folder. Throws
/// DescriptionError.
[[nodiscard]] Description read_description(const std::string& path);

/// Reads rows "time_ns,source,destination,bytes" of a trace; lines that begin with # are comments. Sources
/// and destinations are names of hosts. Throws DescriptionError.
[[nodiscard]] std::vector<TraceRow> read_trace(const std::string& path, const Topology& topology);

}  // namespace faultline::fabric
