// SPDX-License-Identifier: BSD-3-Clause
#include "stack/cm/service.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <random>
#include <utility>

#include "stack/base/process/fork_generation.hpp"
#include "stack/base/process/process_local.hpp"
#include "stack/base/process/service_thread.hpp"
#include "stack/cm/counter_source.hpp"
#include "stack/wire/link/link.hpp"

namespace faultline::cm {
namespace {

// A full QP1 drains within an engine turn. If it does not, the datagram is dropped, as the network may drop
// any.
constexpr int kSendTries = 100;
constexpr auto kSendPause = std::chrono::microseconds(100);

transport::PathMtu code_of_mtu(uint32_t bytes) {
  auto mtu = transport::PathMtu::mtu4096;
  while (mtu != transport::PathMtu::mtu256 && transport::bytes_of(mtu) > bytes)
    mtu = static_cast<transport::PathMtu>(static_cast<uint8_t>(mtu) - 1);
  return mtu;
}

/// The first ID of each device's next service, by CA GUID. A service ends with the last object of a program.
/// IDs that began at random each time could collide with IDs that a peer still remembers.
class Seeds {
 public:
  [[nodiscard]] uint64_t next(uint64_t ca_guid) {
    const std::lock_guard guard(mutex_);
    if (const auto found = seeds_.find(ca_guid); found != seeds_.end()) return found->second;
    std::random_device random;
    return uint64_t{random()} << 32 | random();
  }
  void keep(uint64_t ca_guid, uint64_t seed) {
    const std::lock_guard guard(mutex_);
    seeds_[ca_guid] = seed;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> seeds_;
};

constinit ProcessLocal<Seeds> seeds;

ManagerConfig complete(ManagerConfig config, const verbs::DeviceDescription& description) {
  config.ca_guid = wire::eui64(description.mac);
  config.comm_id_base = description.communication_id_base;
  config.comm_id_mask = description.communication_id_mask;
  config.max_mtu = code_of_mtu(description.max_path_mtu_bytes);
  config.seed = seeds.get().next(config.ca_guid);
  return config;
}

}  // namespace

Service::Service(std::shared_ptr<verbs::DeviceBackend> device, ManagerConfig config, EventHandler& handler)
    : device_(std::move(device)),
      handler_(handler),
      generation_(fork_generation()),
      manager_(complete(config, device_->description()), *this),
      shared_(std::make_unique<Shared>()) {
  shared_->inbox.reserve(kMaxArrivals);
  shared_->thread = start_service_thread([this] { run(); });
  set_sink(this);
  begin_counting(*this, device_->description().name);
}

Service::~Service() {
  if (fork_generation() != generation_) {
    static_cast<void>(shared_.release());
    return;
  }
  set_sink(nullptr);
  {
    const std::lock_guard guard(shared_->inbox_mutex);
    shared_->stop = true;
    shared_->woken.notify_one();
  }
  shared_->thread.join();
  send_last();
  end_counting(*this, device_->description().name);
  seeds.get().keep(wire::eui64(device_->description().mac), manager_.next_seed());
}

/// Notifies each peer once, since no thread remains to retransmit.
void Service::send_last() {
  manager_.destroy_all(device_->now());
  wait_until_sent();
}

void Service::wait_until_sent() {
  device_->drive();
  for (int tries = 0; core().has_mads_to_send() && tries < kSendTries; ++tries) {
    std::this_thread::sleep_for(kSendPause);
    device_->drive();
  }
  // The program now waits for an event and does not drive the engine until a reply arrives.
  device_->rest();
}

uint32_t Service::core_index() const {
  return transport::owner_of(wire::kManagementQpn, device_->core_count());
}

void Service::set_sink(transport::ManagementSink* sink) {
  struct Change {
    transport::Core& core;
    transport::ManagementSink* sink;
  } change{core(), sink};
  device_->call(
      core_index(),
      [](void* argument) {
        const Change& what = *static_cast<Change*>(argument);
        what.core.set_management_sink(what.sink);
      },
      &change);
}

// ---- called by the device ----

void Service::send_mad(const wire::MadBytes& mad, const transport::AddressVector& to, uint16_t pkey) {
  sent_ = true;
  for (int tries = 0; !core().send_mad(mad, to, pkey) && tries < kSendTries; ++tries) {
    device_->drive();
    std::this_thread::sleep_for(kSendPause);
  }
}

void Service::on_management(std::span<const uint8_t, wire::kMadBytes> mad, const MadSource& source,
                            TimeNs now) {
  Shared& shared = *shared_;
  const std::lock_guard guard(shared.inbox_mutex);
  if (shared.inbox.size() == kMaxArrivals) {
    overruns_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  Arrival& arrival = shared.inbox.emplace_back();
  std::copy(mad.begin(), mad.end(), arrival.mad.begin());
  arrival.source = source;
  arrival.at_ns = now;
  shared.woken.notify_one();
}

// ---- called by programs ----

Service::Turn::~Turn() {
  const TimeNs deadline = service_.manager_.next_deadline();
  const bool events = service_.manager_.has_events();
  const bool sent = std::exchange(service_.sent_, false);
  lock_.unlock();
  if (sent) service_.wait_until_sent();
  Shared& shared = *service_.shared_;
  const std::lock_guard guard(shared.inbox_mutex);
  if (!events && deadline >= shared.sleeps_until) return;
  shared.wake = true;
  shared.woken.notify_one();
}

// ---- the thread ----

void Service::run() {
  prepare_service_thread("fl-cm", false);
  Shared& shared = *shared_;
  std::vector<Arrival> arrived;
  arrived.reserve(kMaxArrivals);
  for (;;) {
    const TimeNs deadline = serve(arrived);
    std::unique_lock lock(shared.inbox_mutex);
    const auto woken = [&shared] { return shared.stop || shared.wake || !shared.inbox.empty(); };
    shared.sleeps_until = deadline;
    if (deadline == kNever) {
      shared.woken.wait(lock, woken);
    } else if (const TimeNs now = device_->now(); now < deadline) {
      shared.woken.wait_for(lock, std::chrono::nanoseconds(deadline - now), woken);
    }
    if (shared.stop) return;
    // Until the thread sleeps again, it has not seen any new deadline.
    shared.sleeps_until = kNever;
    shared.wake = false;
    arrived.clear();
    arrived.swap(shared.inbox);
  }
}

TimeNs Service::serve(const std::vector<Arrival>& arrived) {
  bool sent = false;
  {
    const std::lock_guard guard(shared_->manager_mutex);
    for (const Arrival& arrival : arrived) manager_.on_mad(arrival.mad, arrival.source, arrival.at_ns);
    manager_.poll(device_->now());
    sent = std::exchange(sent_, false);
  }
  if (sent) {
    device_->drive();
    device_->rest();
  }
  report_events();
  const std::lock_guard guard(shared_->manager_mutex);
  return manager_.next_deadline();
}

void Service::report_events() {
  for (;;) {
    Event event;
    {
      const std::lock_guard guard(shared_->manager_mutex);
      if (!manager_.take_event(event)) return;
    }
    handler_.on_cm_event(event);
  }
}

}  // namespace faultline::cm
