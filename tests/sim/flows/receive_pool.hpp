// SPDX-License-Identifier: BSD-3-Clause
// Receives that the flows of several peers share: those of one shared receive queue, or of one UD QP. Which
// message takes which receive depends on the order of arrival. The model checks the rest: each receive is
// used once, the queue is used in its order, and a message is the next one of the flow that its completion
// names.
#pragma once

#include <string>
#include <vector>

#include "tests/sim/flows/datagram_flow.hpp"
#include "tests/sim/flows/flow.hpp"

namespace faultline::sim {

class ReceivePool {
 public:
  /// `number` is unique among flows and pools.
  explicit ReceivePool(uint32_t number) : number_(number) {}

  /// Posts what is due and fits, through the first of the flows' endpoints.
  void pump(TimeNs now);
  void on_completion(const transport::Completion& completion);
  /// Excludes receives that no flow accounts for from the final comparison of memory: a lost datagram may
  /// have written to them.
  void apply(MemoryImage& image) const;
  void check_end();
  [[nodiscard]] bool owns(uint64_t wr_id) const { return static_cast<uint32_t>(wr_id >> 32) == number_; }
  [[nodiscard]] std::string summary() const;

  std::vector<PlannedReceive> receives;
  std::vector<Flow*> flows;
  std::vector<DatagramFlow*> datagrams;
  std::vector<Endpoint*> ends;  ///< of the pool's host: the QPs that take its receives
  /// The shared queue, if the pool owns one; destroyed by the plan's owner after the endpoints.
  transport::SharedReceiveQueue* srq = nullptr;
  std::string error;

 private:
  static constexpr uint64_t kReceiveBit = uint64_t{1} << 31;
  void fail(const std::string& what);
  [[nodiscard]] bool is_in_order(size_t index, uint32_t qpn);
  void to_flow(const transport::Completion& completion, size_t index);
  void to_datagram_flow(const transport::Completion& completion, size_t index);

  const uint32_t number_;
  size_t posted_ = 0;
  std::vector<bool> completed_;             // by receive
  size_t first_open_ = 0;                   // all receives before it have completed
  std::map<uint32_t, size_t> last_by_qpn_;  // the newest receive of each QP
};

}  // namespace faultline::sim
