// SPDX-License-Identifier: BSD-3-Clause
// Hostile frames by kind, each from a seed: what no honest neighbour sends. All to one target, most from
// addresses that are nobody's, some in the name of the target's peer; from the sender's own MAC address
// always, since a switch would otherwise take the peer's frames elsewhere, which is another attack than one
// on RoCEv2.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/interop/hostile/facts.hpp"
#include "tests/unit/wire/capture.hpp"

namespace faultline::hostile {

using Bytes = std::vector<uint8_t>;

class Attacks {
 public:
  Attacks(Facts facts, uint64_t seed);

  struct Kind {
    const char* name;
    Bytes (Attacks::*make)();
    unsigned weight;
    /// It goes as far as a QP itself; of no other kind does a frame that would.
    bool reaches = false;
  };
  [[nodiscard]] static const std::vector<Kind>& kinds();

  /// A frame of the kind, and the counter that it has to turn up under.
  [[nodiscard]] Bytes make(const Kind& kind, std::string& predicted);
  [[nodiscard]] uint64_t random(uint64_t below) { return random_() % below; }

 private:
  // link_attacks.cpp
  Bytes runt();
  Bytes oversize();
  Bytes noise();
  Bytes not_for_us();
  Bytes tagged();
  Bytes arp_request();
  Bytes arp_claim();
  Bytes neighbour_solicitation();
  Bytes neighbour_claim();
  Bytes broken_neighbour_message();
  Bytes echo();
  Bytes other_protocol();
  Bytes fragment();
  // packet_attacks.cpp
  Bytes any_opcode_any_length();
  Bytes forged_pad();
  Bytes atomic_write_length();
  Bytes wrong_icrc();
  Bytes wrong_udp_checksum();
  Bytes wrong_ip_header();
  Bytes golden_replayed();
  Bytes golden_mutated();
  // spoof_attacks.cpp
  Bytes foreign_to_live_qp();
  Bytes peers_to_no_qp();
  Bytes peers_wrong_service();
  Bytes peers_wrong_pkey();
  Bytes wrong_qkey();
  Bytes peers_far_request();
  Bytes peers_far_answer();
  Bytes peers_notification();
  Bytes peers_with_all_known();
  // cm_attacks.cpp
  Bytes cm_request();
  Bytes cm_answer();
  Bytes cm_service_request();
  Bytes cm_malformed();

  [[nodiscard]] bool chance(unsigned percent) { return random(100) < percent; }
  [[nodiscard]] Bytes random_bytes(size_t count);
  [[nodiscard]] wire::Gid stranger(bool ipv6);
  /// From nobody to the target.
  [[nodiscard]] wire::PathHeader foreign_path();
  [[nodiscard]] wire::PathHeader peers_path() const;
  [[nodiscard]] const TargetQp& any_qp();
  [[nodiscard]] wire::Opcode any_opcode(wire::Service service, bool request);
  /// A sound packet of an opcode: all fields that are not set drawn.
  [[nodiscard]] Bytes packet(const wire::PathHeader& path, wire::PacketFields fields,
                             size_t most_bytes = 256);
  [[nodiscard]] wire::PacketFields fields_for(const TargetQp& qp, wire::Opcode opcode);
  [[nodiscard]] Bytes datagram(const wire::PathHeader& path, std::span<const uint8_t> mad, uint32_t qkey,
                               uint32_t source_qpn);
  [[nodiscard]] Bytes readdressed(const wire::test::Frame& golden, bool in_peers_name);

  const Facts facts_;
  std::mt19937_64 random_;
  std::vector<wire::test::Frame> golden_;
};

/// Rights the IP header's checksum, UDP's length and the ICRC of a frame over IPv4 or IPv6, as far as it has
/// them.
void repair(Bytes& frame);

}  // namespace faultline::hostile
