// SPDX-License-Identifier: BSD-3-Clause
// A running device: port, memory and engines, with the threads that drive the engines. Implements the backend
// interface of verbs.
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
#include "pmd_glue/capture/capture.hpp"
#include "pmd_glue/config/config.hpp"
#include "pmd_glue/device/flow_steering.hpp"
#include "pmd_glue/device/progress_state.hpp"
#include "pmd_glue/device/recording_file.hpp"
#include "pmd_glue/direct/wire_port.hpp"
#include "pmd_glue/engine/adaptive_yield.hpp"
#include "pmd_glue/engine/hand_over.hpp"
#include "pmd_glue/engine/lcore_thread.hpp"
#include "pmd_glue/engine/poll_engine.hpp"
#include "pmd_glue/ports/port.hpp"
#include "pmd_glue/status/device_publisher.hpp"
#include "stack/base/clock.hpp"
#include "stack/base/process/fork_generation.hpp"
#include "stack/verbs/objects/backend.hpp"

namespace faultline::glue {

/// Describes a device from its configuration alone. Throws ConfigError if its MTU holds no path MTU.
[[nodiscard]] verbs::DeviceDescription describe(const Config& config, const DeviceConfig& device,
                                                const WireAttachment* attachment);

class RunningDevice final : public verbs::DeviceBackend {
 public:
  /// Requires EAL to run. Returns nullptr with one line in `error` on failure.
  [[nodiscard]] static std::shared_ptr<RunningDevice> open(const Config& config, const DeviceConfig& device,
                                                           const std::shared_ptr<WireAttachment>& attachment,
                                                           std::string& error);
  ~RunningDevice() override;

  /// Stops the engines and closes the port, once. Later calls on the device remain valid and have no effect.
  void shut_down();
  /// Replaces shut_down() if the process ends while the calling thread has interrupted its own verbs call.
  /// Gives engines that other threads drive time for one more turn. Waits for no lock, and not for long.
  void abandon();
  /// Runs a turn of each inline engine in a process that ends without the program's next call, to which a
  /// turn may have deferred an ACK. Async-signal-safe in a thread that is in no call of the library.
  void run_last_turns();

  // verbs::DeviceBackend
  [[nodiscard]] const verbs::DeviceDescription& description() const override { return description_; }
  [[nodiscard]] odp::MemoryDomain& memory() override { return *memory_; }
  using DeviceBackend::call;
  using DeviceBackend::core;
  [[nodiscard]] uint32_t core_count() const override { return static_cast<uint32_t>(core_units_.size()); }
  [[nodiscard]] transport::Core& core(uint32_t index) override { return core_units_[index].engine->core(); }
  void call(uint32_t core_index, void (*function)(void*), void* argument) override;
  void drive() override;
  void run_turns() override;
  [[nodiscard]] bool serve_posted(uint32_t core_index, transport::QueuePair* qp) override;
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
  [[nodiscard]] status::SegmentWriter* status() override;
  [[nodiscard]] record::ControlWriter* controls() override {
    return recording_ != nullptr && !is_of_parent_process() ? &recording_->controls() : nullptr;
  }
  [[nodiscard]] bool last_failure(uint32_t core_index, uint32_t qpn, TimeNs since,
                                  status::FailureRecord& record) override;
  void note_failure(status::FailureRecord record) override;
  [[nodiscard]] bool wants_reasons() const override;
  void log_reason(const std::string& line) override;
  [[nodiscard]] double measure_port_tx(size_t frame_bytes, unsigned milliseconds) override;
  [[nodiscard]] double measure_port_rx(unsigned milliseconds) override;

  // For the progress thread.

  enum class Housekeeping : uint8_t {
    busy,    ///< frames moved or faults are outstanding: call again at once
    quiet,   ///< idle
    driven,  ///< the program drives the engine
    others   ///< the device's own threads drive its engines
  };
  /// True if each engine has its own thread (dedicated progress), which sleeps and wakes up by itself.
  [[nodiscard]] bool has_own_threads() const { return config_.progress != Progress::automatic; }
  /// Drives an inline engine while the program does not.
  [[nodiscard]] Housekeeping housekeep();
  /// Time of the next turn of a quiet engine if no event occurs, as of the last housekeep().
  [[nodiscard]] TimeNs next_deadline() const { return next_deadline_; }
  /// Prepares a sleep: `listener` receives doorbells from now on. Returns a descriptor that is readable when
  /// frames arrive, or -1 if the port has none. With `leave_to_program`, a program that polls its CQs serves
  /// its doorbells and acknowledgements itself. The caller runs housekeep() once more to find earlier work.
  [[nodiscard]] int await_work(transport::DoorbellListener& listener, bool leave_to_program);
  /// Between await_work() and stop_awaiting_work(): runs a turn if expect_frames() was called since the last
  /// one, and sleeps on.
  enum class RungTurn : uint8_t {
    done,
    stream,  ///< several frames, and nothing more at the moment
    more,    ///< more work waits
    held     ///< the program is in a turn; it may have been pre-empted there. Call again soon.
  };
  [[nodiscard]] RungTurn serve_rung();
  void stop_awaiting_work();
  /// A descriptor that reports POLLHUP when maintain() has work before longest_sleep_ns() have elapsed; -1:
  /// none.
  [[nodiscard]] int port_descriptor() const;
  /// The descriptor that frames of a wire make readable; -1 without a wire.
  [[nodiscard]] int frames_event() const { return attachment_ != nullptr ? attachment_->event() : -1; }
  [[nodiscard]] TimeNs longest_sleep_ns() const;
  /// The switch may have sent something: maintain() looks at once.
  void expect_news() { next_port_check_ = 0; }
  /// Frames of the wire have woken the progress thread: the next housekeep() drives.
  void expect_frames() { rang_ = true; }
  [[nodiscard]] int program_cpu() const { return progress_.program_cpu(); }
  /// Monitors the port: raises events for link up, link down and removal of the port; reconnects a lost link.
  void maintain(TimeNs now);

 private:
  /// Lets the scenario read this device's counters, from now until withdraw_counters().
  void offer_counters();
  void withdraw_counters();
  /// Returns a counter by its index in verbs::counter_texts(); of the port those that its engines keep.
  [[nodiscard]] uint64_t counter_now(size_t index);

  /// One core: its engine, its memory session, and its thread if progress is dedicated.
  struct CoreUnit {
    std::unique_ptr<odp::EngineSession> session;
    std::unique_ptr<PollEngine> engine;
    std::unique_ptr<LcoreThread> thread;

    /// The caller holds the engine's turn lock. It leaves the session, since a thread that removes memory
    /// must not wait until the next turn.
    void take_turn() const {
      engine->turn();
      session->leave();
    }
  };

  enum class PortState : uint8_t { down, up, gone };
  /// A handshake takes a few messages on EAL's interrupt thread, or with the switch.
  static constexpr TimeNs kHandshakeNs = 1'000'000'000;

  RunningDevice(const DeviceConfig& device, std::shared_ptr<WireAttachment> attachment,
                verbs::DeviceDescription description);
  [[nodiscard]] PollEngine& first_engine() { return *core_units_[0].engine; }
  [[nodiscard]] WakeFor wakes_for();
  void use_port(bool use);
  [[nodiscard]] bool open_capture(const std::string& config_path, const DeviceConfig& wanted,
                                  std::string& error);
  void start_publishing();
  void drain_engines();
  void await_kept_frames();
  void take_last_turns();
  [[nodiscard]] bool take_last_turn(CoreUnit& unit);
  void serve_links(TimeNs now);
  void note_port_state(PortState state);
  [[nodiscard]] bool may_sleep_again();
  void lose_port();
  void reset_port(TimeNs now);
  void take_port_away();
  void raise(transport::AsyncEvent event);
  void await_link();
  [[nodiscard]] int join_at_port(const wire::Gid& gid);
  void leave_filters(const wire::Gid& gid);
  [[nodiscard]] int find_mac(const wire::Gid& gid, wire::MacAddress& mac);
  [[nodiscard]] std::string text_of_unreachable(const wire::Gid& gid, int error);
  [[nodiscard]] int resolve_neighbour(const wire::Gid& neighbour, wire::MacAddress& mac);

  [[nodiscard]] record::RingWriter* ring_of_core(uint32_t core) {
    return recording_ != nullptr ? &recording_->ring_of_core(core) : nullptr;
  }

  const DeviceConfig config_;
  const std::shared_ptr<WireAttachment> attachment_;  ///< nullptr for a device without a wire
  AddressTable addresses_;                            ///< constant after open()
  verbs::DeviceDescription description_;              ///< constant after open()
  std::unique_ptr<DeviceRecording> recording_;        ///< nullptr: nothing is recorded
  std::unique_ptr<odp::MemoryDomain> memory_;
  std::unique_ptr<EthernetPort> port_;
  WirePort* wire_port_ = nullptr;  ///< port_, if the device is on a wire
  std::unique_ptr<Capture> capture_;
  std::unique_ptr<HandOver> hand_over_;
  std::unique_ptr<FlowSteering> flow_steering_;  ///< nullptr without several cores and a redirection table
  std::vector<CoreUnit> core_units_;
  std::unique_ptr<DevicePublisher> publisher_;  ///< nullptr: nothing is published

  /// True in a forked child of the process that opened the device: neither its threads nor its port are the
  /// child's.
  [[nodiscard]] bool is_of_parent_process() const { return fork_generation() != generation_; }
  const uint32_t generation_ = fork_generation();
  std::once_flag shut_down_once_;

  ProgressOwner progress_;
  // progress_ does not replace these. serve_posted() compares its thread with the last caller, in one load; a
  // state names no thread. A forked child copies the state, so is_of_parent_process() remains. The others
  // pace yields.
  std::atomic<pthread_t> last_caller_{};  ///< the last thread in drive()
  std::atomic<uint32_t> idle_turns_{0};   ///< consecutive, of the program
  AdaptiveYield adaptive_yield_;
  /// State of the port's descriptor since the last frame.
  enum class Frames : uint8_t {
    unknown,
    told,   ///< readable: the next turns poll the port, since net_tap looks for frames only after a signal
    missed  ///< readable, but a turn found no frame: not slept on until a frame arrives
  };
  Frames frames_ = Frames::unknown;
  int awaited_ = -1;                     ///< interrupt's descriptor of the sleep under way; -1: none
  bool has_slept_ = false;               ///< on the interrupt, and no turn has followed
  unsigned signals_without_frames_ = 0;  ///< consecutive
  TimeNs next_deadline_ = 0;             ///< of the progress thread
  bool rang_ = false;                    ///< of the progress thread

  // Accessed in calls to the first core.
  bool is_port_away_ = false;  ///< released, or in a reset: its statistics cannot be read
  PortDrops earlier_drops_;    ///< of a port before its reset, which clears its statistics
  uint64_t nic_resets_ = 0;

  // Multicast groups, each with its join count.
  std::mutex groups_mutex_;
  std::map<std::array<uint8_t, 16>, uint32_t> groups_;

  // The progress thread's view of the port.
  PortState port_state_ = PortState::down;
  TimeNs next_port_check_ = 0;
  TimeNs next_reconnect_ = 0;
  TimeNs next_reset_ = 0;
};

/// Calls `function` on the thread that owns the core.
template <typename Function>
void call_with(verbs::DeviceBackend& device, uint32_t core_index, Function function) {
  device.call(
      core_index, [](void* argument) { (*static_cast<Function*>(argument))(); }, &function);
}

}  // namespace faultline::glue
