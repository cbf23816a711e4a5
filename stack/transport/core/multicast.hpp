// SPDX-License-Identifier: BSD-3-Clause
// Table of the QPs of a core that are attached to multicast addresses. Owner: the core's thread.
#pragma once

#include <span>
#include <vector>

#include "stack/wire/packet/headers.hpp"

namespace faultline::transport {

class QueuePair;

class MulticastTable {
 public:
  /// Returns 0 or ENOMEM. Attaching twice has the effect of attaching once.
  [[nodiscard]] int attach(QueuePair* qp, const wire::Gid& gid);
  /// Returns 0, or EINVAL if the QP is not attached.
  [[nodiscard]] int detach(const QueuePair* qp, const wire::Gid& gid);
  /// Detaches a QP from all groups; call before destroying it.
  void forget(const QueuePair* qp);
  [[nodiscard]] std::span<QueuePair* const> members(const wire::Gid& gid) const;

 private:
  struct Group {
    wire::Gid gid;
    std::vector<QueuePair*> members;
  };
  std::vector<Group> groups_;  // few entries
};

}  // namespace faultline::transport
