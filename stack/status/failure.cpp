// SPDX-License-Identifier: BSD-3-Clause
#include "stack/status/failure.hpp"

#include <algorithm>
#include <iterator>

namespace faultline::status {
namespace {

using enum FailureCause;

constexpr FailureCauseRow kRows[] = {
    {none, "none", "nothing failed", "nothing"},
    {never_answered, "never_answered", "the peer has never answered, and retry_cnt is used up",
     "the peer's QP: does it exist, is it in RTR or RTS, with this side's QPN, address and first PSN? The "
     "path: "
     "ping, MTU, firewall for UDP port 4791. A busy machine: min_ack_timeout_ms of [[device]]"},
    {stopped_answering, "stopped_answering", "the peer has stopped answering, and retry_cnt is used up",
     "the peer's process: does it live and run? The path: loss, a link that went down. A busy machine: "
     "min_ack_timeout_ms of [[device]]"},
    {link_down, "link_down", "the port's link is down, and retry_cnt is used up",
     "the port, the wire's switch or the cable: faultline top, ibv_devinfo"},
    {receiver_not_ready, "receiver_not_ready", "the peer had no receive posted, and rnr_retry is used up",
     "the peer's receive queue: post receives earlier, or set rnr_retry 7 and a longer min_rnr_timer"},
    {peer_refused_access, "peer_refused_access", "the peer refused the access: rkey, range or rights",
     "rkey, address and length of the request; the peer's last error names what did not match"},
    {peer_refused_request, "peer_refused_request", "the peer refused the request as invalid",
     "the peer's access flags of the QP, the length of its receive, max_rd_atomic; its last error names it"},
    {peer_failed, "peer_failed", "the peer could not complete the request", "the peer's last error"},
    {bad_response, "bad_response", "a response of the peer does not fit its request",
     "versions of both stacks; a capture"},
    {acknowledges_nothing, "acknowledges_nothing",
     "the peer answers, but has acknowledged no request, and retry_cnt is used up",
     "the first PSNs: sq_psn of this QP and rq_psn of the peer's must be equal"},
    {local_length, "local_length", "a message was longer than its receive",
     "length of the posted receive and of the peer's SEND"},
    {local_operation, "local_operation", "the work request does not suit this QP",
     "opcode, transport service, size limits of the QP"},
    {local_key, "local_key", "a local buffer's lkey names no region",
     "lkey of the scatter/gather element: was the region deregistered?"},
    {local_domain, "local_domain", "a local buffer's region is of another protection domain",
     "the PD of the QP and of the region"},
    {local_range, "local_range", "a local buffer is not within its region",
     "address and length of the scatter/gather element"},
    {local_right, "local_right", "a local buffer's region does not permit the access",
     "IBV_ACCESS_LOCAL_WRITE of regions that receive or read"},
    {local_page, "local_page", "a page of a local buffer cannot be had",
     "was the memory unmapped, protected or truncated?"},
    {window_bind, "window_bind", "the bind of a memory window was refused",
     "the region's IBV_ACCESS_MW_BIND, its PD, the range, the window's type"},
    {cq_overrun, "cq_overrun", "a completion queue was full, and a completion was lost",
     "size of the CQ: at least the work requests that may complete before a poll"},
    {refused_key, "refused_key", "the peer's rkey names no region or window here",
     "was the region deregistered, or the key of another process?"},
    {refused_domain, "refused_domain", "the peer's rkey is of another protection domain than the QP",
     "the PD of the QP and of the region"},
    {refused_range, "refused_range", "the peer's access is not within the region",
     "address and length of the request; the region's address, iova and length"},
    {refused_right, "refused_right", "the region does not permit the peer's access",
     "IBV_ACCESS_REMOTE_WRITE, _READ or _ATOMIC at the registration"},
    {refused_window, "refused_window",
     "the peer's rkey is of a window that is not bound, or bound to another QP",
     "binds and invalidations of the window"},
    {refused_page, "refused_page", "a page of the region cannot be had",
     "was the memory unmapped, protected or truncated?"},
    {function_disabled, "function_disabled", "the QP does not permit the peer's operation",
     "qp_access_flags of ibv_modify_qp"},
    {malformed_request, "malformed_request",
     "the peer's request breaks a rule of lengths or of the order of packets",
     "path_mtu of both QPs; a capture"},
    {receive_too_short, "receive_too_short", "the peer's SEND is longer than the posted receive",
     "length of the posted receives"},
    {too_many_reads, "too_many_reads", "the peer has more READs and atomics outstanding than are permitted",
     "max_rd_atomic of the peer and max_dest_rd_atomic of this QP"},
    {misaligned_atomic, "misaligned_atomic", "the address of the peer's atomic is not a multiple of 8",
     "the remote address of the request"},
    {no_shared_queue, "no_shared_queue", "the peer's XRC request names no SRQ of the domain",
     "the SRQ number, and its XRC domain"},
    {bad_invalidate, "bad_invalidate", "the peer's SEND with invalidate names no window of this QP",
     "the rkey to invalidate"},
    {receive_memory, "receive_memory", "the memory of a posted receive is not accessible",
     "lkey, address and length of the receive; was its memory unmapped?"},
    {flushed, "flushed", "the QP was moved to the error state by the program", "nothing: it was asked for"},
    {device_lost, "device_lost", "the device's port was removed", "the port: open the device again"},
    {by_scenario, "by_scenario", "the scenario of trouble asked for it",
     "the journal: faultline-run --journal"},
    {connection_rejected, "connection_rejected", "the peer refused a connection",
     "the reason of its REJ (IBA 12.6.7.2, table 101): 8 is a port on which nobody listens, 28 a program "
     "that called "
     "rdma_reject()"},
    {connection_timeout, "connection_timeout", "the peer's connection manager does not answer",
     "does the peer's program live, and poll its event channel? The path: ping, loss"},
    {no_route, "no_route", "no network or route of the device leads to an address",
     "ip, gateway and route of [[device]]"},
    {no_neighbour, "no_neighbour", "no host answers for an address",
     "is the peer up, and on the same wire or network?"},
    {dropped_unknown_qpn, "dropped_unknown_qpn", "packets were dropped: no QP has their destination QPN",
     "the QPN that the peer uses; was the QP destroyed?"},
    {dropped_wrong_service, "dropped_wrong_service",
     "packets were dropped: they are of another transport service than their QP", "the types of both QPs"},
    {dropped_qp_state, "dropped_qp_state", "packets were dropped: their QP's state accepts none",
     "was the QP moved to RTR?"},
    {dropped_pkey, "dropped_pkey", "packets were dropped: their P_Key does not match",
     "pkey_index of both QPs"},
    {dropped_qkey, "dropped_qkey", "datagrams were dropped: their Q_Key does not match",
     "qkey of the QP and of the sender's work requests"},
    {dropped_source, "dropped_source", "packets were dropped: their source is not the QP's peer",
     "the address vector of the QP: does the peer send from another address?"},
    {dropped_destination, "dropped_destination",
     "packets were dropped: their destination is not the QP's address",
     "sgid_index of the QP; the address that the peer sends to"},
    {dropped_mtu, "dropped_mtu", "packets were dropped: they are longer than the path MTU",
     "path_mtu of both QPs must be equal"},
    {dropped_length, "dropped_length", "packets were dropped: their length breaks the rule of their opcode",
     "a capture"},
    {dropped_no_receive, "dropped_no_receive", "datagrams or UC messages were dropped: no receive was posted",
     "the receive queue: nobody is asked to repeat them"},
    {dropped_too_long, "dropped_too_long", "datagrams were dropped: they are longer than the posted receive",
     "length of the posted receives, with 40 bytes for the GRH"},
    {dropped_access, "dropped_access", "UC requests were dropped: they have no right to that memory",
     "rkey, range and rights; access flags of the QP"},
    {dropped_icrc, "dropped_icrc", "packets were dropped: their ICRC is wrong",
     "the path corrupts packets, or the peer computes another ICRC (icrc of [transport])"},
    {dropped_stale, "dropped_stale", "requests were dropped: their PSNs are of an earlier connection",
     "rq_psn of this QP and sq_psn of the peer's must be equal; was the QP connected anew while the peer's "
     "was not?"},
};

static_assert(std::ranges::is_sorted(kRows, {}, &FailureCauseRow::cause));

}  // namespace

std::span<const FailureCauseRow> failure_causes() {
  return kRows;
}

const FailureCauseRow& row_of(FailureCause cause) {
  const auto* const found = std::ranges::lower_bound(kRows, cause, {}, &FailureCauseRow::cause);
  return found != std::end(kRows) && found->cause == cause ? *found : kRows[0];
}

}  // namespace faultline::status
