// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/frame_switch.hpp"

#include <algorithm>
#include <mutex>

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <spdlog/fmt/fmt.h>

#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/eal/mbuf_view.hpp"
#include "pmd_glue/engine/poll_engine.hpp"
#include "stack/base/clock.hpp"
#include "stack/base/log.hpp"

namespace faultline::switching {

using glue::WakeFlag;

namespace {

/// Returns 0 without a pool; no port can be opened then either.
size_t pool_frames(const glue::Config& config) {
  const rte_mempool* const pool = glue::frame_pool(config);
  return pool != nullptr ? pool->size : 0;
}

}  // namespace

FrameSwitch::FrameSwitch(const glue::Config& config, std::string socket_prefix)
    : config_(config),
      socket_prefix_(std::move(socket_prefix)),
      room_(pool_frames(config)),
      gate_(turns_, [this] { return take_burst(); }) {
  glue::DeviceConfig memif;
  memif.port.kind = glue::PortKind::memif;
  mtu_bytes_ = glue::port_mtu_bytes(memif);
}

FrameSwitch::~FrameSwitch() {
  for (PortIndex index = 0; index < kMaxPorts; ++index) drop_waiting(index);
}

void FrameSwitch::with_stations(const std::function<void(StationTable&)>& use) {
  const std::lock_guard turn(turns_);
  use(stations_);
}

bool FrameSwitch::open_port(const glue::PortConfig& wanted, PortIndex index, std::string& error) {
  glue::DeviceConfig device;
  device.name = fmt::format("seat{}", index);
  device.port = wanted;
  auto opened = glue::EthernetPort::open(config_, device, error);
  if (opened == nullptr) return false;
  Port& port = ports_[index];
  port.socket = wanted.socket;
  port.waiting.reserve(WaitingRoom::kMostOfAPort);
  turns_.lock();
  port.port = std::move(opened);
  turns_.unlock();
  return true;
}

bool FrameSwitch::open_uplink(const glue::PortConfig& port, std::string& error) {
  constexpr PortIndex index = kMaxPorts - 1;
  if (!open_port(port, index, error)) return false;
  // The port must receive the frames for all stations.
  ports_[index].port->receive_for_all();
  glue::DeviceConfig device;
  device.port = port;
  mtu_bytes_ = std::min(mtu_bytes_, glue::port_mtu_bytes(device));
  ports_[index].taken = true;
  uplink_ = index;
  stations_.set_uplink(index);
  return true;
}

std::optional<PortIndex> FrameSwitch::find_free() const {
  std::optional<PortIndex> best;
  std::optional<PortIndex> linked;  ///< port without a seat whose last client still keeps its memif link
  for (PortIndex index = 0; index < kMaxPorts; ++index) {
    const Port& port = ports_[index];
    if (port.taken) continue;
    if (port.port != nullptr && port.port->link_up()) {
      linked = index;
      continue;
    }
    // Prefers an existing port without a memif link, the least recently used one. A new port is created only
    // if there is none.
    const bool better = !best || (ports_[*best].port == nullptr && port.port != nullptr) ||
                        (port.port != nullptr && port.last_taken < ports_[*best].last_taken);
    if (better) best = index;
  }
  return best ? best : linked;
}

std::optional<PortIndex> FrameSwitch::take_port(std::optional<PortIndex> wanted, WakeFlag& wake_flag,
                                                std::string& error) {
  const bool has_wanted = wanted && *wanted < kMaxPorts && !ports_[*wanted].taken;
  const auto index = has_wanted ? wanted : find_free();
  if (!index) {
    error = fmt::format("the wire has {} devices, which is all it can", kMaxPorts);
    return std::nullopt;
  }
  Port& port = ports_[*index];
  if (port.port == nullptr) {
    // Without turns_: the port is created on EAL's interrupt thread, which may be waiting for the lock.
    glue::PortConfig memif;
    memif.kind = glue::PortKind::memif;
    memif.memif_server = true;
    memif.socket = fmt::format("{}.{}", socket_prefix_, *index);
    if (!open_port(memif, *index, error)) return std::nullopt;
  } else if (port.port->link_up()) {
    // Disconnects the previous client: a memif server takes one client.
    port.port->reconnect();
  }
  const std::lock_guard turn(turns_);
  port.taken = true;
  port.last_taken = ++seats_taken_;
  port.wake_flag = &wake_flag;
  return index;
}

void FrameSwitch::leave(PortIndex index) {
  const std::lock_guard turn(turns_);
  // Forwards the frames that the program sent before it ended, while it still has its address.
  constexpr int kMostBursts = 64;
  for (int bursts = 0; bursts < kMostBursts && receive(index) != 0; ++bursts) take_burst();
  connections_.end(index, [&](std::span<const uint8_t> frame) { send_as(index, frame); });
  stations_.detach(index);
  free_port(index);
}

void FrameSwitch::give_back(PortIndex index) {
  const std::lock_guard turn(turns_);
  free_port(index);
}

void FrameSwitch::free_port(PortIndex index) {
  Port& port = ports_[index];
  port.taken = false;
  port.wake_flag = nullptr;
  port.dropped = 0;
  drop_waiting(index);
}

void FrameSwitch::drop_waiting(PortIndex index) {
  Port& port = ports_[index];
  room_.leave(index, port.waiting.size());
  rte_pktmbuf_free_bulk(port.waiting.data(), static_cast<unsigned>(port.waiting.size()));
  port.waiting.clear();
}

bool FrameSwitch::turn() {
  if (!turns_.try_lock()) return true;  // a memif link is being set up or ended
  const bool moved = take_burst();
  turns_.unlock();
  return moved;
}

bool FrameSwitch::take_burst() {
  size_t moved = 0;
  for (PortIndex i = 0; i < kMaxPorts; ++i)
    if (ports_[i].port != nullptr) moved += receive(i);
  for (PortIndex i = 0; i < kMaxPorts; ++i)
    if (!ports_[i].waiting.empty()) moved += flush(i);
  return moved != 0;
}

size_t FrameSwitch::receive(PortIndex from) {
  std::array<rte_mbuf*, kBurst> burst;
  const size_t received = ports_[from].port->receive(0, burst);
  for (size_t i = 0; i < received; ++i) {
    if (i + 1 < received) __builtin_prefetch(rte_pktmbuf_mtod(burst[i + 1], const void*));
    rte_mbuf* frame = glue::make_contiguous(burst[i], ports_[from].port->pool());
    if (frame != nullptr) forward(frame, from);
  }
  return received;
}

void FrameSwitch::forward(rte_mbuf* frame, PortIndex from) {
  const Verdict verdict = stations_.decide(glue::bytes_of(frame), from);
  // No frame can reach a station without a link, so its address is not announced; the sender asks again.
  if (verdict.answer) return any_link_up(verdict.to) ? send_answer(frame, from) : rte_pktmbuf_free(frame);
  const size_t copies = verdict.to.count();
  if (copies == 0) {
    ++counters_.drops[static_cast<size_t>(verdict.drop)];
    return rte_pktmbuf_free(frame);
  }
  note_connection(frame, from);
  counters_.forwarded += copies;
  // transmit() copies or frees each frame, so each port needs a reference.
  frame->ol_flags = 0;
  rte_mbuf_refcnt_update(frame, static_cast<int16_t>(copies - 1));
  if (copies == 1) return put(frame, static_cast<PortIndex>(std::countr_zero(verdict.to.to_ulong())));
  for (PortIndex to = 0; to < kMaxPorts; ++to)
    if (verdict.to.test(to)) put(frame, to);
}

void FrameSwitch::note_connection(rte_mbuf* frame, PortIndex from) {
  const auto bytes = glue::bytes_of(frame);
  if (!wire::may_have_cm_message(bytes) || wire::classify(bytes) != wire::FrameKind::roce ||
      wire::peek_destination_qpn(bytes) != wire::kManagementQpn)
    return;
  if (const auto message = wire::peek_cm_message(bytes)) connections_.note(bytes, *message, from);
}

void FrameSwitch::send_as(PortIndex from, std::span<const uint8_t> bytes) {
  rte_mbuf* const frame = rte_pktmbuf_alloc(ports_[from].port->pool());
  if (frame == nullptr) return;
  std::copy(bytes.begin(), bytes.end(), rte_pktmbuf_mtod(frame, uint8_t*));
  glue::set_length(frame, bytes.size());
  forward(frame, from);
}

bool FrameSwitch::any_link_up(const PortSet& ports) const {
  for (PortIndex index = 0; index < kMaxPorts; ++index)
    if (ports.test(index) && ports_[index].port->link_up()) return true;
  return false;
}

void FrameSwitch::send_answer(rte_mbuf* question, PortIndex to) {
  rte_mbuf* reply = rte_pktmbuf_alloc(ports_[to].port->pool());
  if (reply != nullptr) {
    const size_t length_bytes =
        stations_.answer(glue::bytes_of(question), monotonic_ns(),
                         std::span<uint8_t>{rte_pktmbuf_mtod(reply, uint8_t*), rte_pktmbuf_tailroom(reply)});
    if (length_bytes == 0) {
      rte_pktmbuf_free(reply);
    } else {
      glue::set_length(reply, length_bytes);
      put(reply, to);
      ++counters_.answered;
    }
  }
  rte_pktmbuf_free(question);
}

void FrameSwitch::put(rte_mbuf* frame, PortIndex to) {
  if (const auto admission = room_.admit(to); admission != WaitingRoom::Admission::admitted) {
    note_drop(to, admission);
    return rte_pktmbuf_free(frame);
  }
  ports_[to].waiting.push_back(frame);
}

void FrameSwitch::note_drop(PortIndex to, WaitingRoom::Admission why) {
  ++(why == WaitingRoom::Admission::port_full ? counters_.full : counters_.crowded);
  if (ports_[to].dropped++ == 0)
    log().warn("port {} takes no frames, and {} wait for it: more are dropped; is its program stopped?", to,
               room_.waiting(to));
}

// Frames for a port without a link are dropped, as a switch would.
size_t FrameSwitch::flush(PortIndex index) {
  Port& port = ports_[index];
  const size_t sent = port.port->transmit(0, port.waiting);
  room_.leave(index, sent);
  if (sent != 0) port.dropped = 0;
  if (sent != 0 && port.wake_flag != nullptr) port.wake_flag->ring(WakeFlag::End::device);
  if (sent == port.waiting.size()) {
    port.waiting.clear();
  } else if (sent == 0 && !port.port->link_up()) {
    drop_waiting(index);
  } else {
    port.waiting.erase(port.waiting.begin(), port.waiting.begin() + static_cast<ptrdiff_t>(sent));
  }
  return sent;
}

bool FrameSwitch::needs_polling() const {
  return uplink_.has_value() ||
         std::any_of(ports_.begin(), ports_.end(), [](const Port& port) { return !port.waiting.empty(); });
}

void FrameSwitch::set_asleep(bool asleep) {
  for (Port& port : ports_) {
    if (port.wake_flag == nullptr) continue;
    if (asleep)
      port.wake_flag->set_asleep(WakeFlag::End::switch_);
    else
      port.wake_flag->set_awake(WakeFlag::End::switch_);
  }
}

}  // namespace faultline::switching
