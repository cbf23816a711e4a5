// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/rdma_cm/core.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "stack/base/process/process_local.hpp"
#include "stack/base/process/service_thread.hpp"

namespace faultline::abi {

namespace {

constinit ProcessLocal<CmCore> core_of_process;

uint64_t new_seed() {
  return std::random_device{}();
}

/// Returns the lowest unused number: librdmacm supports only identifiers below 65536.
template <typename Map>
uint32_t free_handle(const Map& used) {
  uint32_t handle = 0;
  for (const auto& [number, entry] : used) {
    if (number != handle) break;
    ++handle;
  }
  return handle;
}

}  // namespace

CmCore& CmCore::instance() {
  return core_of_process.get();
}

CmCore::CmCore()
    : ports(new_seed()),
      devices_({.connection = [this](CmDevice& device,
                                     const cm::Event& event) { on_connection_event(*this, device, event); },
                .removed =
                    [this](int index) {
                      run_in_background([this, index] { on_device_removed(*this, index); });
                    }}) {}

std::shared_ptr<Identifier> CmCore::create(EventQueue& queue, uint16_t port_space, ibv_qp_type type) {
  auto identifier = std::make_shared<Identifier>();
  identifier->key = ++last_key_;
  identifier->handle = free_handle(identifiers_);
  identifier->queue = &queue;
  identifier->port_space = port_space;
  identifier->type = type;
  identifier->starting_psn = random_psn();
  identifiers_[identifier->handle] = identifier;
  keys_[identifier->key] = identifier;
  return identifier;
}

std::shared_ptr<Identifier> CmCore::find(uint32_t handle) const {
  const auto found = identifiers_.find(handle);
  return found == identifiers_.end() ? nullptr : found->second;
}

std::shared_ptr<Identifier> CmCore::find_key(uint64_t key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? nullptr : found->second.lock();
}

std::vector<std::shared_ptr<Identifier>> CmCore::bound_to(int device_index) const {
  std::vector<std::shared_ptr<Identifier>> bound;
  for (const auto& [handle, identifier] : identifiers_)
    if (identifier->device != nullptr && identifier->device->index() == device_index)
      bound.push_back(identifier);
  return bound;
}

std::vector<std::shared_ptr<Identifier>> CmCore::bound_of(const EventQueue& queue) const {
  std::vector<std::shared_ptr<Identifier>> bound;
  for (const auto& [handle, identifier] : identifiers_)
    if (identifier->queue == &queue && identifier->device != nullptr) bound.push_back(identifier);
  return bound;
}

void CmCore::forget_events(EventQueue& queue, const std::function<bool(const QueuedEvent&)>& which) {
  if (std::erase_if(queue.events, which) != 0 && queue.events.empty()) queue.descriptor.clear();
}

void CmCore::destroy(Identifier& identifier) {
  const std::shared_ptr<Identifier> kept = find(identifier.handle);
  identifiers_.erase(identifier.handle);
  keys_.erase(identifier.key);
  identifier.published.withdraw();
  const auto end = [](CmDevice& device, cm::Id id) {
    device.service().with([&](cm::Manager& manager, TimeNs now) { manager.destroy(id, now); });
  };
  if (identifier.connection != 0) end(*identifier.device, identifier.connection);
  for (const Identifier::Listener& listener : identifier.listeners) end(*listener.device, listener.id);
  if (identifier.port_taken) ports.release(&identifier, identifier.port_space, identifier.source.port);
  while (!identifier.multicasts.empty()) leave(identifier, identifier.multicasts.back()->handle);
  // Requests that the program has not been notified of are destroyed with their listener.
  std::vector<std::shared_ptr<Identifier>> pending_requests;
  forget_events(*identifier.queue, [&](const QueuedEvent& event) {
    if (event.identifier.get() != &identifier) return false;
    if (event.request != nullptr) pending_requests.push_back(event.request);
    return true;
  });
  for (const auto& request : pending_requests) destroy(*request);
}

std::shared_ptr<Multicast> CmCore::join(const std::shared_ptr<Identifier>& identifier, uint64_t uid) {
  auto multicast = std::make_shared<Multicast>();
  multicast->handle = free_handle(multicasts_);
  multicast->uid = uid;
  multicasts_[multicast->handle] = identifier;
  identifier->multicasts.push_back(multicast);
  return multicast;
}

std::shared_ptr<Identifier> CmCore::find_joined(uint32_t multicast) const {
  const auto found = multicasts_.find(multicast);
  return found == multicasts_.end() ? nullptr : found->second.lock();
}

uint32_t CmCore::leave(Identifier& identifier, uint32_t multicast) {
  multicasts_.erase(multicast);
  const auto at = std::find_if(identifier.multicasts.begin(), identifier.multicasts.end(),
                               [&](const auto& joined) { return joined->handle == multicast; });
  const std::shared_ptr<Multicast> left = *at;
  identifier.multicasts.erase(at);
  forget_events(*identifier.queue, [&](const QueuedEvent& event) { return event.multicast == left; });
  return left->events_reported;
}

uint32_t CmCore::random_psn() {
  constexpr uint32_t kPsnMask = 0xffffff;
  // From the system's generator each time: a pseudo-random sequence could be predicted from PSNs that a peer
  // has seen. An attacker that knows a connection's PSN and can forge addresses can impersonate the peer.
  return std::random_device{}() & kPsnMask;
}

void CmCore::post(EventQueue& queue, QueuedEvent event) {
  queue.events.push_back(std::move(event));
  if (queue.events.size() == 1) queue.descriptor.set();
}

void CmCore::move(Identifier& identifier, EventQueue& to) {
  EventQueue& from = *identifier.queue;
  identifier.queue = &to;
  std::deque<QueuedEvent> moved;
  forget_events(from, [&](const QueuedEvent& event) {
    if (event.identifier.get() != &identifier) return false;
    moved.push_back(event);
    return true;
  });
  for (QueuedEvent& event : moved) {
    if (event.request != nullptr) event.request->queue = &to;
    post(to, std::move(event));
  }
}

void CmCore::add_queue(EventQueue& queue) {
  const std::lock_guard lock(mutex);
  queues_.push_back(&queue);
}

void CmCore::remove_queue(EventQueue& queue) {
  {
    const std::lock_guard lock(mutex);
    std::vector<std::shared_ptr<Identifier>> ended;
    for (const auto& [handle, identifier] : identifiers_)
      if (identifier->queue == &queue) ended.push_back(identifier);
    for (const auto& identifier : ended)
      if (identifiers_.contains(identifier->handle)) destroy(*identifier);
    std::erase(queues_, &queue);
  }
  devices_.close([this] {
    const std::lock_guard lock(mutex);
    return queues_.empty();
  });
}

void CmCore::end_at_exit() {
  // Notifies the peers, as the kernel does when a process ends. A forked child does not do so for connections
  // that it inherited.
  CmCore& core = instance();
  {
    const std::lock_guard lock(core.mutex);
    while (!core.identifiers_.empty()) core.destroy(*core.identifiers_.begin()->second);
  }
  core.devices_.close([] { return true; });
}

void CmCore::release_device(std::shared_ptr<CmDevice> device) {
  devices_.release(std::move(device));
}

std::shared_ptr<CmDevice> CmCore::open_device(const std::string& name) {
  auto device = devices_.open(name);
  // Registered after the devices' own exit handlers, so that it runs before them.
  static std::once_flag first;
  if (device != nullptr) std::call_once(first, [] { std::atexit(end_at_exit); });
  return device;
}

std::vector<std::shared_ptr<CmDevice>> CmCore::open_devices() {
  std::vector<std::shared_ptr<CmDevice>> all;
  for (const LocalAddress& address : local_addresses())
    if (all.empty() || all.back()->description().name != address.device)
      if (auto device = open_device(address.device)) all.push_back(std::move(device));
  return all;
}

void CmCore::run_in_background(std::function<void()> task) {
  // A neighbour that does not respond blocks one worker for long; the other workers continue.
  constexpr size_t kMaxWorkers = 8;
  const std::lock_guard lock(tasks_mutex_);
  tasks_.push_back(std::move(task));
  if (tasks_.size() > idle_workers_ && workers_ < kMaxWorkers) {
    ++workers_;
    start_service_thread([this] { work(); }).detach();
  }
  tasks_changed_.notify_one();
}

void CmCore::work() {
  constexpr std::chrono::seconds kIdleTime(1);
  std::unique_lock lock(tasks_mutex_);
  const auto has_task = [&] { return !tasks_.empty(); };
  while (true) {
    ++idle_workers_;
    // The last thread stays; the others end after kIdleTime without a task.
    if (workers_ == 1)
      tasks_changed_.wait(lock, has_task);
    else
      tasks_changed_.wait_for(lock, kIdleTime, has_task);
    --idle_workers_;
    if (tasks_.empty()) {
      if (workers_ == 1) continue;
      --workers_;
      return;
    }
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

QueuedEvent event_of(const std::shared_ptr<Identifier>& identifier, CmEvent kind, int status) {
  QueuedEvent event;
  event.identifier = identifier;
  event.answer.uid = identifier->uid;
  event.answer.id = identifier->handle;
  event.answer.event = static_cast<uint32_t>(kind);
  event.answer.status = static_cast<uint32_t>(status);
  return event;
}

}  // namespace faultline::abi
