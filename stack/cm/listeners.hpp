// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "stack/cm/manager.hpp"

namespace faultline::cm {

struct Listener {
  Id id = 0;
  ListenParams params;
  uint32_t awaiting = 0;  ///< requests reported to the program and not yet answered
};

/// The listeners of a manager. Searched linearly, since there are few.
class Listeners {
 public:
  /// Returns false if an identical listener exists.
  [[nodiscard]] bool add(Id id, const ListenParams& params);
  void remove(Id id);
  [[nodiscard]] Listener* find(Id id);
  /// Returns whether any listener has exactly this service ID.
  [[nodiscard]] bool has_service(uint64_t service_id) const;
  /// Returns any listener, or nullptr if there is none.
  [[nodiscard]] Listener* first() { return listeners_.empty() ? nullptr : &listeners_.front(); }
  /// Returns the most specific listener for a request for a service at one of the local addresses.
  [[nodiscard]] Listener* match(uint64_t service_id, const wire::Gid& address);

 private:
  std::vector<Listener> listeners_;
};

}  // namespace faultline::cm
