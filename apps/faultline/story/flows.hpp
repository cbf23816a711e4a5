// SPDX-License-Identifier: BSD-3-Clause
// Connections of a capture. A packet states its destination QP only, so the two directions of a connection
// are paired: by the connection manager's messages, and otherwise by answers, whose PSNs are close to those
// of the requests.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "apps/faultline/story/model.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::story {

/// A packet's place in the flows; a flow is what one address sends to a QP of another.
using FlowIndex = uint32_t;

class Flows {
 public:
  /// Returns the packet's flow.
  [[nodiscard]] FlowIndex add(const wire::Packet& packet);

  struct Side {
    uint16_t connection = 0;
    bool of_second_end = false;
  };
  /// Pairs the flows. Returns the side of each; connections are in the order of their first packet.
  [[nodiscard]] std::vector<Side> pair(std::vector<Connection>& connections);

 private:
  struct Flow {
    wire::Gid source;
    wire::Gid destination;
    uint32_t qpn = 0;
    uint32_t source_qpn = 0;  ///< of datagrams only
    wire::Service service = wire::Service::rc;
    bool has_requests = false;
    wire::Psn last_request{};
    uint32_t votes_cast = 0;
  };
  using Key = std::tuple<std::array<uint8_t, 16>, std::array<uint8_t, 16>, uint32_t, uint32_t>;
  using Hosts = std::tuple<std::array<uint8_t, 16>, std::array<uint8_t, 16>>;
  using Pair = std::pair<FlowIndex, FlowIndex>;

  [[nodiscard]] FlowIndex find(const wire::Packet& packet);
  void vote(FlowIndex answered, const wire::Packet& answer);
  void read_management(const wire::Packet& packet);
  void vote_by_management();

  struct Request {
    wire::Gid source;
    wire::Gid destination;
    uint32_t qpn = 0;
  };
  struct Agreed {
    Request request;
    uint32_t answer_qpn = 0;
  };

  std::vector<Flow> flows_;
  std::map<Key, FlowIndex> by_key_;
  std::map<Hosts, std::vector<FlowIndex>> by_hosts_;
  std::map<Pair, uint64_t> votes_;
  std::map<std::pair<Hosts, uint32_t>, Request> requests_;  ///< REQs, by communication ID
  std::vector<Agreed> agreed_;
  Key last_key_{};
  FlowIndex last_flow_ = 0;
};

}  // namespace faultline::story
