// SPDX-License-Identifier: BSD-3-Clause
// ibv_modify_qp(3). The transport's table determines which attributes a transition takes. This file checks
// all values before anything changes.
#include <array>
#include <cstdio>

#include "stack/record/recorded_call.hpp"
#include "stack/transport/qp/qp_state.hpp"
#include "stack/verbs/device/address.hpp"
#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

namespace {

constexpr uint32_t kKnownMask = IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY |
                                IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY |
                                IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_ALT_PATH |
                                IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                IBV_QP_PATH_MIG_STATE | IBV_QP_CAP | IBV_QP_DEST_QPN | IBV_QP_RATE_LIMIT;
/// Attributes of verbs that this stack does not support. IBV_QP_CAP: no IBV_DEVICE_RESIZE_MAX_WR.
constexpr uint32_t kUnsupportedMask = IBV_QP_ALT_PATH | IBV_QP_CAP | IBV_QP_RATE_LIMIT;

constexpr uint8_t kMaxTimeout = 31;
constexpr uint8_t kMaxRetry = 7;
constexpr uint8_t kMaxRnrTimer = 31;
constexpr uint32_t kRemoteAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                   IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | odp::kFlushGlobal |
                                   odp::kFlushPersistent;

/// Access flags of regions that programs also pass for a QP. They do not apply to a QP, and the kernel
/// ignores them too.
constexpr uint32_t kRegionAccess =
    IBV_ACCESS_ON_DEMAND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB | uint32_t{IBV_ACCESS_OPTIONAL_RANGE};

/// Returns why a value of the mask's attributes is invalid, or nullptr.
const char* refused_value(const DeviceDescription& description, const ibv_qp_attr& attr, uint32_t mask) {
  const auto has = [mask](uint32_t bit) { return (mask & bit) != 0; };
  if (has(IBV_QP_PKEY_INDEX) && attr.pkey_index >= kPkeyTableLength)
    return "pkey_index: the P_Key table has one entry";
  if (has(IBV_QP_PORT) && attr.port_num != kPortNumber) return "port_num: the device has port 1 alone";
  if (has(IBV_QP_ACCESS_FLAGS) && (attr.qp_access_flags & ~(kRemoteAccess | kRegionAccess)) != 0)
    return "qp_access_flags: a right that is not known";
  if (has(IBV_QP_PATH_MTU)) {
    if (attr.path_mtu < IBV_MTU_256 || attr.path_mtu > IBV_MTU_4096) return "path_mtu: not one of ibv_mtu";
    if (transport::bytes_of(static_cast<transport::PathMtu>(attr.path_mtu)) > description.max_path_mtu_bytes)
      return "path_mtu: more than the port carries (ibv_port_attr::max_mtu)";
  }
  if (has(IBV_QP_TIMEOUT) && attr.timeout > kMaxTimeout) return "timeout: more than 31";
  if (has(IBV_QP_RETRY_CNT) && attr.retry_cnt > kMaxRetry) return "retry_cnt: more than 7";
  if (has(IBV_QP_RNR_RETRY) && attr.rnr_retry > kMaxRetry) return "rnr_retry: more than 7";
  if (has(IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > kMaxRnrTimer) return "min_rnr_timer: more than 31";
  if (has(IBV_QP_MAX_QP_RD_ATOMIC) && attr.max_rd_atomic > kMaxRdAtomic)
    return "max_rd_atomic: more than max_qp_init_rd_atom";
  if (has(IBV_QP_MAX_DEST_RD_ATOMIC) && attr.max_dest_rd_atomic > kMaxRdAtomic)
    return "max_dest_rd_atomic: more than max_qp_rd_atom";
  if (has(IBV_QP_DEST_QPN) && attr.dest_qp_num > wire::kQpnMask) return "dest_qp_num: more than 24 bits";
  return nullptr;
}

/// Returns the attributes after this call: those in the mask from `attr`, the others unchanged.
ibv_qp_attr merged(ibv_qp_attr attributes, const ibv_qp_attr& attr, uint32_t mask) {
  constexpr uint32_t kPsnMask = 0xffffffU;  // verbs: the high byte is ignored
  const auto has = [mask](uint32_t bit) { return (mask & bit) != 0; };
  if (has(IBV_QP_ACCESS_FLAGS)) attributes.qp_access_flags = attr.qp_access_flags;
  if (has(IBV_QP_PKEY_INDEX)) attributes.pkey_index = attr.pkey_index;
  if (has(IBV_QP_PORT)) attributes.port_num = attr.port_num;
  if (has(IBV_QP_QKEY)) attributes.qkey = attr.qkey;
  if (has(IBV_QP_AV)) attributes.ah_attr = attr.ah_attr;
  if (has(IBV_QP_PATH_MTU)) attributes.path_mtu = attr.path_mtu;
  if (has(IBV_QP_TIMEOUT)) attributes.timeout = attr.timeout;
  if (has(IBV_QP_RETRY_CNT)) attributes.retry_cnt = attr.retry_cnt;
  if (has(IBV_QP_RNR_RETRY)) attributes.rnr_retry = attr.rnr_retry;
  if (has(IBV_QP_RQ_PSN)) attributes.rq_psn = attr.rq_psn & kPsnMask;
  if (has(IBV_QP_SQ_PSN)) attributes.sq_psn = attr.sq_psn & kPsnMask;
  if (has(IBV_QP_MAX_QP_RD_ATOMIC)) attributes.max_rd_atomic = attr.max_rd_atomic;
  if (has(IBV_QP_MAX_DEST_RD_ATOMIC)) attributes.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  if (has(IBV_QP_MIN_RNR_TIMER)) attributes.min_rnr_timer = attr.min_rnr_timer;
  if (has(IBV_QP_DEST_QPN)) attributes.dest_qp_num = attr.dest_qp_num;
  if (has(IBV_QP_EN_SQD_ASYNC_NOTIFY)) attributes.en_sqd_async_notify = attr.en_sqd_async_notify;
  return attributes;
}

transport::QpAttributes to_transport(const ibv_qp_attr& attr, transport::QpState state,
                                     const transport::AddressVector& av) {
  transport::QpAttributes result;
  result.state = state;
  result.access_flags = attr.qp_access_flags;
  result.qkey = attr.qkey;
  result.av = av;
  result.path_mtu = static_cast<transport::PathMtu>(attr.path_mtu);
  result.timeout = attr.timeout;
  result.retry_count = attr.retry_cnt;
  result.rnr_retry = attr.rnr_retry;
  result.min_rnr_timer = attr.min_rnr_timer;
  result.max_rd_atomic = attr.max_rd_atomic;
  result.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  result.rq_psn = attr.rq_psn;
  result.sq_psn = attr.sq_psn;
  result.destination_qpn = attr.dest_qp_num;
  result.sqd_notify = attr.en_sqd_async_notify != 0;
  return result;
}

/// Removes the QP's completions from before a reset, as adapters' libraries do. Programs that reuse a QP
/// after an error rely on it.
void purge_completions(const ibv_qp& qp) {
  for (ibv_cq* const queue : {qp.send_cq, qp.recv_cq}) {
    if (queue == nullptr) continue;
    Cq& cq = cq_of(queue);
    const std::lock_guard no_polls(cq.poll_lock);
    cq.purge(qp.qp_num);
  }
}

/// Removes attributes of the side that an XRC QP lacks. Programs set them, and Linux ignores them too
/// (drivers/infiniband/core/uverbs_cmd.c, modify_qp_mask).
uint32_t without_ignored(ibv_qp_type type, uint32_t mask) {
  switch (type) {
    case IBV_QPT_XRC_SEND:
      return mask & ~uint32_t{IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER};
    case IBV_QPT_XRC_RECV:
      return mask & ~uint32_t{IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY};
    default:
      return mask;
  }
}

struct Refusal {
  int error = 0;
  const char* why = "";
};

/// Stores the target state in `to`; returns why the mask and attributes do not allow the transition from
/// `from`.
Refusal check(const Qp& qp, const ibv_qp_attr& attr, uint32_t mask, transport::QpState from,
              transport::QpState& to) {
  if ((mask & ~kKnownMask) != 0) return {EINVAL, "attr_mask: a bit that is not known"};
  if ((mask & IBV_QP_CUR_STATE) != 0 && attr.cur_qp_state != static_cast<ibv_qp_state>(from))
    return {EINVAL, "cur_qp_state: the QP is in another state"};
  to = from;
  if ((mask & IBV_QP_STATE) != 0) {
    if (attr.qp_state < IBV_QPS_RESET || attr.qp_state > IBV_QPS_ERR)
      return {EINVAL, "qp_state: not one of ibv_qp_state"};
    to = static_cast<transport::QpState>(attr.qp_state);
  }
  if ((mask & kUnsupportedMask) != 0)
    return {EOPNOTSUPP, "attr_mask: no alternate path, no resizing, no rate limit"};
  if ((mask & IBV_QP_PATH_MIG_STATE) != 0 && attr.path_mig_state != IBV_MIG_MIGRATED)
    return {EOPNOTSUPP, "path_mig_state: no path migration"};
  if (!transport::check_transition(static_cast<transport::QpType>(qp.qp_base.qp_type), from, to, mask))
    return {EINVAL,
            "attr_mask: an attribute is missing, or does not go with this transition (ibv_modify_qp(3))"};
  const char* const value = refused_value(qp.engine->backend->description(), attr, mask);
  return value == nullptr ? Refusal{} : Refusal{EINVAL, value};
}

/// Logs the reason and returns the errno.
int refuse(const Qp& qp, transport::QpState from, transport::QpState to, uint32_t mask,
           const Refusal& refusal) {
  DeviceBackend& backend = *qp.engine->backend;
  if (!backend.wants_reasons()) return refusal.error;
  constexpr std::array<const char*, transport::kQpStateCount> kStates{"RESET", "INIT", "RTR", "RTS",
                                                                      "SQD",   "SQE",  "ERR"};
  std::array<char, 256> line;
  std::snprintf(line.data(), line.size(), "ibv_modify_qp of QP 0x%06x refused (%s to %s, attr_mask 0x%x): %s",
                qp.qp_base.qp_num, kStates[static_cast<size_t>(from)], kStates[static_cast<size_t>(to)], mask,
                refusal.why);
  backend.log_reason(line.data());
  return refusal.error;
}

int modify(Qp& qp, const ibv_qp_attr* attr, int attr_mask, record::ControlRow& row) {
  if (const int error = trouble_of("ibv_modify_qp", &qp.qp_base); error != 0) return error;
  SharedQp& shared = *qp.shared;
  OpenDevice& engine = *qp.engine;
  const uint32_t mask = without_ignored(qp.qp_base.qp_type, static_cast<uint32_t>(attr_mask));
  const std::lock_guard control(shared.control_mutex);
  transport::QpState to{};
  const transport::QpState from = transport::state_of(qp.transport_qp);
  row.from_state = static_cast<uint8_t>(from);
  row.to_state = (mask & IBV_QP_STATE) != 0 ? static_cast<uint8_t>(attr->qp_state) : row.from_state;
  if (const Refusal refusal = check(qp, *attr, mask, from, to); refusal.error != 0)
    return refuse(qp, from, to, mask, refusal);

  ibv_qp_attr wanted = merged(shared.attributes, *attr, mask);
  transport::AddressVector av;
  if ((mask & IBV_QP_AV) != 0) {
    if (const int error = make_address_vector(*engine.backend, attr->ah_attr, av); error != 0)
      return refuse(qp, from, to, mask, {error, "ah_attr: see the line before"});
    if (wire::is_multicast(av.path.destination_gid))
      return refuse(qp, from, to, mask,
                    {EINVAL, "ah_attr: a group's address, but a connection has one peer"});
    av.path.udp_source_port =
        udp_source_port(attr->ah_attr.grh.flow_label, qp.qp_base.qp_num, wanted.dest_qp_num);
  }
  {
    // A reset empties the rings, so no thread may post meanwhile.
    const std::lock_guard no_sends(qp.send_lock);
    const std::lock_guard no_receives(qp.receive_lock);
    int error = 0;
    engine.on_owner(shared.core_index, [&] {
      error = qp.core->modify_qp(qp.transport_qp, to_transport(wanted, to, av), mask, engine.backend->now());
    });
    if (error != 0) return error;
    if (to == transport::QpState::reset) wanted = {};
    shared.attributes = wanted;
    qp.qkey = wanted.qkey;
    qp.max_rd_atomic = wanted.max_rd_atomic;
    qp.qp_base.state = static_cast<ibv_qp_state>(to);
  }
  if (to == transport::QpState::reset) purge_completions(qp.qp_base);
  return 0;
}

}  // namespace

FAULTLINE_VERB int ibv_modify_qp(ibv_qp* ibv_qp_pointer, ibv_qp_attr* attr, int attr_mask) {
  if (!is_live(ibv_qp_pointer) || attr == nullptr) return refused(EINVAL);
  Qp& qp = qp_of(ibv_qp_pointer);
  record::RecordedCall call(qp.engine->backend->controls(), record::ControlCall::modify_qp);
  call.row.object = qp.qp_base.qp_num;
  call.row.qp_type = static_cast<uint8_t>(qp.qp_base.qp_type);
  call.row.access = static_cast<uint32_t>(attr_mask);
  return refused(call.end(modify(qp, attr, attr_mask, call.row)));
}

}  // namespace faultline::verbs
