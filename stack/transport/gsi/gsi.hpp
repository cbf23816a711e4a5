// SPDX-License-Identifier: BSD-3-Clause
// QP1, the general services interface (IBA vol. 1, 13.5): sends and receives management datagrams. The core
// does not interpret their content.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "stack/base/spin_lock.hpp"
#include "stack/transport/shared/types.hpp"
#include "stack/wire/mad/mad.hpp"

namespace faultline::wire {
struct Packet;
}

namespace faultline::transport {

struct CoreContext;

/// Source of a received datagram, as the address vector for a reply.
struct ManagementSource {
  AddressVector reply;
  uint16_t pkey = wire::kDefaultPkey;
  uint32_t source_qpn = wire::kManagementQpn;
};

/// Receives the datagrams that arrive at QP1. Called on the core's thread: must not block or call back into
/// the core.
class ManagementSink {
 public:
  virtual ~ManagementSink() = default;
  virtual void on_management(std::span<const uint8_t, wire::kMadBytes> mad, const ManagementSource& source,
                             TimeNs now) = 0;
};

class Gsi {
 public:
  explicit Gsi(CoreContext& context) : context_(context) {}

  void set_sink(ManagementSink* sink) { sink_ = sink; }
  void on_packet(const wire::Packet& packet);
  /// Sends waiting datagrams until the port is full.
  void send();

  // Any thread.

  /// Queues a datagram; false if kMaxWaiting datagrams are queued already.
  [[nodiscard]] bool post(const wire::MadBytes& mad, const AddressVector& to, uint16_t pkey);
  [[nodiscard]] bool has_work() const { return waiting_.load(std::memory_order_relaxed) != 0; }

 private:
  static constexpr size_t kMaxWaiting = 1024;

  struct Outgoing {
    wire::MadBytes mad;
    AddressVector to;
    uint16_t pkey;
  };

  CoreContext& context_;
  ManagementSink* sink_ = nullptr;
  uint32_t next_psn_ = 0;
  SpinLock lock_;  ///< protects the ring
  std::vector<Outgoing> ring_;
  size_t head_ = 0;
  std::atomic<size_t> waiting_{0};
};

}  // namespace faultline::transport
