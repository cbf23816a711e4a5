// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/wires/wire_attachment.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <spdlog/fmt/fmt.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "pmd_glue/wires/sealed_memory.hpp"
#include "pmd_glue/wires/switch_place.hpp"
#include "pmd_glue/wires/switch_start.hpp"

namespace faultline::glue {
namespace {

using Received = SwitchChannel::Received;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A new switch may be killed before it serves, so several starts are tried. A switch that cannot start fails
// each time.
constexpr int kStarts = 3;
// Pauses after the death of a switch.
constexpr auto kFirstPause = milliseconds(20);
constexpr auto kLongestPause = milliseconds(2'000);
constexpr auto kQuietFor = milliseconds(3'000);
// Pending requests: their answers fit into a socket's buffer.
constexpr uint64_t kRequestsUnderWay = 64;

SwitchRequest service_request(SwitchVerb verb, uint64_t service_id) {
  SwitchRequest request;
  request.verb = verb;
  request.service_id = service_id;
  return request;
}

SwitchRequest group_request(SwitchVerb verb, const std::array<uint8_t, 16>& group) {
  SwitchRequest request;
  request.verb = verb;
  request.group = group;
  return request;
}

SwitchRequest link_request(SwitchVerb verb, uint32_t port) {
  SwitchRequest request;
  request.verb = verb;
  request.port = port;
  return request;
}

/// Returns true if another try would get the same error.
bool is_final(int error) {
  return error == EADDRINUSE || error == EADDRNOTAVAIL || error == EPERM || error == EPROTO;
}

}  // namespace

std::shared_ptr<WireAttachment> WireAttachment::take(const WireRequest& wanted, std::string& error,
                                                     std::optional<SwitchGrant>& holders) {
  return take(wanted, Patience{}, error, holders);
}

std::shared_ptr<WireAttachment> WireAttachment::take(const WireRequest& wanted, const Patience& patience,
                                                     std::string& error,
                                                     std::optional<SwitchGrant>& holders) {
  std::shared_ptr<WireAttachment> seat(new WireAttachment(patience));
  const Lock lock(seat->mutex_);
  if (seat->take_first(wanted, error)) return seat;
  holders = seat->holders_;
  return nullptr;
}

WireAttachment::~WireAttachment() = default;

// ---- the seat ----

bool WireAttachment::take_first(const WireRequest& wanted, std::string& error) {
  wire_ = wanted.wire;
  wanted_.ipv4 = wanted.ipv4;
  wanted_.shared = wanted.shared ? 1 : 0;
  if (!make_inbox(error)) return false;
  const auto refuse = [&](const std::string& message) {
    error = fmt::format("faultline: wire {}: {}", wire_, message);
    return false;
  };
  const auto place = place_of_wire(wire_, error);
  if (!place) return false;
  const SteadyTime began = steady_clock::now();
  const SteadyTime deadline = began + patience_.attach;
  for (int failed_starts = 0;;) {
    if (!begin_attach(deadline, true, error)) {
      // Its user may be replacing the switch.
      if (!needs_uplink(*place) || steady_clock::now() >= began + patience_.replaced) return false;
      error.clear();
      std::this_thread::sleep_for(kLookPause);
      continue;
    }
    switch (finish_attach(deadline, error)) {
      case Outcome::granted:
        set_phase(Phase::attached);
        return true;
      case Outcome::none_yet:
        return refuse(fmt::format("its switch does not answer; {}", advice_on(switch_process(*place))));
      case Outcome::ended:
        // A switch that is ending may still have listened.
        failed_starts += started_ ? 1 : 0;
        if (failed_starts == kStarts || steady_clock::now() >= deadline)
          return refuse(fmt::format("the switch has ended: {}", last_log_line(*place)));
        std::this_thread::sleep_for(kLookPause);
        break;
      case Outcome::refused:
      case Outcome::failed:
        return refuse(error);
    }
  }
}

bool WireAttachment::make_inbox(std::string& error) {
  inbox_ = Inbox::create();
  event_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  event_number_.store(event_.get(), std::memory_order_relaxed);
  if (inbox_ != nullptr && event_) return true;
  error = fmt::format("faultline: wire {}: no memory or descriptors: {}; raise ulimit -n", wire_,
                      std::strerror(errno));
  return false;
}

std::optional<WireAttachment::Seat> WireAttachment::take_seat() {
  const Lock lock(mutex_);
  return std::exchange(seat_, std::nullopt);
}

std::optional<WireAttachment::Seat> WireAttachment::await_seat(std::string& error) {
  std::optional<Seat> seat = take_seat();
  if (seat) return seat;
  leave_seat();
  const SteadyTime deadline = steady_clock::now() + patience_.attach;
  while (!(seat = take_seat()) && !is_lost() && steady_clock::now() < deadline) {
    // A line of keep() is the reason of a failure, not one by itself.
    if (keep(error)) std::this_thread::sleep_for(milliseconds(1));
  }
  if (!seat && error.empty()) error = fmt::format("faultline: wire {}: its switch does not answer", wire_);
  return seat;
}

void WireAttachment::leave_seat() {
  const Lock lock(mutex_);
  if (phase_ != Phase::attached) return;
  // Otherwise a process that attaches now could get the address.
  if (channel_.is_ours()) previous_ = std::move(channel_);
  leave_switch();
}

void WireAttachment::end_previous() {
  // A forked child may have the connection too: a close alone would not end it.
  if (previous_.is_ours()) shutdown(previous_.descriptor(), SHUT_RDWR);
  if (phase_ == Phase::attached) channel_.take_number_of(previous_);
  previous_.close();
}

bool WireAttachment::begin_attach(SteadyTime deadline, bool may_start, std::string& error) {
  const auto place = place_of_wire(wire_, error);
  if (!place) return false;
  started_ = false;
  UniqueFd connection =
      may_start ? reach_switch(wire_, *place, deadline, started_, error) : connect_to_wire(*place, deadline);
  if (!connection) return false;
  channel_ = SwitchChannel(std::move(connection));
  unanswered_ = 0;
  // The result is ignored: the switch may already have refused or closed the connection, which
  // finish_attach() reports.
  const std::array<int, kInboxDescriptors> inbox{inbox_->memory(), event_.get()};
  static_cast<void>(channel_.send(wanted_, deadline, inbox));
  asked_ = 1;
  return true;
}

WireAttachment::Outcome WireAttachment::finish_attach(SteadyTime deadline, std::string& error) {
  SwitchAnswer answer;
  std::vector<UniqueFd> descriptors;
  switch (channel_.receive(asked_, deadline, answer, descriptors)) {
    case Received::nothing:
      return Outcome::none_yet;
    case Received::ended:
      return Outcome::ended;
    case Received::broken:
      error = fmt::format("the switch's answer is broken: {}", std::strerror(EPROTO));
      return Outcome::refused;
    case Received::answer:
      break;
  }
  return take_grant(answer, descriptors, error);
}

WireAttachment::Outcome WireAttachment::take_grant(const SwitchAnswer& answer,
                                                   std::vector<UniqueFd>& descriptors, std::string& error) {
  if (answer.header.version != kSwitchVersion) {
    error = fmt::format(
        "its switch is of another build (version {}, and this library has {}): end the programs on the wire "
        "and start them anew",
        answer.header.version, kSwitchVersion);
    return Outcome::refused;
  }
  if (answer.error != 0) {
    error.assign(answer.line.data(), strnlen(answer.line.data(), answer.line.size()));
    if (answer.error == EADDRINUSE && answer.grant.ipv4 != 0) holders_ = answer.grant;
    return is_final(answer.error) ? Outcome::refused : Outcome::failed;
  }
  if (seat_count() != 0 && (answer.grant.range != grant_.range || answer.grant.port != grant_.port)) {
    error = "its switch died, and others have taken this process's place";
    return Outcome::refused;
  }
  // The program has read the addresses, and its packets' ICRCs depend on the kind of the uplink.
  if (seat_count() != 0 &&
      (answer.grant.by_sockets != grant_.by_sockets || answer.grant.addresses != grant_.addresses)) {
    error = "its switch was replaced by one whose uplink has other addresses of the host, or another kind";
    return Outcome::refused;
  }
  Seat seat{.memory = {}, .switch_inbox = nullptr, .own_inbox = inbox_};
  errno = EPROTO;  // of wrong descriptors
  if (descriptors.size() == kLinkDescriptors && is_sealed_memory(descriptors[0].get(), kSeatBytes)) {
    seat.memory = std::move(descriptors[0]);
    seat.switch_inbox = Inbox::adopt(std::move(descriptors[1]), std::move(descriptors[2]));
  }
  if (seat.switch_inbox == nullptr) {
    error = fmt::format("the switch gave no ring, or it cannot be mapped: {}", std::strerror(errno));
    return Outcome::failed;
  }
  seat.lost_descriptors = std::exchange(descriptors_gone_, false);
  const bool is_first = seat_count() == 0;
  seat_ = std::move(seat);
  seat_count_.fetch_add(1, std::memory_order_release);
  uplink_up_.store(answer.grant.by_sockets == 0 || answer.grant.uplink_up != 0, std::memory_order_relaxed);
  if (!is_first) return Outcome::granted;
  grant_ = answer.grant;
  wanted_.ipv4 = grant_.ipv4;
  wanted_.shared = grant_.shared;
  wanted_.range = grant_.range;
  wanted_.port = grant_.port;
  return Outcome::granted;
}

void WireAttachment::set_phase(Phase phase) {
  phase_ = phase;
  if (phase == Phase::attached) end_previous();
  granted_.store(phase == Phase::replaying || phase == Phase::attached, std::memory_order_relaxed);
  descriptor_.store(phase == Phase::attached ? channel_.descriptor() : -1, std::memory_order_relaxed);
  if (phase != Phase::attached) return;
  tries_ = 0;
  complained_ = false;
}

bool WireAttachment::keep(std::string& error) {
  const Lock lock(mutex_, std::try_to_lock);
  if (!lock) return true;
  if (!is_lost()) advance();
  error = std::exchange(complaint_, {});
  return error.empty();
}

void WireAttachment::advance() {
  const SteadyTime now = steady_clock::now();
  if (phase_ == Phase::attached) {
    if (channel_.is_ours() && channel_.drain()) return note_uplink();
    leave_switch();
  }
  std::string error;
  if (phase_ == Phase::away) {
    // Try to connect in each step: another process may start a switch at any time, and a switch serves early
    // clients first.
    const bool may_start = now >= next_try_;
    if (!begin_attach(now, may_start, error)) return may_start ? schedule_retry(error) : void();
    set_phase(Phase::asking);
    answer_due_ = now + patience_.attach;
  }
  if (phase_ == Phase::asking) {
    const auto line = [&](const std::string& message) {
      return fmt::format("faultline: wire {}: {}", wire_, message);
    };
    switch (finish_attach(now, error)) {
      case Outcome::granted:
        begin_replay();
        break;
      case Outcome::none_yet:
        if (now >= answer_due_) schedule_retry(line("its switch does not answer"));
        return;
      case Outcome::ended:
        return schedule_retry(line("its switch has ended again"));
      case Outcome::failed:
        return schedule_retry(line(error));
      case Outcome::refused:
        return lose(line(error));
    }
  }
  if (phase_ == Phase::replaying) replay();
}

void WireAttachment::note_uplink() {
  if (const auto is_up = channel_.take_uplink_state()) uplink_up_.store(*is_up, std::memory_order_relaxed);
}

void WireAttachment::leave_switch() {
  // If the channel's number was closed, the wake-up flag's numbers were too: a program closes all descriptors
  // or none.
  if (channel_.descriptor() >= 0 && !channel_.is_ours()) {
    descriptors_gone_ = true;
    lose_inbox();
  }
  channel_.close();
  next_try_ = steady_clock::now();
  if (phase_ == Phase::attached) gone_since_ = next_try_;
  set_phase(Phase::away);
}

void WireAttachment::schedule_retry(const std::string& why) {
  leave_switch();
  end_previous();
  const SteadyTime now = next_try_;
  next_try_ += std::min<milliseconds>(kFirstPause * (1U << std::min(tries_, 10U)), kLongestPause);
  ++tries_;
  // One message is enough; a switch that was killed during its start causes none.
  if (complained_ || now - gone_since_ < kQuietFor) return;
  complained_ = true;
  complaint_ = why + "; this process tries again until there is a switch";
}

void WireAttachment::lose(const std::string& why) {
  leave_switch();
  end_previous();
  lost_.store(true, std::memory_order_relaxed);
  complaint_ = why;
}

void WireAttachment::begin_replay() {
  to_replay_.clear();
  for (const uint64_t service_id : services_)
    to_replay_.push_back(service_request(SwitchVerb::claim_service, service_id));
  for (const uint32_t port : linked_) to_replay_.push_back(link_request(SwitchVerb::keep_link, port));
  for (const auto& group : groups_) to_replay_.push_back(group_request(SwitchVerb::join_group, group));
  set_phase(Phase::replaying);
}

// Another process may have claimed a service meanwhile; it then keeps the service.
void WireAttachment::replay() {
  const SteadyTime now = steady_clock::now();
  while (!to_replay_.empty() && asked_ < channel_.latest_answer() + kRequestsUnderWay) {
    const uint64_t number = channel_.send(to_replay_.front(), now);
    if (number == 0) break;
    asked_ = number;
    to_replay_.pop_front();
  }
  if (!channel_.drain())
    return schedule_retry(fmt::format("faultline: wire {}: its switch has ended again", wire_));
  const bool answered = channel_.latest_answer() >= asked_;
  if (to_replay_.empty() && answered) return set_phase(Phase::attached);
  if (now >= answer_due_)
    schedule_retry(fmt::format("faultline: wire {}: its switch does not answer", wire_));
}

// ---- direct links ----

// The peers' wake-ups no longer arrive: the links end, and the next seat has another inbox.
void WireAttachment::lose_inbox() {
  inbox_->lose_descriptors();
  static_cast<void>(event_.release());
  if (seat_) {
    static_cast<void>(seat_->memory.release());
    seat_->switch_inbox->lose_descriptors();
    seat_.reset();
  }
  for (const uint32_t port : linked_) {
    LinkNews lost{.what = LinkNews::What::lost};
    lost.peer.port = port;
    own_news_.push_back(std::move(lost));
  }
  linked_.clear();
  if (make_inbox(complaint_)) return;
  lost_.store(true, std::memory_order_relaxed);
}

std::vector<WireAttachment::LinkNews> WireAttachment::take_link_news() {
  const Lock lock(mutex_, std::try_to_lock);
  if (!lock) return {};
  std::vector<LinkNews> news = std::exchange(own_news_, {});
  for (SwitchChannel::LinkNews& told : channel_.take_link_news()) {
    LinkNews one{.peer = told.message.grant, .side = told.message.link_side & 1U};
    if (one.peer.port >= Inbox::kSeats) continue;
    if (told.message.message == SwitchMessage::link_ended) {
      linked_.erase(one.peer.port);
      one.what = LinkNews::What::ended;
    } else {
      if (told.descriptors.size() != kLinkDescriptors) continue;
      one.memory = std::move(told.descriptors[0]);
      one.inbox = Inbox::adopt(std::move(told.descriptors[1]), std::move(told.descriptors[2]));
      if (one.inbox == nullptr || !is_sealed_memory(one.memory.get(), kLinkBytes)) continue;
      linked_.insert(one.peer.port);
    }
    news.push_back(std::move(one));
  }
  return news;
}

void WireAttachment::end_link(uint32_t peer_port, bool barred) {
  const Lock lock(mutex_);
  linked_.erase(peer_port);
  const SwitchRequest request = link_request(barred ? SwitchVerb::bar_link : SwitchVerb::end_link, peer_port);
  if (phase_ == Phase::replaying) to_replay_.push_back(request);
  // A request that cannot be sent leaves the pair without a link, on the way over the switch.
  if (phase_ == Phase::attached) static_cast<void>(channel_.send(request, steady_clock::now()));
}

// ---- services and groups ----

int WireAttachment::await_attached(Lock& lock, SteadyTime deadline) {
  for (;;) {
    if (is_lost()) return ENETDOWN;
    advance();
    if (phase_ == Phase::attached) return 0;
    if (steady_clock::now() >= deadline) return ETIMEDOUT;
    lock.unlock();
    std::this_thread::sleep_for(kLookPause);
    lock.lock();
  }
}

Received WireAttachment::await_answer(uint64_t number, SteadyTime deadline, SwitchAnswer& answer) {
  std::vector<UniqueFd> none;
  std::string error;
  const SteadyTime look_at = std::min(deadline, steady_clock::now() + patience_.stopped);
  const Received received = channel_.receive(number, look_at, answer, none);
  if (received != Received::nothing) return received;
  const auto place = place_of_wire(wire_, error);
  const int process = place ? switch_process(*place) : 0;
  if (!is_stopped(process)) {
    const Received late = channel_.receive(number, deadline, answer, none);
    if (late != Received::nothing) return late;
  }
  complaint_ = fmt::format("faultline: wire {}: its switch does not answer; {}", wire_, advice_on(process));
  return Received::nothing;
}

int WireAttachment::ask(Lock& lock, const SwitchRequest& request) {
  const SteadyTime deadline = steady_clock::now() + patience_.ask;
  SwitchAnswer answer;
  for (;;) {
    if (const int error = await_attached(lock, deadline); error != 0) return error;
    // Fail at once, so that the callers' locks are not held for a second timeout.
    if (is_silent()) return ETIMEDOUT;
    unanswered_ = 0;
    const uint64_t number = channel_.send(request, steady_clock::now());
    if (number == 0 && errno == ETIMEDOUT) return ETIMEDOUT;
    const Received received = number != 0 ? await_answer(number, deadline, answer) : Received::ended;
    if (received == Received::answer) return answer.error;
    if (received == Received::nothing) {
      unanswered_ = number;
      return ETIMEDOUT;
    }
    // The switch has just died: send the request to the next one.
    leave_switch();
  }
}

bool WireAttachment::is_silent() const {
  return unanswered_ != 0 && channel_.latest_answer() < unanswered_;
}

void WireAttachment::take_back(const SwitchRequest& opposite) {
  if (const uint64_t number = channel_.send(opposite, steady_clock::now()); number != 0)
    unanswered_ = number;
  else
    leave_switch();
}

int WireAttachment::claim(const SwitchRequest& request, const SwitchRequest& opposite, Lock& lock) {
  const uint64_t silent_before = unanswered_;
  const int error = ask(lock, request);
  if (error == ETIMEDOUT && is_silent() && unanswered_ != silent_before) take_back(opposite);
  return error;
}

void WireAttachment::give_up(const SwitchRequest& request, Lock& lock) {
  // During a replay, the release is sent after the claims. In earlier phases the claim is not replayed.
  if (phase_ == Phase::replaying) to_replay_.push_back(request);
  if (phase_ != Phase::attached) return;
  if (is_silent()) return take_back(request);
  // If the request cannot be sent, the end of the connection releases the claim.
  if (ask(lock, request) == ETIMEDOUT && phase_ == Phase::attached && !is_silent()) leave_switch();
}

int WireAttachment::claim_service(uint64_t service_id) {
  Lock lock(mutex_);
  const int error = claim(service_request(SwitchVerb::claim_service, service_id),
                          service_request(SwitchVerb::release_service, service_id), lock);
  if (error == 0) services_.insert(service_id);
  return error;
}

void WireAttachment::release_service(uint64_t service_id) {
  Lock lock(mutex_);
  services_.erase(service_id);
  give_up(service_request(SwitchVerb::release_service, service_id), lock);
}

int WireAttachment::join_group(const wire::Gid& group) {
  Lock lock(mutex_);
  const int error = claim(group_request(SwitchVerb::join_group, group.bytes),
                          group_request(SwitchVerb::leave_group, group.bytes), lock);
  if (error == 0) groups_.insert(group.bytes);
  return error;
}

void WireAttachment::leave_group(const wire::Gid& group) {
  Lock lock(mutex_);
  groups_.erase(group.bytes);
  give_up(group_request(SwitchVerb::leave_group, group.bytes), lock);
}

}  // namespace faultline::glue
