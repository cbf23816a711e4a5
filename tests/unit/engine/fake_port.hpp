// SPDX-License-Identifier: BSD-3-Clause
// A port without a DPDK device: a test gives it the frames to receive, and reads the frames that it was
// given to transmit. Frames are bytes outside the port, so they pass between ports with separate pools.
//
// This program links EthernetPort::open of fake_port.cpp instead of the one in pmd_glue/ports/drivers.cpp: a
// RunningDevice opens a FakePort as its port.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "pmd_glue/ports/port.hpp"

namespace faultline::glue::test {

using Frame = std::vector<uint8_t>;

class FakePort final : public EthernetPort {
 public:
  static constexpr size_t kUnlimited = SIZE_MAX;

  /// What the port offers to write into frames; it writes none of it.
  struct Offloads {
    bool ipv4_checksum = false;
    bool udp_checksum = false;
    bool headers = false;  ///< sends_by_socket()
  };
  FakePort(rte_mempool* pool, const Offloads& offloads);
  explicit FakePort(rte_mempool* pool) : FakePort(pool, Offloads()) {}
  ~FakePort() override;

  // EthernetPort
  [[nodiscard]] size_t receive(uint16_t queue, std::span<rte_mbuf*> burst) override;
  [[nodiscard]] size_t transmit(uint32_t core, std::span<rte_mbuf*> burst) override;
  [[nodiscard]] bool link_up() const override {
    ++link_looks;
    return started_ && link;
  }
  [[nodiscard]] bool sends_by_socket() const override { return by_socket_; }
  [[nodiscard]] PortDrops drops() const override { return dropped; }
  [[nodiscard]] bool is_gone() const override { return gone; }
  void release() override { ++releases; }
  [[nodiscard]] bool needs_reconnect() const override { return reconnects_if_down && !link; }
  void reconnect() override;
  [[nodiscard]] int join_group(const wire::Gid& group) override;
  void leave_group(const wire::Gid& group) override { std::erase(groups, group); }

  /// Queues a frame for receive(), in mbufs of at most `segment_bytes` each.
  void deliver(Frame frame, size_t segment_bytes = kUnlimited);
  [[nodiscard]] size_t waiting() const { return inbox_.size(); }
  /// Returns the transmitted frames since the last call, in their order.
  [[nodiscard]] std::vector<Frame> take_sent();
  /// The port as a device has opened it, by the device's name; nullptr if it is closed.
  [[nodiscard]] static FakePort* of(const std::string& name);

  std::string device;        ///< that opened the port; empty if the test made it
  bool link = true;          ///< down: receives nothing, and takes no frame to transmit
  size_t room = kUnlimited;  ///< frames that transmit() takes before the port is full
  bool gone = false;
  bool reconnects_if_down = false;
  bool starts = true;  ///< whether reconnect() starts the port
  PortDrops dropped;
  std::vector<wire::Gid> groups;  ///< joined
  int group_refusal = 0;          ///< join_group() fails with this errno
  unsigned receive_calls = 0;
  unsigned transmit_calls = 0;
  size_t offered = 0;  ///< frames of the last transmit()
  mutable unsigned link_looks = 0;
  unsigned reconnects = 0;
  unsigned releases = 0;
  /// mbuf::ol_flags of all frames, in the order of transmission.
  std::vector<uint64_t> sent_flags;
  std::function<void()> on_receive;   ///< called within receive()
  std::function<void()> on_transmit;  ///< called within transmit()

  // For EthernetPort::open of this program.
  static std::string refusal;  ///< the next open() fails with this reason; it is then empty again
  static constexpr uint32_t kMtuBytes = 4500;

 private:
  struct Waiting {
    Frame frame;
    size_t segment_bytes;
  };
  [[nodiscard]] rte_mbuf* make(const Waiting& waiting) const;

  const bool by_socket_;
  std::deque<Waiting> inbox_;
  std::vector<Frame> sent_;
};

}  // namespace faultline::glue::test
