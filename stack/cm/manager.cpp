// SPDX-License-Identifier: BSD-3-Clause
#include "stack/cm/manager.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cerrno>
#include <new>

#include "stack/cm/manager_impl.hpp"

namespace faultline::cm {
namespace {

// Minimum retry period, for a peer that announces a shorter response time.
constexpr uint64_t kMinPeriodNs = 10'000'000;
constexpr int kMinIdBits = 16;

constexpr std::array<std::string_view, static_cast<size_t>(DropReason::count_)> kDropNames{
    "source QPN", "unknown ID", "wrong peer", "wrong state", "backlog", "no resources", "rate"};

bool ip_matches(const std::optional<wire::IpAddressing>& ip, uint64_t service_id) {
  if (ip.has_value() != wire::is_ip_service(service_id)) return false;
  return !ip || ip->source.is_ipv4() == ip->destination.is_ipv4();
}

/// Returns the private data field as the message carries it: header and data.
PrivateData private_field(const std::optional<wire::IpAddressing>& ip, std::span<const uint8_t> data) {
  if (!ip) return PrivateData(data);
  std::array<uint8_t, PrivateData::kMaxBytes> field{};
  write_ip_addressing(std::span(field).first<wire::kIpAddressingBytes>(), *ip);
  std::copy(data.begin(), data.end(), field.begin() + wire::kIpAddressingBytes);
  return PrivateData(std::span(field).first(wire::kIpAddressingBytes + data.size()));
}

bool fits(const std::optional<wire::IpAddressing>& ip, std::span<const uint8_t> data, size_t most) {
  return data.size() + (ip ? wire::kIpAddressingBytes : 0) <= most;
}

}  // namespace

std::string_view name_of(DropReason reason) {
  return kDropNames[static_cast<size_t>(reason)];
}

PrivateData::PrivateData(std::span<const uint8_t> bytes)
    : length_(static_cast<uint8_t>(std::min(bytes.size(), kMaxBytes))) {
  std::copy_n(bytes.begin(), length_, bytes_.begin());
}

Manager::Impl::Impl(const ManagerConfig& manager_config, MadSender& mad_sender)
    : config(manager_config),
      sender(mad_sender),
      new_requests(config.unknown_peers_per_second, config.unknown_peer_burst),
      stateless_replies(config.unknown_peers_per_second, config.unknown_peer_burst),
      last_id(static_cast<Id>(config.seed)),
      next_transaction_id(config.seed << 32 | config.seed >> 32) {
  assert(std::popcount(config.comm_id_mask) >= kMinIdBits);
}

Manager::Manager(const ManagerConfig& config, MadSender& sender)
    : impl_(std::make_unique<Impl>(config, sender)) {}

Manager::~Manager() = default;

uint64_t Manager::next_seed() const {
  return impl_->next_transaction_id << 32 | impl_->last_id;
}

// ---- records ----

Id Manager::Impl::new_id() {
  const uint32_t mask = config.comm_id_mask;
  do {
    // Set the bits at which the mask is zero, so that a carry passes over them.
    last_id = (((last_id | ~mask) + 1) & mask) | (config.comm_id_base & ~mask);
  } while (last_id == 0 || records.contains(last_id) || listeners.find(last_id) != nullptr);
  return last_id;
}

Record& Manager::Impl::add_record() {
  auto record = std::make_unique<Record>();
  record->id = new_id();
  Record& added = *record;
  records.emplace(added.id, std::move(record));
  return added;
}

/// Adds a record for a request of the local program.
Record& Manager::Impl::add_active_record(uint64_t user, uint64_t service_id) {
  Record& record = add_record();
  record.active = true;
  record.user = user;
  record.service_id = service_id;
  record.transaction_id = next_transaction_id++;
  return record;
}

Record* Manager::Impl::find(Id id) const {
  const auto at = records.find(id);
  return at == records.end() ? nullptr : at->second.get();
}

Record* Manager::Impl::find_owned(Id id) const {
  Record* const record = find(id);
  return record != nullptr && !record->orphan ? record : nullptr;
}

void Manager::Impl::index_peer(Record& record, const PeerKey& key) {
  by_peer.emplace(key, &record);
  record.peer = key;
}

void Manager::Impl::index_peer_qp(Record& record) {
  const PeerKey key{record.qp.path.av.path.destination_gid, record.remote_guid, record.qp.remote_qpn};
  // QPN 0 is never a connected QP (IBA 9.2.3); here it means: not indexed.
  if (key.id != 0 && by_peer_qp.emplace(key, &record).second) record.peer_qp = key;
}

void Manager::Impl::forget_peer_qp(Record& record) {
  if (record.peer_qp.id != 0) by_peer_qp.erase(record.peer_qp);
  record.peer_qp = {};
}

void Manager::Impl::end_awaiting(Record& record) {
  if (!record.awaiting) return;
  record.awaiting = false;
  if (Listener* const listener = listeners.find(record.listener)) --listener->awaiting;
}

void Manager::Impl::erase(Record& record) {
  end_awaiting(record);
  forget_peer_qp(record);
  if (const auto at = by_peer.find(record.peer); at != by_peer.end() && at->second == &record)
    by_peer.erase(at);
  set_deadline(record, kNever);
  records.erase(record.id);
}

void Manager::Impl::purge_events(Id id) {
  std::erase_if(events, [id](const Event& event) { return event.id == id; });
}

// ---- time ----

void Manager::Impl::set_deadline(Record& record, TimeNs deadline) {
  if (deadline == record.deadline) return;
  if (record.deadline != kNever) deadlines.erase({record.deadline, record.id});
  if (deadline != kNever) deadlines.emplace(deadline, record.id);
  record.deadline = deadline;
}

void Manager::Impl::start_retry(Record& record, uint32_t retries, TimeNs now) {
  Retry& retry = record.retry;
  retry.period_ns = std::max(record.response_ns, kMinPeriodNs);
  retry.retries_left = retries;
  retry.period_end = now + retry.period_ns;
  retry.early_gap_ns = config.early_resend_ns;
  retry.next_early = retry.early_gap_ns != 0 ? now + retry.early_gap_ns : kNever;
  set_deadline(record, retry.deadline());
}

void Manager::Impl::stop_retry(Record& record) {
  record.retry = {};
  set_deadline(record, kNever);
}

void Manager::Impl::on_deadline(Record& record, TimeNs now) {
  if (record.state == State::time_wait || record.state == State::sidr_rep_sent) {
    set_deadline(record, kNever);
    static_cast<void>(apply(record, Input::expired, {.now = now}));
    return;
  }
  Retry& retry = record.retry;
  if (now >= retry.period_end) {
    if (retry.retries_left == 0) {
      ++counters.gave_up;
      static_cast<void>(apply(record, Input::expired, {.now = now}));
      return;
    }
    --retry.retries_left;
    retry.period_end = now + retry.period_ns;
  }
  send_again(record);
  // Once the interval reaches a whole period, only the periodic retries remain, except within an MRA's longer
  // period.
  retry.early_gap_ns = std::min(2 * retry.early_gap_ns, retry.period_ns);
  const bool early = retry.early_gap_ns != 0 && now + retry.early_gap_ns < retry.period_end;
  retry.next_early = early ? now + retry.early_gap_ns : kNever;
  set_deadline(record, retry.deadline());
}

void Manager::poll(TimeNs now) {
  std::set<std::pair<TimeNs, Id>>& deadlines = impl_->deadlines;
  try {
    impl_->retry_pending_requests(now);
    while (!deadlines.empty() && deadlines.begin()->first <= now)
      impl_->on_deadline(*impl_->find(deadlines.begin()->second), now);
  } catch (const std::bad_alloc&) {
    impl_->drop(DropReason::no_resources);
  }
}

TimeNs Manager::next_deadline() const {
  TimeNs next = impl_->deadlines.empty() ? kNever : impl_->deadlines.begin()->first;
  for (const Impl::PendingRequest& request : impl_->pending_requests) next = std::min(next, request.until);
  return next;
}

bool Manager::take_event(Event& event) {
  if (impl_->events.empty()) return false;
  event = impl_->events.front();
  impl_->events.pop_front();
  return true;
}

bool Manager::has_events() const {
  return !impl_->events.empty();
}

// ---- calls of the program ----

int Manager::listen(const ListenParams& params, Id& id) {
  if (impl_->full()) return ENOMEM;
  try {
    const Id given = impl_->new_id();
    const bool first = !impl_->listeners.has_service(params.service_id);
    if (!impl_->listeners.add(given, params)) return EADDRINUSE;
    if (const int taken = first ? impl_->sender.claim_service(params.service_id) : 0; taken != 0) {
      impl_->listeners.remove(given);
      return taken;
    }
    ++impl_->listener_count;
    impl_->hurry_pending_requests();
    id = given;
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

int Manager::connect(const ConnectParams& params, TimeNs now, Id& id) {
  if (!ip_matches(params.ip, params.service_id) ||
      !fits(params.ip, params.private_data, wire::kReqPrivateBytes) ||
      params.transport == wire::CmTransport::rd || (params.qpn & ~wire::kQpnMask) != 0)
    return EINVAL;
  if (impl_->full()) return ENOMEM;
  try {
    Record& record = impl_->add_active_record(params.user, params.service_id);
    record.timing = params.timing;
    record.response_ns =
        ns_of_code(params.timing.remote_response_timeout) + 2 * ns_of_code(params.path.packet_lifetime);
    record.qp = {.path = params.path,
                 .local_qpn = params.qpn,
                 .rq_psn = params.starting_psn & wire::Psn::kMask,
                 .max_dest_rd_atomic = params.responder_resources,
                 .max_rd_atomic = params.initiator_depth,
                 .retry_count = params.retry_count,
                 .rnr_retry_count = params.rnr_retry_count,
                 .timeout = params.path.local_ack_timeout,
                 .transport = params.transport};
    const wire::PathHeader& path = params.path.av.path;
    const PrivateData field = private_field(params.ip, params.private_data);
    wire::CmReq req;
    req.local_id = record.id;
    req.service_id = params.service_id;
    req.ca_guid = impl_->config.ca_guid;
    req.qpn = params.qpn;
    req.responder_resources = params.responder_resources;
    req.initiator_depth = params.initiator_depth;
    req.remote_response_timeout = params.timing.remote_response_timeout;
    req.local_response_timeout = params.timing.local_response_timeout;
    req.transport = params.transport;
    req.flow_control = params.flow_control;
    req.starting_psn = record.qp.rq_psn;
    req.retry_count = params.retry_count;
    req.rnr_retry_count = params.rnr_retry_count;
    req.pkey = params.path.pkey;
    req.path_mtu = static_cast<uint8_t>(params.path.mtu);
    req.max_cm_retries = params.timing.max_retries;
    req.srq = params.srq;
    req.primary.local_gid = path.source_gid;
    req.primary.remote_gid = path.destination_gid;
    req.primary.flow_label = path.flow_label;
    req.primary.rate = params.path.rate;
    req.primary.traffic_class = path.traffic_class;
    req.primary.hop_limit = path.hop_limit;
    req.primary.local_ack_timeout = params.path.local_ack_timeout;
    req.private_data = field.bytes();
    wire::write(record.last, record.transaction_id, req);
    impl_->remember(record, wire::CmAttribute::req);
    impl_->enter(record, State::req_sent, now);
    impl_->start_retry(record, params.timing.max_retries, now);
    impl_->send(record);
    id = record.id;
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

int Manager::resolve(const ResolveParams& params, TimeNs now, Id& id) {
  if (!ip_matches(params.ip, params.service_id) ||
      !fits(params.ip, params.private_data, wire::kSidrReqPrivateBytes))
    return EINVAL;
  if (impl_->full()) return ENOMEM;
  try {
    Record& record = impl_->add_active_record(params.user, params.service_id);
    record.response_ns = ns_of_code(params.response_timeout) + 2 * ns_of_code(params.path.packet_lifetime);
    record.qp.path = params.path;
    const PrivateData field = private_field(params.ip, params.private_data);
    wire::write(record.last, record.transaction_id,
                wire::CmSidrReq{.request_id = record.id,
                                .pkey = params.path.pkey,
                                .service_id = params.service_id,
                                .private_data = field.bytes()});
    impl_->remember(record, wire::CmAttribute::sidr_req);
    impl_->enter(record, State::sidr_req_sent, now);
    impl_->start_retry(record, params.max_retries, now);
    impl_->send(record);
    id = record.id;
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

int Manager::accept(Id id, const AcceptParams& params, TimeNs now) {
  if (params.private_data.size() > wire::kRepPrivateBytes || (params.qpn & ~wire::kQpnMask) != 0)
    return EINVAL;
  return impl_->command(id, Input::accept, {.now = now, .accept = &params});
}

int Manager::confirm(Id id, std::span<const uint8_t> private_data, TimeNs now) {
  if (private_data.size() > wire::kRtuPrivateBytes) return EINVAL;
  return impl_->command(id, Input::confirm, {.now = now, .private_data = private_data});
}

int Manager::reject(Id id, wire::RejectReason reason, std::span<const uint8_t> info,
                    std::span<const uint8_t> private_data, TimeNs now) {
  if (info.size() > wire::kRejInfoBytes || private_data.size() > wire::kRejPrivateBytes) return EINVAL;
  return impl_->command(id, Input::reject,
                        {.now = now, .private_data = private_data, .reason = reason, .reject_info = info});
}

int Manager::delay(Id id, uint8_t service_timeout, std::span<const uint8_t> private_data, TimeNs now) {
  if (private_data.size() > wire::kMraPrivateBytes || service_timeout > 31) return EINVAL;
  return impl_->command(id, Input::delay,
                        {.now = now, .private_data = private_data, .service_timeout = service_timeout});
}

int Manager::disconnect(Id id, std::span<const uint8_t> private_data, TimeNs now) {
  if (private_data.size() > wire::kDreqPrivateBytes) return EINVAL;
  Record* const record = impl_->find_owned(id);
  if (record == nullptr) return EINVAL;
  return impl_->apply(*record, Input::disconnect, {.now = now, .private_data = private_data}) ? 0 : ENOTCONN;
}

int Manager::notify_established(Id id, TimeNs now) {
  const Record* const record = impl_->find_owned(id);
  if (record != nullptr && record->state == State::established) return EISCONN;
  return impl_->command(id, Input::notify_established, {.now = now});
}

int Manager::answer(Id id, const ResolveAnswer& answer, TimeNs now) {
  if (answer.private_data.size() > wire::kSidrRepPrivateBytes || (answer.qpn & ~wire::kQpnMask) != 0)
    return EINVAL;
  return impl_->command(id, Input::answer, {.now = now, .answer = &answer});
}

void Manager::destroy(Id id, TimeNs now) {
  if (const Listener* const listener = impl_->listeners.find(id)) {
    const uint64_t service_id = listener->params.service_id;
    impl_->listeners.remove(id);
    --impl_->listener_count;
    if (!impl_->listeners.has_service(service_id)) impl_->sender.release_service(service_id);
    // The program does not know requests whose events it has not taken, so destroy them too.
    std::vector<Id> untaken;
    for (const Event& event : impl_->events)
      if (event.listener == id) untaken.push_back(event.id);
    for (const Id request : untaken) destroy(request, now);
    return;
  }
  Record* const record = impl_->find_owned(id);
  if (record == nullptr) return;
  impl_->purge_events(id);
  record->orphan = true;
  // If the input is not valid in this state, the exchange completes without further events.
  static_cast<void>(impl_->apply(*record, Input::destroy, {.now = now}));
}

void Manager::destroy_all(TimeNs now) {
  impl_->events.clear();
  std::vector<Id> owned;
  for (const auto& [id, record] : impl_->records)
    if (!record->orphan) owned.push_back(id);
  for (const Id id : owned) destroy(id, now);
  while (const Listener* const listener = impl_->listeners.first()) destroy(listener->id, now);
}

bool Manager::set_user(Id id, uint64_t user) {
  Record* const record = impl_->find_owned(id);
  if (record == nullptr) return false;
  record->user = user;
  return true;
}

bool Manager::settings(Id id, QpSettings& out) const {
  const Record* const record = impl_->find_owned(id);
  if (record == nullptr) return false;
  out = record->qp;
  return true;
}

std::optional<State> Manager::state(Id id) const {
  if (impl_->listeners.find(id) != nullptr) return State::listening;
  const Record* const record = impl_->find_owned(id);
  return record != nullptr ? std::optional(record->state) : std::nullopt;
}

const ManagerCounters& Manager::counters() const {
  return impl_->counters;
}

}  // namespace faultline::cm
