// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/engine/fake_port.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <rte_mbuf.h>

#include "tests/unit/engine/eal_pool.hpp"

namespace faultline::glue {
namespace test {
namespace {

std::map<std::string, FakePort*>& open_ports() {
  static std::map<std::string, FakePort*> ports;
  return ports;
}

}  // namespace

std::string FakePort::refusal;

FakePort::FakePort(rte_mempool* pool, const Offloads& offloads) : by_socket_(offloads.headers) {
  pool_ = pool;
  started_ = true;
  ipv4_checksum_ = offloads.ipv4_checksum;
  udp_checksum_ = offloads.udp_checksum;
}

FakePort::~FakePort() {
  open_ports().erase(device);
}

FakePort* FakePort::of(const std::string& name) {
  const auto found = open_ports().find(name);
  return found == open_ports().end() ? nullptr : found->second;
}

void FakePort::deliver(Frame frame, size_t segment_bytes) {
  inbox_.push_back({std::move(frame), segment_bytes});
}

std::vector<Frame> FakePort::take_sent() {
  return std::exchange(sent_, {});
}

// Returns nullptr if the pool is empty.
rte_mbuf* FakePort::make(const Waiting& waiting) const {
  rte_mbuf* head = nullptr;
  size_t at = 0;
  do {
    rte_mbuf* const part = rte_pktmbuf_alloc(pool_);
    if (part == nullptr) {
      rte_pktmbuf_free(head);
      return nullptr;
    }
    const size_t bytes = std::min(
        {waiting.frame.size() - at, waiting.segment_bytes, static_cast<size_t>(rte_pktmbuf_tailroom(part))});
    std::copy_n(waiting.frame.begin() + static_cast<ptrdiff_t>(at), bytes,
                reinterpret_cast<uint8_t*>(rte_pktmbuf_append(part, static_cast<uint16_t>(bytes))));
    at += bytes;
    if (head == nullptr)
      head = part;
    else
      static_cast<void>(rte_pktmbuf_chain(head, part));
  } while (at < waiting.frame.size());
  return head;
}

size_t FakePort::receive(uint16_t /*queue*/, std::span<rte_mbuf*> burst) {
  ++receive_calls;
  if (on_receive) on_receive();
  size_t received = 0;
  while (link && received < burst.size() && !inbox_.empty()) {
    rte_mbuf* const frame = make(inbox_.front());
    inbox_.pop_front();
    if (frame == nullptr)
      ++dropped.no_buffer;
    else
      burst[received++] = frame;
  }
  return received;
}

size_t FakePort::transmit(uint32_t /*core*/, std::span<rte_mbuf*> burst) {
  ++transmit_calls;
  offered = burst.size();
  if (on_transmit) on_transmit();
  const size_t taken = link ? std::min(burst.size(), room) : 0;
  if (room != kUnlimited) room -= taken;
  for (rte_mbuf* const frame : burst.first(taken)) {
    Frame& bytes = sent_.emplace_back();
    for (const rte_mbuf* part = frame; part != nullptr; part = part->next) {
      const auto* const data = rte_pktmbuf_mtod(part, const uint8_t*);
      bytes.insert(bytes.end(), data, data + part->data_len);
    }
    sent_flags.push_back(frame->ol_flags);
    rte_pktmbuf_free(frame);
  }
  return taken;
}

void FakePort::reconnect() {
  ++reconnects;
  started_ = starts;
}

int FakePort::join_group(const wire::Gid& group) {
  if (group_refusal == 0) groups.push_back(group);
  return group_refusal;
}

}  // namespace test

// ---- instead of pmd_glue/ports/drivers.cpp ----

std::unique_ptr<EthernetPort> EthernetPort::open(const Config& config, const DeviceConfig& device,
                                                 std::string& error) {
  if (const std::string reason = std::exchange(test::FakePort::refusal, {}); !reason.empty()) {
    error = "faultline: " + config.path + ": " + device.name + ": " + reason;
    return nullptr;
  }
  auto port = std::make_unique<test::FakePort>(test::pool());
  port->device = device.name;
  test::open_ports()[device.name] = port.get();
  return port;
}

uint32_t port_mtu_bytes(const DeviceConfig& device) {
  return device.mtu_bytes.value_or(test::FakePort::kMtuBytes);
}

bool expects_link(const PortConfig& /*config*/) {
  return true;
}

bool child_may_open(const PortConfig& /*config*/) {
  return false;
}

}  // namespace faultline::glue
