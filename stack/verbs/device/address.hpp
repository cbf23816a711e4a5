// SPDX-License-Identifier: BSD-3-Clause
// Conversion of ibv_ah_attr to a resolved address vector.
#pragma once

#include <infiniband/verbs.h>

#include "stack/transport/shared/types.hpp"
#include "stack/verbs/objects/backend.hpp"
#include "stack/wire/link/link.hpp"

namespace faultline::verbs {

/// Checks the attributes, resolves the destination's MAC (may block) and fills `av`. Returns 0, EINVAL or
/// EHOSTUNREACH.
[[nodiscard]] int make_address_vector(DeviceBackend& backend, const ibv_ah_attr& attributes,
                                      transport::AddressVector& av);

/// Returns the UDP source port of a flow between two QPs, in 0xc000..0xffff (IBA A17.3.2):
/// rdma_calc_flow_label() folded as rdma_flow_label_to_udp_sport() does (Linux include/rdma/ib_verbs.h).
[[nodiscard]] inline uint16_t udp_source_port(uint32_t flow_label, uint32_t local_qpn, uint32_t remote_qpn) {
  if (flow_label == 0) {
    uint64_t hash = uint64_t{local_qpn} * remote_qpn;
    hash ^= hash >> 20;
    hash ^= hash >> 40;
    flow_label = static_cast<uint32_t>(hash & IB_GRH_FLOWLABEL_MASK);
  }
  return ibv_flow_label_to_udp_sport(flow_label);
}

[[nodiscard]] wire::Gid gid_from(const ibv_gid& gid);

}  // namespace faultline::verbs
