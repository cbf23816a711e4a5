// SPDX-License-Identifier: BSD-3-Clause
#include "stack/trouble/director.hpp"

#include <algorithm>
#include <mutex>

#include <spdlog/fmt/fmt.h>

#include "stack/base/process/fork_mutex.hpp"
#include "stack/chaos/random.hpp"
#include "stack/trouble/calls.hpp"
#include "stack/trouble/journal.hpp"

namespace faultline::trouble {
namespace {

std::atomic<Director*> current{nullptr};
/// Of all directors: a program has one. Static, as ForkMutex requires.
ForkMutex state_lock;

std::string_view name_of(EventKind kind) {
  switch (kind) {
    case EventKind::call:
      return "call";
    case EventKind::send:
      return "send";
    case EventKind::packet:
      return "packet";
    case EventKind::fault:
      return "fault";
    case EventKind::poll:
      return "poll";
    case EventKind::request:
      return "request";
    case EventKind::receive:
      return "receive";
    case EventKind::list:
      return "list";
    case EventKind::async_event:
      return "event";
    case EventKind::cm_event:
      return "cm_event";
    case EventKind::command:
      return "command";
  }
  return "unknown";
}

/// Calls visit(name) for each command that a condition waits for.
template <typename Visit>
void for_each_command(const Condition& condition, Visit visit) {
  if (condition.kind == Condition::Kind::commanded) visit(condition.command);
  if (condition.kind == Condition::Kind::event && condition.event == EventKind::command)
    visit(condition.name);
  for (const Condition& part : condition.parts) for_each_command(part, visit);
}

bool waits_for(const Rule& rule, std::string_view command) {
  bool found = false;
  for_each_command(rule.when, [&](const std::string& name) { found |= name == command; });
  return found;
}

std::string place_text(std::string_view event, std::string_view object, uint64_t n) {
  return fmt::format("{}\n{}\n{}", event, object, n);
}

}  // namespace

Director* director() {
  return current.load(std::memory_order_acquire);
}

void set_director(Director* director) {
  current.store(director, std::memory_order_release);
}

std::string text_of(const Event& event) {
  if (event.name.empty()) return std::string(name_of(event.kind));
  return fmt::format("{} {}", name_of(event.kind), event.name);
}

Director::Director(Scenario scenario, Clock clock, Journal journal)
    : scenario_(std::move(scenario)),
      clock_(clock),
      journal_(std::move(journal)),
      start_ns_(clock()),
      decided_(scenario_.rules.size()) {
  for (const Exact& exact : scenario_.exact)
    exact_.emplace(place_text(exact.event, exact.object, exact.n), &exact);
}

bool Director::concerns(EventKind kind) const {
  const auto is_of = [kind](const Condition& condition, const auto& self) -> bool {
    if (condition.kind == Condition::Kind::event) return condition.event == kind;
    return std::ranges::any_of(condition.parts, [&](const Condition& part) { return self(part, self); });
  };
  if (std::ranges::any_of(scenario_.exact,
                          [kind](const Exact& exact) { return exact.event.starts_with(name_of(kind)); }))
    return true;
  return std::ranges::any_of(scenario_.rules, [&](const Rule& rule) {
    return place_of(rule.action.kind) == kind || is_of(rule.when, is_of);
  });
}

bool Director::may_take_link_down() const {
  return any_action([](Action::Kind kind) {
    return kind == Action::Kind::link_down || kind == Action::Kind::remove_device;
  });
}

bool Director::may_inject() const {
  return any_action(
      [](Action::Kind kind) { return kind == Action::Kind::inject_cnp || answers_request(kind); });
}

bool Director::any_action(bool (*is_wanted)(Action::Kind kind)) const {
  const auto has_it = [is_wanted](const auto& one) { return is_wanted(one.action.kind); };
  return std::ranges::any_of(scenario_.rules, has_it) || std::ranges::any_of(scenario_.exact, has_it);
}

Director::Matched Director::matches_event(const Condition& condition, const Event& event) {
  if (condition.event != event.kind || !fits(condition.name, event.name)) return {};
  if (event.bytes < condition.least_bytes || event.bytes > condition.most_bytes) return {};
  if (!condition.peer.empty() && condition.peer != event.peer) return {};
  if (condition.qp && (event.object.kind != ObjectKind::qp || event.object.number != *condition.qp))
    return {};
  if (condition.thread && condition.thread != event.thread) return {};
  if (!condition.device.empty() &&
      (event.object.kind == ObjectKind::process || devices_[event.object.device] != condition.device))
    return {};
  if (!condition.object.empty() && condition.object != text_of_locked(event.object)) return {};
  const uint64_t count = ++leaf_counts_[{condition.leaf, event.object.key()}];
  if (condition.nth != 0 && count != condition.nth) return {};
  if (count < condition.from) return {};
  if (condition.every != 0 && count % condition.every != 0) return {};
  return {true, count};
}

// What it has reached once holds, though a gauge may fall.
bool Director::has_reached(const Condition& condition, const Object& object) {
  const auto of_device = [&](uint32_t device) {
    if (reached_.contains({condition.leaf, device})) return true;
    const auto reader = counter_readers_.find(device);
    if (reader == counter_readers_.end() || reader->second(condition.counter) < condition.least) return false;
    reached_.emplace(condition.leaf, device);
    return true;
  };
  if (object.kind != ObjectKind::process) return of_device(object.device);
  for (uint32_t device = 0; device < devices_.size(); ++device)
    if (of_device(device)) return true;
  return false;
}

// Every leaf sees every event, so that counts do not depend on the order of the parts.
Director::Matched Director::matches(const Condition& condition, const Event& event, TimeNs now) {
  switch (condition.kind) {
    case Condition::Kind::event:
      return matches_event(condition, event);
    case Condition::Kind::since:
      return {now - start_ns_ >= condition.since_ns, 0};
    case Condition::Kind::after:
      return {has_decided(condition.after_rule), 0};
    case Condition::Kind::until:
      return {now - start_ns_ < condition.since_ns, 0};
    case Condition::Kind::before:
      return {!has_decided(condition.after_rule), 0};
    case Condition::Kind::commanded:
      return {commanded_.contains(condition.command), 0};
    case Condition::Kind::counter:
      return {has_reached(condition, event.object), 0};
    case Condition::Kind::all:
    case Condition::Kind::any:
      break;
  }
  const bool needs_all = condition.kind == Condition::Kind::all;
  Matched result{needs_all, 0};
  for (const Condition& part : condition.parts) {
    const Matched one = matches(part, event, now);
    result.holds = needs_all ? result.holds && one.holds : result.holds || one.holds;
    result.count = std::max(result.count, one.count);
  }
  return result;
}

bool Director::has_decided(const std::string& rule) const {
  for (size_t i = 0; i < scenario_.rules.size(); ++i)
    if (scenario_.rules[i].name == rule) return decided_[i] != 0;
  return false;
}

bool Director::draw(size_t rule, const Event& event, uint64_t count) const {
  const double probability = scenario_.rules[rule].probability;
  if (probability >= 1) return true;
  // One generator for each rule, object and event: no draw shifts another.
  chaos::Random mixed(scenario_.seed);
  chaos::Random of_rule(mixed.next() ^ rule);
  chaos::Random of_object(of_rule.next() ^ event.object.key());
  return chaos::Random(of_object.next() ^ count).happens(probability);
}

const Action* Director::decide(const Event& event) {
  const std::lock_guard guard(state_lock);
  const Decision made = decide_locked(event, nullptr, clock_());
  if (event.choice != nullptr) *event.choice = random_of(event, made.n).next();
  return made.action;
}

PacketFate Director::decide_packet(const Event& event, bool is_outbound, uint64_t frame_bytes, TimeNs now) {
  const PacketOnWay packet{is_outbound, event.object, event.peer, frame_bytes};
  const std::lock_guard guard(state_lock);
  const Decision made = decide_locked(event, &packet, now);
  PacketFate fate{.action = made.action, .passage = flows_.pass(packet, now)};
  if (made.action != nullptr && made.action->jitter_ns != 0)
    fate.jitter_ns = random_of(event, made.n).below(made.action->jitter_ns + 1);
  return fate;
}

bool Director::has_place_for(const Action& action, const Event& event) {
  switch (action.kind) {
    case Action::Kind::fail_qp:
    case Action::Kind::inject_cnp:
      return event.object.kind == ObjectKind::qp;
    case Action::Kind::inject_rnr:
    case Action::Kind::inject_nak:
      return event.object.kind == ObjectKind::qp && event.is_request;
    case Action::Kind::page_out:
      return event.region != 0;
    case Action::Kind::poll_few:
      return event.completions > action.amount;
    default:
      return true;
  }
}

Director::Decision Director::decide_locked(const Event& event, const PacketOnWay* packet, TimeNs now) {
  const std::string object = text_of_locked(event.object);
  const std::string text = trouble::text_of(event);
  const uint64_t n = ++event_counts_[text + '\n' + object];
  const Action* here = nullptr;
  const auto take = [&](const std::string& rule, const Action& action) {
    const std::optional<EventKind> place = place_of(action.kind);
    if (place && here != nullptr) return false;  // one action for an event
    const uint8_t needed = concern_of(action.kind);
    if ((event.concerns & needed) != needed || !has_place_for(action, event)) return false;
    if (changes_flow(action.kind) && (packet == nullptr || !flows_.begin(action, *packet, now))) return false;
    note(rule, action, event, n);
    if (place)
      here = &action;
    else if (needed != 0)
      event.effects->push_back(&action);
    else
      begin(action, event, now);
    return true;
  };
  if (const auto found = exact_.find(place_text(text, object, n)); found != exact_.end())
    static_cast<void>(take(found->second->rule, found->second->action));
  for (size_t i = 0; i < scenario_.rules.size(); ++i) {
    const Rule& rule = scenario_.rules[i];
    const std::optional<EventKind> place = place_of(rule.action.kind);
    const Matched matched = matches(rule.when, event, now);
    if (place && *place != event.kind) continue;
    if (rule.action.kind == Action::Kind::fail_call && !scenario_.illegal && is_release(event.name)) continue;
    if (!matched.holds || (rule.times != 0 && decided_[i] >= rule.times)) continue;
    // A rule without a leaf for this event draws by the event's own count.
    if (!draw(i, event, matched.count != 0 ? matched.count : n)) continue;
    if (take(rule.name, rule.action)) ++decided_[i];
  }
  return {here, n};
}

bool Director::command(const std::string& name, bool begins) {
  std::vector<std::string> devices;
  {
    const std::lock_guard guard(state_lock);
    if (std::ranges::none_of(scenario_.rules, [&](const Rule& rule) { return waits_for(rule, name); }))
      return false;
    if (!begins) {
      commanded_.erase(name);
      return true;
    }
    commanded_.insert(name);
    for (size_t i = 0; i < scenario_.rules.size(); ++i)
      if (waits_for(scenario_.rules[i], name)) decided_[i] = 0;
    devices = devices_;
  }
  // No rule acts at this event alone, so the answer is always nullptr.
  for (uint32_t i = 0; i < devices.size(); ++i)
    static_cast<void>(decide({EventKind::command, name, {ObjectKind::device, i, 0}}));
  return true;
}

std::vector<std::string> Director::commands() const {
  std::set<std::string> names;
  for (const Rule& rule : scenario_.rules)
    for_each_command(rule.when, [&](const std::string& name) { names.insert(name); });
  return {names.begin(), names.end()};
}

chaos::Random Director::random_of(const Event& event, uint64_t n) const {
  chaos::Random of_object(chaos::Random(scenario_.seed).next() ^ event.object.key());
  return chaos::Random(of_object.next() ^ n);
}

void Director::begin(const Action& action, const Event& event, TimeNs now) {
  switch (action.kind) {
    case Action::Kind::link_down: {
      TimeNs& until = link_down_until_[event.object.device];
      until = action.duration_ns == 0 ? kNever : std::max(until, now + action.duration_ns);
      has_link_times_.store(true, std::memory_order_relaxed);
      return;
    }
    case Action::Kind::link_up:
      link_down_until_.erase(event.object.device);
      return;
    case Action::Kind::remove_device:
      return remove(event.object.device);
    default:
      break;
  }
  uint64_t handle = 0;
  if (action.kind == Action::Kind::page_out) handle = event.region;
  if (action.kind == Action::Kind::fail_qp) handle = handle_of(event.object);
  pending_.push_back({.object = event.object,
                      .handle = handle,
                      .va = event.va,
                      .kind = action.kind,
                      .number = action.number});
  pending_count_.store(pending_.size(), std::memory_order_relaxed);
}

void Director::remove(uint32_t device) {
  constexpr uint32_t kDeviceFatal = 8;  // ibv_event_type
  if (std::ranges::find(gone_, device) != gone_.end()) return;
  gone_.push_back(device);
  has_gone_.store(true, std::memory_order_relaxed);
  link_down_until_[device] = kNever;
  has_link_times_.store(true, std::memory_order_relaxed);
  pending_.push_back({.object = {ObjectKind::device, device, 0}, .number = kDeviceFatal});
  pending_count_.store(pending_.size(), std::memory_order_relaxed);
}

bool Director::is_gone(uint32_t device) {
  if (!has_gone_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard guard(state_lock);
  return std::ranges::find(gone_, device) != gone_.end();
}

void Director::set_counter_reader(uint32_t device, CounterReader reader) {
  const std::lock_guard guard(state_lock);
  if (reader)
    counter_readers_[device] = std::move(reader);
  else
    counter_readers_.erase(device);
}

std::vector<std::string> Director::counter_names() const {
  std::vector<std::string> names;
  const auto visit = [&names](const Condition& condition, const auto& self) -> void {
    if (condition.kind == Condition::Kind::counter) names.push_back(condition.counter);
    for (const Condition& part : condition.parts) self(part, self);
  };
  for (const Rule& rule : scenario_.rules) visit(rule.when, visit);
  return names;
}

bool Director::is_link_down(uint32_t device) {
  if (!has_link_times_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard guard(state_lock);
  const auto found = link_down_until_.find(device);
  return found != link_down_until_.end() && clock_() < found->second;
}

void Director::note(const std::string& rule, const Action& action, const Event& event, uint64_t n) {
  if (journal_)
    journal_(decision_line(rule, trouble::text_of(event), text_of_locked(event.object), n, action.text));
}

uint32_t Director::device(std::string_view name) {
  const std::lock_guard guard(state_lock);
  const auto found = std::ranges::find(devices_, name);
  if (found != devices_.end()) return static_cast<uint32_t>(found - devices_.begin());
  devices_.emplace_back(name);
  return static_cast<uint32_t>(devices_.size() - 1);
}

Object Director::object(ObjectKind kind, uint32_t device, uint64_t handle) {
  const std::lock_guard guard(state_lock);
  Numbers& numbers = numbers_[{static_cast<uint8_t>(kind), device}];
  const auto [place, is_new] = numbers.of_handle.try_emplace(handle, numbers.next);
  if (is_new) ++numbers.next;
  return {kind, device, place->second};
}

Object Director::known_object(ObjectKind kind, uint32_t device, uint64_t handle) {
  const std::lock_guard guard(state_lock);
  const Numbers& numbers = numbers_[{static_cast<uint8_t>(kind), device}];
  const auto found = numbers.of_handle.find(handle);
  if (found == numbers.of_handle.end()) return {ObjectKind::device, device, 0};
  return {kind, device, found->second};
}

void Director::forget(ObjectKind kind, uint32_t device, uint64_t handle) {
  const std::lock_guard guard(state_lock);
  numbers_[{static_cast<uint8_t>(kind), device}].of_handle.erase(handle);
}

uint64_t Director::handle_of(const Object& object) const {
  const auto numbers = numbers_.find({static_cast<uint8_t>(object.kind), object.device});
  if (numbers == numbers_.end()) return 0;
  for (const auto& [handle, number] : numbers->second.of_handle)
    if (number == object.number) return handle;
  return 0;
}

size_t Director::take_pending(uint32_t device, const std::function<bool(const Pending&)>& is_wanted,
                              std::span<Pending> out) {
  const std::lock_guard guard(state_lock);
  size_t taken = 0;
  std::erase_if(pending_, [&](const Pending& one) {
    const bool is_ours = one.object.kind == ObjectKind::process || one.object.device == device;
    if (taken == out.size() || !is_ours || !is_wanted(one)) return false;
    out[taken++] = one;
    return true;
  });
  pending_count_.store(pending_.size(), std::memory_order_relaxed);
  return taken;
}

void Director::pass_on(Pending action) {
  const std::lock_guard guard(state_lock);
  ++action.handle;
  pending_.push_back(action);
  pending_count_.store(pending_.size(), std::memory_order_relaxed);
}

std::string Director::text_of_locked(const Object& object) const {
  switch (object.kind) {
    case ObjectKind::process:
      return "process";
    case ObjectKind::device:
      return devices_[object.device];
    case ObjectKind::qp:
      return fmt::format("{} qp {}", devices_[object.device], object.number);
    case ObjectKind::cq:
      return fmt::format("{} cq {}", devices_[object.device], object.number);
    case ObjectKind::mr:
      return fmt::format("{} mr {}", devices_[object.device], object.number);
    case ObjectKind::srq:
      return fmt::format("{} srq {}", devices_[object.device], object.number);
  }
  return {};
}

std::string Director::text_of(const Object& object) {
  const std::lock_guard guard(state_lock);
  return text_of_locked(object);
}

}  // namespace faultline::trouble
