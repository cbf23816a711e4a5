// SPDX-License-Identifier: BSD-3-Clause
// Reuses the random generator of the models for the simulator.
#pragma once

#include "stack/chaos/random.hpp"

namespace faultline::sim {

using chaos::Random;

}  // namespace faultline::sim
