// SPDX-License-Identifier: BSD-3-Clause
// Runs a device's communication manager. It receives datagrams on the device's QP1 and uses the cores' clock.
// A thread retransmits, handles timeouts and delivers events while the program does other work.
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

/// Receives a service's events in order, on the service's thread, with none of its locks held, so the handler
/// may call the service. An event may still arrive for an ID that another thread is destroying; IDs are not
/// reused soon.
class EventHandler {
 public:
  virtual ~EventHandler() = default;
  virtual void on_cm_event(const Event& event) = 0;
};

class Service final : private MadSender, private transport::ManagementSink {
 public:
  /// One service per device. `handler` must outlive it. The device determines the CA GUID, IDs, largest MTU
  /// and seed; the rest of `config` applies unchanged.
  Service(std::shared_ptr<verbs::DeviceBackend> device, ManagerConfig config, EventHandler& handler);
  /// Ends all connections as their states require, and notifies each peer once.
  ~Service() override;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Returns `function(manager, now)`, called under the manager's mutex. Any thread. `function` must not
  /// block.
  template <typename Function>
  auto with(Function function) {
    const Turn turn(*this);
    return function(manager_, device_->now());
  }

  [[nodiscard]] verbs::DeviceBackend& device() { return *device_; }
  /// Datagrams dropped because the thread fell behind.
  [[nodiscard]] uint64_t overruns() const { return overruns_.load(std::memory_order_relaxed); }

 private:
  struct Arrival {
    wire::MadBytes mad;
    MadSource source;
    TimeNs at_ns = 0;
  };

  /// State that threads share, allocated separately because a forked child must not touch it. There the
  /// mutexes and the thread are as the parent's threads left them.
  struct Shared {
    std::mutex manager_mutex;
    std::mutex inbox_mutex;  ///< the core's thread holds it for one copy
    std::condition_variable woken;
    bool wake = false, stop = false;
    TimeNs sleeps_until = kNever;
    std::vector<Arrival> inbox;
    std::thread thread;
  };

  /// Holds the manager's mutex for a call. The destructor wakes the thread if it has work.
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

  // MadSender; the manager's mutex is held.
  void send_mad(const wire::MadBytes& mad, const transport::AddressVector& to, uint16_t pkey) override;
  [[nodiscard]] int claim_service(uint64_t service_id) override { return device_->claim_service(service_id); }
  void release_service(uint64_t service_id) override { device_->release_service(service_id); }
  // transport::ManagementSink; the core's thread.
  void on_management(std::span<const uint8_t, wire::kMadBytes> mad, const MadSource& source,
                     TimeNs now) override;
  void run();
  /// Returns the time of the next call.
  [[nodiscard]] TimeNs serve(const std::vector<Arrival>& arrived);
  void report_events();
  void set_sink(transport::ManagementSink* sink);
  void send_last();
  /// Waits until the transmitted datagrams have left the core, which another thread may be driving. A program
  /// that calls `_exit` right after its call would otherwise lose them.
  void wait_until_sent();
  [[nodiscard]] uint32_t core_index() const;
  [[nodiscard]] transport::Core& core() const { return device_->core(core_index()); }

  const std::shared_ptr<verbs::DeviceBackend> device_;
  EventHandler& handler_;
  const uint32_t generation_;  ///< fork generation of the creating process
  Manager manager_;
  bool sent_ = false;  ///< under the manager's mutex
  std::atomic<uint64_t> overruns_{0};
  std::unique_ptr<Shared> shared_;
};

}  // namespace faultline::cm
