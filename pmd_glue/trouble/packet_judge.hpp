// SPDX-License-Identifier: BSD-3-Clause
// Applies a scenario to the packets of one core, in one direction. Owner: the engine's thread.
#pragma once

#include <string>

#include "pmd_glue/trouble/injected_packets.hpp"
#include "stack/chaos/frame_judge.hpp"
#include "stack/transport/core/core.hpp"
#include "stack/trouble/director.hpp"

namespace faultline::glue {

class PacketJudge final : public chaos::FrameJudge {
 public:
  enum class Direction : uint8_t { in, out };
  /// All references outlive the judge; `core` may be set later. `injected` is that of the core; nullptr: the
  /// scenario adds no packets.
  PacketJudge(trouble::Director& director, uint32_t device, Direction direction,
              const std::unique_ptr<transport::Core>& core, InjectedPackets* injected)
      : director_(director), device_(device), direction_(direction), core_(core), injected_(injected) {}

  void amend(std::span<const uint8_t> frame, uint64_t now_ns, chaos::Verdict& verdict) override;

 private:
  /// Returns the QPN of a packet's local QP, which the functions below take; 0 if none is known. Of a packet
  /// that leaves it takes time in proportion to the QPs.
  [[nodiscard]] uint32_t local_qpn(const wire::Packet& packet) const;
  /// True for a request that its responder may refuse with a NAK: the peer, of a request that leaves, or the
  /// core.
  [[nodiscard]] bool is_refusable(const wire::Packet& packet, uint32_t qpn) const;
  /// True for a request that its responder discards, since it has refused this one or an earlier one.
  [[nodiscard]] bool is_discarded(const wire::Packet& packet, uint32_t qpn,
                                  const trouble::Event& event) const;
  /// Adds packets to those that the core receives, or lets it refuse this one.
  void inject(const trouble::Action& action, const wire::Packet& packet, uint32_t qpn,
              const trouble::Event& event);
  /// Adds the action to what the link does to the frame.
  void apply(const trouble::PacketFate& fate, const wire::Packet& packet, uint32_t qpn, size_t frame_bytes,
             const trouble::Event& event, chaos::Verdict& verdict);

  trouble::Director& director_;
  const uint32_t device_;
  const Direction direction_;
  const std::unique_ptr<transport::Core>& core_;
  InjectedPackets* const injected_;
  std::string name_;  ///< "out RC.SEND_ONLY"; keeps its memory
  std::string peer_;  ///< "198.18.0.1"; keeps its memory
};

}  // namespace faultline::glue
