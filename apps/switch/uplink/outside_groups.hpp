// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "stack/wire/link/link.hpp"

namespace faultline::switching {

/// The multicast groups of an uplink that receives only those that it has joined.
class OutsideGroups {
 public:
  OutsideGroups() = default;
  OutsideGroups(const OutsideGroups&) = delete;
  OutsideGroups& operator=(const OutsideGroups&) = delete;
  virtual ~OutsideGroups() = default;
  /// Returns 0 or an errno.
  [[nodiscard]] virtual int join_group(const wire::Gid& group) = 0;
  virtual void leave_group(const wire::Gid& group) = 0;
};

}  // namespace faultline::switching
