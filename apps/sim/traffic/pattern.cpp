// SPDX-License-Identifier: BSD-3-Clause
#include "apps/sim/traffic/pattern.hpp"

#include "apps/sim/traffic/allreduce.hpp"
#include "apps/sim/traffic/replay.hpp"
#include "apps/sim/traffic/streams.hpp"

namespace faultline::fabric {

std::unique_ptr<Pattern> make_pattern(const TrafficParameters& traffic, uint32_t hosts,
                                      chaos::Random random) {
  const uint32_t taking_part = traffic.hosts == 0 ? hosts : traffic.hosts;
  chaos::Random routing = random.fork();
  switch (traffic.pattern) {
    case PatternKind::permutation:
      return std::make_unique<Streams>(traffic, permutation_routes(taking_part, routing), random);
    case PatternKind::incast: {
      const uint32_t senders = traffic.senders == 0 ? taking_part - 1 : traffic.senders;
      return std::make_unique<Streams>(
          traffic, incast_routes(taking_part, traffic.receiver, senders, routing), random);
    }
    case PatternKind::all_to_all:
      return std::make_unique<Streams>(traffic, all_to_all_routes(taking_part), random);
    case PatternKind::ring_allreduce:
      return std::make_unique<RingAllreduce>(traffic, taking_part);
    case PatternKind::tree_allreduce:
      return std::make_unique<TreeAllreduce>(traffic, taking_part);
    case PatternKind::trace:
      return std::make_unique<Replay>(traffic);
  }
  return nullptr;
}

}  // namespace faultline::fabric
