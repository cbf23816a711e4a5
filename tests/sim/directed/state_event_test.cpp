// SPDX-License-Identifier: BSD-3-Clause
// QP state x event, for every QP type: each state and event must lead to the state that the rules below give
// (IBA 10.3.1; CVE-2025-40061, a state overwritten while draining). Events are tested in pairs, so that the
// second meets what the first left in progress.
#include <algorithm>
#include <tuple>

#include "stack/transport/qp/qp_state.hpp"
#include "stack/transport/qp/queue_pair.hpp"
#include "stack/transport/qp/shared_receive_queue.hpp"
#include "tests/sim/directed/pair.hpp"
#include "tests/sim/world/endpoint.hpp"

namespace faultline::sim::state_event_test {
namespace {

using transport::QpState;
using transport::QpType;

enum class Event : uint8_t {
  good_request,
  invalid_request,
  acknowledgement,
  access_nak,
  rnr_nak,
  stray_answer,
  notification,
  good_send,
  bad_send,
  retries_exhausted,
  to_reset,
  to_init,
  to_rtr,
  to_rts,
  to_sqd,
  to_sqe,
  to_err,
};
constexpr unsigned kEvents = static_cast<unsigned>(Event::to_err) + 1;

constexpr uint32_t kQkey = 0x111;
constexpr uint32_t kXrcDomain = 9;
constexpr uint32_t kNobody = 0x00abcdef;  // the peer's QPN: no QP answers, the test injects the responses

bool has_requester(QpType type) {
  return type != QpType::xrc_recv;
}
bool is_acknowledged(QpType type) {
  return type == QpType::rc || type == QpType::xrc_send;
}
bool sends_and_receives(QpState state) {
  return state == QpState::rts || state == QpState::sqd;
}

class Stage {
 public:
  explicit Stage(QpType qp_type) : type(qp_type), simulation_(quiet_fabric(), 1) {
    srq_ = simulation_.a.core().create_srq({.domain = 1, .max_wr = 4, .xrc_domain = kXrcDomain});
    end_ = std::make_unique<Endpoint>(
        simulation_, simulation_.a,
        EndpointScript{.type = type, .xrc_domain = type == QpType::xrc_recv ? kXrcDomain : 0U});
    region_ = &simulation_.a.memory.add_region(1, odp::kLocalWrite, false);
    Random random(1);
    region_->extend(4096, random);
  }

  /// Returns false if the type has no such state.
  [[nodiscard]] bool enter(QpState wanted) {
    if (wanted == QpState::reset) return true;
    happen(Event::to_init);
    if (wanted == QpState::init) return true;
    if (wanted != QpState::err) {
      happen(Event::to_rtr);
      if (wanted == QpState::rtr) return true;
      happen(Event::to_rts);
      // Work that is in progress when the drain begins.
      if (wanted == QpState::sqd) happen(Event::good_send);
    }
    if (wanted == QpState::sqd) happen(Event::to_sqd);
    if (wanted == QpState::sqe) {
      if (type != QpType::uc && type != QpType::ud) return false;
      happen(Event::bad_send);
    }
    if (wanted == QpState::err) happen(Event::to_err);
    return true;
  }

  /// Applies the event and runs its consequences.
  void happen(Event event) {
    act(event);
    const uint64_t time = event == Event::retries_exhausted ? 2'000 * kMillisecond : 20 * kMicrosecond;
    const TimeNs until = simulation_.now() + time;
    bool over = false;
    simulation_.at(until, [&over] { over = true; });
    static_cast<void>(simulation_.run_until([&over] { return over; }, kNever));
    if (state() == QpState::reset || state() == QpState::err || state() == QpState::sqe)
      bad_send_waits_ = false;
  }

  /// Returns the state that must follow.
  [[nodiscard]] QpState expected(Event event) const {
    const QpState now = state();
    const bool connected = type != QpType::ud;
    const bool works = now == QpState::rtr || sends_and_receives(now);
    const QpState broken = is_acknowledged(type) ? QpState::err : QpState::sqe;
    switch (event) {
      case Event::good_request:
      case Event::rnr_nak:
      case Event::stray_answer:
      case Event::notification:
      case Event::good_send:
        return now;
      case Event::invalid_request:
        return (type == QpType::rc || type == QpType::xrc_recv) && works ? QpState::err : now;
      case Event::acknowledgement:
        // The request that fails locally was posted after the acknowledged one.
        return under_way() && now == QpState::rts && bad_send_waits_ && sends_ == 1 ? broken : now;
      case Event::access_nak:
      case Event::retries_exhausted:
        return connected && under_way() && sends_and_receives(now) ? QpState::err : now;
      case Event::bad_send:
        return has_requester(type) && now == QpState::rts && !under_way() ? broken : now;
      case Event::to_rts:
        if (!transport::transition(type, now, QpState::rts).allowed) return now;
        return bad_send_waits_ && sends_ == 0 && !under_way() ? broken : QpState::rts;
      default: {
        const QpState to = target(event);
        return transport::transition(type, now, to).allowed ? to : now;
      }
    }
  }

  [[nodiscard]] QpState state() const { return end_->state(); }
  [[nodiscard]] size_t events(transport::AsyncEvent wanted) const {
    return static_cast<size_t>(
        std::count_if(simulation_.a.events.begin(), simulation_.a.events.end(),
                      [wanted](const RaisedEvent& raised) { return raised.event == wanted; }));
  }
  /// Checks that a destroyed QP holds no resources.
  void end() {
    end_->destroy();
    EXPECT_EQ(simulation_.a.port.rx_in_use(), 0U);
    EXPECT_TRUE(simulation_.a.port.fault.empty()) << simulation_.a.port.fault;
  }

  const QpType type;

 private:
  static QpState target(Event event) {
    return static_cast<QpState>(static_cast<unsigned>(event) - static_cast<unsigned>(Event::to_reset));
  }
  [[nodiscard]] bool under_way() const {
    const auto& requester = end_->qp()->requester;
    return is_acknowledged(type) && requester.unacked_psn != requester.sent_psn;
  }

  void act(Event event) {
    switch (event) {
      case Event::good_request:
        if (type == QpType::ud) return give(wire::Opcode::ud_send_only, expected_psn());
        return give(in_service(wire::Opcode::rc_write_only), expected_psn());
      case Event::invalid_request:
        // A middle packet without a message in progress.
        if (type == QpType::ud) return give(wire::Opcode::rc_send_middle, expected_psn(), 1024);
        return give(in_service(wire::Opcode::rc_write_middle), expected_psn(), 1024);
      case Event::acknowledgement:
        return answer(wire::kAethAck | wire::kAethCreditsInvalid);
      case Event::access_nak:
        return answer(
            static_cast<uint8_t>(wire::kAethNak | static_cast<uint8_t>(wire::NakCode::remote_access_error)));
      case Event::rnr_nak:
        return answer(wire::kAethRnrNak | 1);
      case Event::stray_answer:
        return give(acknowledged_service(wire::Opcode::rc_read_response_only), unacked_psn().plus(1));
      case Event::notification:
        return give(wire::Opcode::cnp, wire::Psn(0));
      case Event::good_send:
        return post(region_->key);
      case Event::bad_send:
        return post(region_->key ^ 1);
      case Event::retries_exhausted:
        return;
      default:
        return modify(target(event));
    }
  }

  [[nodiscard]] wire::Opcode in_service(wire::Opcode rc) const { return end_->qp()->in_service(rc); }
  [[nodiscard]] wire::Opcode acknowledged_service(wire::Opcode rc) const {
    return is_acknowledged(type) || type == QpType::xrc_recv ? in_service(rc) : rc;
  }
  [[nodiscard]] wire::Psn expected_psn() const { return end_->qp()->responder.expected_psn; }
  [[nodiscard]] wire::Psn unacked_psn() const { return end_->qp()->requester.unacked_psn; }

  void answer(uint8_t syndrome) {
    if (under_way() && (syndrome & wire::kAethKindMask) == wire::kAethAck && sends_ != 0) --sends_;
    give(acknowledged_service(wire::Opcode::rc_acknowledge), unacked_psn(), 0, syndrome);
  }

  void give(wire::Opcode opcode, wire::Psn psn, uint32_t payload_bytes = 0, uint8_t syndrome = 0) {
    const wire::FrameTemplate header(simulation_.path(simulation_.b, simulation_.a).path);
    wire::PacketFields fields;
    fields.bth.opcode = opcode;
    fields.bth.becn = opcode == wire::Opcode::cnp;
    fields.bth.destination_qpn = end_->qpn();
    fields.bth.psn = psn;
    fields.aeth = {syndrome, 0};
    fields.deth = {kQkey, kNobody};
    fields.xrc_srq_number = srq_->number;
    Frame frame(header.frame_bytes(opcode, payload_bytes));
    ASSERT_NE(header.write_headers(frame, fields, payload_bytes), nullptr);
    header.seal(frame, opcode, payload_bytes);
    simulation_.b_to_a.inject(simulation_.now(), frame);
  }

  void post(uint32_t lkey) {
    if (!has_requester(type)) return;
    SendRequest request;
    request.sges = {{region_->base, 16, lkey}};
    if (type == QpType::ud) {
      request.ud_qpn = kNobody;
      request.av = simulation_.path(simulation_.a, simulation_.b);
    }
    ASSERT_TRUE(end_->post_send(request));
    if (lkey != region_->key) bad_send_waits_ = true;
    if (lkey == region_->key && !bad_send_waits_ && is_acknowledged(type)) ++sends_;
  }

  void modify(QpState to) {
    const transport::QpTransition row = transport::transition(type, state(), to);
    transport::QpAttributes attributes;
    attributes.state = to;
    attributes.qkey = kQkey;
    attributes.av = simulation_.path(simulation_.a, simulation_.b);
    attributes.destination_qpn = kNobody;
    attributes.timeout = 8;  // 1 ms
    attributes.retry_count = 1;
    attributes.access_flags = odp::kRemoteWrite;
    const int result = end_->modify(attributes, row.required | transport::kAttrState);
    EXPECT_EQ(result, row.allowed ? 0 : EINVAL);
    if (result == 0 && (to == QpState::reset || to == QpState::err)) sends_ = 0;
  }

  Simulation simulation_;
  transport::SharedReceiveQueue* srq_ = nullptr;
  std::unique_ptr<Endpoint> end_;
  Region* region_ = nullptr;
  bool bad_send_waits_ = false;
  uint32_t sends_ = 0;  ///< outstanding good requests posted before the bad one
};

// In RTR the first request shows that the connection is established and raises the event. Later requests, and
// those in RTS, raise none (IBA 11.6.3.2).
TEST(CommunicationEstablished, IsToldOnceAndInRtrAlone) {
  for (const QpType type : {QpType::rc, QpType::uc, QpType::xrc_recv}) {
    Stage early(type);
    ASSERT_TRUE(early.enter(QpState::rtr));
    for (int i = 0; i < 3; ++i) early.happen(Event::good_request);
    EXPECT_EQ(early.events(transport::AsyncEvent::communication_established), 1U);
    Stage late(type);
    ASSERT_TRUE(late.enter(QpState::rts));
    late.happen(Event::good_request);
    EXPECT_EQ(late.events(transport::AsyncEvent::communication_established), 0U);
  }
}

using Start = std::tuple<QpType, QpState>;
class StateEvent : public testing::TestWithParam<Start> {};

TEST_P(StateEvent, ThePairOfEventsLeadsWhereTheRulesSay) {
  const auto [type, start] = GetParam();
  for (unsigned first = 0; first < kEvents; ++first) {
    for (unsigned second = 0; second < kEvents; ++second) {
      Stage stage(type);
      if (!stage.enter(start)) return;
      ASSERT_EQ(stage.state(), start);
      for (const unsigned event : {first, second}) {
        const QpState expected = stage.expected(static_cast<Event>(event));
        stage.happen(static_cast<Event>(event));
        ASSERT_EQ(stage.state(), expected) << "event " << event << " of " << first << ", " << second;
      }
      stage.end();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, StateEvent,
    testing::Combine(testing::Values(QpType::rc, QpType::uc, QpType::ud, QpType::xrc_send, QpType::xrc_recv),
                     testing::Values(QpState::reset, QpState::init, QpState::rtr, QpState::rts, QpState::sqd,
                                     QpState::sqe, QpState::err)),
    [](const testing::TestParamInfo<Start>& start) {
      return "type" + std::to_string(static_cast<int>(std::get<0>(start.param))) + "state" +
             std::to_string(static_cast<int>(std::get<1>(start.param)));
    });

}  // namespace
}  // namespace faultline::sim::state_event_test
