// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/device/running_device.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <thread>
#include <utility>

#include <poll.h>
#include <rte_ethdev.h>
#include <sched.h>
#include <spdlog/fmt/fmt.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pmd_glue/device/progress_thread.hpp"
#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/engine/reasons.hpp"
#include "pmd_glue/ports/rss_table.hpp"
#include "pmd_glue/wires/wire_attachment.hpp"
#include "stack/base/clock.hpp"
#include "stack/base/log.hpp"

namespace faultline::glue {
namespace {

constexpr TimeNs kPortCheckNs = 20'000'000;
/// The same if a scenario may take the link down: its times are of milliseconds.
constexpr TimeNs kTroubledPortCheckNs = 1'000'000;
constexpr TimeNs kToldOfPortNs = 1'000'000'000;
// A NIC with interrupts is only looked at for its link and for requests that were flagged.
constexpr TimeNs kRestingPortCheckNs = 200'000'000;
constexpr unsigned kMostSignalsWithoutFrames = 16;

// The user must be able to trace losses and late pages to [device.chaos].
void warn_of_chaos(const DeviceConfig& device) {
  const chaos::LinkModelConfig& link = device.chaos.link;
  const chaos::FaultModelConfig& faults = device.chaos.faults;
  log().warn(
      "{}: [device.chaos] is on: {} loss {}, reorder {}, duplicate {}, corrupt {}, ecn_mark {}, delay {}+{} "
      "us, "
      "fault delay {} us, fault failure {}, seed {}",
      device.name,
      device.chaos.receive && device.chaos.transmit ? "both ways"
      : device.chaos.receive                        ? "rx"
                                                    : "tx",
      link.loss, link.reorder, link.duplicate, link.corrupt, link.ecn_mark, link.delay_ns / 1000,
      link.delay_jitter_ns / 1000, faults.delay_ns / 1000, faults.failure, link.seed);
}

AddressTable table_of(const DeviceConfig& device) {
  return {device.mac, vlan_tag_of(device), device.addresses, device.routes, !device.has_host_addresses};
}

/// Returns ibv_port_attr::active_width for a number of lanes. (A lane's speed has one bit each, in the order
/// of LinkSpeed.)
uint8_t width_code_of(uint32_t lanes) {
  constexpr uint8_t kTwoLanes = 16;  // the most recent code
  return lanes == 2 ? kTwoLanes : static_cast<uint8_t>(lanes == 1 ? 1 : lanes == 4 ? 2 : lanes == 8 ? 4 : 8);
}

/// Measures once what a system call without work takes.
uint64_t system_call_ns() {
  static const uint64_t shortest_ns = [] {
    constexpr int kCalls = 16;
    uint64_t shortest = UINT64_MAX;
    for (int i = 0; i < kCalls; ++i) {
      const TimeNs before = monotonic_ns();
      static_cast<void>(syscall(SYS_getppid));
      shortest = std::min<uint64_t>(shortest, monotonic_ns() - before);
    }
    return shortest;
  }();
  return shortest_ns;
}

}  // namespace

verbs::DeviceDescription describe(const Config& config, const DeviceConfig& device,
                                  const WireAttachment* attachment) {
  verbs::DeviceDescription description;
  description.name = device.name;
  description.mac = device.mac;
  const AddressTable addresses = table_of(device);
  description.gids = addresses.gids();
  for (const IpNetwork& network : addresses.networks())
    description.prefix_bits.push_back(network.prefix_bits);
  for (const Route& route : device.routes)
    description.routes.push_back({route.to.gid, route.to.prefix_bits, route.via});
  description.mtu_bytes = port_mtu_bytes(device);
  // Every device has IPv6 addresses; IPv6 packets have the longer headers.
  description.max_path_mtu_bytes = wire::largest_path_mtu_bytes(description.mtu_bytes, true);
  description.vlan_id = device.vlan_id;
  description.vlan_priority = device.vlan_priority;
  description.traffic_class = static_cast<uint8_t>(device.dscp << 2);
  if (attachment != nullptr && attachment->grant().shared != 0) {
    description.communication_id_base = attachment->grant().communication_id_base();
    description.communication_id_mask = attachment->grant().communication_id_mask();
  }
  description.vendor_id = device.vendor_id;
  description.vendor_part_id = device.vendor_part_id;
  description.firmware = device.firmware;
  description.active_width_code = width_code_of(device.active_width);
  description.active_speed_code = static_cast<uint8_t>(1U << static_cast<unsigned>(device.active_speed));
  description.device_memory_bytes = device.device_memory_bytes;
  if (description.max_path_mtu_bytes == 0)
    throw ConfigError(fmt::format(
        "faultline: {}: {}: device.mtu: {} does not hold the smallest path MTU, 256; give at least {}",
        config.path, device.name, port_mtu_bytes(device), kLeastMtuBytes));
  return description;
}

RunningDevice::RunningDevice(const DeviceConfig& device, std::shared_ptr<WireAttachment> attachment,
                             verbs::DeviceDescription description)
    : config_(device),
      attachment_(std::move(attachment)),
      addresses_(table_of(device)),
      description_(std::move(description)),
      progress_(device.progress != Progress::automatic),
      adaptive_yield_(system_call_ns()) {}

std::shared_ptr<RunningDevice> RunningDevice::open(const Config& config, const DeviceConfig& wanted,
                                                   const std::shared_ptr<WireAttachment>& attachment,
                                                   std::string& error) {
  // A forked child does not destroy its parent's device: no thread exists to join, and the child owns none of
  // its resources.
  std::shared_ptr<RunningDevice> device(
      new RunningDevice(wanted, attachment, describe(config, wanted, attachment.get())),
      [](RunningDevice* gone) {
        if (!gone->is_of_parent_process()) delete gone;
      });
  if (!DeviceRecording::open(wanted.name, core_count_of(wanted), device->recording_, error)) return nullptr;
  odp::DomainConfig domain = config.domain;
  domain.page_losses = device->recording_.get();
  device->memory_ = odp::MemoryDomain::create(domain, error);
  if (device->memory_ == nullptr) {
    error = fmt::format("faultline: {}: {}: odp: {}", config.path, wanted.name, error);
    return nullptr;
  }
  if (attachment != nullptr) {
    auto wire_port = WirePort::open(config, wanted, *attachment, error);
    device->wire_port_ = wire_port.get();
    device->port_ = std::move(wire_port);
  } else {
    device->port_ = EthernetPort::open(config, wanted, error);
  }
  if (device->port_ == nullptr) return nullptr;
  if (const auto& mac = device->port_->own_mac()) {
    // The GIDs and the GUID stay as they were listed: programs have read them before the NIC was open.
    device->addresses_.set_mac(*mac);
    device->description_.mac = *mac;
  }
  if (!wanted.capture.empty() && !device->open_capture(config.path, wanted, error)) return nullptr;
  const uint32_t cores = core_count_of(wanted);
  if (cores > 1) {
    RssTable* const table = device->port_->flow_table();
    device->hand_over_ =
        HandOver::create(device->port_->id(), cores, table != nullptr ? table->entry_count() : 0);
    if (device->hand_over_ == nullptr) {
      error = fmt::format("faultline: {}: {}: device.lcores: no memory for the rings between them",
                          config.path, wanted.name);
      return nullptr;
    }
    if (table != nullptr)
      device->flow_steering_ = std::make_unique<FlowSteering>(*device->port_, *table, *device->hand_over_);
  }
  for (uint32_t i = 0; i < cores; ++i) {
    CoreUnit unit;
    unit.session = device->memory_->attach_engine();
    if (unit.session == nullptr) {
      error = fmt::format("faultline: {}: {}: no memory for an engine's session", config.path, wanted.name);
      return nullptr;
    }
    unit.engine = std::make_unique<PollEngine>(
        config, wanted, attachment.get(), device->addresses_, *device->port_, *unit.session,
        device->capture_.get(), CoreSlot{i, cores, device->hand_over_.get(), device->ring_of_core(i)});
    device->core_units_.push_back(std::move(unit));
  }
  if (wanted.publish) device->start_publishing();
  if (wanted.progress == Progress::dedicated)
    for (uint32_t i = 0; i < cores; ++i) {
      CoreUnit& unit = device->core_units_[i];
      const auto cpu = i < wanted.lcores.size() ? std::optional(wanted.lcores[i]) : std::nullopt;
      unit.thread = std::make_unique<LcoreThread>(wanted.name, *unit.engine, *unit.session, cpu);
    }
  if (!wanted.chaos.harmless()) warn_of_chaos(wanted);
  // A link that is coming up must not be torn down by a reconnect.
  if (device->port_->started()) device->next_reconnect_ = monotonic_ns() + kHandshakeNs;
  // A link that is already up raises no port_active event.
  const bool link_in_trouble = device->first_engine().trouble().is_link_down();
  if (device->port_->link_up() && !link_in_trouble) device->port_state_ = PortState::up;
  device->offer_counters();
  ProgressThread::instance().add(*device);
  // The switch runs, so the link comes up soon. Programs query the port's state only once, at their start.
  if (attachment != nullptr && !link_in_trouble) device->await_link();
  return device;
}

RunningDevice::~RunningDevice() {
  shut_down();
}

void RunningDevice::call(uint32_t core_index, void (*function)(void*), void* argument) {
  CoreUnit& unit = core_units_[core_index];
  unit.engine->publisher().note_change();
  if (progress_.is_closed() || is_of_parent_process()) {
    function(argument);
  } else if (unit.thread != nullptr) {
    unit.thread->call(function, argument);
  } else {
    // The thread that holds the turn lock owns the core.
    unit.engine->turns().lock();
    register_this_thread();
    // Deferred ACKs of a QP would be lost with the QP, so transmit them first.
    unit.engine->poll_deferred();
    function(argument);
    unit.engine->turns().unlock();
  }
}

void RunningDevice::run_turns() {
  if (progress_.is_closed() || is_of_parent_process()) return;
  for (uint32_t index = 0; index < core_count(); ++index)
    call(
        index, [](void* core_unit) { static_cast<const CoreUnit*>(core_unit)->take_turn(); },
        &core_units_[index]);
}

void RunningDevice::drive() {
  if (!progress_.note_call() || is_of_parent_process()) return;
  PollEngine& engine = first_engine();
  odp::EngineSession& session = *core_units_[0].session;
  if (!engine.turns().try_lock()) return;
  if (progress_.is_closed()) {
    engine.turns().unlock();
    return;
  }
  register_this_thread();
  if (const pthread_t self = pthread_self(); last_caller_.load(std::memory_order_relaxed) != self)
    last_caller_.store(self, std::memory_order_relaxed);
  const bool moved = engine.turn(PollEngine::Turn::of_program);
  // The program may not poll again soon.
  session.leave();
  const bool yield_to_pager = !moved && session.should_yield() && session.has_outstanding_faults();
  // The peer, or the switch between the two, may need this CPU.
  const uint32_t idle_turns = moved ? 0 : idle_turns_.load(std::memory_order_relaxed) + 1;
  idle_turns_.store(idle_turns, std::memory_order_relaxed);
  adaptive_yield_.note_turn(!moved                         ? TurnWork::none
                            : engine.received_few_frames() ? TurnWork::few_frames
                                                           : TurnWork::many_frames);
  engine.turns().unlock();
  if (adaptive_yield_.is_due(idle_turns)) {
    const TimeNs before = monotonic_ns();
    sched_yield();
    adaptive_yield_.note_yield(monotonic_ns() - before);
  } else if (yield_to_pager) {
    sched_yield();
  }
}

bool RunningDevice::serve_posted(uint32_t core_index, transport::QueuePair* qp) {
  // Only drive() sets last_caller_, and only for an inline engine.
  if (last_caller_.load(std::memory_order_relaxed) != pthread_self() || is_of_parent_process()) return false;
  PollEngine& engine = *core_units_[core_index].engine;
  if (!engine.may_serve_posted() || !engine.turns().try_lock()) return false;
  const bool closed = progress_.is_closed();
  if (!closed) engine.serve_posted(qp);
  engine.turns().unlock();
  return !closed;
}

void RunningDevice::rest() {
  if (is_of_parent_process()) return;
  if (progress_.note(ProgressEvent::rest) == ProgressAction::wake_progress_thread)
    ProgressThread::instance().on_doorbell();
}

RunningDevice::Housekeeping RunningDevice::housekeep() {
  const ProgressAction action =
      progress_.note(std::exchange(rang_, false) ? ProgressEvent::ring : ProgressEvent::check);
  const bool has_slept = std::exchange(has_slept_, false);
  if (action == ProgressAction::leave_to_program) return Housekeeping::driven;
  if (action != ProgressAction::drive) return Housekeeping::others;
  PollEngine& engine = first_engine();
  odp::EngineSession& session = *core_units_[0].session;
  if (!engine.turns().try_lock()) return Housekeeping::driven;
  const bool told = frames_ == Frames::told;
  const bool moved = has_slept ? engine.turn_after_sleep(told) : engine.turn();
  const bool faults = session.has_outstanding_faults();
  next_deadline_ = engine.next_deadline();
  session.leave();
  engine.turns().unlock();
  if (told && !moved) frames_ = may_sleep_again() ? Frames::unknown : Frames::missed;
  if (moved) {
    frames_ = Frames::unknown;
    signals_without_frames_ = 0;
  }
  if (!moved && faults && session.should_yield()) sched_yield();
  const bool held_back = wire_port_ != nullptr && wire_port_->holds_back();
  return moved || faults || told || held_back ? Housekeeping::busy : Housekeeping::quiet;
}

/// A program that polls its CQs takes acknowledgements itself, unless they are awaited to send more.
WakeFor RunningDevice::wakes_for() {
  constexpr TimeNs kWindowNs = 10'000'000;
  const TimeNs blocked_ns = monotonic_ns() - first_engine().core().last_awaited_answers();
  return progress_.program_polls() && blocked_ns > kWindowNs ? WakeFor::requests : WakeFor::all_frames;
}

/// After a report without a frame. An interrupt that was cleared may report again: some NICs raise one for
/// frames that were received before the queue was armed.
bool RunningDevice::may_sleep_again() {
  return port_->has_interrupts() && ++signals_without_frames_ < kMostSignalsWithoutFrames;
}

int RunningDevice::await_work(transport::DoorbellListener& listener, bool leave_to_program) {
  if (has_own_threads()) return -1;
  first_engine().core().set_doorbell_listener(leave_to_program && progress_.program_polls() ? nullptr
                                                                                            : &listener);
  if (attachment_ == nullptr) {
    awaited_ = -1;
    if (frames_ == Frames::missed || port_state_ != PortState::up) return -1;
    if (!port_->has_interrupts()) return port_->frames_descriptor(0);
    first_engine().turns().lock();
    awaited_ = first_engine().await_frames();
    first_engine().turns().unlock();
    return awaited_;
  }
  first_engine().turns().lock();
  wire_port_->arm(leave_to_program ? wakes_for() : WakeFor::all_frames);
  first_engine().turns().unlock();
  return attachment_->event();
}

RunningDevice::RungTurn RunningDevice::serve_rung() {
  constexpr uint64_t kStreamFrames = 4;
  if (!rang_) return RungTurn::done;
  uint64_t rings = 0;
  static_cast<void>(!read(attachment_->event(), &rings, sizeof rings));
  // Before the turn: frames that the turn does not find ring again.
  wire_port_->sleep_on(wakes_for());
  PollEngine& engine = first_engine();
  odp::EngineSession& session = *core_units_[0].session;
  if (!engine.turns().try_lock_soon()) return RungTurn::held;
  rang_ = false;
  static_cast<void>(progress_.note(ProgressEvent::ring));
  const uint64_t frames_before = engine.counts().rx_frames.get();
  engine.turn();
  const uint64_t frames = engine.counts().rx_frames.get() - frames_before;
  next_deadline_ = engine.next_deadline();
  const bool has_more = wire_port_->has_frames() || wire_port_->holds_back() ||
                        session.has_outstanding_faults() || next_deadline_ <= engine.last_turn();
  session.leave();
  engine.turns().unlock();
  if (has_more) return RungTurn::more;
  return frames >= kStreamFrames ? RungTurn::stream : RungTurn::done;
}

void RunningDevice::stop_awaiting_work() {
  if (has_own_threads()) return;
  first_engine().core().set_doorbell_listener(nullptr);
  if (attachment_ == nullptr) {
    pollfd frames{.fd = port_->frames_descriptor(0), .events = POLLIN, .revents = 0};
    if (frames_ == Frames::unknown && frames.fd >= 0 && poll(&frames, 1, 0) > 0) frames_ = Frames::told;
    if (awaited_ < 0) return;
    has_slept_ = true;
    first_engine().turns().lock();
    first_engine().stop_awaiting_frames();
    first_engine().turns().unlock();
    return;
  }
  first_engine().turns().lock();
  wire_port_->disarm();
  first_engine().turns().unlock();
  uint64_t rings = 0;
  static_cast<void>(!read(attachment_->event(), &rings, sizeof rings));
}

int RunningDevice::port_descriptor() const {
  return attachment_ != nullptr ? attachment_->switch_descriptor() : -1;
}

// A link through a switch is up as long as the switch lives.
TimeNs RunningDevice::longest_sleep_ns() const {
  // The turn that finds a broken ring may be the last one before a sleep.
  if (core_units_.front().engine->trouble().may_take_link_down()) return kTroubledPortCheckNs;
  const bool has_offender = wire_port_ != nullptr && wire_port_->has_offender();
  if (port_state_ == PortState::up && port_->may_rest()) return kRestingPortCheckNs;
  return port_descriptor() >= 0 && port_state_ == PortState::up && !has_offender ? kToldOfPortNs
                                                                                 : kPortCheckNs;
}

void RunningDevice::maintain(TimeNs now) {
  if (now < next_port_check_ || port_state_ == PortState::gone) return;
  next_port_check_ =
      now + (first_engine().trouble().may_take_link_down() ? kTroubledPortCheckNs : kPortCheckNs);
  if (publisher_ != nullptr) publisher_->publish_if_due(port_state_ == PortState::up, now);
  if (port_->is_gone()) return lose_port();
  if (port_->needs_reset() && now >= next_reset_) reset_port(now);
  if (std::string error; attachment_ != nullptr && !attachment_->keep(error))
    std::fprintf(stderr, "%s\n", error.c_str());
  if (wire_port_ != nullptr) serve_links(now);
  if (flow_steering_ != nullptr) static_cast<void>(flow_steering_->update());
  const bool up = port_->link_up() && !first_engine().trouble().is_link_down();
  note_port_state(up ? PortState::up : PortState::down);
  if (up || !port_->needs_reconnect() || now < next_reconnect_) return;
  // Without its unit the port has no socket, or one that belongs to another process now.
  if (attachment_ != nullptr && !attachment_->is_granted()) return;
  use_port(false);
  port_->reconnect();
  if (!port_->started()) return;
  use_port(true);
  next_reconnect_ = now + kHandshakeNs;
}

void RunningDevice::serve_links(TimeNs now) {
  std::vector<WireAttachment::LinkNews> news = attachment_->take_link_news();
  std::vector<WirePort::Ended> ended;
  call_with(*this, 0, [&] {
    for (WireAttachment::LinkNews& one : news) wire_port_->take(std::move(one));
    ended = wire_port_->look_after(now);
  });
  for (const WirePort::Ended& one : ended) attachment_->end_link(one.peer_port, one.barred);
}

void RunningDevice::note_port_state(PortState state) {
  if (state == port_state_) return;
  const bool was_up = port_state_ == PortState::up;
  port_state_ = state;
  if (state == PortState::up) {
    log().info("{}: the link is up", config_.name);
    return raise(transport::AsyncEvent::port_active);
  }
  if (was_up) raise(transport::AsyncEvent::port_error);
  if (state == PortState::down) log().info("{}: the link is down", config_.name);
}

// Runs on the first core's thread, as does the removal of the sink.
void RunningDevice::raise(transport::AsyncEvent event) {
  call_with(*this, 0, [&] { first_engine().raise(event); });
}

void RunningDevice::use_port(bool use) {
  for (CoreUnit& unit : core_units_) {
    unit.engine->turns().lock();
    unit.engine->use_port(use);
    unit.engine->turns().unlock();
  }
}

void RunningDevice::set_event_sink(transport::EventSink* sink) {
  for (uint32_t i = 0; i < core_count(); ++i)
    call_with(*this, i, [&] { core_units_[i].engine->set_event_sink(sink); });
}

bool RunningDevice::wants_reasons() const {
  return glue::wants_reasons();
}

void RunningDevice::log_reason(const std::string& line) {
  glue::log_reason(config_.name, line, monotonic_ns());
}

double RunningDevice::measure_port_tx(size_t frame_bytes, unsigned milliseconds) {
  double rate = -ENETDOWN;
  call_with(*this, 0, [&] { rate = first_engine().measure_tx(frame_bytes, milliseconds); });
  return rate;
}

double RunningDevice::measure_port_rx(unsigned milliseconds) {
  double rate = -ENETDOWN;
  call_with(*this, 0, [&] { rate = first_engine().measure_rx(milliseconds); });
  return rate;
}

}  // namespace faultline::glue
