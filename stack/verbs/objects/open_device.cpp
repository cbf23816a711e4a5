// SPDX-License-Identifier: BSD-3-Clause
#include <map>
#include <vector>

#include "stack/base/clock.hpp"
#include "stack/base/process/process_local.hpp"
#include "stack/verbs/objects/objects.hpp"

namespace faultline::verbs {

namespace {

struct RunningEngines {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<OpenDevice>> by_name;
  std::vector<std::shared_ptr<OpenDevice>> parents;  ///< of the process before the fork; never destroyed here
};

RunningEngines& running_engines() {
  static constinit ProcessLocal<RunningEngines> engines;
  return engines.get();
}

/// The recording begins within the call, so that it is recorded only here. A failed one has no recording.
void record_opening(DeviceBackend& backend, TimeNs begin) {
  record::ControlWriter* const writer = backend.controls();
  if (writer == nullptr) return;
  record::ControlRow row;
  row.call = record::ControlCall::open_device;
  row.time_ns = monotonic_ns();
  row.duration_ns = row.time_ns - begin;
  writer->add(row);
}

}  // namespace

OpenDevice::OpenDevice(std::shared_ptr<DeviceBackend> device_backend) : backend(std::move(device_backend)) {
  backend->set_event_sink(this);
}

OpenDevice::~OpenDevice() {
  backend->set_event_sink(nullptr);
}

void OpenDevice::on_qp_event(uint32_t /*qpn*/, void* user, transport::AsyncEvent event) {
  SharedQp& shared = *static_cast<SharedQp*>(user);
  const std::lock_guard lock(shared.handles_mutex);
  for (Qp* qp = shared.handles; qp != nullptr; qp = qp->next_handle)
    context_of(qp->qp_base.context).events.raise(qp->event_source, static_cast<ibv_event_type>(event));
}

void OpenDevice::on_cq_event(transport::CompletionQueue* queue, transport::AsyncEvent event) {
  Cq& cq = *static_cast<Cq*>(queue);
  context_of(cq.context).events.raise(cq.event_source, static_cast<ibv_event_type>(event));
}

void OpenDevice::on_completion(transport::CompletionQueue* queue) {
  Cq& cq = *static_cast<Cq*>(queue);
  static_cast<CompletionChannel*>(cq.channel)->raise(cq);
}

void OpenDevice::on_srq_event(transport::SharedReceiveQueue* queue, transport::AsyncEvent event) {
  Srq& srq = *static_cast<Srq*>(queue->user);
  context_of(srq.context).events.raise(srq.event_source, static_cast<ibv_event_type>(event));
}

void OpenDevice::on_device_event(transport::AsyncEvent event) {
  const std::lock_guard lock(contexts_mutex_);
  if (event == transport::AsyncEvent::device_fatal)
    for (RemovalListener* listener : listeners_) listener->on_device_removed();
  for (Context* context = contexts_; context != nullptr; context = context->next) {
    EventSource* source = nullptr;
    switch (event) {
      case transport::AsyncEvent::port_active:
        source = &context->port_active;
        break;
      case transport::AsyncEvent::port_error:
        source = &context->port_error;
        break;
      default:
        source = &context->device_fatal;
        break;
    }
    context->events.raise_last(*source, static_cast<ibv_event_type>(event));
  }
}

void OpenDevice::add_context(Context& context) {
  const std::lock_guard lock(contexts_mutex_);
  context.next = contexts_;
  contexts_ = &context;
}

void OpenDevice::remove_context(Context& context) {
  const std::lock_guard lock(contexts_mutex_);
  Context** link = &contexts_;
  while (*link != &context) link = &(*link)->next;
  *link = context.next;
}

void OpenDevice::add_listener(RemovalListener& listener) {
  const std::lock_guard lock(contexts_mutex_);
  listeners_.push_back(&listener);
}

void OpenDevice::remove_listener(RemovalListener& listener) {
  const std::lock_guard lock(contexts_mutex_);
  std::erase(listeners_, &listener);
}

std::shared_ptr<OpenDevice> join_engine(const std::string& name, std::string& error) {
  RunningEngines& engines = running_engines();
  const std::lock_guard lock(engines.mutex);
  std::weak_ptr<OpenDevice>& slot = engines.by_name[name];
  if (std::shared_ptr<OpenDevice> engine = slot.lock()) return engine;
  std::shared_ptr<DeviceBackend> backend = open_device(name, error);
  if (backend == nullptr) return nullptr;
  auto engine = std::make_shared<OpenDevice>(std::move(backend));
  slot = engine;
  return engine;
}

std::shared_ptr<OpenDevice> running_engine(const std::string& name) {
  RunningEngines& engines = running_engines();
  const std::lock_guard lock(engines.mutex);
  const auto found = engines.by_name.find(name);
  return found == engines.by_name.end() ? nullptr : found->second.lock();
}

OpenDevice* open_device_of(Context& context) {
  OpenDevice* const started = context.started.load(std::memory_order_acquire);
  if (started != nullptr && !started->is_of_parent_process()) return started;
  const std::lock_guard lock(context.start_mutex);
  if (context.engine != nullptr && context.engine->is_of_parent_process()) {
    // Objects inherited from the parent refer to the parent's engine.
    if (context.live_objects.load(std::memory_order_acquire) != 0) {
      set_last_error(
          "faultline: the context has objects of the process that this one was forked from: open the device "
          "anew");
      return fail(EIO);
    }
    context.started.store(nullptr, std::memory_order_release);
    RunningEngines& engines = running_engines();
    const std::lock_guard engines_lock(engines.mutex);
    engines.parents.push_back(std::move(context.engine));
  }
  if (context.engine == nullptr) {
    std::string error;
    const TimeNs begin = monotonic_ns();
    try {
      context.engine = join_engine(context.owner->description.name, error);
    } catch (const std::bad_alloc&) {
      return fail(ENOMEM);
    }
    if (context.engine == nullptr) {
      set_last_error(std::move(error));
      return fail(ENODEV);
    }
    context.engine->add_context(context);
    record_opening(*context.engine->backend, begin);
    context.started.store(context.engine.get(), std::memory_order_release);
  }
  return context.engine.get();
}

}  // namespace faultline::verbs
