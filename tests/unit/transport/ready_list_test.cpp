// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/context/ready_list.hpp"

#include <memory>
#include <memory_resource>
#include <vector>

#include <gtest/gtest.h>

namespace faultline::transport {
namespace {

class ReadyQps : public testing::Test {
 protected:
  ReadyQps() {
    for (uint32_t number = 1; number <= 4; ++number)
      qps_.push_back(std::make_unique<QueuePair>(number, QpInit{}, std::pmr::get_default_resource()));
  }
  QueuePair& qp(uint32_t number) { return *qps_[number - 1]; }
  std::vector<uint32_t> drain() {
    std::vector<uint32_t> order;
    while (QueuePair* const next = list_.pop()) order.push_back(next->qpn);
    EXPECT_TRUE(list_.empty());
    EXPECT_EQ(list_.size(), 0U);
    return order;
  }

  ReadyList list_;

 private:
  std::vector<std::unique_ptr<QueuePair>> qps_;
};

using Order = std::vector<uint32_t>;

TEST_F(ReadyQps, AreServedInTheirOrderAndEachOnce) {
  for (const uint32_t number : {2U, 1U, 2U, 3U}) list_.add(qp(number));
  EXPECT_EQ(list_.size(), 3U);
  EXPECT_EQ(drain(), (Order{2, 1, 3}));
  EXPECT_FALSE(qp(2).ready);
}

TEST_F(ReadyQps, CanBeAddedAgainWhileTheListIsServed) {
  list_.add(qp(1));
  list_.add(qp(2));
  EXPECT_EQ(list_.pop(), &qp(1));
  list_.add(qp(1));
  EXPECT_EQ(drain(), (Order{2, 1}));
}

TEST_F(ReadyQps, LeaveTheListFromEachPlace) {
  for (uint32_t gone = 1; gone <= 3; ++gone) {
    for (const uint32_t number : {1U, 2U, 3U}) list_.add(qp(number));
    list_.remove(qp(gone));
    list_.remove(qp(gone));  // it is not on the list any more
    list_.add(qp(4));
    Order expected{1, 2, 3, 4};
    std::erase(expected, gone);
    EXPECT_EQ(drain(), expected);
  }
}

TEST_F(ReadyQps, LeaveAnEmptyListThatTakesQpsAgain) {
  list_.add(qp(1));
  list_.remove(qp(1));
  EXPECT_TRUE(list_.empty());
  list_.add(qp(2));
  EXPECT_EQ(drain(), (Order{2}));
  EXPECT_EQ(list_.pop(), nullptr);
}

}  // namespace
}  // namespace faultline::transport
