// SPDX-License-Identifier: BSD-3-Clause
// The part of a plan in which a connection ends during traffic and another replaces it.
#include "tests/sim/flows/plan.hpp"

namespace faultline::sim {

using namespace transport;

/// One end is destroyed during traffic, and the other when it detects that. Both then reconnect, with PSNs
/// far from the old ones or with new QPs. Alternatively the first end reconnects at once, while the other
/// still uses the old connection (a restarted host). Packets in flight must not affect the new connection.
TimeNs Plan::end_and_begin_again(Endpoint& a, Endpoint& b, ConnectionScript connection, bool signal_all,
                                 TimeNs life_ns) {
  const bool a_first = random_.chance(500);
  Endpoint& first = a_first ? a : b;
  Endpoint& second = a_first ? b : a;
  const TimeNs first_ends = world_.now() + 1 + life_ns + random_.below(fabric_.spread_ns * 2);
  const TimeNs second_ends = first_ends + random_.below(fabric_.spread_ns * 2);
  const TimeNs begins = second_ends + 1 + random_.below(random_.chance(500) ? 2'000 : 200'000);
  const bool other_qps = random_.chance(400);
  const bool back_at_once = !other_qps && random_.chance(500);
  std::vector<Flow*> old;
  for (const auto& flow : flows)
    if (&flow->from() == &a || &flow->from() == &b) old.push_back(flow.get());
  for (Flow* flow : old) flow->failure = PlannedFailure{{}, {CompletionStatus::retry_exceeded}, {}};

  ConnectionScript next = connection;
  // A quarter of the PSN space away, in either direction: every old PSN is before or after all new ones.
  const auto far = [this](uint32_t psn) {
    const uint32_t distance = (1U << 22) + static_cast<uint32_t>(random_.below(1U << 21));
    return (random_.chance(500) ? psn + distance : psn - distance) & wire::Psn::kMask;
  };
  next.psn_a = far(connection.psn_a);
  next.psn_b = far(connection.psn_b);
  const auto bring_up = [this, next, &a](Endpoint& end, const Endpoint& peer) {
    const bool is_a = &end == &a;
    if (!connect_end(world_, end, peer, next, is_a ? next.psn_a : next.psn_b, is_a ? next.psn_b : next.psn_a))
      error_ = "a connection could not begin again";
  };
  const auto stop = [this, old, other_qps](Endpoint& end) {
    for (Flow* flow : old) flow->abandon(end);
    if (other_qps)
      end.renew();
    else if (!end.reset())
      error_ = "a QP could not be reset";
  };
  world_.at(first_ends, [stop, bring_up, back_at_once, &first, &second] {
    stop(first);
    if (back_at_once) bring_up(first, second);
  });
  world_.at(second_ends, [stop, &second] { stop(second); });
  world_.at(begins, [old, bring_up, back_at_once, &first, &second] {
    if (!back_at_once) bring_up(first, second);
    bring_up(second, first);
    for (Flow* flow : old) flow->freeze();
  });
  start_ns_ = begins + 1;
  add_flows(a, b, next, false, random_.chance(300), random_.chance(500), signal_all);
  start_ns_ = world_.now();
  return begins;
}

}  // namespace faultline::sim
