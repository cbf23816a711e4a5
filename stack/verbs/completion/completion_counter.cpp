// SPDX-License-Identifier: BSD-3-Clause
// Completion counters (ibv_create_comp_cntr(3), rdma-core 65). The transport core adds to them; a read is a
// load.
#include "stack/transport/qp/completion_counter.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

#include "stack/verbs/completion/later_calls.hpp"
#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

namespace {

using transport::CompletionCounter;
using transport::CountedOperation;
using transport::CountedOperations;

constexpr uint32_t bit_of(CountedOperation operation) {
  return 1U << static_cast<unsigned>(operation);
}
constexpr uint32_t kKnownOperations = bit_of(CountedOperation::count_) - 1;
constexpr uint32_t kSupportedOperations = kKnownOperations & ~bit_of(CountedOperation::remote_rdma_read);

Counter* counter_of(ibv_comp_cntr* pointer) {
  auto* const counter = reinterpret_cast<Counter*>(pointer);
  return is_live(counter, ObjectKind::counter) ? counter : nullptr;
}

/// Calls change(CompletionCounter&). Returns 0 or EINVAL.
template <typename Change>
int with_counter(ibv_comp_cntr* pointer, Change change) {
  Counter* const counter = counter_of(pointer);
  if (counter == nullptr) return refused(EINVAL);
  change(*counter);
  return 0;
}

int read_part(ibv_comp_cntr* pointer, uint64_t* value, std::atomic<uint64_t> CompletionCounter::*part) {
  if (value == nullptr) return refused(EINVAL);
  return with_counter(
      pointer, [&](CompletionCounter& counted) { *value = (counted.*part).load(std::memory_order_acquire); });
}

int attach_counter(Qp& qp, Counter& counter, uint32_t operations) {
  SharedQp& shared = *qp.shared;
  const std::lock_guard lock(shared.control_mutex);
  CountedOperations::Counters counters{};
  if (shared.counted != nullptr) counters = shared.counted->counters();
  uint32_t added = 0;
  for (size_t operation = 0; operation < counters.size(); ++operation) {
    if ((operations & 1U << operation) == 0) continue;
    if (counters[operation] != nullptr) return EBUSY;
    counters[operation] = &counter;
    ++added;
  }
  auto counted = std::make_unique<CountedOperations>(counters);
  int error = 0;
  qp.engine->on_owner(shared.core_index, [&] {
    const transport::QpState state = transport::state_of(shared.transport_qp);
    if (state != transport::QpState::reset && state != transport::QpState::init)
      error = EINVAL;
    else
      transport::Core::set_counted(shared.transport_qp, counted.get());
  });
  if (error != 0) return error;
  shared.counted = std::move(counted);
  counter.attachments.fetch_add(added, std::memory_order_relaxed);
  return 0;
}

}  // namespace

void detach_counters(SharedQp& shared) {
  if (shared.counted == nullptr) return;
  for (CompletionCounter* const counted : shared.counted->counters())
    if (counted != nullptr)
      static_cast<Counter*>(counted)->attachments.fetch_sub(1, std::memory_order_release);
  shared.counted.reset();
}

FAULTLINE_VERB int _ibv_query_comp_cntr_caps(ibv_context* context, ibv_comp_cntr_caps* caps,
                                             size_t caps_bytes) {
  if (!is_live(context) || caps == nullptr) return refused(EINVAL);
  const CounterCapabilities known{
      .max_value = UINT64_MAX, .max_counters = kMaxCounters, .supported_operations = kSupportedOperations};
  std::memset(caps, 0, caps_bytes);
  std::memcpy(caps, &known, std::min(caps_bytes, sizeof known));
  return 0;
}

FAULTLINE_VERB ibv_comp_cntr* ibv_create_comp_cntr(ibv_context* context,
                                                   ibv_comp_cntr_init_attr* attributes) {
  if (!is_live(context) || attributes == nullptr) return fail(EINVAL);
  const auto& wanted = *reinterpret_cast<const CounterAttributes*>(attributes);
  if (wanted.comp_mask != 0 || wanted.flags != 0) return fail(EINVAL);
  if (wanted.type > static_cast<uint32_t>(CounterType::bytes)) return fail(ENOTSUP);
  if (const int error = trouble_of("ibv_create_comp_cntr", context); error != 0) return fail(error);
  OpenDevice* const engine = open_device_of(context_of(context));
  if (engine == nullptr) return nullptr;
  if (!acquire(engine->counters, kMaxCounters)) return fail(ENOMEM);
  auto* const counter = new (std::nothrow) Counter();
  if (counter == nullptr) {
    release(engine->counters);
    return fail(ENOMEM);
  }
  counter->context = context;
  counter->handle = engine->last_counter_handle.fetch_add(1, std::memory_order_relaxed) + 1;
  counter->engine = engine;
  counter->counts_bytes = wanted.type == static_cast<uint32_t>(CounterType::bytes);
  context_of(context).live_objects.fetch_add(1, std::memory_order_relaxed);
  return reinterpret_cast<ibv_comp_cntr*>(counter);
}

FAULTLINE_VERB int ibv_destroy_comp_cntr(ibv_comp_cntr* pointer) {
  Counter* const counter = counter_of(pointer);
  if (counter == nullptr) return refused(EINVAL);
  if (counter->attachments.load(std::memory_order_acquire) != 0) return refused(EBUSY);
  if (const int error = trouble_of("ibv_destroy_comp_cntr", counter->context); error != 0) return error;
  context_of(counter->context).live_objects.fetch_sub(1, std::memory_order_release);
  release(counter->engine->counters);
  delete counter;
  return 0;
}

FAULTLINE_VERB int ibv_set_comp_cntr(ibv_comp_cntr* pointer, uint64_t value) {
  return with_counter(pointer, [=](CompletionCounter& counted) { counted.completed.store(value); });
}
FAULTLINE_VERB int ibv_set_err_comp_cntr(ibv_comp_cntr* pointer, uint64_t value) {
  return with_counter(pointer, [=](CompletionCounter& counted) { counted.failed.store(value); });
}
FAULTLINE_VERB int ibv_inc_comp_cntr(ibv_comp_cntr* pointer, uint64_t amount) {
  return with_counter(pointer, [=](CompletionCounter& counted) { counted.completed.fetch_add(amount); });
}
FAULTLINE_VERB int ibv_inc_err_comp_cntr(ibv_comp_cntr* pointer, uint64_t amount) {
  return with_counter(pointer, [=](CompletionCounter& counted) { counted.failed.fetch_add(amount); });
}
FAULTLINE_VERB int ibv_read_comp_cntr(ibv_comp_cntr* pointer, uint64_t* value) {
  return read_part(pointer, value, &CompletionCounter::completed);
}
FAULTLINE_VERB int ibv_read_err_comp_cntr(ibv_comp_cntr* pointer, uint64_t* value) {
  return read_part(pointer, value, &CompletionCounter::failed);
}

FAULTLINE_VERB int ibv_qp_attach_comp_cntr(ibv_qp* qp, ibv_comp_cntr* pointer,
                                           ibv_qp_attach_comp_cntr_attr* attributes) {
  Counter* const counter = counter_of(pointer);
  if (!is_live(qp) || counter == nullptr || attributes == nullptr || counter->context != qp->context)
    return refused(EINVAL);
  const auto& wanted = *reinterpret_cast<const AttachAttributes*>(attributes);
  if (wanted.comp_mask != 0 || wanted.operations == 0) return refused(EINVAL);
  if ((wanted.operations & ~kSupportedOperations) != 0) return refused(ENOTSUP);
  if (const int error = trouble_of("ibv_qp_attach_comp_cntr", qp); error != 0) return error;
  try {
    return refused(attach_counter(qp_of(qp), *counter, wanted.operations));
  } catch (const std::bad_alloc&) {
    return refused(ENOMEM);
  }
}

}  // namespace faultline::verbs
