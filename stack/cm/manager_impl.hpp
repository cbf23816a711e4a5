// SPDX-License-Identifier: BSD-3-Clause
// The manager's implementation. manager.cpp implements calls and timers, inbound.cpp messages, and
// actions.cpp the actions of the transition table.
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

/// The input that an action may need.
struct ActionInput {
  TimeNs now = 0;
  const wire::CmMad* mad = nullptr;  ///< for a message
  // For a call of the program:
  std::span<const uint8_t> private_data{};
  wire::RejectReason reason = wire::RejectReason::consumer_defined;
  std::span<const uint8_t> reject_info{};
  uint8_t service_timeout = kPatience;
  const AcceptParams* accept = nullptr;
  const ResolveAnswer* answer = nullptr;

  /// The MRA's default service timeout: 68 s, as in Linux's rdma_cm.
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
  /// Requests that wait for a listener, oldest first.
  struct PendingRequest {
    wire::MadBytes mad;
    MadSource source;
    TimeNs until;
  };
  std::deque<PendingRequest> pending_requests;
  TokenBucket new_requests, stateless_replies;
  TimeNs received_at_ns = 0;  ///< arrival time of the message being processed
  uint32_t listener_count = 0;
  Id last_id;
  uint64_t next_transaction_id;

  // --- records ---
  [[nodiscard]] bool full() const { return records.size() + listener_count >= config.max_ids; }
  [[nodiscard]] Id new_id();
  [[nodiscard]] Record& add_record();
  [[nodiscard]] Record& add_active_record(uint64_t user, uint64_t service_id);
  [[nodiscard]] Record* find(Id id) const;
  /// Returns the record, unless the program has destroyed it.
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
  /// Applies the table's transition. False if the input is not valid in the state.
  bool apply(Record& record, Input input, const ActionInput& cause);
  /// Applies a call of the program: 0 or EINVAL.
  [[nodiscard]] int command(Id id, Input input, const ActionInput& cause);
  void act(Record& record, Action action, const ActionInput& cause);
  void enter(Record& record, State state, TimeNs now);
  void remember(Record& record, wire::CmAttribute attribute);
  void send(Record& record);
  void send_again(Record& record);
  void send_stateless_reply(const wire::MadBytes& mad, const MadSource& to);
  void send_rep(Record& record, const ActionInput& cause);
  void send_rtu(Record& record, const ActionInput& cause);
  void send_rej(Record& record, const ActionInput& cause);
  void send_rej_timeout(Record& record);
  void send_mra(Record& record, const ActionInput& cause);
  void send_dreq(Record& record, const ActionInput& cause);
  void send_drep(Record& record, const ActionInput& cause);
  void send_sidr_rep(Record& record, const ResolveAnswer& answer);
  void send_stale(const Record& record, const ActionInput& cause);
  void extend_wait(Record& record, const ActionInput& cause);
  void take_rep(Record& record, const ActionInput& cause);
  void report_rejected(Record& record, const ActionInput& cause);
  void report_disconnected(Record& record, const ActionInput& cause);
  void report_resolved(Record& record, const ActionInput& cause);
  void tell(const Record& record, Event event);

  // --- messages (inbound.cpp) ---
  /// Queues a request that has no listener yet. True if the message was queued.
  [[nodiscard]] bool wait_for_listener(const wire::CmMad& mad, std::span<const uint8_t> bytes,
                                       const MadSource& source, TimeNs now);
  /// Ends the wait of the queued requests that a new listener may match.
  void hurry_pending_requests();
  void retry_pending_requests(TimeNs now);
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
  /// Returns the connection that a message identifies, if its peer sent it; else counts a drop and returns
  /// nullptr.
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
