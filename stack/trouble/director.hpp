// SPDX-License-Identifier: BSD-3-Clause
// Decides, for each event of a program, which actions of the scenario take place. Decisions depend on the
// seed, the object and the count of its events, never on time or thread: equal calls give equal decisions.
// Any thread. Allocates: a program under trouble is not measured.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "stack/base/time.hpp"
#include "stack/chaos/random.hpp"
#include "stack/trouble/flow_table.hpp"
#include "stack/trouble/scenario.hpp"

namespace faultline::trouble {

/// Something that happens now. The texts need to live only during the call.
struct Event {
  EventKind kind = EventKind::call;
  std::string_view name;  ///< of a call; "SEND" of a send; "out rc_write_only" of a packet; else empty
  Object object;
  uint64_t bytes = 0;
  std::optional<uint32_t> thread = {};  ///< number of the program's thread; nullopt: an engine's
  uint8_t concerns = 0;                 ///< bits of Concern
  /// Receives the actions on what the event concerns; the caller executes them after decide(). Not null if
  /// `concerns` is not 0.
  std::vector<const Action*>* effects = nullptr;
  std::string_view peer = {};  ///< of a packet: the IP address of its other end
  bool is_request = false;     ///< of a packet: its responder may refuse it with a NAK
  uint32_t region = 0;         ///< key of the memory region that the event is about; 0: none
  uint64_t va = 0;             ///< in that region
  uint64_t completions = 0;    ///< of a poll: that wait
  /// Receives a number that depends on seed, object and count, for an action that needs a choice; may be
  /// nullptr.
  uint64_t* choice = nullptr;
};

/// What happens to a packet.
struct PacketFate {
  const Action* action = nullptr;  ///< nullptr: none of its own
  uint64_t jitter_ns = 0;          ///< of the action
  FlowTable::Passage passage;      ///< by what its flow suffers
};

/// An action that the device executes in its own turn: raise_event, fail_qp and page_out.
struct Pending {
  Object object;
  uint64_t handle = 0;  ///< QPN of a QP, key of a region, 0: it is gone; of a device, the core that is next
  uint64_t va = 0;      ///< in the region
  Action::Kind kind = Action::Kind::raise_event;
  uint32_t number = 0;
};

class Director {
 public:
  using Clock = TimeNs (*)();
  /// Receives each line of the journal, without a newline. Called under the director's lock.
  using Journal = std::function<void(const std::string& line)>;

  Director(Scenario scenario, Clock clock, Journal journal);

  /// Returns the action for this event; kind and number are valid. nullptr: nothing happens. Pending actions
  /// of the same event are queued for their device. The action lives as long as the director.
  [[nodiscard]] const Action* decide(const Event& event);
  /// As decide(), of a packet, whose flow may suffer too. `now` is the time of the packet's link.
  [[nodiscard]] PacketFate decide_packet(const Event& event, bool is_outbound, uint64_t frame_bytes,
                                         TimeNs now);

  /// Reads a counter of a device by its name; called under the director's lock, so it takes no other.
  using CounterReader = std::function<uint64_t(const std::string& name)>;
  /// Sets the reader of a device's counters; an empty one removes it. Without one its counters are 0.
  void set_counter_reader(uint32_t device, CounterReader reader);
  /// Returns the names of the counters that the scenario waits for.
  [[nodiscard]] std::vector<std::string> counter_names() const;

  /// Returns the index of a device; the first call for a name adds it.
  [[nodiscard]] uint32_t device(std::string_view name);
  /// Returns the object of a handle (QPN, key, address); the first call adds it with the next number.
  [[nodiscard]] Object object(ObjectKind kind, uint32_t device, uint64_t handle);
  /// As object(), but returns the device itself for an unknown handle.
  [[nodiscard]] Object known_object(ObjectKind kind, uint32_t device, uint64_t handle);
  /// The handle may be used for a new object.
  void forget(ObjectKind kind, uint32_t device, uint64_t handle);

  /// Moves the actions of a device for which `is_wanted` is true to `out`; returns their number. Actions of
  /// the whole process are those of any device.
  [[nodiscard]] size_t take_pending(uint32_t device, const std::function<bool(const Pending&)>& is_wanted,
                                    std::span<Pending> out);
  /// Queues an action of a device again, for its next core.
  void pass_on(Pending action);
  [[nodiscard]] bool has_pending() const { return pending_count_.load(std::memory_order_relaxed) != 0; }

  /// Begins or ends a command of the user: an event of each device, and a state that rules may wait for. A
  /// new begin lets these rules decide as often as they may once more. Returns false if no rule waits for it.
  [[nodiscard]] bool command(const std::string& name, bool begins);
  /// Returns the commands that rules wait for.
  [[nodiscard]] std::vector<std::string> commands() const;

  /// A rule has taken the device's link down, and the time is not over.
  [[nodiscard]] bool is_link_down(uint32_t device);

  /// A rule has removed the device, for good.
  [[nodiscard]] bool is_gone(uint32_t device);

  /// True if a rule may act at events of this kind, or waits for them. Constant.
  [[nodiscard]] bool concerns(EventKind kind) const;
  /// True if a rule may add packets of its own. Constant.
  [[nodiscard]] bool may_inject() const;
  /// True if a rule may take a link down, or remove a device. Constant.
  [[nodiscard]] bool may_take_link_down() const;

  [[nodiscard]] std::string text_of(const Object& object);

 private:
  [[nodiscard]] bool any_action(bool (*is_wanted)(Action::Kind kind)) const;
  struct Matched {
    bool holds = false;
    uint64_t count = 0;  ///< of the last event leaf that matched: the draw's position
  };
  [[nodiscard]] Matched matches(const Condition& condition, const Event& event, TimeNs now);
  [[nodiscard]] Matched matches_event(const Condition& condition, const Event& event);
  [[nodiscard]] bool has_decided(const std::string& rule) const;
  [[nodiscard]] bool has_reached(const Condition& condition, const Object& object);
  struct Decision {
    const Action* action = nullptr;
    uint64_t n = 0;  ///< of the event, on its object
  };
  /// `packet` is of an event of that kind, else nullptr. Under the lock.
  [[nodiscard]] Decision decide_locked(const Event& event, const PacketOnWay* packet, TimeNs now);
  /// False if the event has not what the action acts on.
  [[nodiscard]] static bool has_place_for(const Action& action, const Event& event);
  /// Returns a generator that depends on seed, object and count alone, so that a replay has the same.
  [[nodiscard]] chaos::Random random_of(const Event& event, uint64_t n) const;
  [[nodiscard]] bool draw(size_t rule, const Event& event, uint64_t count) const;
  /// Queues or executes an action that may take place at any event.
  void begin(const Action& action, const Event& event, TimeNs now);
  /// Under the lock.
  void remove(uint32_t device);
  void note(const std::string& rule, const Action& action, const Event& event, uint64_t n);
  /// Returns the handle of an object; 0 if it is gone. Under the lock.
  [[nodiscard]] uint64_t handle_of(const Object& object) const;
  [[nodiscard]] std::string text_of_locked(const Object& object) const;

  const Scenario scenario_;
  const Clock clock_;
  const Journal journal_;
  const TimeNs start_ns_;

  // Guarded by the lock of director.cpp, which a fork waits for.
  std::vector<std::string> devices_;
  struct Numbers {
    uint32_t next = 0;
    std::map<uint64_t, uint32_t> of_handle;
  };
  std::map<std::pair<uint8_t, uint32_t>, Numbers> numbers_;        ///< by kind and device
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> leaf_counts_;  ///< by leaf and object
  std::unordered_map<std::string, uint64_t> event_counts_;         ///< by event and object
  std::unordered_map<std::string, const Exact*> exact_;            ///< by event, object and n
  std::vector<uint64_t> decided_;                                  ///< by rule
  std::set<std::string> commanded_;
  FlowTable flows_;
  std::map<uint32_t, CounterReader> counter_readers_;  ///< by device
  std::set<std::pair<uint32_t, uint32_t>> reached_;    ///< leaf and device
  std::vector<Pending> pending_;
  std::map<uint32_t, TimeNs> link_down_until_;  ///< by device
  std::vector<uint32_t> gone_;                  ///< devices
  std::atomic<bool> has_gone_{false};
  std::atomic<bool> has_link_times_{false};
  std::atomic<size_t> pending_count_{0};
};

/// The process's director; nullptr: no trouble. Set before the first device is listed, never cleared.
[[nodiscard]] Director* director();
void set_director(Director* director);

/// "call ibv_post_send", "packet out rc_write_only", "send", "fault", "poll"
[[nodiscard]] std::string text_of(const Event& event);

}  // namespace faultline::trouble
