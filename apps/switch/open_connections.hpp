// SPDX-License-Identifier: BSD-3-Clause
// The connections between a wire's programs, as their managers' messages show them. A kernel disconnects what
// a killed process leaves open (rdma_destroy_id(3), IBA 12.9.7); a process's own stack cannot. The switch
// sends the DREQ for it.
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
  /// Of a port: 340 bytes and a node of the map each. Further ones end without a DREQ.
  static constexpr size_t kMostOfAPort = 8192;

  /// A message of the connection manager that goes on its way: `frame` has it, and the address of its sender.
  void note(std::span<const uint8_t> frame, const wire::CmMad& message, PortIndex from);
  /// The port's program has ended. `send` gets a DREQ from it to each peer, and the connections are
  /// forgotten.
  void end(PortIndex port, const std::function<void(std::span<const uint8_t> frame)>& send);
  [[nodiscard]] size_t count() const { return ends_.size(); }

 private:
  /// A communication ID is its owner's, and processes of one address have different ones.
  using Key = std::pair<std::array<uint8_t, 16>, uint32_t>;
  struct End {
    PortIndex port = 0;
    uint32_t qpn = 0;
    std::optional<Key> peer;     ///< since the REP
    std::vector<uint8_t> frame;  ///< to the peer: a DREQ takes the same way
  };

  void add(const Key& key, PortIndex port, uint32_t qpn, std::span<const uint8_t> frame);
  [[nodiscard]] End* find(const Key& key);
  /// The end of `key` and the one that it is connected with.
  void forget(const Key& key);
  void forget_one(const Key& key);

  std::map<Key, End> ends_;
  std::array<size_t, kMaxPorts> of_port_{};
};

}  // namespace faultline::switching
