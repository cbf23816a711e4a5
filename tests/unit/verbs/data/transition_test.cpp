// SPDX-License-Identifier: BSD-3-Clause
// ibv_modify_qp, exhaustively: each QP type and pair of states, with each required attribute missing and each
// disallowed one given (CVE-2025-40061: a state overwritten while draining). The table is an independent
// transcription of IBA 11.2.5.3 and Linux' qp_state_table.
#include <map>

#include <fcntl.h>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::transition_test {

namespace {

constexpr std::array<ibv_qp_state, 7> kStates{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                              IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};

struct Row {
  int required;
  int optional;
};
using States = std::pair<ibv_qp_state, ibv_qp_state>;
using Table = std::map<States, Row>;

constexpr int kPath = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kChangeable = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;

Table common_rows() {
  Table table;
  for (const ibv_qp_state from : kStates) {
    table[{from, IBV_QPS_RESET}] = {0, 0};
    if (from != IBV_QPS_RESET) table[{from, IBV_QPS_ERR}] = {0, 0};
  }
  table[{IBV_QPS_RTS, IBV_QPS_SQD}] = {0, IBV_QP_EN_SQD_ASYNC_NOTIFY};
  return table;
}

Table datagram_table() {
  Table table = common_rows();
  table[{IBV_QPS_RESET, IBV_QPS_INIT}] = {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0};
  table[{IBV_QPS_INIT, IBV_QPS_INIT}] = {0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY};
  table[{IBV_QPS_INIT, IBV_QPS_RTR}] = {0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY};
  table[{IBV_QPS_RTR, IBV_QPS_RTS}] = {IBV_QP_SQ_PSN, IBV_QP_QKEY};
  table[{IBV_QPS_RTS, IBV_QPS_RTS}] = {0, IBV_QP_QKEY};
  table[{IBV_QPS_SQD, IBV_QPS_RTS}] = {0, IBV_QP_QKEY};
  table[{IBV_QPS_SQD, IBV_QPS_SQD}] = {0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY};
  table[{IBV_QPS_SQE, IBV_QPS_RTS}] = {0, IBV_QP_QKEY};
  return table;
}

/// Returns what the connected types share. `to_rtr`, `to_rts` and `in_sqd` are additions of a type, `timer`
/// its RNR timer.
Table connected_table(int to_rtr, int to_rts, int in_sqd, int timer) {
  Table table = common_rows();
  table[{IBV_QPS_RESET, IBV_QPS_INIT}] = {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0};
  table[{IBV_QPS_INIT, IBV_QPS_INIT}] = {0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS};
  table[{IBV_QPS_INIT, IBV_QPS_RTR}] = {kPath | to_rtr,
                                        IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX};
  table[{IBV_QPS_RTR, IBV_QPS_RTS}] = {IBV_QP_SQ_PSN | to_rts, kChangeable | timer};
  table[{IBV_QPS_RTS, IBV_QPS_RTS}] = {0, kChangeable | timer};
  table[{IBV_QPS_SQD, IBV_QPS_RTS}] = {0, kChangeable | timer};
  table[{IBV_QPS_SQD, IBV_QPS_SQD}] = {0, kChangeable | IBV_QP_AV | IBV_QP_PKEY_INDEX | timer | in_sqd};
  return table;
}

Table table_of(ibv_qp_type type) {
  constexpr int kResponder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  constexpr int kRequester = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  switch (type) {
    case IBV_QPT_RC:
      return connected_table(kResponder, kRequester, IBV_QP_PORT | kRequester | IBV_QP_MAX_DEST_RD_ATOMIC,
                             IBV_QP_MIN_RNR_TIMER);
    case IBV_QPT_UC: {
      Table table = connected_table(0, 0, 0, 0);
      table[{IBV_QPS_SQE, IBV_QPS_RTS}] = {0, IBV_QP_ACCESS_FLAGS};
      return table;
    }
    case IBV_QPT_XRC_SEND:
      return connected_table(0, kRequester, IBV_QP_PORT | kRequester, 0);
    case IBV_QPT_XRC_RECV:
      return connected_table(kResponder, IBV_QP_TIMEOUT,
                             IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER);
    default:
      return datagram_table();
  }
}

/// Returns attributes of the side that an XRC QP lacks: accepted and ignored (Linux' modify_qp_mask).
int ignored_by(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_XRC_SEND:
      return IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    case IBV_QPT_XRC_RECV:
      return IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
    default:
      return 0;
  }
}

class Transitions : public ::testing::TestWithParam<ibv_qp_type> {
 protected:
  void SetUp() override {
    if (GetParam() != IBV_QPT_XRC_RECV) return;
    ibv_xrcd_init_attr init{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
    xrcd = ibv_open_xrcd(end.context, &init);
    ASSERT_NE(xrcd, nullptr);
  }
  void TearDown() override {
    if (end.qp != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(end.qp), 0);
      end.qp = nullptr;
    }
    if (xrcd != nullptr) {
      EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
    }
  }

  /// Returns a valid value for every attribute.
  [[nodiscard]] ibv_qp_attr all_attributes() const {
    ibv_qp_attr attr = End::rtr_attributes(peer.gid(), 77);
    attr.port_num = 1;
    attr.qkey = kQkey;
    attr.qp_access_flags = kAllRights;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    attr.path_mig_state = IBV_MIG_MIGRATED;
    return attr;
  }
  [[nodiscard]] int modify(ibv_qp_state to, int mask) const {
    ibv_qp_attr attr = all_attributes();
    attr.qp_state = to;
    return ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | mask);
  }
  [[nodiscard]] ibv_qp_state state() const {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(end.qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
  }
  void make() {
    if (end.qp != nullptr) {
      ASSERT_EQ(ibv_destroy_qp(end.qp), 0);
    }
    ibv_qp_init_attr_ex init{};
    init.qp_type = GetParam();
    init.cap = {4, 4, 1, 1, 0};
    if (GetParam() == IBV_QPT_XRC_RECV) {
      init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
      init.xrcd = xrcd;
    } else {
      init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
      init.pd = end.pd;
      init.send_cq = init.recv_cq = end.cq;
    }
    end.qp = ibv_create_qp_ex(end.context, &init);
    ASSERT_NE(end.qp, nullptr);
  }
  /// A send that fails locally moves UD and UC to SQE.
  void fail_a_send() {
    ibv_sge sge{0x1000, 64, 0xbad00};
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_ah_attr route = End::rtr_attributes(peer.gid(), 0).ah_attr;
    ibv_ah* const ah = ibv_create_ah(end.pd, &route);
    if (GetParam() == IBV_QPT_UD) wr.wr.ud = {ah, 77, kQkey};
    ASSERT_EQ(end.post_send(wr), 0);
    ibv_wc wc{};
    int got = 0;
    for (int turn = 0; turn < 1000 && got == 0; ++turn) got = ibv_poll_cq(end.cq, 1, &wc);
    ASSERT_EQ(got, 1);
    ASSERT_EQ(ibv_destroy_ah(ah), 0);
  }
  /// Creates a QP in that state. Returns false if the type has no such state.
  bool bring_to(ibv_qp_state wanted, const Table& table) {
    make();
    if (wanted == IBV_QPS_RESET) return true;
    if (wanted == IBV_QPS_SQE && GetParam() != IBV_QPT_UD && GetParam() != IBV_QPT_UC) return false;
    ibv_qp_state from = IBV_QPS_RESET;
    for (const ibv_qp_state next : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      EXPECT_EQ(modify(next, table.at({from, next}).required), 0) << next;
      if (next == wanted) return true;
      from = next;
    }
    if (wanted == IBV_QPS_SQE)
      fail_a_send();
    else
      EXPECT_EQ(modify(wanted, 0), 0);
    EXPECT_EQ(state(), wanted);
    return true;
  }
  void expect_refused(ibv_qp_state from, ibv_qp_state to, int mask) const {
    errno = 0;
    const int error = modify(to, mask);
    EXPECT_NE(error, 0) << "mask " << mask;
    EXPECT_EQ(errno, error) << "mask " << mask;
    EXPECT_EQ(state(), from) << "mask " << mask;
  }

  End end{"mem0"};
  const End peer{"mem1"};
  ibv_xrcd* xrcd = nullptr;
};

TEST_P(Transitions, FollowTheTableBitByBit) {
  constexpr int kBits = 26;
  // Known attributes that no device supports.
  constexpr int kNeverSupported = IBV_QP_ALT_PATH | IBV_QP_CAP | IBV_QP_RATE_LIMIT;
  const Table table = table_of(GetParam());
  for (const ibv_qp_state from : kStates)
    for (const ibv_qp_state to : kStates) {
      if (to == IBV_QPS_SQE) continue;  // programs do not request SQE
      SCOPED_TRACE(testing::Message() << "type " << GetParam() << ", " << from << " to " << to);
      if (!bring_to(from, table)) continue;
      const auto row = table.find({from, to});
      if (row == table.end()) {
        for (const int mask : {0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, kPath,
                               static_cast<int>(IBV_QP_SQ_PSN), static_cast<int>(IBV_QP_QKEY)})
          expect_refused(from, to, mask);
        continue;
      }
      const int required = row->second.required;
      const int optional = row->second.optional | ignored_by(GetParam());
      for (int bit = 1; bit < kBits; ++bit) {
        const int attribute = 1 << bit;
        if (attribute == IBV_QP_CUR_STATE) continue;
        if ((required & attribute) != 0) {
          expect_refused(from, to, required & ~attribute);
        } else if ((optional & attribute) == 0 || (attribute & kNeverSupported) != 0) {
          expect_refused(from, to, required | attribute);
        } else {
          EXPECT_EQ(modify(to, required | attribute), 0) << "attribute " << attribute;
          EXPECT_EQ(state(), to);
          ASSERT_TRUE(bring_to(from, table));
        }
      }
      EXPECT_EQ(modify(to, required), 0);
      EXPECT_EQ(state(), to);
    }
}

INSTANTIATE_TEST_SUITE_P(Types, Transitions,
                         ::testing::Values(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND,
                                           IBV_QPT_XRC_RECV),
                         [](const auto& type) { return "Type" + std::to_string(type.param); });

}  // namespace

}  // namespace faultline::verbs::test::transition_test
