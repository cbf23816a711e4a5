// SPDX-License-Identifier: BSD-3-Clause
// ECN marks that come in become CNPs that go out, and CNPs that come in slow their QP down. Owner: the core's
// thread.
#pragma once

#include "stack/transport/qp/context.hpp"

namespace faultline::transport {

class Notification {
 public:
  explicit Notification(CoreContext& context) : context_(context) {}

  /// A packet of the QP's peer was marked on its way.
  void on_marked(QueuePair& qp);
  /// Sends the CNP that is due.
  void send(QueuePair& qp);
  /// A CNP from the QP's peer.
  void on_notification(QueuePair& qp);

 private:
  CoreContext& context_;
};

}  // namespace faultline::transport
