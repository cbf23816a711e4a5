// SPDX-License-Identifier: BSD-3-Clause
// What a scenario means for one core of a device. Without a scenario every member does nothing. Owner: the
// engine's thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "pmd_glue/trouble/packet_judge.hpp"
#include "stack/chaos/fault_model.hpp"
#include "stack/trouble/director.hpp"

namespace faultline::glue {

class DeviceTrouble {
 public:
  static constexpr size_t kMostPending = 16;

  explicit DeviceTrouble(const std::string& device);

  /// Returns nullptr if no rule concerns packets or the link. `core` outlives the judge.
  [[nodiscard]] std::unique_ptr<PacketJudge> packet_judge(PacketJudge::Direction direction,
                                                          const std::unique_ptr<transport::Core>& core) const;
  /// Packets that the scenario adds to those received; nullptr: it adds none.
  [[nodiscard]] InjectedPackets* injected() const { return injected_.get(); }
  /// Returns an empty function if no rule concerns page faults.
  [[nodiscard]] std::function<chaos::FaultFate(const odp::FaultRequest&)> fault_judge() const;

  /// Any thread.
  [[nodiscard]] bool is_link_down() const { return director_ != nullptr && director_->is_link_down(device_); }
  [[nodiscard]] bool may_take_link_down() const {
    return director_ != nullptr && director_->may_take_link_down();
  }
  [[nodiscard]] bool is_due() const { return director_ != nullptr && director_->has_pending(); }
  /// Moves actions for a core to `out`; returns their number. A QP's action is for the core that owns the QP,
  /// others are for core 0, and after pass_on() for the next one.
  [[nodiscard]] size_t take(uint32_t core_index, uint32_t cores, std::span<trouble::Pending> out);
  /// The device's next core executes the action too.
  void pass_on(const trouble::Pending& action) { director_->pass_on(action); }

 private:
  trouble::Director* const director_;
  const uint32_t device_;
  const std::unique_ptr<InjectedPackets> injected_;
};

}  // namespace faultline::glue
