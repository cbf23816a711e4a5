// SPDX-License-Identifier: BSD-3-Clause
// A running device: port, memory, engines and who drives them, behind the interface that verbs uses.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <pthread.h>

#include "odp/regions/memory_domain.hpp"
#include "pmd_glue/config/config.hpp"
#include "pmd_glue/engine/capture.hpp"
#include "pmd_glue/engine/engine.hpp"
#include "pmd_glue/engine/hand_over.hpp"
#include "pmd_glue/engine/lcore_thread.hpp"
#include "pmd_glue/engine/yield_pace.hpp"
#include "pmd_glue/ports/port.hpp"
#include "stack/base/clock.hpp"
#include "stack/base/process/fork_generation.hpp"
#include "stack/verbs/objects/backend.hpp"

namespace faultline::glue {

/// What the configuration alone says of a device. Throws ConfigError where its MTU holds no path MTU.
[[nodiscard]] verbs::DeviceDescription describe(const Config& config, const DeviceConfig& device);

class Device final : public verbs::DeviceBackend {
 public:
  /// EAL is running. nullptr with one line in `error`.
  [[nodiscard]] static std::shared_ptr<Device> open(const Config& config, const DeviceConfig& device,
                                                    std::string& error);
  ~Device() override;

  /// Stops the engines and closes the port, once; what is left of the device answers and does nothing.
  void shut_down();
  /// In place of shut_down() where the calling thread has interrupted a call of its own and the process ends.
  /// Engines that other threads drive get time for one more turn. Waits for no lock, and not for long.
  void abandon();
  /// Sends what waits for the program's next call, acknowledgements above all, in a process that ends without
  /// making it. Async-signal-safe in a thread that is in no call of the library's.
  void send_owed();

  // verbs::DeviceBackend
  [[nodiscard]] const verbs::DeviceDescription& description() const override { return description_; }
  [[nodiscard]] odp::MemoryDomain& memory() override { return *memory_; }
  using DeviceBackend::call;
  using DeviceBackend::core;
  [[nodiscard]] uint32_t core_count() const override { return static_cast<uint32_t>(seats_.size()); }
  [[nodiscard]] transport::Core& core(uint32_t index) override { return seats_[index].engine->core(); }
  void call(uint32_t core_index, void (*function)(void*), void* argument) override;
  void drive() override;
  [[nodiscard]] bool send_now(uint32_t core_index, transport::QueuePair* qp) override;
  void rest() override;
  [[nodiscard]] int resolve(const wire::Gid& gid, wire::MacAddress& mac) override;
  [[nodiscard]] int join_multicast(const wire::Gid& gid) override;
  void leave_multicast(const wire::Gid& gid) override;
  [[nodiscard]] int claim_service(uint64_t service_id) override;
  void release_service(uint64_t service_id) override;
  [[nodiscard]] TimeNs now() override { return monotonic_ns(); }
  [[nodiscard]] bool link_up() override;
  [[nodiscard]] verbs::PortCounters port_counters() override;
  void set_event_sink(transport::EventSink* sink) override;
  [[nodiscard]] bool wants_reasons() const override;
  void log_reason(const std::string& line) override;
  [[nodiscard]] double measure_port_tx(size_t frame_bytes, unsigned milliseconds) override;
  [[nodiscard]] double measure_port_rx(unsigned milliseconds) override;

  // The housekeeper's.

  enum class Housekeeping : uint8_t {
    busy,    ///< it is worth while to come back at once
    quiet,   ///< nothing happens
    driven,  ///< by the program: it needs nobody else
    others   ///< it has threads of its own
  };
  /// Its engines are driven by threads of their own, which sleep and wake by themselves.
  [[nodiscard]] bool has_own_threads() const { return config_.progress != Progress::automatic; }
  /// Drives an inline engine that the program leaves alone.
  [[nodiscard]] Housekeeping housekeep();
  /// When a quiet engine has to be driven again if nothing happens; as of the last housekeep().
  [[nodiscard]] TimeNs next_deadline() const { return next_deadline_; }
  /// Before a sleep: doorbells are told to the listener, and the descriptor (-1: the port has none) is
  /// readable when frames have come. What was there before is found by one more housekeep().
  [[nodiscard]] int await_work(transport::DoorbellListener& listener);
  void stop_awaiting_work();
  /// Hangs up when maintain() has something to do before longest_sleep_ns() are over; -1: there is none.
  [[nodiscard]] int port_descriptor() const;
  [[nodiscard]] TimeNs longest_sleep_ns() const;
  /// Watches the port: tells programs when its link comes, goes, or the port is removed; brings a lost link
  /// up again.
  void maintain(TimeNs now);

 private:
  /// One core: its engine, its door to memory, and the thread that drives it where progress is dedicated.
  struct Seat {
    std::unique_ptr<odp::EngineSession> session;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<LcoreThread> thread;
  };

  enum class PortState : uint8_t { down, up, gone };

  Device(const DeviceConfig& device, verbs::DeviceDescription description);
  [[nodiscard]] Engine& first_engine() { return *seats_[0].engine; }
  void use_port(bool use);
  void send_last_frames();
  void note_port_state(PortState state);
  void raise(transport::AsyncEvent event);
  void await_link();
  void leave_filters(const wire::Gid& gid);
  [[nodiscard]] int find_mac(const wire::Gid& gid, wire::MacAddress& mac);
  [[nodiscard]] std::string text_of_unreachable(const wire::Gid& gid, int error);
  [[nodiscard]] int resolve_neighbour(const wire::Gid& neighbour, wire::MacAddress& mac);

  const DeviceConfig config_;
  const AddressTable addresses_;
  const verbs::DeviceDescription description_;
  std::unique_ptr<odp::MemoryDomain> memory_;
  std::unique_ptr<EthernetPort> port_;
  std::unique_ptr<Capture> capture_;
  std::unique_ptr<HandOver> hand_over_;
  std::vector<Seat> seats_;

  std::atomic<bool> closed_{false};
  /// In a child of the process that opened it: neither its threads nor its port are the child's.
  [[nodiscard]] bool is_parents() const { return fork_generation() != generation_; }
  const uint32_t generation_ = fork_generation();
  std::once_flag shut_down_once_;

  // Inline progress: how often the program drove, and what the housekeeper last saw of it.
  std::atomic<uint32_t> program_drives_{0};
  std::atomic<bool> program_rests_{false};
  std::atomic<pthread_t> driver_{};      ///< the thread that drove last
  std::atomic<uint32_t> idle_turns_{0};  ///< of the program's
  YieldPace yield_pace_;
  uint32_t drives_seen_ = 0;
  bool is_driven_ = false;
  /// What the port's descriptor has said since frames last came.
  enum class Frames : uint8_t {
    unknown,
    told,   ///< that some wait: worth a few turns, since net_tap looks only after a signal
    missed  ///< and none were to be had: until some come nobody sleeps on it
  };
  Frames frames_ = Frames::unknown;
  TimeNs next_deadline_ = 0;  ///< the housekeeper's

  // Multicast groups, and how often each was joined.
  std::mutex groups_mutex_;
  std::map<std::array<uint8_t, 16>, uint32_t> groups_;

  // The housekeeper's view of the port.
  PortState port_state_ = PortState::down;
  TimeNs next_port_check_ = 0;
  TimeNs next_reconnect_ = 0;
};

}  // namespace faultline::glue
