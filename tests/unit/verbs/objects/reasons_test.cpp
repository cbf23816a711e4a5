// SPDX-License-Identifier: BSD-3-Clause
// A refused call logs a line with the reason, if the log level includes it.
#include <algorithm>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::reasons_test {

namespace {

class Reasons : public ::testing::Test {
 protected:
  void SetUp() override {
    faults().log_reasons = true;
    static_cast<void>(take_reasons());
  }
  void TearDown() override { faults().log_reasons = false; }

  static void expect_line(const std::string& part) {
    const std::vector<std::string> lines = take_reasons();
    const bool found = std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.find(part) != std::string::npos;
    });
    EXPECT_TRUE(found) << part << ": " << (lines.empty() ? "no line" : lines.back());
  }
  int to_init() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    return ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  }
  static constexpr int kToRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

  End a{"mem0"};
};

TEST_F(Reasons, AnAddressWithoutAGrhSaysWhichOptionIsMissing) {
  ASSERT_EQ(to_init(), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.ah_attr.port_num = 1;  // like ibv_rc_pingpong without -g
  EXPECT_EQ(ibv_modify_qp(a.qp, &attr, kToRtr), EINVAL);
  const std::vector<std::string> lines = take_reasons();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE(lines[0].find("is_global is 0, but RoCE needs a GRH"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("-g 0"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("(INIT to RTR"), std::string::npos) << lines[1];
}

TEST_F(Reasons, ARefusedValueNamesItsAttribute) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 2;
  EXPECT_EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            EINVAL);
  expect_line("(RESET to INIT, attr_mask 0x39): port_num: the device has port 1 alone");
}

TEST_F(Reasons, AMissingAttributeIsTheMasks) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  EXPECT_EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), EINVAL);
  expect_line("attr_mask: an attribute is missing");
}

TEST_F(Reasons, NothingIsSaidOfWhatSucceeds) {
  EXPECT_EQ(to_init(), 0);
  EXPECT_TRUE(take_reasons().empty());
}

TEST_F(Reasons, NothingIsSaidWhereTheLogDoesNotWantIt) {
  faults().log_reasons = false;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  EXPECT_EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), EINVAL);
  EXPECT_TRUE(take_reasons().empty());
}

}  // namespace

}  // namespace faultline::verbs::test::reasons_test
