// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "stack/cm/manager.hpp"

namespace faultline::cm {

struct Listener {
  Id id = 0;
  ListenParams params;
  uint32_t awaiting = 0;  ///< requests told of and not yet answered
};

/// Who listens for what. Few, so that they are looked through.
class Listeners {
 public:
  /// False where there is one for just the same already.
  [[nodiscard]] bool add(Id id, const ListenParams& params);
  void remove(Id id);
  [[nodiscard]] Listener* find(Id id);
  /// Whether any is for that very service.
  [[nodiscard]] bool has_service(uint64_t service_id) const;
  /// Any of them; nullptr where there is none.
  [[nodiscard]] Listener* first() { return listeners_.empty() ? nullptr : &listeners_.front(); }
  /// Whose a request for a service at one of our addresses is; of several the most particular one.
  [[nodiscard]] Listener* match(uint64_t service_id, const wire::Gid& address);

 private:
  std::vector<Listener> listeners_;
};

}  // namespace faultline::cm
