// SPDX-License-Identifier: BSD-3-Clause
// A device's communication manager at work: its datagrams on QP1 of the device, its time that of the cores,
// and a thread that sends again, gives up and tells of events while the program does other things.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "stack/cm/manager.hpp"
#include "stack/verbs/objects/backend.hpp"

namespace faultline::cm {

/// Where a service tells of events: in order, on its thread, with no lock of it held, so that the service may
/// be used in there. An event of an ID that another thread is just destroying may still come: IDs are not
/// used again soon.
class EventHandler {
 public:
  virtual ~EventHandler() = default;
  virtual void on_cm_event(const Event& event) = 0;
};

class Service final : private MadSender, private transport::ManagementSink {
 public:
  /// One for each device. `handler` outlives it. Of `config`, CA GUID, IDs, largest MTU and seed are the
  /// device's; the rest is taken as it is.
  Service(std::shared_ptr<verbs::DeviceBackend> device, ManagerConfig config, EventHandler& handler);
  /// Ends all connections in the way that their states ask for, and says so to their peers once.
  ~Service() override;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Any thread: `function(manager, now)`, and what it returns. It must not block.
  template <typename Function>
  auto with(Function function) {
    const Turn turn(*this);
    return function(manager_, device_->now());
  }

  [[nodiscard]] verbs::DeviceBackend& device() { return *device_; }
  /// Datagrams that came faster than the thread took them.
  [[nodiscard]] uint64_t overruns() const { return overruns_.load(std::memory_order_relaxed); }

 private:
  struct Arrival {
    wire::MadBytes mad;
    MadSource source;
    TimeNs at_ns = 0;
  };

  /// What the threads share. Of its own, since a forked child must not touch it: its mutexes and its thread
  /// are as the parent's threads left them.
  struct Shared {
    std::mutex manager_mutex;
    std::mutex inbox_mutex;  ///< the core's thread holds it for one copy
    std::condition_variable woken;
    bool wake = false, stop = false;
    TimeNs sleeps_until = kNever;
    std::vector<Arrival> inbox;
    std::thread thread;
  };

  /// A program's turn with the manager. At its end the thread is woken where there is something for it.
  class Turn {
   public:
    explicit Turn(Service& service) : service_(service), lock_(service.shared_->manager_mutex) {}
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Service& service_;
    std::unique_lock<std::mutex> lock_;
  };

  static constexpr size_t kMaxArrivals = 1024;

  // MadSender, under the manager's mutex
  void send_mad(const wire::MadBytes& mad, const transport::AddressVector& to, uint16_t pkey) override;
  [[nodiscard]] int claim_service(uint64_t service_id) override { return device_->claim_service(service_id); }
  void release_service(uint64_t service_id) override { device_->release_service(service_id); }
  // transport::ManagementSink, the core's thread
  void on_management(std::span<const uint8_t, wire::kMadBytes> mad, const MadSource& source,
                     TimeNs now) override;
  void run();
  /// Returns when it wants to be called again.
  [[nodiscard]] TimeNs serve(const std::vector<Arrival>& arrived);
  void tell_events();
  void set_sink(transport::ManagementSink* sink);
  void send_last();
  /// Until what was sent has left the core, which another thread may just be driving: a program that ends
  /// right after its call (`_exit`) does not end before.
  void let_go();
  [[nodiscard]] uint32_t core_index() const;
  [[nodiscard]] transport::Core& core() const { return device_->core(core_index()); }

  const std::shared_ptr<verbs::DeviceBackend> device_;
  EventHandler& handler_;
  const uint32_t generation_;  ///< of the process
  Manager manager_;
  bool sent_ = false;  ///< under the manager's mutex
  std::atomic<uint64_t> overruns_{0};
  std::unique_ptr<Shared> shared_;
};

}  // namespace faultline::cm
