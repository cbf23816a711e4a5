// SPDX-License-Identifier: BSD-3-Clause
// State shared by all /dev/infiniband/rdma_cm descriptors of the process: identifiers, their events, ports.
// One mutex guards it: commands are rare, and an event may involve two descriptors.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <netinet/in.h>  // before linux/in6.h, which would define in6_addr without the names of IN6_IS_ADDR_*
#include <pthread.h>
#include <rdma/rdma_user_cm.h>

#include "stack/abi/rdma_cm/device.hpp"
#include "stack/abi/rdma_cm/endpoint.hpp"
#include "stack/abi/rdma_cm/ports.hpp"
#include "stack/abi/rdma_cm/published_identifier.hpp"
#include "stack/abi/rdma_cm/state.hpp"
#include "stack/verbs/objects/event_descriptor.hpp"

namespace faultline::abi {

struct Identifier;

/// The kernel's numbers, rdma_cm_event_type of rdma_cma.h.
enum class CmEvent : uint32_t {
  address_resolved = 0,
  address_error = 1,
  route_resolved = 2,
  connect_request = 4,
  connect_response = 5,
  unreachable = 7,
  rejected = 8,
  established = 9,
  disconnected = 10,
  device_removal = 11,
  multicast_join = 12,
  address_change = 14,
  time_wait_exit = 15,
  // Of rdma-core 60: the program and librdmacm write these into their own channel.
  user = 18,
  internal = 19
};

struct Multicast {
  uint32_t handle = 0;
  uint64_t uid = 0;
  uint32_t events_reported = 0;
};

struct QueuedEvent {
  std::shared_ptr<Identifier> identifier;  ///< its events_reported counts the event
  std::shared_ptr<Multicast> multicast;    ///< its events_reported counts the event too
  std::shared_ptr<Identifier> request;     ///< new identifier of a connect_request
  rdma_ucm_event_resp answer{};
};

/// Events of one descriptor. The program's descriptors are duplicates of `descriptor`, so it stays open when
/// they are closed.
struct EventQueue {
  verbs::EventDescriptor descriptor;
  std::deque<QueuedEvent> events;
  std::atomic<pthread_t> last_reader{};  ///< thread that last requested an event
};

struct Identifier {
  uint64_t key = 0;  ///< never reused: identifies it to the connection manager and to resolvers
  uint32_t handle = 0;
  uint64_t uid = 0;  ///< 0 until the program sets it
  EventQueue* queue = nullptr;
  uint16_t port_space = 0;
  ibv_qp_type type = IBV_QPT_RC;
  IdState state = IdState::idle;
  Endpoint source, destination;
  std::shared_ptr<CmDevice> device;
  cm::Path path;
  cm::Id connection = 0;
  bool passive = false;
  struct Listener {
    std::shared_ptr<CmDevice> device;
    cm::Id id;
  };
  std::vector<Listener> listeners;
  PortTable::Options port_options;
  bool port_taken = false;
  uint8_t traffic_class = 0;
  std::optional<uint8_t> ack_timeout;
  uint32_t starting_psn = 0;  ///< PSN that the peer starts with
  uint32_t events_reported = 0;
  std::vector<std::shared_ptr<Multicast>> multicasts;
  uint32_t qpn = 0;  ///< 0 until the program connects or accepts
  /// Declared last: its rows are in segments of the devices above.
  PublishedIdentifier published;
};

class CmCore {
 public:
  /// Returns the process's instance: a forked child starts with a new one.
  [[nodiscard]] static CmCore& instance();

  CmCore();

  // Without the mutex: starting a device may take long. Returns nullptr if it cannot be started.

  [[nodiscard]] std::shared_ptr<CmDevice> open_device(const std::string& name);
  [[nodiscard]] std::vector<std::shared_ptr<CmDevice>> open_devices();
  /// Releases a reference held by a background task.
  void release_device(std::shared_ptr<CmDevice> device);

  std::mutex mutex;

  // Requires the mutex.

  PortTable ports;
  [[nodiscard]] std::shared_ptr<Identifier> create(EventQueue& queue, uint16_t port_space, ibv_qp_type type);
  /// Returns nullptr (ENOENT) if there is none.
  [[nodiscard]] std::shared_ptr<Identifier> find(uint32_t handle) const;
  [[nodiscard]] std::shared_ptr<Identifier> find_key(uint64_t key) const;
  [[nodiscard]] std::vector<std::shared_ptr<Identifier>> bound_to(int device_index) const;
  [[nodiscard]] std::vector<std::shared_ptr<Identifier>> bound_of(const EventQueue& queue) const;
  /// Removes the identifier and its queued events, and ends its connection.
  void destroy(Identifier& identifier);
  std::shared_ptr<Multicast> join(const std::shared_ptr<Identifier>& identifier, uint64_t uid);
  /// Returns the identifier that joined, or nullptr.
  [[nodiscard]] std::shared_ptr<Identifier> find_joined(uint32_t multicast) const;
  /// Returns the number of its reported events.
  uint32_t leave(Identifier& identifier, uint32_t multicast);
  [[nodiscard]] uint32_t random_psn();

  static void post(EventQueue& queue, QueuedEvent event);
  /// Moves the identifier's queued and future events to the queue `to`.
  void move(Identifier& identifier, EventQueue& to);

  // Without the mutex.

  void add_queue(EventQueue& queue);
  /// Destroys the queue's identifiers. With the last queue, releases the devices.
  void remove_queue(EventQueue& queue);

  /// Runs `task` on a thread that may block, without the mutex.
  void run_in_background(std::function<void()> task);

 private:
  static void end_at_exit();
  void work();
  void forget_events(EventQueue& queue, const std::function<bool(const QueuedEvent&)>& which);

  CmDevices devices_;
  std::map<uint32_t, std::shared_ptr<Identifier>> identifiers_;
  std::map<uint64_t, std::weak_ptr<Identifier>> keys_;
  std::map<uint32_t, std::weak_ptr<Identifier>> multicasts_;
  std::vector<EventQueue*> queues_;
  uint64_t last_key_ = 0;

  std::mutex tasks_mutex_;
  std::condition_variable tasks_changed_;
  std::deque<std::function<void()>> tasks_;
  size_t workers_ = 0, idle_workers_ = 0;
};

/// Converts a connection manager event to an event for the program. Runs on a service's thread, without the
/// mutex.
void on_connection_event(CmCore& core, CmDevice& device, const cm::Event& event);

/// Reports the loss of a device to each identifier bound to it; the program can then only destroy them. Not
/// on an engine's thread, without the mutex.
void on_device_removed(CmCore& core, int device_index);

/// Reports to each bound identifier of the channel that its address has moved to another device, as after a
/// failover of a bond (rdma_get_cm_event(3)). Without the mutex.
void on_address_change(CmCore& core, const EventQueue& queue);

/// Returns an event that names only the identifier.
/// Returns the transport that a REQ states for a QP of this type (IBA 12.6.5).
[[nodiscard]] inline wire::CmTransport transport_of(ibv_qp_type type) {
  if (type == IBV_QPT_UC) return wire::CmTransport::uc;
  const bool is_xrc = type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
  return is_xrc ? wire::CmTransport::xrc : wire::CmTransport::rc;
}
[[nodiscard]] QueuedEvent event_of(const std::shared_ptr<Identifier>& identifier, CmEvent kind,
                                   int status = 0);

/// Returns the address vector of a path in the kernel's format.
[[nodiscard]] ib_uverbs_ah_attr address_attributes(const CmDevice& device, const cm::Path& path);

}  // namespace faultline::abi
