// SPDX-License-Identifier: BSD-3-Clause
// The files of a run: flows, ports, hosts, queues over time, and the summary.
#pragma once

#include <string>

#include "apps/sim/report/summary.hpp"
#include "apps/sim/report/table_file.hpp"
#include "apps/sim/world/world.hpp"

namespace faultline::fabric {

/// Writes flows, ports, hosts and, if queues were sampled, queues in `format`, and summary.json. Makes the
/// folder if it is missing and replaces older files. Throws std::system_error.
void write_files(const World& world, const Summary& summary, const std::string& directory, FileFormat format);

}  // namespace faultline::fabric
