// SPDX-License-Identifier: BSD-3-Clause
// Packets that a scenario adds to those a core receives, as if a peer had sent them. Owner: the engine's
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>

#include "stack/transport/core/core.hpp"
#include "stack/wire/packet/frame.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::glue {

class InjectedPackets {
 public:
  /// Bytes that a packet needs at most.
  static constexpr size_t kFrameBytes = 128;

  /// Adds CNPs from the peer of a QP, on the path of that peer's packets.
  void add_cnps(const wire::PathHeader& from_peer, uint32_t qpn, uint32_t count);
  /// Adds a NAK or an RNR NAK that answers a request of the QP, which the caller loses. It arrives once the
  /// packets before the request are answered, since it acknowledges them (IBA 9.7.5.1.2). `object` is the
  /// QP's in the scenario, whose numbers are used once.
  void refuse(const wire::Packet& request, uint32_t qpn, uint64_t object, uint8_t syndrome);
  /// True for a request that its responder discards: it has refused this one or an earlier one, which has not
  /// come again since the answer (IBA 9.7.5.2.8). Not after a NAK of a PSN sequence error, as which a lost
  /// packet looks: the peer itself handles those that follow.
  [[nodiscard]] bool discards(const transport::Core& core, uint32_t qpn, uint64_t object, wire::Psn psn);

  [[nodiscard]] bool is_empty() const { return waiting_.empty(); }
  /// Writes the next packet that may arrive now; returns its length, 0 if there is none. Answers that came
  /// too late are removed.
  [[nodiscard]] size_t take(const transport::Core& core, std::span<uint8_t> frame);

 private:
  struct Waiting {
    wire::PathHeader path = {};
    wire::PacketFields fields = {};
    uint32_t count = 1;
    bool is_answer = false;
    uint64_t object = 0;  ///< of an answer
  };
  enum class Arrival : uint8_t { now, later, never };
  [[nodiscard]] static Arrival arrival_of(const Waiting& waiting, const transport::Core& core);

  std::deque<Waiting> waiting_;
  std::map<uint64_t, wire::Psn> refused_;  ///< by object
};

}  // namespace faultline::glue
