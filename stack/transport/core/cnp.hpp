// SPDX-License-Identifier: BSD-3-Clause
// Congestion notifications: answers received ECN marks with CNPs, and reduces a QP's rate on received CNPs.
// Owner: the core's thread.
#pragma once

#include "stack/transport/context/context.hpp"

namespace faultline::transport {

class Cnp {
 public:
  explicit Cnp(CoreContext& context) : context_(context) {}

  /// Handles a packet from the QP's peer that carries the ECN mark.
  void on_marked(QueuePair& qp);
  /// Sends the pending CNP.
  void send(QueuePair& qp);
  /// Handles a CNP from the QP's peer.
  void on_notification(QueuePair& qp);

 private:
  CoreContext& context_;
};

}  // namespace faultline::transport
