// SPDX-License-Identifier: BSD-3-Clause
// Tracks the connection that a memif client makes, so that its messages are recognised. The name of the
// server's socket does not suffice, since the server may have bound it under another name.
#pragma once

struct rte_eth_dev;

namespace faultline::glue::memif {

/// Marks connect(2) calls on this thread as calls for `device`, until after_connection().
void before_connection(rte_eth_dev* device);
void after_connection(rte_eth_dev* device, bool succeeded);
/// Notes a descriptor before connect(2).
void on_connection(int descriptor);

}  // namespace faultline::glue::memif
