// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/core/multicast.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

#include "stack/transport/core/core.hpp"

namespace faultline::transport {

int MulticastTable::attach(QueuePair* qp, const wire::Gid& gid) {
  try {
    auto group =
        std::find_if(groups_.begin(), groups_.end(), [&](const Group& one) { return one.gid == gid; });
    if (group == groups_.end()) group = groups_.insert(groups_.end(), {gid, {}});
    if (std::find(group->members.begin(), group->members.end(), qp) != group->members.end()) return 0;
    if (group->members.size() == kMaxGroupMembers) return ENOMEM;
    group->members.push_back(qp);
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

int MulticastTable::detach(const QueuePair* qp, const wire::Gid& gid) {
  for (Group& group : groups_) {
    if (group.gid != gid || std::erase(group.members, qp) == 0) continue;
    std::erase_if(groups_, [](const Group& one) { return one.members.empty(); });
    return 0;
  }
  return EINVAL;
}

void MulticastTable::forget(const QueuePair* qp) {
  for (Group& group : groups_) std::erase(group.members, qp);
  std::erase_if(groups_, [](const Group& group) { return group.members.empty(); });
}

std::span<QueuePair* const> MulticastTable::members(const wire::Gid& gid) const {
  for (const Group& group : groups_)
    if (group.gid == gid) return group.members;
  return {};
}

}  // namespace faultline::transport
