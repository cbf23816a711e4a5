// SPDX-License-Identifier: BSD-3-Clause
// Which connection a memif client has made, so that its messages are known as its own: the name of the
// server's socket would not tell, since the server may have called it by another one.
#pragma once

struct rte_eth_dev;

namespace faultline::glue::memif {

/// From here to after_connection(), connect(2) on this thread is of this device.
void before_connection(rte_eth_dev* device);
void after_connection(rte_eth_dev* device, bool succeeded);
/// A descriptor that is about to be connected.
void on_connection(int descriptor);

}  // namespace faultline::glue::memif
