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
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "pmd_glue/wires/inbox.hpp"
#include "pmd_glue/wires/switch_channel.hpp"
#include "pmd_glue/wires/switch_protocol.hpp"
#include "pmd_glue/wires/wire_request.hpp"
#include "stack/wire/packet/headers.hpp"

namespace faultline::glue {

class WireAttachment {
 public:
  /// Time limits for the switch's answers.
  struct Patience {
    std::chrono::milliseconds attach{20'000};   ///< a new switch first starts EAL
    std::chrono::milliseconds replaced{5'000};  ///< until a user starts the switch again
    std::chrono::milliseconds ask{5'000};
    std::chrono::milliseconds stopped{1'000};  ///< a stopped switch: it may never continue
  };

  /// Attaches to a wire. Returns nullptr with one line in `error` on failure. If another process has the
  /// address that the request names, `holders` is then what the switch has granted to it, without its seat.
  [[nodiscard]] static std::shared_ptr<WireAttachment> take(const WireRequest& request, std::string& error,
                                                            std::optional<SwitchGrant>& holders);
  [[nodiscard]] static std::shared_ptr<WireAttachment> take(const WireRequest& request,
                                                            const Patience& patience, std::string& error,
                                                            std::optional<SwitchGrant>& holders);
  ~WireAttachment();
  WireAttachment(const WireAttachment&) = delete;
  WireAttachment& operator=(const WireAttachment&) = delete;

  [[nodiscard]] const SwitchGrant& grant() const { return grant_; }
  /// The event that the switch and the direct peers write when they wake this process. Any thread.
  [[nodiscard]] int event() const { return event_number_.load(std::memory_order_relaxed); }

  /// The doorbells of this process. The thread that takes the seat.
  [[nodiscard]] Inbox& inbox() { return *inbox_; }

  /// What a switch has granted: the ring to it, and the inboxes of both ends.
  struct Seat {
    UniqueFd memory;  ///< kSeatBytes; checked
    std::unique_ptr<Inbox> switch_inbox;
    std::shared_ptr<Inbox> own_inbox;
    bool lost_descriptors = false;  ///< the program has closed those of the previous seat
  };
  /// Counts the granted seats. Any thread.
  [[nodiscard]] uint32_t seat_count() const { return seat_count_.load(std::memory_order_acquire); }
  /// Returns the seat that a switch has granted since the last call; nullopt if none has.
  [[nodiscard]] std::optional<Seat> take_seat();
  /// As take_seat(), for a device that is opened. If an earlier device took the seat, it is requested again.
  /// Returns nullopt with one line in `error` if the switch does not answer in time.
  [[nodiscard]] std::optional<Seat> await_seat(std::string& error);
  /// Leaves the switch, whose ring is of no use, and asks for the seat again.
  void leave_seat();

  // Direct links. Any thread; no call waits.

  /// A link that the switch has made, or the end of one.
  struct LinkNews {
    enum class What : uint8_t {
      begins,
      ended,
      lost  ///< ended, and the program has closed the link's descriptors
    };
    What what = What::begins;
    SwitchGrant peer = {};                   ///< only its `port` if the link has ended
    uint32_t side = 0;                       ///< 0 or 1
    UniqueFd memory = {};                    ///< kLinkBytes; checked
    std::unique_ptr<Inbox> inbox = nullptr;  ///< the peer's
  };
  /// Returns what has come since the last call. keep() receives it.
  [[nodiscard]] std::vector<LinkNews> take_link_news();
  /// Reports to the switch that this process has ended its link to the peer's seat. `barred`: the peer broke
  /// the rules, and gets no other link.
  void end_link(uint32_t peer_port, bool barred);

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
  /// False if the uplink sends by sockets, and their interface or address is down. Any thread.
  [[nodiscard]] bool is_uplink_up() const { return uplink_up_.load(std::memory_order_relaxed); }

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
  void note_uplink();
  void end_previous();
  [[nodiscard]] bool make_inbox(std::string& error);
  void lose_inbox();
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
  /// The connection of leave_seat(). It holds the address until the switch has granted the seat again.
  SwitchChannel previous_;
  SwitchGrant grant_;
  std::optional<SwitchGrant> holders_;  ///< of the process that has the requested address
  std::shared_ptr<Inbox> inbox_;
  UniqueFd event_;
  std::optional<Seat> seat_;
  std::set<uint32_t> linked_;  ///< seats of peers with a direct link
  std::vector<LinkNews> own_news_;
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
  std::atomic<bool> uplink_up_{true};
  std::atomic<int> event_number_{-1};
  std::atomic<uint32_t> seat_count_{0};
};

}  // namespace faultline::glue
