// SPDX-License-Identifier: BSD-3-Clause
// The state behind all /dev/infiniband/rdma_cm descriptors of the process: identifiers, their events, ports.
// One mutex guards it: commands are rare, and an event may concern two descriptors.
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

#include <pthread.h>
#include <rdma/rdma_user_cm.h>

#include "stack/abi/rdma_cm/device.hpp"
#include "stack/abi/rdma_cm/endpoint.hpp"
#include "stack/abi/rdma_cm/ports.hpp"
#include "stack/abi/rdma_cm/state.hpp"
#include "stack/verbs/objects/event_descriptor.hpp"

namespace faultline::abi {

struct Identifier;

/// rdma_cma.h's rdma_cm_event_type: the kernel's numbers.
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
  time_wait_exit = 15
};

struct Multicast {
  uint32_t handle = 0;
  uint64_t uid = 0;
  uint32_t events_reported = 0;
};

struct QueuedEvent {
  std::shared_ptr<Identifier> identifier;  ///< whose events_reported counts it
  std::shared_ptr<Multicast> multicast;    ///< ... and this one's
  std::shared_ptr<Identifier> request;     ///< the new identifier of a connect_request
  rdma_ucm_event_resp answer{};
};

/// The events of one descriptor. Programs' numbers are doubles of `descriptor`, so that it stays ours when
/// they close theirs.
struct EventQueue {
  verbs::EventDescriptor descriptor;
  std::deque<QueuedEvent> events;
  std::atomic<pthread_t> last_reader{};  ///< the thread that last asked for an event
};

struct Identifier {
  uint64_t key = 0;  ///< never used again: names it to the connection manager and to resolvers
  uint32_t handle = 0;
  uint64_t uid = 0;  ///< 0 until the program has given one
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
  uint32_t starting_psn = 0;  ///< what the peer shall start with
  uint32_t events_reported = 0;
  std::vector<std::shared_ptr<Multicast>> multicasts;
};

class CmCore {
 public:
  /// The process' own: a forked child starts with a new one.
  [[nodiscard]] static CmCore& instance();

  CmCore();

  // Not under the mutex: a device may take long to start. nullptr where it cannot be.

  [[nodiscard]] std::shared_ptr<CmDevice> open_device(const std::string& name);
  [[nodiscard]] std::vector<std::shared_ptr<CmDevice>> open_devices();
  /// A background task's own.
  void release_device(std::shared_ptr<CmDevice> device);

  std::mutex mutex;

  // Under mutex.

  PortTable ports;
  [[nodiscard]] std::shared_ptr<Identifier> create(EventQueue& queue, uint16_t port_space, ibv_qp_type type);
  /// ENOENT's nullptr, too.
  [[nodiscard]] std::shared_ptr<Identifier> find(uint32_t handle) const;
  [[nodiscard]] std::shared_ptr<Identifier> find_key(uint64_t key) const;
  [[nodiscard]] std::vector<std::shared_ptr<Identifier>> bound_to(int device_index) const;
  /// Takes it out of everything, and what it had queued: its connection ends.
  void destroy(Identifier& identifier);
  std::shared_ptr<Multicast> join(const std::shared_ptr<Identifier>& identifier, uint64_t uid);
  /// Who joined, or nullptr.
  [[nodiscard]] std::shared_ptr<Identifier> find_joined(uint32_t multicast) const;
  /// How many of its events were reported.
  uint32_t leave(Identifier& identifier, uint32_t multicast);
  [[nodiscard]] uint32_t random_psn();

  static void post(EventQueue& queue, QueuedEvent event);
  /// Moves what is queued for it, and all that comes.
  void move(Identifier& identifier, EventQueue& to);

  // Not under mutex.

  void add_queue(EventQueue& queue);
  /// Destroys its identifiers; with the last queue the devices are let go.
  void remove_queue(EventQueue& queue);

  /// Runs it on a thread that may block. No mutex is held.
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

/// What the connection manager tells of, as an event for the program. On a service's thread, without the
/// mutex.
void on_connection_event(CmCore& core, CmDevice& device, const cm::Event& event);

/// The device is lost: each identifier that is bound to it is told, and can only be destroyed then. Not on an
/// engine's thread, without the mutex.
void on_device_removed(CmCore& core, int device_index);

/// An event of the identifier's own.
[[nodiscard]] QueuedEvent event_of(const std::shared_ptr<Identifier>& identifier, CmEvent kind,
                                   int status = 0);

/// The address vector of a path as the kernel hands it to programs.
[[nodiscard]] ib_uverbs_ah_attr address_attributes(const CmDevice& device, const cm::Path& path);

}  // namespace faultline::abi
