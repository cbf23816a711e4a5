// SPDX-License-Identifier: BSD-3-Clause
// Packets that a scenario adds to those a core receives, as if a peer had sent them, and requests of peers
// that it lets the core refuse. Owner: the engine's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

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

  /// The core is to refuse a peer's request, which the caller loses, with an answer of this syndrome, once
  /// the packets before it are executed.
  void refuse_here(uint32_t qpn, wire::Psn psn, uint8_t syndrome) {
    refused_here_.push_back({qpn, psn, syndrome});
  }
  /// Packets that may be in flight behind a refused one. A PSN farther away is of a new connection.
  static constexpr int32_t kMostInFlight = 1 << 16;
  /// Returns the PSN that refuse_here() has named for this QP, until it is refused.
  [[nodiscard]] std::optional<wire::Psn> refused_here(uint32_t qpn) const;
  /// Refuses the requests whose turn it is.
  void refuse_due(transport::Core& core, TimeNs now);

  /// True if a turn has work to do: a packet waits, or it is a refused request's turn.
  [[nodiscard]] bool has_work(const transport::Core& core) const;
  [[nodiscard]] bool has_packets() const { return !waiting_.empty(); }
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

  struct Refused {
    uint32_t qpn;
    wire::Psn psn;
    uint8_t syndrome;
  };
  [[nodiscard]] static Arrival turn_of(const Refused& refused, const transport::Core& core);

  std::deque<Waiting> waiting_;
  std::vector<Refused> refused_here_;
  std::map<uint64_t, wire::Psn> refused_;  ///< by object
};

}  // namespace faultline::glue
