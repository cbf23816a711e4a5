// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/device.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>

#include <pthread.h>
#include <rte_ethdev.h>
#include <sched.h>
#include <signal.h>
#include <spdlog/fmt/fmt.h>

#include "pmd_glue/eal.hpp"
#include "pmd_glue/housekeeper.hpp"

namespace faultline::glue {
namespace {

using transport::TimeNs;

constexpr TimeNs kLinkCheckNs = 20'000'000;
// A memif handshake is a few messages on EAL's interrupt thread.
constexpr TimeNs kHandshakeNs = 1'000'000'000;
constexpr TimeNs kIdleBeforeSleepNs = 1'000'000'000;

void block_program_signals() {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
}

template <typename Function>
void call_with(verbs::DeviceBackend& device, Function function) {
  device.call([](void* argument) { (*static_cast<Function*>(argument))(); }, &function);
}

AddressTable table_of(const DeviceConfig& device) {
  return {device.mac, vlan_tag_of(device), device.addresses, device.routes};
}

}  // namespace

verbs::DeviceDescription describe(const Config& config, const DeviceConfig& device) {
  verbs::DeviceDescription description;
  description.name = device.name;
  description.mac = device.mac;
  description.gids = table_of(device).gids();
  // Every device has IPv6 addresses, whose packets are the longer ones.
  description.max_path_mtu_bytes = wire::largest_path_mtu_bytes(port_mtu_bytes(device), true);
  description.vlan_id = device.vlan_id;
  description.vlan_priority = device.vlan_priority;
  description.traffic_class = static_cast<uint8_t>(device.dscp << 2);
  description.vendor_id = device.vendor_id;
  description.vendor_part_id = device.vendor_part_id;
  if (description.max_path_mtu_bytes == 0)
    throw ConfigError(fmt::format(
        "faultline: {}: {}: device.mtu: {} does not hold the smallest path MTU, 256; give at least 384",
        config.path, device.name, port_mtu_bytes(device)));
  return description;
}

Device::Device(const DeviceConfig& device, verbs::DeviceDescription description)
    : config_(device), addresses_(table_of(device)), description_(std::move(description)) {}

std::shared_ptr<Device> Device::open(const Config& config, const DeviceConfig& wanted, std::string& error) {
  std::shared_ptr<Device> device(new Device(wanted, describe(config, wanted)));
  device->memory_ = odp::MemoryDomain::create(config.domain, error);
  if (device->memory_ == nullptr) {
    error = fmt::format("faultline: {}: {}: odp: {}", config.path, wanted.name, error);
    return nullptr;
  }
  device->port_ = EthernetPort::open(config, wanted, error);
  if (device->port_ == nullptr) return nullptr;
  if (!wanted.capture.empty()) {
    device->capture_ = Capture::open(wanted.capture, device->port_->id(), error);
    if (device->capture_ == nullptr) {
      error = fmt::format("faultline: {}: {}: device.capture: {}", config.path, wanted.name, error);
      return nullptr;
    }
  }
  device->session_ = device->memory_->attach_engine();
  device->engine_ = std::make_unique<Engine>(config, wanted, device->addresses_, *device->port_,
                                             *device->session_, device->capture_.get());
  if (wanted.progress == Progress::dedicated)
    device->lcore_ = std::thread([self = device.get()] { self->run_dedicated(); });
  Housekeeper::instance().add(*device);
  return device;
}

Device::~Device() {
  shut_down();
}

void Device::shut_down() {
  std::call_once(shut_down_once_, [this] {
    if (engine_ != nullptr) Housekeeper::instance().remove(*this);
    stop_.store(true, std::memory_order_relaxed);
    if (lcore_.joinable()) lcore_.join();
    if (engine_ != nullptr) {
      // Held only to publish it: closing a memif port takes the turns by itself (memif_gate.hpp).
      engine_->turns().lock();
      engine_->use_port(false);
      closed_.store(true, std::memory_order_release);
      engine_->turns().unlock();
      if (Call* call = mailbox_.exchange(nullptr, std::memory_order_acquire)) {
        call->function(call->argument);
        call->done.store(true, std::memory_order_release);
      }
    }
    port_.reset();
    capture_.reset();
  });
}

void Device::call(uint32_t /*core_index*/, void (*function)(void*), void* argument) {
  if (closed_.load(std::memory_order_acquire)) {
    function(argument);
    return;
  }
  if (config_.progress == Progress::inline_) {
    // The owner is whoever holds the turn.
    engine_->turns().lock();
    register_this_thread();
    function(argument);
    engine_->turns().unlock();
    return;
  }
  const std::lock_guard guard(callers_);
  Call call{function, argument};
  mailbox_.store(&call, std::memory_order_release);
  for (unsigned spins = 0; !call.done.load(std::memory_order_acquire); ++spins)
    if (spins > 64) sched_yield();
}

void Device::serve_call() {
  Call* call = mailbox_.exchange(nullptr, std::memory_order_acquire);
  call->function(call->argument);
  call->done.store(true, std::memory_order_release);
}

void Device::drive() {
  if (config_.progress != Progress::inline_) return;
  program_drives_.store(program_drives_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (!engine_->turns().try_lock()) return;
  if (closed_.load(std::memory_order_relaxed)) {
    engine_->turns().unlock();
    return;
  }
  register_this_thread();
  const bool moved = engine_->turn();
  // The program need not come back soon.
  session_->leave();
  const bool yield = !moved && session_->should_yield() && session_->has_outstanding_faults();
  engine_->turns().unlock();
  if (yield) sched_yield();
}

bool Device::housekeep() {
  if (config_.progress != Progress::inline_) return false;
  const uint32_t drives = program_drives_.load(std::memory_order_relaxed);
  if (drives != drives_seen_) {
    drives_seen_ = drives;
    return false;
  }
  if (!engine_->turns().try_lock()) return false;
  const bool moved = engine_->turn();
  const bool faults = session_->has_outstanding_faults();
  session_->leave();
  engine_->turns().unlock();
  if (!moved && faults && session_->should_yield()) sched_yield();
  return moved || faults;
}

void Device::maintain(TimeNs now) {
  if (now < next_link_check_ || !port_->needs_reconnect()) return;
  next_link_check_ = now + kLinkCheckNs;
  if (port_->link_up()) return;
  engine_->turns().lock();
  engine_->use_port(false);
  engine_->turns().unlock();
  port_->reconnect();
  if (!port_->started()) return;
  engine_->turns().lock();
  engine_->use_port(true);
  engine_->turns().unlock();
  next_link_check_ = now + kHandshakeNs;
}

void Device::run_dedicated() {
  block_program_signals();
  if (config_.lcore) {
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET(*config_.lcore, &cpu);
    if (const int failed = pthread_setaffinity_np(pthread_self(), sizeof cpu, &cpu); failed != 0)
      log().warn("{}: cannot run on lcore {}: {}", config_.name, *config_.lcore, std::strerror(failed));
  }
  register_this_thread();
  TimeNs last_moved = monotonic_ns();
  while (!stop_.load(std::memory_order_relaxed)) {
    if (!engine_->turns().try_lock()) {
      sched_yield();
      continue;
    }
    if (mailbox_.load(std::memory_order_relaxed) != nullptr) serve_call();
    const bool moved = engine_->turn();
    const TimeNs now = engine_->last_turn();
    if (moved) last_moved = now;
    const bool faults = !moved && session_->has_outstanding_faults();
    const bool sleep =
        !faults && now - last_moved > kIdleBeforeSleepNs && engine_->core().next_deadline() > now;
    if (sleep) session_->leave();
    engine_->turns().unlock();
    if (sleep)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    else if (faults && session_->should_yield())
      sched_yield();
  }
  session_->leave();
}

int Device::resolve(const wire::Gid& gid, wire::MacAddress& mac) {
  if (addresses_.is_own(gid)) {
    mac = addresses_.mac();
    return 0;
  }
  if (wire::is_multicast(gid)) {
    mac = wire::multicast_mac(gid);
    return 0;
  }
  if (gid.is_zero() || gid == wire::Gid::from_ipv4(0) || gid == wire::Gid::from_ipv4(UINT32_MAX))
    return EHOSTUNREACH;
  const std::optional<wire::Gid> hop = addresses_.next_hop(gid);
  if (!hop) return ENETUNREACH;
  return resolve_neighbour(*hop, mac);
}

int Device::resolve_neighbour(const wire::Gid& neighbour, wire::MacAddress& mac) {
  NeighbourState state = NeighbourState::absent;
  call_with(*this, [&] { engine_->neighbours().resolve(neighbour, monotonic_ns()); });
  // The cache gives up by its own clock.
  while (!closed_.load(std::memory_order_acquire)) {
    drive();
    call_with(*this, [&] { state = engine_->neighbours().lookup(neighbour, monotonic_ns(), mac); });
    if (state == NeighbourState::reachable) return 0;
    if (state != NeighbourState::incomplete) return EHOSTUNREACH;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return EHOSTUNREACH;
}

int Device::join_multicast(const wire::Gid& gid) {
  if (!wire::is_multicast(gid)) return EINVAL;
  const std::lock_guard guard(groups_mutex_);
  const auto [group, added] = groups_.try_emplace(gid.bytes, 0U);
  if (added) {
    bool joined = false;
    call_with(*this, [&] { joined = engine_->filter().join(gid); });
    if (!joined) {
      groups_.erase(group);
      return ENOMEM;
    }
  }
  ++group->second;
  return 0;
}

void Device::leave_multicast(const wire::Gid& gid) {
  const std::lock_guard guard(groups_mutex_);
  const auto group = groups_.find(gid.bytes);
  if (group == groups_.end() || --group->second != 0) return;
  groups_.erase(group);
  call_with(*this, [&] { engine_->filter().leave(gid); });
}

bool Device::link_up() {
  bool up = false;
  // Within a call, since the housekeeper may be reconnecting the port.
  call_with(*this, [&] { up = !closed_.load(std::memory_order_relaxed) && engine_->port_link_up(); });
  return up;
}

verbs::GlueCounters Device::glue_counters() {
  verbs::GlueCounters counters;
  const PortCounts& counts = engine_->counts();
  counters.rx_frames = counts.rx_frames.get();
  counters.tx_frames = counts.tx_frames.get();
  counters.arp_in = counts.arp_in.get();
  counters.arp_out = counts.arp_out.get();
  counters.nd_in = counts.nd_in.get();
  counters.nd_out = counts.nd_out.get();
  counters.wrong_vlan = counts.wrong_vlan.get();
  counters.wrong_address = counts.wrong_address.get();
  counters.icmp_in = counts.icmp_in.get();
  counters.icmp_out = counts.icmp_out.get();
  counters.other_dropped = counts.other_dropped.get();
  counters.loopback_frames = counts.loopback_frames.get();
  counters.linearized_frames = counts.linearized_frames.get();
  counters.tx_dropped = counts.tx_dropped.get();
  rte_eth_stats stats{};
  if (!closed_.load(std::memory_order_acquire) && rte_eth_stats_get(port_->id(), &stats) == 0) {
    counters.rx_missed = stats.imissed;
    counters.rx_no_mbuf = stats.rx_nombuf;
  }
  return counters;
}

double Device::measure_port_tx(size_t frame_bytes, unsigned milliseconds) {
  double rate = -ENETDOWN;
  call_with(*this, [&] { rate = engine_->measure_tx(frame_bytes, milliseconds); });
  return rate;
}

double Device::measure_port_rx(unsigned milliseconds) {
  double rate = -ENETDOWN;
  call_with(*this, [&] { rate = engine_->measure_rx(milliseconds); });
  return rate;
}

}  // namespace faultline::glue
