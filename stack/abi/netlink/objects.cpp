// SPDX-License-Identifier: BSD-3-Clause
// The attributes that each entry has are those of Linux's drivers/infiniband/core/nldev.c, for objects of
// user space.
#include "stack/abi/netlink/objects.hpp"

#include <algorithm>
#include <array>

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include "stack/status/rows.hpp"
#include "stack/verbs/objects/limits.hpp"

namespace faultline::abi {
namespace {

using status::SegmentReader;

/// Bits of a key below the number of its region (the variant of ibv_alloc_mw and the like).
constexpr unsigned kVariantBits = 8;

template <typename Row, typename Matches>
uint64_t count(const std::vector<std::pair<status::RowIndex, Row>>& rows, Matches matches) {
  return static_cast<uint64_t>(
      std::count_if(rows.begin(), rows.end(), [&](const auto& row) { return matches(row.second); }));
}

/// A process has one context of a device, whatever number of times it opens it: its number is the PID.
uint32_t context_number(const SegmentReader& process) {
  return process.pid();
}

/// The kernel too gives user space's objects a PID alone: the reader looks up its name.
void put_owner(NetlinkMessage& message, uint32_t pid) {
  message.put_u32(RDMA_NLDEV_ATTR_RES_PID, pid);
}

bool is_connected_type(uint8_t type) {
  return type == IBV_QPT_RC || type == IBV_QPT_UC;
}
bool is_xrc_type(uint8_t type) {
  return type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

std::vector<ObjectEntry> list_qps(const SegmentReader& process) {
  std::vector<ObjectEntry> entries;
  for (const auto& [index, row] : process.rows<status::QpRow>()) {
    // A QP in RESET has no port yet.
    const uint32_t port = row.live.state == IBV_QPS_RESET ? 0 : verbs::kPortNumber;
    entries.push_back({row.qpn, port, [row = row, port, pid = process.pid()](NetlinkMessage& message) {
                         if (port != 0) message.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, port);
                         message.put_u32(RDMA_NLDEV_ATTR_RES_LQPN, row.qpn);
                         if (is_connected_type(row.type)) {
                           message.put_u32(RDMA_NLDEV_ATTR_RES_RQPN, row.live.peer_qpn);
                           message.put_u32(RDMA_NLDEV_ATTR_RES_RQ_PSN, row.live.expected_psn);
                         }
                         message.put_u32(RDMA_NLDEV_ATTR_RES_SQ_PSN, row.live.next_psn);
                         if (is_connected_type(row.type) || is_xrc_type(row.type))
                           message.put_u8(RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE, IBV_MIG_MIGRATED);
                         message.put_u8(RDMA_NLDEV_ATTR_RES_TYPE, row.type);
                         message.put_u8(RDMA_NLDEV_ATTR_RES_STATE, row.live.state);
                         message.put_u32(RDMA_NLDEV_ATTR_RES_PDN, row.pd_handle);
                         put_owner(message, pid);
                       }});
  }
  return entries;
}

std::vector<ObjectEntry> list_cm_ids(const SegmentReader& process) {
  std::vector<ObjectEntry> entries;
  for (const auto& [index, row] : process.rows<status::CmRow>()) {
    const auto put_address = [](NetlinkMessage& message, uint16_t attribute,
                                const std::array<uint8_t, 32>& address) {
      if (address[0] == 0 && address[1] == 0) return;  // no family: none
      std::array<uint8_t, sizeof(sockaddr_storage)> storage{};
      std::copy(address.begin(), address.end(), storage.begin());
      message.put_bytes(attribute, storage);
    };
    entries.push_back(
        {row.id, verbs::kPortNumber, [row = row, put_address, pid = process.pid()](NetlinkMessage& message) {
           message.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, verbs::kPortNumber);
           if (row.qpn != 0) {
             message.put_u32(RDMA_NLDEV_ATTR_RES_LQPN, row.qpn);
             message.put_u8(RDMA_NLDEV_ATTR_RES_TYPE, row.qp_type);
           }
           message.put_u32(RDMA_NLDEV_ATTR_RES_PS, row.port_space);
           message.put_u8(RDMA_NLDEV_ATTR_RES_STATE, row.state);
           put_address(message, RDMA_NLDEV_ATTR_RES_SRC_ADDR, row.source);
           put_address(message, RDMA_NLDEV_ATTR_RES_DST_ADDR, row.destination);
           message.put_u32(RDMA_NLDEV_ATTR_RES_CM_IDN, row.id);
           put_owner(message, pid);
         }});
  }
  return entries;
}

std::vector<ObjectEntry> list_cqs(const SegmentReader& process) {
  std::vector<ObjectEntry> entries;
  const auto qps = process.rows<status::QpRow>();
  const auto srqs = process.rows<status::SrqRow>();
  for (const auto& [index, row] : process.rows<status::CqRow>()) {
    const uint32_t handle = row.handle;
    const uint64_t users =
        count(qps, [=](const status::QpRow& qp) { return qp.send_cq_handle == handle; }) +
        count(qps, [=](const status::QpRow& qp) { return qp.receive_cq_handle == handle; }) +
        count(srqs, [=](const status::SrqRow& srq) { return srq.cq_handle == handle; });
    entries.push_back({handle, std::nullopt, [row = row, users, &process](NetlinkMessage& message) {
                         message.put_u32(RDMA_NLDEV_ATTR_RES_CQE, row.entries);
                         message.put_u64(RDMA_NLDEV_ATTR_RES_USECNT, users);
                         message.put_u32(RDMA_NLDEV_ATTR_RES_CQN, row.handle);
                         message.put_u32(RDMA_NLDEV_ATTR_RES_CTXN, context_number(process));
                         put_owner(message, process.pid());
                       }});
  }
  return entries;
}

uint32_t number_of(const status::MrRow& row) {
  return row.lkey >> kVariantBits;  // ibv_mr::handle
}

std::vector<ObjectEntry> list_mrs(const SegmentReader& process) {
  std::vector<ObjectEntry> entries;
  for (const auto& [index, row] : process.rows<status::MrRow>())
    entries.push_back(
        {number_of(row), std::nullopt, [row = row, pid = process.pid()](NetlinkMessage& message) {
           // The kernel shows keys to CAP_NET_ADMIN alone; a segment is its owner's.
           message.put_u32(RDMA_NLDEV_ATTR_RES_RKEY, row.rkey);
           message.put_u32(RDMA_NLDEV_ATTR_RES_LKEY, row.lkey);
           message.put_u64(RDMA_NLDEV_ATTR_RES_IOVA, row.iova);
           message.put_u64(RDMA_NLDEV_ATTR_RES_MRLEN, row.length_bytes);
           message.put_u32(RDMA_NLDEV_ATTR_RES_MRN, number_of(row));
           message.put_u32(RDMA_NLDEV_ATTR_RES_PDN, row.pd_handle);
           put_owner(message, pid);
         }});
  return entries;
}

std::vector<ObjectEntry> list_pds(const SegmentReader& process) {
  std::vector<ObjectEntry> entries;
  const auto qps = process.rows<status::QpRow>();
  const auto mrs = process.rows<status::MrRow>();
  const auto srqs = process.rows<status::SrqRow>();
  for (const auto& [index, row] : process.rows<status::PdRow>()) {
    const auto is_of_pd = [handle = row.handle](const auto& object) { return object.pd_handle == handle; };
    const uint64_t users = count(qps, is_of_pd) + count(mrs, is_of_pd) + count(srqs, is_of_pd);
    entries.push_back({row.handle, std::nullopt, [row = row, users, &process](NetlinkMessage& message) {
                         message.put_u64(RDMA_NLDEV_ATTR_RES_USECNT, users);
                         message.put_u32(RDMA_NLDEV_ATTR_RES_PDN, row.handle);
                         message.put_u32(RDMA_NLDEV_ATTR_RES_CTXN, context_number(process));
                         put_owner(message, process.pid());
                       }});
  }
  return entries;
}

std::vector<ObjectEntry> list_contexts(const SegmentReader& process) {
  return {{context_number(process), std::nullopt, [&process](NetlinkMessage& message) {
             message.put_u32(RDMA_NLDEV_ATTR_RES_CTXN, context_number(process));
             put_owner(message, process.pid());
           }}};
}

std::vector<ObjectEntry> list_srqs(const SegmentReader& process) {
  // rdma(8) shows QPs of an SRQ in a buffer of 256 bytes.
  constexpr size_t kMostQps = 64;
  std::vector<ObjectEntry> entries;
  const auto qps = process.rows<status::QpRow>();
  for (const auto& [index, row] : process.rows<status::SrqRow>()) {
    std::vector<uint32_t> users;
    for (const auto& [qp_index, qp] : qps)
      if (qp.srq_number == row.number && users.size() < kMostQps) users.push_back(qp.qpn);
    entries.push_back(
        {row.number, std::nullopt, [row = row, users, pid = process.pid()](NetlinkMessage& message) {
           message.put_u32(RDMA_NLDEV_ATTR_RES_SRQN, row.number);
           const bool is_xrc = row.cq_handle != 0;
           message.put_u8(RDMA_NLDEV_ATTR_RES_TYPE, is_xrc ? IBV_SRQT_XRC : IBV_SRQT_BASIC);
           message.put_u32(RDMA_NLDEV_ATTR_RES_PDN, row.pd_handle);
           if (is_xrc) message.put_u32(RDMA_NLDEV_ATTR_RES_CQN, row.cq_handle);
           message.put_nested(RDMA_NLDEV_ATTR_RES_QP, [&] {
             for (const uint32_t qpn : users)
               message.put_nested(RDMA_NLDEV_ATTR_RES_QP_ENTRY,
                                  [&] { message.put_u32(RDMA_NLDEV_ATTR_RES_LQPN, qpn); });
           });
           put_owner(message, pid);
         }});
  }
  return entries;
}

std::vector<ObjectEntry> list_qp_counters(const SegmentReader& process) {
  std::vector<ObjectEntry> entries;
  for (const auto& [index, row] : process.rows<status::QpRow>())
    entries.push_back(
        {row.qpn, verbs::kPortNumber, [row = row, pid = process.pid()](NetlinkMessage& message) {
           message.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, verbs::kPortNumber);
           message.put_u32(RDMA_NLDEV_ATTR_STAT_COUNTER_ID, row.qpn);
           message.put_u8(RDMA_NLDEV_ATTR_RES_TYPE, row.type);
           put_owner(message, pid);
           message.put_nested(RDMA_NLDEV_ATTR_RES_QP, [&] {
             message.put_nested(RDMA_NLDEV_ATTR_RES_QP_ENTRY,
                                [&] { message.put_u32(RDMA_NLDEV_ATTR_RES_LQPN, row.qpn); });
           });
           message.put_nested(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS, [&] {
             for (const status::QpCounterRow& counter : status::kQpCounterRows)
               put_counter(message, counter.name, row.live.counters.*counter.member);
           });
         }});
  return entries;
}

std::vector<ObjectEntry> list_mr_counters(const SegmentReader& process) {
  std::vector<ObjectEntry> entries;
  for (const auto& [index, row] : process.rows<status::MrRow>())
    entries.push_back({number_of(row), std::nullopt, [row = row](NetlinkMessage& message) {
                         message.put_u32(RDMA_NLDEV_ATTR_RES_MRN, number_of(row));
                         message.put_nested(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS, [&] {
                           put_counter(message, "page_faults", row.page_faults);
                           put_counter(message, "page_invalidations", row.page_invalidations);
                           put_counter(message, "page_prefetch", row.page_prefetch);
                         });
                       }});
  return entries;
}

}  // namespace

void put_counter(NetlinkMessage& message, std::string_view name, uint64_t value) {
  message.put_nested(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY, [&] {
    message.put_text(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, name);
    message.put_u64(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, value);
  });
}

constexpr ObjectKind kPds{"pd", RDMA_NLDEV_ATTR_RES_PD, RDMA_NLDEV_ATTR_RES_PD_ENTRY, RDMA_NLDEV_ATTR_RES_PDN,
                          list_pds};
constexpr ObjectKind kCqs{"cq", RDMA_NLDEV_ATTR_RES_CQ, RDMA_NLDEV_ATTR_RES_CQ_ENTRY, RDMA_NLDEV_ATTR_RES_CQN,
                          list_cqs};
constexpr ObjectKind kQps{"qp", RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY,
                          RDMA_NLDEV_ATTR_RES_LQPN, list_qps};
constexpr ObjectKind kCmIds{"cm_id", RDMA_NLDEV_ATTR_RES_CM_ID, RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY,
                            RDMA_NLDEV_ATTR_RES_CM_IDN, list_cm_ids};
constexpr ObjectKind kMrs{"mr", RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY, RDMA_NLDEV_ATTR_RES_MRN,
                          list_mrs};
constexpr ObjectKind kContexts{"ctx", RDMA_NLDEV_ATTR_RES_CTX, RDMA_NLDEV_ATTR_RES_CTX_ENTRY,
                               RDMA_NLDEV_ATTR_RES_CTXN, list_contexts};
constexpr ObjectKind kSrqs{"srq", RDMA_NLDEV_ATTR_RES_SRQ, RDMA_NLDEV_ATTR_RES_SRQ_ENTRY,
                           RDMA_NLDEV_ATTR_RES_SRQN, list_srqs};
constexpr ObjectKind kQpCounters{"", RDMA_NLDEV_ATTR_STAT_COUNTER, RDMA_NLDEV_ATTR_STAT_COUNTER_ENTRY,
                                 RDMA_NLDEV_ATTR_STAT_COUNTER_ID, list_qp_counters};
constexpr ObjectKind kMrCounters{"", RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY,
                                 RDMA_NLDEV_ATTR_RES_MRN, list_mr_counters};

std::span<const ObjectKind* const> kinds_of_summary() {
  static constexpr std::array kKinds{&kPds, &kCqs, &kQps, &kCmIds, &kMrs, &kContexts, &kSrqs};
  return kKinds;
}

}  // namespace faultline::abi
