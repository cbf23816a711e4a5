// SPDX-License-Identifier: BSD-3-Clause
// A process's attachment to a wire. It is requested from the wire's switch, which is started if none runs,
// and kept while the object lives. Does not need DPDK.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "pmd_glue/wires/switch_channel.hpp"
#include "pmd_glue/wires/switch_protocol.hpp"
#include "pmd_glue/wires/wake_flag.hpp"
#include "pmd_glue/wires/wire_request.hpp"
#include "stack/wire/packet/headers.hpp"

namespace faultline::glue {

class WireAttachment {
 public:
  /// Time limits for the switch's answers.
  struct Patience {
    std::chrono::milliseconds attach{20'000};  ///< a new switch first starts EAL
    std::chrono::milliseconds ask{5'000};
    std::chrono::milliseconds stopped{1'000};  ///< a stopped switch: it may never continue
  };

  /// Attaches to a wire. Returns nullptr with one line in `error` on failure.
  [[nodiscard]] static std::shared_ptr<WireAttachment> take(const WireRequest& request, std::string& error);
  [[nodiscard]] static std::shared_ptr<WireAttachment> take(const WireRequest& request,
                                                            const Patience& patience, std::string& error);
  ~WireAttachment();
  WireAttachment(const WireAttachment&) = delete;
  WireAttachment& operator=(const WireAttachment&) = delete;

  [[nodiscard]] const SwitchGrant& grant() const { return grant_; }
  /// Valid as long as the seat.
  [[nodiscard]] WakeFlag& wake_flag() { return *wake_flag_; }

  /// Checks that the switch is alive. If it has crashed, attaches to a new switch with the same grant,
  /// services and groups. Each call does one step, and no step waits for an answer; call it repeatedly.
  /// Returns false with one line in `error` if the user should know of a problem.
  [[nodiscard]] bool keep(std::string& error);
  /// A descriptor that reports POLLHUP when the switch has died and keep() has work; -1 during that work. Any
  /// thread.
  [[nodiscard]] int switch_descriptor() const { return descriptor_.load(std::memory_order_relaxed); }
  /// True if other processes hold the seat now. Any thread.
  [[nodiscard]] bool is_lost() const { return lost_.load(std::memory_order_relaxed); }
  /// True if the current switch has granted the seat, so that the port may connect. Any thread.
  [[nodiscard]] bool is_granted() const { return granted_.load(std::memory_order_relaxed); }

  // Any thread. These return an errno value; 0: success. ETIMEDOUT: the switch does not answer, and nothing
  // has changed.
  /// Routes connection requests for that service to this process. EADDRINUSE: another process that shares the
  /// address has claimed it.
  [[nodiscard]] int claim_service(uint64_t service_id);
  void release_service(uint64_t service_id);
  [[nodiscard]] int join_group(const wire::Gid& group);
  void leave_group(const wire::Gid& group);

 private:
  enum class Phase : uint8_t {
    away,       ///< no switch; next_try_ is the time to start one
    asking,     ///< the request for the seat is sent
    replaying,  ///< the seat is granted; services and groups are being claimed again
    attached
  };
  enum class Outcome : uint8_t { granted, none_yet, ended, refused, failed };
  using Lock = std::unique_lock<std::mutex>;

  explicit WireAttachment(const Patience& patience) : patience_(patience) {}

  // The caller holds the mutex, here and below.
  [[nodiscard]] bool take_first(const WireRequest& wanted, std::string& error);
  /// Sends the request for the seat. Returns false with one line in `error`; without a line if there is no
  /// switch and none may be started.
  [[nodiscard]] bool begin_attach(SteadyTime deadline, bool may_start, std::string& error);
  [[nodiscard]] Outcome finish_attach(SteadyTime deadline, std::string& error);
  [[nodiscard]] Outcome take_grant(const SwitchAnswer& answer, std::vector<UniqueFd>& descriptors,
                                   std::string& error);
  /// Takes one step towards Phase::attached. Sets complaint_ if a message is due.
  void advance();
  void leave_switch();
  void schedule_retry(const std::string& why);
  void lose(const std::string& why);
  void begin_replay();
  void replay();
  void set_phase(Phase phase);

  [[nodiscard]] int ask(Lock& lock, const SwitchRequest& request);
  [[nodiscard]] int await_attached(Lock& lock, SteadyTime deadline);
  [[nodiscard]] SwitchChannel::Received await_answer(uint64_t number, SteadyTime deadline,
                                                     SwitchAnswer& answer);
  /// True if an abandoned request has no answer yet.
  [[nodiscard]] bool is_silent() const;
  [[nodiscard]] int claim(const SwitchRequest& request, const SwitchRequest& opposite, Lock& lock);
  /// Reverts a request that was sent but not answered.
  void take_back(const SwitchRequest& opposite);
  void give_up(const SwitchRequest& request, Lock& lock);

  std::mutex mutex_;
  const Patience patience_;
  std::string wire_;
  SwitchRequest wanted_;
  SwitchChannel channel_;
  SwitchGrant grant_;
  std::unique_ptr<WakeFlag> wake_flag_;
  std::set<uint64_t> services_;
  std::set<std::array<uint8_t, 16>> groups_;

  Phase phase_ = Phase::away;
  bool started_ = false;           ///< the switch was started for this request
  bool descriptors_gone_ = false;  ///< the program has closed the descriptors
  bool complained_ = false;
  unsigned tries_ = 0;  ///< since the last attachment, as complained_
  SteadyTime gone_since_;
  SteadyTime next_try_;  ///< earliest time to start a switch
  SteadyTime answer_due_;
  uint64_t asked_ = 0;       ///< the number of the latest request of asking and replaying
  uint64_t unanswered_ = 0;  ///< number of an abandoned request; 0: none
  std::deque<SwitchRequest> to_replay_;
  std::string complaint_;
  std::atomic<int> descriptor_{-1};
  std::atomic<bool> lost_{false};
  std::atomic<bool> granted_{false};
};

}  // namespace faultline::glue
