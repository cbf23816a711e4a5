// SPDX-License-Identifier: BSD-3-Clause
// The manager's inside: manager.cpp has what programs and time ask for, inbound.cpp what messages do,
// actions.cpp what a transition of the table means.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "stack/base/token_bucket.hpp"
#include "stack/cm/listeners.hpp"
#include "stack/cm/manager.hpp"
#include "stack/cm/record.hpp"

namespace faultline::cm {

/// What an action may need of its cause.
struct Occasion {
  TimeNs now = 0;
  const wire::CmMad* mad = nullptr;  ///< a message
  // The program's
  std::span<const uint8_t> private_data{};
  wire::RejectReason reason = wire::RejectReason::consumer_defined;
  std::span<const uint8_t> reject_info{};
  uint8_t service_timeout = kPatience;
  const AcceptParams* accept = nullptr;
  const ResolveAnswer* answer = nullptr;

  /// How long an MRA asks to wait when nobody has said so: 68 s, as Linux's rdma_cm.
  static constexpr uint8_t kPatience = 24;
};

struct Manager::Impl {
  Impl(const ManagerConfig& manager_config, MadSender& mad_sender);

  const ManagerConfig config;
  MadSender& sender;
  ManagerCounters counters;
  Listeners listeners;
  std::unordered_map<Id, std::unique_ptr<Record>> records;
  std::unordered_map<PeerKey, Record*, PeerKeyHash> by_peer;
  std::unordered_map<PeerKey, Record*, PeerKeyHash> by_peer_qp;
  std::set<std::pair<TimeNs, Id>> deadlines;
  std::deque<Event> events;
  /// Requests that no listener wants yet, oldest first.
  struct Unheard {
    wire::MadBytes mad;
    MadSource source;
    TimeNs until;
  };
  std::deque<Unheard> unheard;
  TokenBucket new_requests, unasked_answers;
  TimeNs heard_at = 0;  ///< when the message came that is being looked at
  uint32_t listener_count = 0;
  Id last_id;
  uint64_t next_transaction_id;

  // --- records ---
  [[nodiscard]] bool full() const { return records.size() + listener_count >= config.max_ids; }
  [[nodiscard]] Id new_id();
  [[nodiscard]] Record& add_record();
  [[nodiscard]] Record& add_active_record(uint64_t user, uint64_t service_id);
  [[nodiscard]] Record* find(Id id) const;
  /// The owner's: none that it has destroyed.
  [[nodiscard]] Record* find_owned(Id id) const;
  void index_peer(Record& record, const PeerKey& key);
  void index_peer_qp(Record& record);
  void forget_peer_qp(Record& record);
  void end_awaiting(Record& record);
  void erase(Record& record);
  void purge_events(Id id);

  // --- time ---
  void set_deadline(Record& record, TimeNs deadline);
  void start_retry(Record& record, uint32_t retries, TimeNs now);
  void stop_retry(Record& record);
  void on_deadline(Record& record, TimeNs now);

  // --- transitions (actions.cpp) ---
  /// What the table says. False where the input means nothing in the state.
  bool apply(Record& record, Input input, const Occasion& occasion);
  /// Of a program's input: 0 or EINVAL.
  [[nodiscard]] int command(Id id, Input input, const Occasion& occasion);
  void act(Record& record, Action action, const Occasion& occasion);
  void enter(Record& record, State state, TimeNs now);
  void remember(Record& record, wire::CmAttribute attribute);
  void send(Record& record);
  void send_again(Record& record);
  void send_unasked(const wire::MadBytes& mad, const MadSource& to);
  void send_rep(Record& record, const Occasion& occasion);
  void send_rtu(Record& record, const Occasion& occasion);
  void send_rej(Record& record, const Occasion& occasion);
  void send_rej_timeout(Record& record);
  void send_mra(Record& record, const Occasion& occasion);
  void send_dreq(Record& record, const Occasion& occasion);
  void send_drep(Record& record, const Occasion& occasion);
  void send_sidr_rep(Record& record, const ResolveAnswer& answer);
  void send_stale(const Record& record, const Occasion& occasion);
  void extend_wait(Record& record, const Occasion& occasion);
  void take_rep(Record& record, const Occasion& occasion);
  void tell_rejected(Record& record, const Occasion& occasion);
  void tell_disconnected(Record& record, const Occasion& occasion);
  void tell_resolved(Record& record, const Occasion& occasion);
  void tell(const Record& record, Event event);

  // --- messages (inbound.cpp) ---
  /// True where the message is a request that waits for its listener.
  [[nodiscard]] bool wait_for_listener(const wire::CmMad& mad, std::span<const uint8_t> bytes,
                                       const MadSource& source, TimeNs now);
  /// Those that a new listener may want need not wait any longer.
  void hurry_unheard();
  void hear_unheard(TimeNs now);
  void drop(DropReason reason) { ++counters.drops[static_cast<size_t>(reason)]; }
  void on_message(const wire::CmMad& mad, const MadSource& source, TimeNs now);
  void on_req(const wire::CmMad& mad, const MadSource& source, TimeNs now);
  void on_rep(const wire::CmMad& mad, const MadSource& source, TimeNs now);
  void on_rej(const wire::CmMad& mad, const MadSource& source, TimeNs now);
  void on_mra(const wire::CmMad& mad, const MadSource& source, TimeNs now);
  void on_rtu(const wire::CmMad& mad, const MadSource& source, TimeNs now);
  void on_dreq(const wire::CmMad& mad, const MadSource& source, TimeNs now);
  void on_drep(const wire::CmMad& mad, const MadSource& source, TimeNs now);
  void on_sidr_req(const wire::CmMad& mad, const MadSource& source, TimeNs now);
  void on_sidr_rep(const wire::CmMad& mad, const MadSource& source, TimeNs now);
  /// The connection that a message names, from its peer; nullptr, and counted, where there is none.
  [[nodiscard]] Record* connection(uint32_t own_id, uint32_t remote_id, const MadSource& source);
  void take_message(Record& record, Input input, const wire::CmMad& mad, TimeNs now);
  [[nodiscard]] bool refuse(const wire::CmReq& req, const wire::CmMad& mad, const MadSource& source);
  [[nodiscard]] bool reject_stale(const wire::CmReq& req, const wire::CmMad& mad, const MadSource& source,
                                  TimeNs now);
  void reject_req(const wire::CmReq& req, const wire::CmMad& mad, const MadSource& source,
                  wire::RejectReason reason, std::span<const uint8_t> info = {});
  void reject_sidr(const wire::CmSidrReq& request, const wire::CmMad& mad, const MadSource& source,
                   wire::SidrStatus status);
};

}  // namespace faultline::cm
