// SPDX-License-Identifier: BSD-3-Clause
// Models UD and UC traffic from one QP to another. Messages may be lost, duplicated and reordered, but
// delivered data are correct. UD data follow a 40-byte GRH.
#pragma once

#include <string>
#include <vector>

#include "tests/sim/flows/flow.hpp"

namespace faultline::sim {

class DatagramFlow {
 public:
  DatagramFlow(uint32_t number, Endpoint& from, Endpoint& to) : number_(number), from_(from), to_(to) {}

  void pump(TimeNs now);
  void on_send_completion(const transport::Completion& completion);
  void on_receive_completion(const transport::Completion& completion);
  /// Returns whether the completion belongs to this flow: of UD by the source QPN and the address in the GRH,
  /// of UC by the QP.
  [[nodiscard]] bool is_source_of(const transport::Completion& completion,
                                  const std::vector<transport::Sge>& sges) const;
  /// Checks a completion of a receive that the flow shares with others (ReceivePool). `receives` has those
  /// that were used.
  void on_pooled_receive(transport::Completion completion, const std::vector<transport::Sge>& sges);
  [[nodiscard]] bool done() const {
    return !error.empty() || (completed_ == sends.size() && from_.all_sends_retired());
  }
  /// Excludes the receive buffers of the flow from the final comparison of memory.
  void apply(MemoryImage& image) const;
  void check_end();
  [[nodiscard]] bool owns(uint64_t wr_id) const { return static_cast<uint32_t>(wr_id >> 32) == number_; }
  [[nodiscard]] Endpoint& from() { return from_; }
  [[nodiscard]] Endpoint& to() { return to_; }

  std::vector<PlannedSend> sends;  ///< all signalled; the first bytes of a payload are unique, or it is empty
  std::vector<PlannedReceive> receives;
  uint32_t grh_bytes = wire::kGrhBytes;  ///< 0: a UC flow
  bool lossless = false;                 ///< no message may be missing
  std::string error;

 private:
  static constexpr uint64_t kReceiveBit = uint64_t{1} << 31;
  void fail(const std::string& what);
  /// Returns the bytes of a receive.
  [[nodiscard]] std::vector<uint8_t> bytes_of(const std::vector<transport::Sge>& sges) const;

  const uint32_t number_;
  Endpoint& from_;
  Endpoint& to_;
  size_t sends_posted_ = 0;
  size_t receives_posted_ = 0;
  size_t completed_ = 0;
  size_t received_ = 0;
};

}  // namespace faultline::sim
