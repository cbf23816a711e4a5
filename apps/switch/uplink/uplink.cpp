// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/uplink/uplink.hpp"

#include <algorithm>
#include <utility>

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#include "stack/base/log.hpp"

namespace faultline::switching {
namespace {

// Between two attempts to connect to a peer that has ended, and two looks at what the NIC has requested.
constexpr TimeNs kLookNs = 20'000'000;
// Calls of receive() between two looks at the clock. An idle switch calls some hundred times a second.
constexpr unsigned kReceivesPerClock = 64;

}  // namespace

Uplink::Uplink(std::unique_ptr<glue::EthernetPort> port, const glue::DeviceConfig& device)
    : port_(std::move(port)),
      vlan_(glue::vlan_tag_of(device)),
      mac_(device.mac),
      mtu_bytes_(glue::port_mtu_bytes(device)) {}

std::unique_ptr<Uplink> Uplink::open(const glue::Config& config, const glue::DeviceConfig& device,
                                     std::string& error) {
  auto port = glue::EthernetPort::open(config, device, error);
  if (port == nullptr) return nullptr;
  // The port must receive the frames for all stations.
  port->receive_for_all();
  return std::unique_ptr<Uplink>(new Uplink(std::move(port), device));
}

void Uplink::keep_link() {
  const TimeNs now = monotonic_ns();
  if (now < next_look_) return;
  next_look_ = now + kLookNs;
  if (!port_->link_up()) port_->reconnect();
}

/// The kernel waits for a NIC that is removed, and a NIC that needs a reset moves no frame.
void Uplink::serve_requests() {
  const TimeNs now = monotonic_ns();
  if (is_gone_ || now < next_request_look_) return;
  next_request_look_ = now + kLookNs;
  if (port_->is_gone()) {
    log().error("the uplink's port was removed: programs on this wire have no other network");
    is_gone_ = true;
    return port_->release();
  }
  if (!port_->needs_reset()) return;
  log().warn("the uplink's NIC asks for a reset");
  port_->reset();
}

size_t Uplink::receive(std::span<rte_mbuf*> burst) {
  if (++receives_ % kReceivesPerClock == 0) serve_requests();
  if (port_->needs_reconnect()) keep_link();
  if (!port_->started()) return 0;
  // A port may have queues that its peer chooses from. Each call begins with another one.
  const uint16_t queues = port_->receive_queues();
  next_queue_ = static_cast<uint16_t>((next_queue_ + 1) % queues);
  size_t received = 0;
  for (uint16_t i = 0; i < queues && received < burst.size(); ++i)
    received += port_->receive(static_cast<uint16_t>((next_queue_ + i) % queues), burst.subspan(received));
  if (!vlan_.present) return received;
  const auto is_foreign = [&](rte_mbuf* frame) {
    // A NIC may have removed the tag.
    const bool stripped = (frame->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0 || rte_vlan_strip(frame) == 0;
    if (stripped && ((frame->vlan_tci ^ vlan_.tci) & wire::kVlanIdMask) == 0) return false;
    rte_pktmbuf_free(frame);
    return true;
  };
  const auto kept = burst.first(received);
  const auto own = static_cast<size_t>(std::remove_if(kept.begin(), kept.end(), is_foreign) - kept.begin());
  foreign_vlan_ += received - own;
  return own;
}

rte_mbuf* Uplink::prepare(rte_mbuf* frame) {
  if (!vlan_.present && !sends_by_socket()) return frame;
  if (rte_mbuf_refcnt_read(frame) != 1) {
    // Other ports have the same frame, without the tag. Sockets change the ICRC of a frame in a train.
    rte_mbuf* const copy = rte_pktmbuf_copy(frame, frame->pool, 0, UINT32_MAX);
    rte_pktmbuf_free(frame);
    if (copy == nullptr) return nullptr;
    frame = copy;
  }
  if (!vlan_.present) return frame;
  frame->vlan_tci = vlan_.tci;
  if (rte_vlan_insert(&frame) == 0) return frame;
  rte_pktmbuf_free(frame);
  return nullptr;
}

wire::MacAddress Uplink::mac() const {
  if (sends_by_socket()) return mac_;
  rte_ether_addr address{};
  wire::MacAddress mac;
  if (rte_eth_macaddr_get(port_->id(), &address) == 0)
    std::copy(std::begin(address.addr_bytes), std::end(address.addr_bytes), mac.bytes.begin());
  return mac;
}

}  // namespace faultline::switching
