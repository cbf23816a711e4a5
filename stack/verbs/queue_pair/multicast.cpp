// SPDX-License-Identifier: BSD-3-Clause
// Multicast groups: an attached UD QP receives a group's messages. Each attachment joins the group at the
// port.
#include <algorithm>

#include "stack/verbs/device/address.hpp"
#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"
#include "stack/wire/link/address_filter.hpp"

namespace faultline::verbs {

static_assert(kMaxMulticastGroups == wire::AddressFilter::kMaxGroups);
static_assert(kMaxQpsPerMulticastGroup == transport::kMaxGroupMembers);

FAULTLINE_VERB int ibv_attach_mcast(ibv_qp* ibv_qp_pointer, const ibv_gid* ibv_gid_pointer,
                                    uint16_t /*lid*/) {
  if (!is_live(ibv_qp_pointer) || ibv_gid_pointer == nullptr) return refused(EINVAL);
  Qp& qp = qp_of(ibv_qp_pointer);
  const wire::Gid gid = gid_from(*ibv_gid_pointer);
  if (qp.qp_base.qp_type != IBV_QPT_UD || !wire::is_multicast(gid)) return refused(EINVAL);
  if (const int error = trouble_of("ibv_attach_mcast", ibv_qp_pointer); error != 0) return error;
  const std::lock_guard control(qp.shared->control_mutex);
  // ibv_attach_mcast(3): a QP attached several times receives a single copy.
  if (std::find(qp.multicast.begin(), qp.multicast.end(), gid) != qp.multicast.end()) return 0;
  try {
    qp.multicast.reserve(qp.multicast.size() + 1);
  } catch (const std::bad_alloc&) {
    return refused(ENOMEM);
  }
  if (const int error = qp.engine->backend->join_multicast(gid); error != 0) return refused(error);
  int error = 0;
  qp.engine->on_owner(qp.shared->core_index,
                      [&] { error = qp.core->attach_multicast(qp.transport_qp, gid); });
  if (error != 0) {
    qp.engine->backend->leave_multicast(gid);
    return refused(error);
  }
  qp.multicast.push_back(gid);
  return 0;
}

FAULTLINE_VERB int ibv_detach_mcast(ibv_qp* ibv_qp_pointer, const ibv_gid* ibv_gid_pointer,
                                    uint16_t /*lid*/) {
  if (!is_live(ibv_qp_pointer) || ibv_gid_pointer == nullptr) return refused(EINVAL);
  Qp& qp = qp_of(ibv_qp_pointer);
  const wire::Gid gid = gid_from(*ibv_gid_pointer);
  const std::lock_guard control(qp.shared->control_mutex);
  const auto at = std::find(qp.multicast.begin(), qp.multicast.end(), gid);
  if (at == qp.multicast.end()) return refused(EINVAL);
  if (const int error = trouble_of("ibv_detach_mcast", ibv_qp_pointer); error != 0) return error;
  int error = 0;
  qp.engine->on_owner(qp.shared->core_index,
                      [&] { error = qp.core->detach_multicast(qp.transport_qp, gid); });
  if (error != 0) return refused(error);
  qp.engine->backend->leave_multicast(gid);
  qp.multicast.erase(at);
  return 0;
}

}  // namespace faultline::verbs
