// SPDX-License-Identifier: BSD-3-Clause
// A memif port. net_memif listens, connects and exchanges messages on EAL's interrupt thread; MemifLink
// carries the frames. The hooks below interpose on net_memif's functions (memif_hooks.cpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pmd_glue/memif/memif_handshake.hpp"
#include "pmd_glue/memif/memif_link.hpp"

struct rte_eth_dev;
struct rte_intr_handle;
using rte_intr_callback_fn = void (*)(void*);

namespace faultline::glue {

class MemifPort {
 public:
  using Role = MemifLink::Role;

  MemifPort(std::string socket, Role role);
  ~MemifPort();
  MemifPort(const MemifPort&) = delete;
  MemifPort& operator=(const MemifPort&) = delete;

  // As MemifLink's; they return 0 without a link.
  [[nodiscard]] size_t receive(rte_mempool* pool, uint16_t port, std::span<rte_mbuf*> frames);
  [[nodiscard]] size_t transmit(std::span<rte_mbuf* const> frames);

  /// True if the peer has violated the protocol and the link is about to be closed.
  [[nodiscard]] bool is_broken() const { return ending_.load(std::memory_order_relaxed); }
  /// Number of links closed because the peer violated the protocol.
  [[nodiscard]] uint64_t violations() const { return violations_.load(std::memory_order_relaxed); }
  /// Frames dropped because no buffer of the pool holds them, of all links so far.
  [[nodiscard]] uint64_t oversized() const { return oversized_.load(std::memory_order_relaxed); }

  /// While it lives, this thread creates the port's device. nullptr: a port of another kind.
  class Creation {
   public:
    explicit Creation(MemifPort* port);
    ~Creation();
    Creation(const Creation&) = delete;
    Creation& operator=(const Creation&) = delete;
  };
  /// While it lives, this thread sets up a transmit queue.
  class TransmitSetup {
   public:
    explicit TransmitSetup(MemifPort* port);
    ~TransmitSetup();
    TransmitSetup(const TransmitSetup&) = delete;
    TransmitSetup& operator=(const TransmitSetup&) = delete;
  };
  /// Frees what net_memif leaks at close (DPDK 22.11). These are the interrupt handles of transmit queues
  /// (memif_tx_queue_release), each 26 kB of EAL's memory. The listener leaks too, which EAL still watches
  /// after its argument was freed (memif_socket_remove_device). Call it once the port is closed, on the
  /// interrupt thread.
  void free_forgotten();

  // Called while the port is opened.
  void bind(rte_eth_dev* device);
  void keep_transmit_handle(rte_intr_handle* handle);
  void keep_listener(int descriptor, rte_intr_callback_fn callback, void* argument);

 private:
  friend struct MemifPorts;

  void end_link();
  void close_listener();

  const std::string socket_;
  const Role role_;
  const uint64_t serial_;
  rte_eth_dev* device_ = nullptr;
  // Owner: the interrupt thread.
  int connection_ = -1;  ///< net_memif's descriptor; -1: none
  std::optional<memif::Handshake> handshake_;
  bool driver_has_mapped_ = false;
  std::unique_ptr<MemifLink> owned_link_;

  std::atomic<MemifLink*> link_{nullptr};
  std::atomic<bool> ending_{false};
  std::atomic<uint64_t> violations_{0};
  std::atomic<uint64_t> oversized_{0};
};

namespace memif {

// Hooks. The message hooks determine what net_memif sees.

void on_socket_init(rte_eth_dev* device);
/// Notes a message that was sent on `connection`. Interrupt thread.
void on_sent(int connection, std::span<const uint8_t> message, std::span<const int> descriptors);
/// Checks a received message; empty: end of the connection. Returns false if the message is refused.
[[nodiscard]] bool on_received(int connection, std::span<const uint8_t> message,
                               std::span<const int> descriptors);
/// Called before net_memif maps the regions. Returns false if the link is not valid.
[[nodiscard]] bool before_connect(rte_eth_dev* device);
void after_connect(rte_eth_dev* device, bool succeeded);
/// Called with no thread in a burst. Stores the descriptors that net_memif does not close in `forgotten`.
void before_free_regions(rte_eth_dev* device, std::vector<int>& forgotten);

void on_callback_registered(const rte_intr_handle* handle, rte_intr_callback_fn callback, void* argument);
void on_handle_allocated(rte_intr_handle* handle);
void on_handle_freed(rte_intr_handle* handle);

}  // namespace memif

}  // namespace faultline::glue
