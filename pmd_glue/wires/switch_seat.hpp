// SPDX-License-Identifier: BSD-3-Clause
// A process's seat on a wire: asked for at the wire's switch, which is started where there is none, and kept
// while the object lives. It needs no DPDK.
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

#include "pmd_glue/wires/switch_bell.hpp"
#include "pmd_glue/wires/switch_channel.hpp"
#include "pmd_glue/wires/switch_protocol.hpp"
#include "pmd_glue/wires/wire_request.hpp"
#include "stack/wire/packet/headers.hpp"

namespace faultline::glue {

class SwitchSeat {
 public:
  /// How long a switch may take to answer.
  struct Patience {
    std::chrono::milliseconds attach{20'000};  ///< one that starts has to start EAL first
    std::chrono::milliseconds ask{5'000};
    std::chrono::milliseconds stopped{1'000};  ///< one that is stopped: nobody knows whether it goes on
  };

  /// nullptr with one line in `error`.
  [[nodiscard]] static std::shared_ptr<SwitchSeat> take(const WireRequest& request, std::string& error);
  [[nodiscard]] static std::shared_ptr<SwitchSeat> take(const WireRequest& request, const Patience& patience,
                                                        std::string& error);
  ~SwitchSeat();
  SwitchSeat(const SwitchSeat&) = delete;
  SwitchSeat& operator=(const SwitchSeat&) = delete;

  [[nodiscard]] const SwitchGrant& grant() const { return grant_; }
  /// Lives as long as the seat.
  [[nodiscard]] SwitchBell& bell() { return *bell_; }

  /// Looks whether the switch is still there. Where it has died, takes the same seat at a new one, with what
  /// was claimed and joined: a step a call, and as often as it takes; no step waits for an answer. False with
  /// one line in `error` where there is something that the user should know.
  [[nodiscard]] bool keep(std::string& error);
  /// Hangs up when the switch has died and keep() has something to do; -1 while it has. Any thread.
  [[nodiscard]] int switch_descriptor() const { return descriptor_.load(std::memory_order_relaxed); }
  /// Others have the seat now. Any thread.
  [[nodiscard]] bool is_lost() const { return lost_.load(std::memory_order_relaxed); }
  /// The switch that is there has given the seat, so that the port may be connected. Any thread.
  [[nodiscard]] bool is_granted() const { return granted_.load(std::memory_order_relaxed); }

  // Any thread. An errno value; 0: done; ETIMEDOUT where the switch does not answer: nothing has changed
  // then.
  /// Connection requests for that service come here; EADDRINUSE where another process that shares the address
  /// has it.
  [[nodiscard]] int claim_service(uint64_t service_id);
  void release_service(uint64_t service_id);
  [[nodiscard]] int join_group(const wire::Gid& group);
  void leave_group(const wire::Gid& group);

 private:
  enum class Phase : uint8_t {
    away,       ///< no switch; at next_try_ one is looked for
    asking,     ///< the switch has the request for the seat
    replaying,  ///< and the requests for what was claimed and joined
    attached
  };
  enum class Outcome : uint8_t { granted, none_yet, ended, refused, failed };
  using Lock = std::unique_lock<std::mutex>;

  explicit SwitchSeat(const Patience& patience) : patience_(patience) {}

  // With the mutex, as all that follows.
  [[nodiscard]] bool take_first(const WireRequest& wanted, std::string& error);
  /// Sends the request for the seat. False with one line in `error`; without one where there is no switch and
  /// none may be started.
  [[nodiscard]] bool begin_attach(SteadyTime deadline, bool may_start, std::string& error);
  [[nodiscard]] Outcome finish_attach(SteadyTime deadline, std::string& error);
  [[nodiscard]] Outcome take_grant(const SwitchAnswer& answer, std::vector<UniqueFd>& descriptors,
                                   std::string& error);
  /// A step towards Phase::attached. A line in complaint_ where one is due.
  void advance();
  void leave_switch();
  void try_later(const std::string& why);
  void lose(const std::string& why);
  void begin_replay();
  void replay();
  void set_phase(Phase phase);

  [[nodiscard]] int ask(Lock& lock, const SwitchRequest& request);
  [[nodiscard]] int await_attached(Lock& lock, SteadyTime deadline);
  [[nodiscard]] SwitchChannel::Received await_answer(uint64_t number, SteadyTime deadline,
                                                     SwitchAnswer& answer);
  /// A request was given up that has no answer yet.
  [[nodiscard]] bool is_silent() const;
  [[nodiscard]] int claim(const SwitchRequest& request, const SwitchRequest& opposite, Lock& lock);
  /// Undoes what a request does that the switch has, but has not answered.
  void take_back(const SwitchRequest& opposite);
  void give_up(const SwitchRequest& request, Lock& lock);

  std::mutex mutex_;
  const Patience patience_;
  std::string wire_;
  SwitchRequest wanted_;
  SwitchChannel channel_;
  SwitchGrant grant_;
  std::unique_ptr<SwitchBell> bell_;
  std::set<uint64_t> services_;
  std::set<std::array<uint8_t, 16>> groups_;

  Phase phase_ = Phase::away;
  bool started_ = false;           ///< the switch that has the request was started for it
  bool descriptors_gone_ = false;  ///< the program has closed them
  bool complained_ = false;
  unsigned tries_ = 0;  ///< since there was a switch, as complained_
  SteadyTime gone_since_;
  SteadyTime next_try_;  ///< to start one
  SteadyTime answer_due_;
  uint64_t asked_ = 0;       ///< the number of the latest request of asking and replaying
  uint64_t unanswered_ = 0;  ///< of a request that was given up; 0: none
  std::deque<SwitchRequest> to_replay_;
  std::string complaint_;
  std::atomic<int> descriptor_{-1};
  std::atomic<bool> lost_{false};
  std::atomic<bool> granted_{false};
};

}  // namespace faultline::glue
