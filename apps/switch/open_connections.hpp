// SPDX-License-Identifier: BSD-3-Clause
// The connections between a wire's programs, as learnt from their CM messages. A kernel disconnects what a
// killed process leaves open (rdma_destroy_id(3), IBA 12.9.7); a user-space stack cannot. The switch sends
// the DREQ instead.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "apps/switch/stations.hpp"
#include "stack/wire/mad/mad_cm.hpp"

namespace faultline::switching {

class OpenConnections {
 public:
  /// Limit per port: 340 bytes and a map node each. Connections beyond it end without a DREQ.
  static constexpr size_t kMostOfAPort = 8192;

  /// Records a CM message that is being forwarded: `frame` contains it and the sender's address.
  void note(std::span<const uint8_t> frame, const wire::CmMad& message, PortIndex from);
  /// Ends the connections of a port whose program has ended. Calls `send` with a DREQ to each peer, and drops
  /// the connections.
  void end(PortIndex port, const std::function<void(std::span<const uint8_t> frame)>& send);
  [[nodiscard]] size_t count() const { return ends_.size(); }

 private:
  /// A communication ID belongs to its sender; processes that share an address have distinct IDs.
  using Key = std::pair<std::array<uint8_t, 16>, uint32_t>;
  struct End {
    PortIndex port = 0;
    uint32_t qpn = 0;
    std::optional<Key> peer;     ///< known after the REP
    std::vector<uint8_t> frame;  ///< a frame to the peer: the DREQ reuses its headers
  };

  void add(const Key& key, PortIndex port, uint32_t qpn, std::span<const uint8_t> frame);
  [[nodiscard]] End* find(const Key& key);
  /// Removes the end of `key` and its peer's end.
  void forget(const Key& key);
  void forget_one(const Key& key);

  std::map<Key, End> ends_;
  std::array<size_t, kMaxPorts> of_port_{};
};

}  // namespace faultline::switching
