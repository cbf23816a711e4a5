// SPDX-License-Identifier: BSD-3-Clause
#include "stack/cm/listeners.hpp"

#include <algorithm>

namespace faultline::cm {
namespace {

bool admits(const ListenParams& params, uint64_t service_id, const wire::Gid& address) {
  if ((service_id & params.service_mask) != (params.service_id & params.service_mask)) return false;
  if (params.address) return *params.address == address;
  return params.family == Family::any || (params.family == Family::ipv4) == address.is_ipv4();
}

/// Ranks listeners: an address outranks a family, and an exact service ID outranks a range of IDs.
int particularity(const ListenParams& params) {
  const int where = params.address ? 2 : params.family != Family::any ? 1 : 0;
  return 2 * where + (params.service_mask == ~uint64_t{0} ? 1 : 0);
}

bool same(const ListenParams& a, const ListenParams& b) {
  return a.service_mask == b.service_mask &&
         (a.service_id & a.service_mask) == (b.service_id & b.service_mask) && a.address == b.address &&
         (a.address || a.family == b.family);
}

}  // namespace

bool Listeners::add(Id id, const ListenParams& params) {
  if (std::any_of(listeners_.begin(), listeners_.end(),
                  [&](const Listener& other) { return same(other.params, params); }))
    return false;
  listeners_.push_back({id, params, 0});
  return true;
}

void Listeners::remove(Id id) {
  std::erase_if(listeners_, [id](const Listener& listener) { return listener.id == id; });
}

Listener* Listeners::find(Id id) {
  const auto at = std::find_if(listeners_.begin(), listeners_.end(),
                               [id](const Listener& listener) { return listener.id == id; });
  return at == listeners_.end() ? nullptr : &*at;
}

bool Listeners::has_service(uint64_t service_id) const {
  return std::any_of(listeners_.begin(), listeners_.end(), [service_id](const Listener& listener) {
    return listener.params.service_id == service_id;
  });
}

Listener* Listeners::match(uint64_t service_id, const wire::Gid& address) {
  Listener* best = nullptr;
  for (Listener& listener : listeners_)
    if (admits(listener.params, service_id, address) &&
        (best == nullptr || particularity(listener.params) > particularity(best->params)))
      best = &listener;
  return best;
}

}  // namespace faultline::cm
