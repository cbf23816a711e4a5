// SPDX-License-Identifier: BSD-3-Clause
// The simulator draws from the generator of the models that it runs.
#pragma once

#include "stack/chaos/random.hpp"

namespace faultline::sim {

using chaos::Random;

}  // namespace faultline::sim
