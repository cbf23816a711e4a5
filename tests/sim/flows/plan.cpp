// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/flows/plan.hpp"

#include <algorithm>
#include <cstring>

namespace faultline::sim {

using namespace transport;

namespace {

constexpr odp::ProtectionDomain kDomain = 1;
constexpr odp::ProtectionDomain kForeignDomain = 2;
constexpr uint32_t kQkey = 0x11111111;
constexpr uint32_t kLocalAccess = odp::kLocalWrite;
constexpr uint32_t kRemoteAccess =
    odp::kLocalWrite | odp::kRemoteWrite | odp::kRemoteRead | odp::kRemoteAtomic | odp::kFlushGlobal;
constexpr uint32_t kXrcDomain = 7;

bool fails_at_receive(Failure failure) {
  return failure == Failure::receive_too_small || failure == Failure::receive_hole ||
         failure == Failure::rnr_exhausted;
}

bool fails_locally(Failure failure) {
  return failure == Failure::bad_lkey || failure == Failure::local_hole || failure == Failure::rnr_exhausted;
}

CompletionStatus status_of(Failure failure) {
  switch (failure) {
    case Failure::bad_lkey:
    case Failure::local_hole:
      return CompletionStatus::local_protection;
    case Failure::bad_rkey:
    case Failure::remote_range:
    case Failure::not_permitted:
    case Failure::remote_hole:
      return CompletionStatus::remote_access;
    case Failure::receive_too_small:
      return CompletionStatus::remote_invalid_request;
    case Failure::receive_hole:
      return CompletionStatus::remote_operation;
    case Failure::rnr_exhausted:
      return CompletionStatus::rnr_retry_exceeded;
  }
  return CompletionStatus::general;
}

bool takes_receive(SendOpcode opcode) {
  return opcode == SendOpcode::send || opcode == SendOpcode::send_with_imm ||
         opcode == SendOpcode::rdma_write_with_imm;
}

}  // namespace

Plan::Plan(const Fabric& fabric, World& world, Random random)
    : fabric_(fabric), world_(world), random_(random), start_ns_(world.now()) {
  for (SimHost* host : world.hosts()) add_regions(*host);
  if (random_.chance(250)) {
    for (size_t i = 0; i < world.hosts().size(); ++i)
      shared_queues.push_back(std::make_unique<CompletionQueue>(4096));
  }
  const bool one_failure = fabric.theme == Theme::one_failure;
  if (one_failure) add_connection(true);
  if (has_many_hosts()) {
    add_traffic_of_many();
  } else {
    const uint64_t healthy = one_failure ? random_.below(3) : 1 + random_.below(4);
    for (uint64_t i = 0; i < healthy; ++i) add_connection(false);
    const bool all_kinds = fabric.theme == Theme::mixed || fabric.theme == Theme::odp_mix;
    if (all_kinds && random_.chance(330)) add_datagrams(QpType::ud);
    if (all_kinds && random_.chance(330)) add_datagrams(QpType::uc);
  }
  if (fabric.theme != Theme::odp_mix) return;
  if (fabric.takes_away) add_connection_on_lost_memory();
  for (SimHost* host : world.hosts()) run_program(*host);
}

void Plan::add_regions(SimHost& host) {
  HostMemory& memory = memories_.emplace_back();
  const auto add = [&](std::vector<Region*>& to, uint32_t access, bool on_demand) {
    Region& region = host.memory.add_region(kDomain, access, on_demand);
    region.zeroable = fabric_.theme == Theme::odp_mix && on_demand && random_.chance(500);
    region.extend(random_.below(5000), random_);
    to.push_back(&region);
  };
  add(memory.local, kLocalAccess, false);
  add(memory.remote, kRemoteAccess, false);
  if (fabric_.faults) {
    for (int i = 0; i < 2; ++i) {
      add(memory.local, kLocalAccess, true);
      add(memory.remote, kRemoteAccess, true);
    }
  }
  memory.not_permitted = &host.memory.add_region(kDomain, odp::kLocalWrite, fabric_.faults);
  memory.not_permitted->extend(65536, random_);
  host.memory.add_region(kForeignDomain, kRemoteAccess, false).extend(65536, random_);
}

Plan::HostMemory& Plan::memory_of(const Endpoint& end) {
  return (on_lost_memory_ ? lost_ : memories_)[end.host().number];
}

CompletionQueue* Plan::shared_queue_of(const SimHost& host) const {
  return shared_queues.empty() ? nullptr : shared_queues[host.number].get();
}

uint64_t Plan::place(Region& region, uint32_t length) {
  uint64_t gap = random_.below(48);
  const uint64_t end = region.base + region.bytes.size();
  if (random_.chance(150)) gap = (region.page_bytes - end % region.page_bytes) % region.page_bytes;
  region.extend(gap, random_);
  return region.extend(length, random_);
}

Region& Plan::pick(const std::vector<Region*>& regions, bool steady) {
  for (;;) {
    Region& region = *regions[random_.below(regions.size())];
    if (!steady || !region.zeroable) return region;
  }
}

std::vector<Sge> Plan::split(const Endpoint& end, uint32_t length, bool steady) {
  HostMemory& memory = memory_of(end);
  std::vector<Sge> sges;
  const uint64_t count = length == 0 ? 0 : std::min<uint64_t>(1 + random_.below(4), length);
  uint32_t left = length;
  for (uint64_t i = 0; i < count; ++i) {
    const auto rest = static_cast<uint32_t>(count - 1 - i);
    const uint32_t piece = rest == 0 ? left : random_.between32(1, left - rest);
    Region& region = pick(memory.local, steady);
    sges.push_back({place(region, piece), piece, region.key});
    left -= piece;
  }
  return sges;
}

uint32_t Plan::draw_length(uint32_t mtu) {
  switch (random_.below(8)) {
    case 0:
      return static_cast<uint32_t>(random_.below(5));
    case 1:
      return mtu * random_.between32(1, 4) - 1;
    case 2:
      return mtu * random_.between32(1, 4);
    case 3:
      return mtu * random_.between32(1, 4) + 1;
    case 4:
      return static_cast<uint32_t>(random_.below(mtu));
    case 5:
      if (mtu <= 1024 && random_.chance(200)) return mtu * 40 + static_cast<uint32_t>(random_.below(mtu));
      [[fallthrough]];
    default:
      return static_cast<uint32_t>(random_.below(uint64_t{5} * mtu));
  }
}

ConnectionScript Plan::draw_connection() {
  ConnectionScript connection;
  connection.path_mtu = static_cast<PathMtu>(random_.between(1, 5));
  const auto psn = [this] {
    return random_.chance(400) ? wire::Psn::kMask - static_cast<uint32_t>(random_.below(20))
                               : random_.next32() & wire::Psn::kMask;
  };
  connection.psn_a = psn();
  connection.psn_b = psn();
  connection.timeout = fabric_.timeout;
  connection.min_rnr_timer = static_cast<uint8_t>(random_.between(1, 14));
  connection.max_rd_atomic = static_cast<uint8_t>(random_.between(1, 8));
  return connection;
}

void Plan::add_connection(bool failing) {
  EndpointScript script;
  script.max_send_wr = random_.chance(500) ? 64 : random_.between32(1, 8);
  script.max_receive_wr = random_.chance(500) ? 64 : random_.between32(1, 8);
  script.signal_all = random_.chance(250);
  // A failure that counts RNR NAKs must not get one from a full receive ring.
  if (failing && fabric_.failure == Failure::rnr_exhausted) script.max_receive_wr = 64;
  // With many hosts a seed has connections that end beside others that stay.
  const bool ends_early =
      has_many_hosts() && !failing && fabric_.theme == Theme::reborn && random_.chance(600);
  // Shared receive queues do not flush their posted receives when a QP ends.
  const bool simple = failing || on_lost_memory_ || ends_early || fabric_.theme == Theme::dead_peer ||
                      (!has_many_hosts() && fabric_.theme != Theme::mixed && fabric_.theme != Theme::odp_mix);
  const bool xrc = !simple && random_.chance(150);
  script.own_srq = xrc || (!simple && random_.chance(200));
  const bool looped = !simple && random_.chance(150);
  SimHost& host_a = pick_host(nullptr);
  SimHost& host_b = looped ? host_a : pick_host(&host_a);
  EndpointScript script_b = script;
  if (xrc) {
    script.type = QpType::xrc_send;
    script.own_srq = false;
    script_b.type = QpType::xrc_recv;
    script_b.xrc_domain = kXrcDomain;
  }
  Endpoint& a =
      *ends.emplace_back(std::make_unique<Endpoint>(world_, host_a, script, shared_queue_of(host_a)));
  Endpoint& b =
      *ends.emplace_back(std::make_unique<Endpoint>(world_, host_b, script_b, shared_queue_of(host_b)));
  ConnectionScript connection = draw_connection();
  if (failing && fabric_.failure == Failure::rnr_exhausted)
    connection.rnr_retry = static_cast<uint8_t>(random_.below(4));
  if (!connect(world_, a, b, connection)) {
    error_ = "a connection was refused";
    return;
  }
  // A connection that is planned to fail has one direction only, so that one cause has one effect.
  const bool one_way = failing || on_lost_memory_ || xrc || random_.chance(300);
  const bool a_first = xrc || random_.chance(500);
  add_flows(a, b, connection, failing, one_way, a_first, script.signal_all);
  const bool reborn = has_many_hosts() ? ends_early : fabric_.theme == Theme::reborn && random_.chance(700);
  if (reborn && has_many_hosts() && random_.chance(600))
    move_to_another_peer(a, b, script, connection);
  else if (reborn)
    end_and_begin_again(a, b, connection, script.signal_all, 0);
  if (on_lost_memory_) {
    const size_t old = flows.size() - 1;
    const TimeNs life_ns = fabric_.spread_ns + random_.between(100'000, 30'000'000);
    take_away(end_and_begin_again(a, b, connection, script.signal_all, life_ns), *flows[old]);
  }
}

void Plan::add_flows(Endpoint& a, Endpoint& b, const ConnectionScript& connection, bool failing, bool one_way,
                     bool a_first, bool signal_all) {
  for (int direction = 0; direction < (one_way ? 1 : 2); ++direction) {
    const bool from_a = a_first == (direction == 0);
    Flow& flow = *flows.emplace_back(std::make_unique<Flow>(next_flow_++, from_a ? a : b, from_a ? b : a));
    flow.signal_all = signal_all;
    fill_flow(flow, bytes_of(connection.path_mtu), failing);
  }
}

void Plan::add_send(Flow& flow, SendOpcode opcode, uint32_t length) {
  PlannedSend send;
  SendRequest& request = send.request;
  request.opcode = opcode;
  request.flags = 0;
  if (random_.chance(600)) request.flags |= kSignaled;
  if (random_.chance(200)) request.flags |= kFence;
  if (random_.chance(200) && takes_receive(opcode)) request.flags |= kSolicited;
  request.immediate = random_.next32();
  HostMemory& remote = memory_of(flow.to());
  if (opcode == SendOpcode::flush || opcode == SendOpcode::atomic_write ||
      opcode == SendOpcode::atomic_cmp_and_swp || opcode == SendOpcode::atomic_fetch_and_add) {
    plan_answered(flow, send);
    flow.sends.push_back(std::move(send));
    return;
  }
  const bool read = opcode == SendOpcode::rdma_read;
  const bool write = opcode == SendOpcode::rdma_write || opcode == SendOpcode::rdma_write_with_imm;
  Region& far = pick(remote.remote, false);
  if (read && !written_.empty() && random_.chance(300)) {
    // Reads back the bytes of an earlier WRITE; no later request may write there.
    const size_t pick = random_.below(written_.size());
    const Written from = written_[pick];
    written_.erase(written_.begin() + static_cast<std::ptrdiff_t>(pick));
    request.remote_va = from.va;
    request.rkey = from.rkey;
    request.sges = split(flow.from(), from.length);
    send.payload = flow.sends[from.send].payload;
    send.reads_back = from.send;
    flow.sends.push_back(std::move(send));
    return;
  }
  if (!read && length <= 128 && random_.chance(400)) {
    request.flags |= kInline;
    for (uint32_t i = 0; i < length; ++i) request.inline_data.push_back(static_cast<uint8_t>(random_.next()));
    send.payload = request.inline_data;
  } else {
    request.sges = split(flow.from(), length);
    if (!read) {
      for (const Sge& sge : request.sges) {
        const uint8_t* at = flow.from().host().memory.find(sge.lkey)->at(sge.va);
        send.payload.insert(send.payload.end(), at, at + sge.length_bytes);
      }
    }
  }
  if (read || write) {
    const auto again = std::find_if(written_.begin(), written_.end(),
                                    [&](const Written& written) { return written.length == length; });
    if (write && again != written_.end() && random_.chance(500)) {
      request.remote_va = again->va;
      request.rkey = again->rkey;
      again->send = flow.sends.size();
    } else if (length != 0) {
      request.remote_va = place(far, length);
      request.rkey = far.key;
      if (write) written_.push_back({request.remote_va, request.rkey, length, flow.sends.size()});
    } else {
      // IBA 9.7.4.1.8: a request of length zero needs no valid key.
      request.remote_va = random_.next();
      request.rkey = random_.next32();
    }
    if (read && length != 0) {
      const uint8_t* at = far.at(request.remote_va);
      send.payload.assign(at, at + length);
    }
  }
  flow.sends.push_back(std::move(send));
}

/// The atomics of a flow share a few counters that no other request uses, so the old and new value of each is
/// known here.
void Plan::plan_answered(Flow& flow, PlannedSend& send) {
  SendRequest& request = send.request;
  HostMemory& remote = memory_of(flow.to());
  Region& far = pick(remote.remote, true);
  const auto bytes_of_value = [](uint64_t value) {
    std::vector<uint8_t> bytes(sizeof value);
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  };
  const auto place_aligned = [this](Region& region) {
    const uint64_t end = region.base + region.bytes.size();
    region.extend((8 - end % 8) % 8, random_);
    return region.extend(8, random_);
  };
  if (request.opcode == SendOpcode::flush) {
    request.remote_va = place(far, 100);
    request.rkey = far.key;
    const bool whole = random_.chance(500);
    request.fill = [whole](SendWqe& wqe) {
      wqe.flush_placement = 1;
      wqe.flush_selectivity = whole ? 1 : 0;
      wqe.length_bytes = 100;
    };
    return;
  }
  request.sges = split(flow.from(), 8, request.opcode == SendOpcode::atomic_write);
  if (request.opcode == SendOpcode::atomic_write) {
    request.remote_va = place_aligned(far);
    request.rkey = far.key;
    for (const Sge& sge : request.sges) {
      const uint8_t* at = flow.from().host().memory.find(sge.lkey)->at(sge.va);
      send.remote_after.insert(send.remote_after.end(), at, at + sge.length_bytes);
    }
    return;
  }
  if (counters_.size() < 3 || random_.chance(100)) {
    Counter counter{place_aligned(far), far.key, 0};
    std::memcpy(&counter.value, far.at(counter.va), sizeof counter.value);
    counters_.push_back(counter);
  }
  Counter& counter = counters_[random_.below(counters_.size())];
  request.remote_va = counter.va;
  request.rkey = counter.rkey;
  send.payload = bytes_of_value(counter.value);
  const uint64_t operand = random_.next();
  uint64_t compare = 0;
  if (request.opcode == SendOpcode::atomic_fetch_and_add) {
    counter.value += operand;
  } else {
    compare = random_.chance(600) ? counter.value : random_.next();
    if (compare == counter.value) counter.value = operand;
  }
  request.fill = [operand, compare](SendWqe& wqe) {
    wqe.swap_or_add = operand;
    wqe.compare = compare;
  };
  send.remote_after = bytes_of_value(counter.value);
}

void Plan::fill_flow(Flow& flow, uint32_t mtu, bool failing) {
  written_.clear();
  counters_.clear();
  const uint64_t count = 1 + random_.below(random_.chance(300) ? 40 : 12);
  static constexpr SendOpcode kOpcodes[] = {SendOpcode::send,
                                            SendOpcode::send_with_imm,
                                            SendOpcode::rdma_write,
                                            SendOpcode::rdma_write_with_imm,
                                            SendOpcode::rdma_read,
                                            SendOpcode::atomic_fetch_and_add,
                                            SendOpcode::atomic_cmp_and_swp,
                                            SendOpcode::atomic_write,
                                            SendOpcode::flush};
  const uint64_t kinds = random_.chance(600) ? std::size(kOpcodes) : 5;
  for (uint64_t i = 0; i < count; ++i) add_send(flow, kOpcodes[random_.below(kinds)], draw_length(mtu));
  if (failing) {
    spoil(flow, mtu);
  } else if (is_dead(flow.from().host()) || is_dead(flow.to().host())) {
    flow.failure = PlannedFailure{{}, {CompletionStatus::retry_exceeded}, {}};
  }
  for (const PlannedSend& send : flow.sends) {
    if (flow.pooled || !takes_receive(send.request.opcode)) continue;
    const bool write = send.request.opcode == SendOpcode::rdma_write_with_imm;
    const auto length = static_cast<uint32_t>(send.payload.size());
    uint32_t room = write ? static_cast<uint32_t>(random_.below(100)) : length;
    if (!write && random_.chance(500)) room += static_cast<uint32_t>(random_.below(500));
    const bool at_the_break = failing && flow.failure->at == static_cast<size_t>(&send - flow.sends.data());
    PlannedReceive receive;
    if (at_the_break && fabric_.failure == Failure::receive_too_small) {
      receive.sges = split(flow.to(), static_cast<uint32_t>(random_.below(length)));
    } else if (at_the_break && fabric_.failure == Failure::receive_hole) {
      Region& region = flow.to().host().memory.add_region(kDomain, kLocalAccess, true);
      const uint64_t va = region.extend(room, random_);
      region.add_hole(va + random_.below(length), 1);
      receive.sges = {{va, room, region.key}};
    } else if (at_the_break && fabric_.failure == Failure::rnr_exhausted) {
      break;
    } else {
      receive.sges = split(flow.to(), room);
    }
    flow.receives.push_back(std::move(receive));
  }
  set_times(flow);
  if (fabric_.theme == Theme::odp_mix && !on_lost_memory_)
    for (PlannedSend& send : flow.sends) send.zero_when_done = random_.chance(300);
}

/// Adds the request that cannot succeed, and some requests after it.
void Plan::spoil(Flow& flow, uint32_t mtu) {
  const Failure failure = fabric_.failure;
  const size_t index = flow.sends.size();
  SendOpcode opcode = SendOpcode::send;
  if (!fails_at_receive(failure)) {
    opcode = random_.chance(500) ? SendOpcode::rdma_write : SendOpcode::rdma_read;
    if (fails_locally(failure) && random_.chance(400)) opcode = SendOpcode::send;
  }
  written_.clear();
  const uint32_t length = std::max(draw_length(mtu), 1U);
  add_send(flow, opcode, length);
  SendRequest& request = flow.sends[index].request;
  const Endpoint& far = flow.to();
  switch (failure) {
    case Failure::bad_lkey: {
      request.flags = static_cast<uint8_t>(request.flags & ~kInline);
      request.sges = split(flow.from(), length);
      Sge& sge = request.sges[random_.below(request.sges.size())];
      sge.lkey ^= random_.chance(500) ? 1U : 0x7f00U << 8;
      break;
    }
    case Failure::local_hole: {
      request.flags = static_cast<uint8_t>(request.flags & ~kInline);
      Region& region = flow.from().host().memory.add_region(kDomain, kLocalAccess, true);
      const uint64_t va = region.extend(length, random_);
      region.add_hole(va + random_.below(length), 1);
      request.sges = {{va, length, region.key}};
      break;
    }
    case Failure::bad_rkey:
      request.rkey ^= 1U + static_cast<uint32_t>(random_.below(255));
      break;
    case Failure::remote_range: {
      Region& region = far.host().memory.add_region(kDomain, kRemoteAccess, fabric_.faults);
      region.extend(length, random_);
      request.rkey = region.key;
      request.remote_va = region.base + 1 + random_.below(length);
      if (random_.chance(300)) request.remote_va = ~uint64_t{0} - random_.below(length);
      break;
    }
    case Failure::not_permitted: {
      const Region& region = *memory_of(far).not_permitted;
      request.rkey = region.key;
      request.remote_va = region.base;
      break;
    }
    case Failure::remote_hole: {
      Region& region = far.host().memory.add_region(kDomain, kRemoteAccess, true);
      request.remote_va = region.extend(length, random_);
      request.rkey = region.key;
      region.add_hole(request.remote_va + random_.below(length), 1);
      break;
    }
    case Failure::receive_too_small:
    case Failure::receive_hole:
    case Failure::rnr_exhausted:
      break;
  }
  written_.clear();
  const uint64_t behind = random_.below(6);
  for (uint64_t i = 0; i < behind; ++i)
    add_send(flow, random_.chance(500) ? SendOpcode::send : SendOpcode::rdma_write, draw_length(mtu));
  PlannedFailure planned{index, {status_of(failure)}, {}};
  if (failure == Failure::receive_too_small) planned.receive_status = CompletionStatus::local_length;
  if (failure == Failure::receive_hole) planned.receive_status = CompletionStatus::local_protection;
  // The responder is silent after its NAK. If the NAK is lost, the requester exhausts its retries. So does a
  // requester that dropped a READ response because its own page was taken away.
  const bool pages_go = flow.from().host().memory.script().invalidations_limit != 0;
  if ((!fabric_.harmless_links || pages_go) && !fails_locally(failure))
    planned.allowed.push_back(CompletionStatus::retry_exceeded);
  flow.failure = planned;
}

void Plan::set_times(Flow& flow) {
  std::vector<TimeNs> times;
  for (size_t i = 0; i < flow.sends.size(); ++i) times.push_back(draw_time());
  std::sort(times.begin(), times.end());
  for (size_t i = 0; i < times.size(); ++i) flow.sends[i].post_ns = times[i];
  // Late receives cause RNR NAKs, so a connection that counts RNR NAKs gets its receives at once.
  const bool counted = flow.failure && fabric_.failure == Failure::rnr_exhausted;
  const bool late = !counted && random_.chance(400);
  const TimeNs first = start_ns_ + (late ? random_.below(fabric_.spread_ns) : 0);
  TimeNs at = counted ? 0 : first;
  for (PlannedReceive& receive : flow.receives) {
    receive.post_ns = at;
    if (late) at += random_.below(fabric_.spread_ns / flow.receives.size() + 1);
  }
  for (const PlannedSend& send : flow.sends) world_.at(send.post_ns, [] {});
  for (const PlannedReceive& receive : flow.receives) world_.at(receive.post_ns, [] {});
}

void Plan::add_datagrams(QpType type) {
  EndpointScript script;
  script.type = type;
  script.max_inline_bytes = 64;
  script.own_srq = random_.chance(200);
  SimHost& host_a = pick_host(nullptr);
  SimHost& host_b = pick_host(&host_a);
  Endpoint& a =
      *ends.emplace_back(std::make_unique<Endpoint>(world_, host_a, script, shared_queue_of(host_a)));
  Endpoint& b =
      *ends.emplace_back(std::make_unique<Endpoint>(world_, host_b, script, shared_queue_of(host_b)));
  const bool ud = type == QpType::ud;
  ConnectionScript connection;
  connection.path_mtu = static_cast<PathMtu>(random_.between(1, 5));
  connection.psn_a = random_.next32() & wire::Psn::kMask;
  connection.psn_b = wire::Psn::kMask - static_cast<uint32_t>(random_.below(8));
  const bool ready =
      ud ? activate_datagram(a, kQkey, random_.next32()) && activate_datagram(b, kQkey, random_.next32())
         : connect(world_, a, b, connection);
  if (!ready) {
    error_ = "a UD or UC QP was refused";
    return;
  }
  for (int direction = 0; direction < 2; ++direction) {
    Endpoint& from = direction == 0 ? a : b;
    Endpoint& to = direction == 0 ? b : a;
    DatagramFlow& flow = *datagrams.emplace_back(std::make_unique<DatagramFlow>(next_flow_++, from, to));
    if (!ud) flow.grh_bytes = 0;
    const uint64_t count = 1 + random_.below(30);
    fill_datagram_flow(flow, count);
    for (uint64_t i = 0; i < count + 8; ++i)
      flow.receives.push_back({split(to, ud ? wire::kGrhBytes + wire::kMaxPathMtuBytes : 9000, true), 0});
  }
}

void Plan::fill_datagram_flow(DatagramFlow& flow, uint64_t count) {
  const bool ud = flow.grh_bytes != 0;
  // All receives are posted before the first message. A lossless wire and memory without faults lose none. A
  // change to a shorter path reorders packets, which UC treats as loss.
  flow.lossless = fabric_.harmless_links && !fabric_.faults && (ud || !fabric_.paths_change);
  std::vector<TimeNs> times;
  for (uint64_t i = 0; i < count; ++i) times.push_back(draw_time());
  std::sort(times.begin(), times.end());
  for (const TimeNs when : times) {
    const uint32_t length =
        random_.chance(100) ? 0U : random_.between32(8, random_.chance(500) ? (ud ? 4096 : 9000) : 600);
    flow.sends.push_back(draw_datagram(flow.from(), flow.to(), length));
    if (!ud) flow.sends.back().request.ud_qpn = 0;
    flow.sends.back().post_ns = when;
    world_.at(when, [] {});
  }
}

PlannedSend Plan::draw_datagram(const Endpoint& from, const Endpoint& to, uint32_t length) {
  PlannedSend send;
  SendRequest& request = send.request;
  if (random_.chance(500)) request.opcode = SendOpcode::send_with_imm;
  if (random_.chance(200)) request.flags |= kSolicited;
  request.immediate = random_.next32();
  request.ud_qpn = to.qpn();
  request.ud_qkey = kQkey;
  request.av = world_.path(from.host(), to.host());
  if (length <= 64 && random_.chance(500)) {
    request.flags |= kInline;
    for (uint32_t i = 0; i < length; ++i) request.inline_data.push_back(static_cast<uint8_t>(random_.next()));
    send.payload = request.inline_data;
    return send;
  }
  request.sges = split(from, length, true);
  for (const Sge& sge : request.sges) {
    const uint8_t* at = from.host().memory.find(sge.lkey)->at(sge.va);
    send.payload.insert(send.payload.end(), at, at + sge.length_bytes);
  }
  return send;
}

}  // namespace faultline::sim
