// SPDX-License-Identifier: BSD-3-Clause
// Addresses that a running device resolves, joins and claims.
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include <spdlog/fmt/fmt.h>

#include "pmd_glue/device/running_device.hpp"
#include "pmd_glue/engine/idle_backoff.hpp"
#include "pmd_glue/engine/reasons.hpp"
#include "pmd_glue/wires/wire_attachment.hpp"
#include "stack/base/clock.hpp"
#include "stack/wire/link/address_text.hpp"

namespace faultline::glue {
namespace {

void pause_since(TimeNs start) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(look_pause_ns(monotonic_ns() - start)));
}

}  // namespace

int RunningDevice::resolve(const wire::Gid& gid, wire::MacAddress& mac) {
  const int error = find_mac(gid, mac);
  if (error == 0) return 0;
  status::FailureRecord record;
  record.cause = error == ENETUNREACH ? status::FailureCause::no_route : status::FailureCause::no_neighbour;
  record.peer_gid = gid.bytes;
  note_failure(record);
  if (wants_reasons()) log_reason(text_of_unreachable(gid, error));
  return error;
}

std::string RunningDevice::text_of_unreachable(const wire::Gid& gid, int error) {
  const std::string address = text_of(gid);
  if (error == ENETUNREACH)
    return fmt::format("no route to {}: it is on no network of the device ([[device]] ip, gateway, route)",
                       address);
  const std::string where =
      attachment_ != nullptr ? fmt::format(" on wire {}", config_.port.request.wire) : "";
  if (!link_up()) return fmt::format("no way to {}: the link is down", address);
  return fmt::format("nobody has {}{}: no answer to {}", address, where,
                     gid.is_ipv4() ? "ARP" : "neighbour discovery");
}

int RunningDevice::find_mac(const wire::Gid& gid, wire::MacAddress& mac) {
  if (addresses_.is_own(gid)) {
    mac = addresses_.mac();
    return 0;
  }
  if (wire::is_multicast(gid)) {
    await_link();
    mac = wire::multicast_mac(gid);
    return 0;
  }
  if (gid.is_zero() || gid == wire::Gid::from_ipv4(0) || gid == wire::Gid::from_ipv4(UINT32_MAX))
    return EHOSTUNREACH;
  // In a call, since another thread may close the port.
  std::optional<wire::MacAddress> of_peer;
  call_with(*this, 0, [&] {
    if (!progress_.is_closed()) of_peer = port_->mac_of_peer(gid);
  });
  if (of_peer) {
    mac = *of_peer;
    return 0;
  }
  const std::optional<wire::Gid> hop = addresses_.next_hop(gid);
  if (!hop) return ENETUNREACH;
  return resolve_neighbour(*hop, mac);
}

/// A group has no neighbour whose reply would show that the link is up. Without this wait the first datagrams
/// would be lost during memif's handshake.
void RunningDevice::await_link() {
  const TimeNs start = monotonic_ns();
  while (!progress_.is_closed() && !is_of_parent_process() && !link_up() &&
         monotonic_ns() < start + kHandshakeNs)
    pause_since(start);
}

int RunningDevice::resolve_neighbour(const wire::Gid& neighbour, wire::MacAddress& mac) {
  NeighbourState state = NeighbourState::absent;
  bool is_asked = false;
  const TimeNs start = monotonic_ns();
  // The cache has its own timeout.
  for (unsigned turns = 0; !progress_.is_closed() && !is_of_parent_process(); ++turns) {
    call_with(*this, 0, [&] {
      state = first_engine().neighbours().wait_for(neighbour, monotonic_ns(), is_asked, mac);
    });
    if (state == NeighbourState::reachable) return 0;
    if (state == NeighbourState::failed) return EHOSTUNREACH;
    if (turns != 0) pause_since(start);
    drive();
  }
  return EHOSTUNREACH;
}

int RunningDevice::join_multicast(const wire::Gid& gid) {
  if (!wire::is_multicast(gid)) return EINVAL;
  const std::lock_guard guard(groups_mutex_);
  const auto [group, added] = groups_.try_emplace(gid.bytes, 0U);
  if (added) {
    bool joined = false;
    // All cores have the same groups, so the result of one is that of all.
    for (uint32_t i = 0; i < core_count(); ++i)
      call_with(*this, i, [&] { joined = core_units_[i].engine->filter().join(gid); });
    int refused = joined ? 0 : ENOMEM;
    if (refused == 0) refused = join_at_port(gid);
    if (refused == 0 && attachment_ != nullptr) refused = attachment_->join_group(gid);
    if (refused != 0) {
      leave_filters(gid);
      groups_.erase(group);
      return refused;
    }
  }
  ++group->second;
  return 0;
}

int RunningDevice::join_at_port(const wire::Gid& gid) {
  int refused = 0;
  // In a call, since another thread may close the port.
  call_with(*this, 0, [&] {
    if (!progress_.is_closed()) refused = port_->join_group(gid);
  });
  if (refused != 0 && wants_reasons())
    log_reason(
        fmt::format("cannot receive the multicast group {}: {}", text_of(gid), std::strerror(refused)));
  return refused;
}

void RunningDevice::leave_multicast(const wire::Gid& gid) {
  const std::lock_guard guard(groups_mutex_);
  const auto group = groups_.find(gid.bytes);
  if (group == groups_.end() || --group->second != 0) return;
  groups_.erase(group);
  leave_filters(gid);
  call_with(*this, 0, [&] {
    if (!progress_.is_closed()) port_->leave_group(gid);
  });
  if (attachment_ != nullptr) attachment_->leave_group(gid);
}

void RunningDevice::leave_filters(const wire::Gid& gid) {
  for (uint32_t i = 0; i < core_count(); ++i)
    call_with(*this, i, [&] { core_units_[i].engine->filter().leave(gid); });
}

int RunningDevice::claim_service(uint64_t service_id) {
  return attachment_ != nullptr ? attachment_->claim_service(service_id) : 0;
}

void RunningDevice::release_service(uint64_t service_id) {
  if (attachment_ != nullptr) attachment_->release_service(service_id);
}

}  // namespace faultline::glue
