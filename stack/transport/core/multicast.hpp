// SPDX-License-Identifier: BSD-3-Clause
// Which QPs of a core get what comes to a multicast address. Owner: the core's thread.
#pragma once

#include <span>
#include <vector>

#include "stack/wire/packet/headers.hpp"

namespace faultline::transport {

class QueuePair;

class MulticastTable {
 public:
  /// 0 or ENOMEM. Attaching twice is attaching once.
  [[nodiscard]] int attach(QueuePair* qp, const wire::Gid& gid);
  /// 0, or EINVAL where it is not attached.
  [[nodiscard]] int detach(const QueuePair* qp, const wire::Gid& gid);
  /// The QP goes.
  void forget(const QueuePair* qp);
  [[nodiscard]] std::span<QueuePair* const> members(const wire::Gid& gid) const;

 private:
  struct Group {
    wire::Gid gid;
    std::vector<QueuePair*> members;
  };
  std::vector<Group> groups_;  // few
};

}  // namespace faultline::transport
