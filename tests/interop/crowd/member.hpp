// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "board.hpp"

namespace faultline::crowd {

/// Process `self` of the crowd: connects to all, exchanges all messages, writes a byte to `done`, and stays
/// until the crowd leaves. Exits with a message if anything fails.
void take_part(Board& board, uint32_t self, uint32_t processes, int done);

}  // namespace faultline::crowd
