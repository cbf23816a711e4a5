// SPDX-License-Identifier: BSD-3-Clause
// A scenario: rules of the form "when this happens, do that". docs/trouble/trouble.md has the keys of the
// file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace faultline::trouble {

/// What a rule may wait for, and where an action takes place.
enum class EventKind : uint8_t {
  call,         ///< a verbs or rdma_cm call begins
  send,         ///< a send work request is posted
  packet,       ///< a packet leaves or arrives
  fault,        ///< a page is requested from the pager
  poll,         ///< a completion queue with completions is polled
  request,      ///< a connection request (REQ) arrives for a listener
  receive,      ///< a receive work request is posted
  list,         ///< ibv_get_device_list is about to list a device
  async_event,  ///< ibv_get_async_event returns an event
  cm_event,     ///< rdma_get_cm_event returns an event
  command       ///< the user gives a command from outside
};

enum class ObjectKind : uint8_t { process, device, qp, cq, mr, srq };

/// An object of the program, by the order of creation: equal runs have equal numbers.
struct Object {
  ObjectKind kind = ObjectKind::process;
  uint32_t device = 0;  ///< index of Director::device()
  uint32_t number = 0;  ///< of this kind, on this device
  [[nodiscard]] uint64_t key() const {
    return uint64_t{static_cast<uint8_t>(kind)} << 56 | uint64_t{device} << 32 | number;
  }
  friend bool operator==(const Object&, const Object&) = default;
};

/// A test of the current event, or of what has happened before.
struct Condition {
  enum class Kind : uint8_t {
    all,       ///< every part
    any,       ///< at least one part
    event,     ///< the current event
    since,     ///< time since the first device was opened
    after,     ///< another rule has decided
    until,     ///< the time of `since` is not reached
    before,    ///< another rule has not decided
    counter,   ///< a counter of the device has reached a value
    commanded  ///< the user has given a command, and has not ended it
  };
  Kind kind = Kind::all;
  std::vector<Condition> parts = {};

  // Of Kind::event
  EventKind event = EventKind::call;
  std::string name = {};    ///< "ibv_post_send", "out rc_write_only"; a `*` at its end stands for the rest
  std::string object = {};  ///< "faultline0 qp 0"; empty: any
  std::string device = {};  ///< empty: any
  std::optional<uint32_t> qp = {};
  std::optional<uint32_t> thread = {};  ///< of the program, in the order of the threads' first calls
  uint64_t least_bytes = 0;
  uint64_t most_bytes = UINT64_MAX;
  std::string peer =
      {};  ///< of a packet: the IP address of its other end, as inet_ntop(3) writes it; empty: any
  // Of the events of one object that pass the tests above.
  uint64_t nth = 0;    ///< only this one, counted from 1; 0: no limit
  uint64_t from = 0;   ///< this one and the later ones
  uint64_t every = 0;  ///< each multiple

  uint64_t since_ns = 0;        ///< of Kind::since and Kind::until
  std::string after_rule = {};  ///< of Kind::after and Kind::before
  std::string counter = {};     ///< of Kind::counter: its name, as in docs/counters.md
  uint64_t least = 0;           ///< of Kind::counter
  std::string command = {};     ///< of Kind::commanded

  uint32_t leaf = 0;  ///< number of this leaf in the scenario
};

/// Which packets of a direction are one flow.
enum class FlowScope : uint8_t {
  qp,    ///< those of one QP and peer; packets of no known QP, such as the connection manager's, are one flow
  peer,  ///< those of one peer
  port   ///< all of the device
};

struct Action {
  enum class Kind : uint8_t {
    fail_call,        ///< `number`: errno; EventKind::call
    delay_call,       ///< EventKind::call: takes `duration_ns` longer
    fail_send,        ///< `number`: ibv_wc_status; EventKind::send
    lose,             ///< EventKind::packet, as the next four
    duplicate,        ///<
    corrupt,          ///< one bit
    mark,             ///< congestion experienced
    delay,            ///< by `duration_ns`, and at most `jitter_ns` more
    reorder,          ///< behind the next `amount` packets of the direction
    corrupt_payload,  ///< one bit of the payload, with a right ICRC
    partition,        ///< the flow is lost for `duration_ns`
    rate,             ///< the flow has `bits_per_second` and a queue of `queue_bytes`
    slow,             ///< each packet of the flow takes `service_ns`
    inject_cnp,       ///< `amount` CNPs arrive from the QP's peer
    inject_rnr,       ///< the request is answered with an RNR NAK; `amount`: its timer code (IBA 9.7.5.2.8)
    inject_nak,       ///< the request is answered with a NAK; `number`: its code (IBA 9.7.5.2.5)
    fail_fault,       ///< EventKind::fault: as if the page did not exist
    delay_fault,      ///< by `duration_ns`
    poll_nothing,     ///< EventKind::poll: no completion is returned
    poll_few,         ///< EventKind::poll: at most `amount` completions are returned
    shuffle,          ///< EventKind::poll: waiting completions of different work queues change places
    reject,           ///< `number`: reason of the REJ (IBA 12.6.7.2); EventKind::request
    raise_event,      ///< `number`: ibv_event_type; at any event, as the next two
    fail_qp,          ///< the QP of the event enters the error state, with IBV_EVENT_QP_FATAL
    link_down,        ///< for `duration_ns`; 0: until link_up
    page_out,         ///< the pages of the event's region; at an event that has a region
    link_up,
    remove_device,    ///< IBV_EVENT_DEVICE_FATAL; later calls fail, and no list has the device
    hide_device,      ///< EventKind::list: the list lacks the device
    fail_receive,     ///< `number`: ibv_wc_status; EventKind::receive
    raise_cq_event,   ///< `number`: ibv_event_type; where a CQ is concerned, as the next three
    overflow_cq,      ///< as if a completion did not fit
    wake,             ///< an event in the completion channel, without a completion
    moderate,         ///< events in the completion channel are late by `duration_ns`, one for several
    raise_srq_event,  ///< `number`: ibv_event_type; where an SRQ is concerned
    raise_cm_event    ///< `number`: rdma_cm_event_type; where a channel of rdma_cm is concerned
  };
  Kind kind = Kind::lose;
  uint32_t number = 0;
  uint64_t duration_ns = 0;
  uint64_t jitter_ns = 0;
  uint64_t amount = 0;
  uint64_t bits_per_second = 0;
  uint64_t queue_bytes = 0;
  uint64_t service_ns = 0;
  FlowScope flow = FlowScope::qp;  ///< of partition, rate and slow
  std::string text = {};           ///< the `do` table as JSON, for the journal
};

/// Returns the kind of events at which an action takes place; nullopt: at any.
[[nodiscard]] std::optional<EventKind> place_of(Action::Kind kind);

/// What of the program an event concerns, beyond its Object: what actions it can host. Bits.
enum Concern : uint8_t {
  kConcernsCq = 1,
  kConcernsSrq = 2,
  kConcernsCm = 4,
  kConcernsQueues = 8  ///< completions of several work queues wait
};
/// Returns the Concern that an action needs; 0: none.
[[nodiscard]] uint8_t concern_of(Action::Kind kind);

struct Rule {
  std::string name;
  Condition when;
  Action action;
  uint64_t times = 1;  ///< 0: without limit
  double probability = 1;
};

/// True for an action that begins with one packet and lasts: partition, rate and slow.
[[nodiscard]] bool changes_flow(Action::Kind kind);
/// True for an action that answers a request in its responder's place.
[[nodiscard]] bool answers_request(Action::Kind kind);

/// A decision at an exact place: of a journal, or a rule with `at`.
struct Exact {
  std::string rule;
  std::string event;   ///< text_of(event)
  std::string object;  ///< text of the object
  uint64_t n = 0;
  Action action;
};

struct Scenario {
  std::string name;
  uint64_t seed = 1;
  bool illegal = false;  ///< calls that release may fail
  std::vector<Rule> rules;
  std::vector<Exact> exact;
};

}  // namespace faultline::trouble
