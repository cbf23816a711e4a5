// SPDX-License-Identifier: BSD-3-Clause
// The transport core's port: transmit buffers, and the way of a frame to the Ethernet port in four stages:
//   1. route    by destination: loopback, a joined multicast group, or the port
//   2. impair   the link model of [device.chaos], which holds, loses or changes frames
//   3. capture  copies for device.capture
//   4. put      the port's driver
// The core's batches enter at stage 1, and the measurement of the bare port at stage 4. The engine's own
// frames (ARP, neighbour discovery, echo) enter at stage 2. A stage takes a prefix of its frames; the
// previous stage keeps the rest. Unless noted, every member requires TurnLock to be held.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "pmd_glue/capture/capture.hpp"
#include "pmd_glue/engine/chaos_link.hpp"
#include "pmd_glue/engine/hand_over.hpp"
#include "pmd_glue/engine/port_counts.hpp"
#include "pmd_glue/ports/port.hpp"
#include "pmd_glue/wires/wire_attachment.hpp"
#include "stack/transport/shared/port.hpp"
#include "stack/transport/shared/types.hpp"
#include "stack/wire/link/address_filter.hpp"

struct rte_mbuf;

namespace faultline::glue {

class TxPath final : public transport::Port {
 public:
  static constexpr size_t kBurst = 32;

  /// All references and pointers outlive the path. `attachment`, `capture` and `link` may be nullptr.
  TxPath(EthernetPort& port, const CoreSlot& slot, WireAttachment* attachment,
         const wire::AddressFilter& filter, Capture* capture, std::unique_ptr<ChaosLink> link,
         PortCounts& counts);
  ~TxPath() override;

  /// Sets the time of what follows: at the start of each turn, and of each transmission outside of one.
  void begin(TimeNs now) {
    now_ = now;
    sent_since_begin_ = 0;
  }
  /// Frames that left by the port or by loopback since begin().
  [[nodiscard]] uint64_t sent_since_begin() const { return sent_since_begin_; }

  // transport::Port
  [[nodiscard]] size_t allocate(std::span<transport::TxFrame> out) override;
  /// Stage 1, route.
  [[nodiscard]] size_t transmit(std::span<transport::TxFrame> frames) override;
  void free_unsent(std::span<transport::TxFrame> frames) override;
  void release(std::span<transport::RxFrame> frames) override;

  /// Enters one of the engine's own frames at stage 2. The frame is dropped if the port does not take it;
  /// returns false then.
  [[nodiscard]] bool enter_own(rte_mbuf* frame);
  /// Stage 4: passes frames to the driver.
  [[nodiscard]] size_t put(std::span<rte_mbuf*> frames);

  /// The second half of stage 2: the frames that the link model holds, as they become due.
  [[nodiscard]] bool is_impaired() const { return link_ != nullptr; }
  [[nodiscard]] bool holds_frames() const { return link_ != nullptr && link_->holds_frames(); }
  void release_due();

  /// Moves frames that the device has sent to itself to `out`; returns their number.
  [[nodiscard]] bool has_loopback() const { return loopback_head_ != loopback_tail_; }
  [[nodiscard]] size_t take_loopback(std::span<transport::RxFrame> out);

  /// Allows or forbids the use of the port, in both directions.
  void use_port(bool use) { port_usable_ = use; }
  [[nodiscard]] bool is_port_usable() const { return port_usable_; }

  /// Time at which the port last took a frame. Any thread.
  [[nodiscard]] TimeNs last_sent() const { return last_sent_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kLoopbackFrames = 1024;  // a power of two

  // Stage 1
  [[nodiscard]] size_t route_to_port(std::span<rte_mbuf*> frames);
  [[nodiscard]] bool route_to_group(rte_mbuf* frame);
  [[nodiscard]] bool route_to_loopback(rte_mbuf* frame);
  [[nodiscard]] bool push_loopback(rte_mbuf* frame);
  /// False if the frame's destination is the device's address but a QPN of another process that shares the
  /// address.
  [[nodiscard]] bool is_for_this_process(rte_mbuf* frame) const;
  void request_checksum_offload(rte_mbuf* frame) const;
  // Stages 2 and 3
  [[nodiscard]] size_t impair(std::span<rte_mbuf*> frames);
  [[nodiscard]] size_t capture(std::span<rte_mbuf*> frames);
  /// Ends back-pressure: called when the port took none of `frames`. Drops them all and returns their number
  /// if no peer is there to take frames; otherwise returns 0, and the caller keeps them.
  [[nodiscard]] size_t give_up(std::span<rte_mbuf*> frames);

  EthernetPort& port_;
  const CoreSlot slot_;
  const bool shares_address_;  ///< with other processes, by ranges of QPNs
  const uint32_t first_qpn_;
  const uint32_t last_qpn_;
  const wire::AddressFilter& filter_;
  Capture* const capture_;
  const std::unique_ptr<ChaosLink> link_;  ///< nullptr: harmless
  PortCounts& counts_;
  uint64_t offload_flags_ = 0;
  bool port_usable_;
  TimeNs now_ = 0;
  TimeNs last_refusal_ = 0;   ///< the port took no frame then; 0: it takes frames
  TimeNs refused_ns_ = 0;     ///< for so long it has taken none
  bool awaits_room_ = false;  ///< the port is full: frames wait for it
  TimeNs last_link_look_ = 0;
  bool link_was_up_ = false;  ///< then
  uint64_t sent_since_begin_ = 0;
  std::array<rte_mbuf*, kLoopbackFrames> loopback_{};
  uint32_t loopback_head_ = 0;
  uint32_t loopback_tail_ = 0;
  std::atomic<TimeNs> last_sent_{0};
};

}  // namespace faultline::glue
