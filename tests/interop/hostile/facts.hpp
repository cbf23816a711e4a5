// SPDX-License-Identifier: BSD-3-Clause
// What a sender of hostile packets knows of those whom it attacks: all of it, so that nothing is left to
// luck.
#pragma once

#include <string>
#include <vector>

#include "stack/wire/packet/frame.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::hostile {

struct Station {
  wire::MacAddress mac;
  wire::Gid ipv4, ipv6;
  uint64_t guid = 0;
  [[nodiscard]] bool has(const wire::Gid& gid) const { return gid == ipv4 || gid == ipv6; }
};

/// A QP of the target's.
struct TargetQp {
  std::string name;
  wire::Service service = wire::Service::rc;
  uint32_t qpn = 0, peer_qpn = 0;
  uint32_t request_psn = 0;  ///< the peer's requests began with
  uint32_t answer_psn = 0;   ///< the target's own requests began with
  uint32_t rkey = 0;
  uint64_t va = 0;
  uint32_t bytes = 0;
};

struct Facts {
  Station target, peer, own;
  uint32_t qkey = 0;
  bool management = true;  ///< somebody takes datagrams to QP1
  std::vector<uint64_t> services;
  std::vector<TargetQp> qps;

  [[nodiscard]] const TargetQp* find(uint32_t qpn) const;
  [[nodiscard]] const TargetQp& named(const std::string& name) const;
};

/// Of a file as live_stream writes it. Throws std::runtime_error.
[[nodiscard]] Facts read_facts(const std::string& path);
[[nodiscard]] wire::MacAddress parse_mac(const std::string& text);

/// The counter of the target's under which a frame has to turn up; kReached where only the QP itself can
/// tell.
[[nodiscard]] std::string predict(const Facts& facts, std::span<const uint8_t> frame);
inline constexpr const char* kReached = "reached";

}  // namespace faultline::hostile
