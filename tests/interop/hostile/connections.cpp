// SPDX-License-Identifier: BSD-3-Clause
#include "tests/interop/hostile/connections.hpp"

#include <algorithm>
#include <chrono>

#include "tests/hang_limit.hpp"

namespace faultline::hostile {
namespace {

// So many requests wait for the slow service's program before it rejects the oldest.
constexpr size_t kHeld = kBacklog / 2;
constexpr uint32_t kQpn = 0x123456;

cm::ManagerConfig config() {
  cm::ManagerConfig config;
  config.listener_patience_ns = 40'000'000;  // as rdma_cm's device has it
  return config;
}

cm::Path path_between(verbs::DeviceBackend& from, verbs::DeviceBackend& to) {
  cm::Path path;
  path.av.path.source_mac = from.description().mac;
  path.av.path.destination_mac = to.description().mac;
  path.av.path.source_gid = from.description().gids[0];
  path.av.path.destination_gid = to.description().gids[0];
  return path;
}

}  // namespace

Connections::Connections(const std::shared_ptr<verbs::DeviceBackend>& served,
                         const std::shared_ptr<verbs::DeviceBackend>& asking)
    : served_device_(served),
      asking_device_(asking),
      served_(served, config(), *this),
      asking_(asking, config(), asker_) {
  for (const uint64_t service : {kSlowService, kQuickService}) {
    served_.with([service](cm::Manager& manager, TimeNs) {
      cm::Id id = 0;
      return manager.listen({.service_id = service, .backlog = kBacklog, .user = service}, id);
    });
  }
}

Connections::~Connections() = default;

void Connections::reach(Step step) {
  const std::lock_guard guard(mutex_);
  step_ = step;
  changed_.notify_all();
}

bool Connections::wait_for(Step step) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, faultline::test::hang_limit(), [&] { return step_ == step; });
}

void Connections::hold(cm::Id request, bool datagrams) {
  Held oldest;
  {
    const std::lock_guard guard(mutex_);
    held_.push_back({request, datagrams});
    most_held_ = std::max(most_held_, held_.size());
    if (held_.size() <= kHeld) return;
    oldest = held_.front();
    held_.pop_front();
  }
  served_.with([oldest](cm::Manager& manager, TimeNs now) {
    const int answered = oldest.datagrams
                             ? manager.answer(oldest.id, {.status = wire::SidrStatus::rejected}, now)
                             : manager.reject(oldest.id, wire::RejectReason::consumer_defined, {}, {}, now);
    manager.destroy(oldest.id, now);
    return answered;
  });
}

void Connections::on_cm_event(const cm::Event& event) {
  switch (event.kind) {
    case cm::EventKind::requested:
      if (event.listener_user == kSlowService) return hold(event.id, false);
      // Answered whatever it is; only the good peer's goes on from there.
      served_.with([&event](cm::Manager& manager, TimeNs now) {
        return manager.accept(event.id, {.qpn = kQpn + 1}, now);
      });
      return;
    case cm::EventKind::service_requested:
      return hold(event.id, true);
    case cm::EventKind::disconnected:
    case cm::EventKind::unreachable:
    case cm::EventKind::rejected:
    case cm::EventKind::time_wait_over: {
      {
        const std::lock_guard guard(mutex_);
        std::erase_if(held_, [&event](const Held& held) { return held.id == event.id; });
      }
      served_.with([&event](cm::Manager& manager, TimeNs now) {
        manager.destroy(event.id, now);
        return 0;
      });
      return;
    }
    default:
      return;
  }
}

void Connections::Asker::on_cm_event(const cm::Event& event) {
  if (event.kind == cm::EventKind::replied) owner.reach(Step::replied);
  if (event.kind == cm::EventKind::disconnected) owner.reach(Step::ended);
}

bool Connections::try_once() {
  reach(Step::asked);
  cm::Id id = 0;
  const cm::Path path = path_between(*asking_device_, *served_device_);
  const int error = asking_.with([&](cm::Manager& manager, TimeNs now) {
    return manager.connect(
        {.service_id = kQuickService,
         .path = path,
         .qpn = kQpn,
         .ip = wire::IpAddressing{path.av.path.source_gid, path.av.path.destination_gid, 5}},
        now, id);
  });
  const auto then = [&](auto what) {
    return asking_.with([&](cm::Manager& manager, TimeNs now) { return what(manager, now); }) == 0;
  };
  const bool done = error == 0 && wait_for(Step::replied) &&
                    then([&](cm::Manager& manager, TimeNs now) { return manager.confirm(id, {}, now); }) &&
                    then([&](cm::Manager& manager, TimeNs now) { return manager.disconnect(id, {}, now); }) &&
                    wait_for(Step::ended);
  static_cast<void>(then([&](cm::Manager& manager, TimeNs now) {
    manager.destroy(id, now);
    return 0;
  }));
  return done;
}

cm::ManagerCounters Connections::counters() {
  return served_.with([](cm::Manager& manager, TimeNs) { return manager.counters(); });
}

size_t Connections::held() {
  const std::lock_guard guard(mutex_);
  return held_.size();
}

size_t Connections::most_held() {
  const std::lock_guard guard(mutex_);
  return most_held_;
}

}  // namespace faultline::hostile
