// SPDX-License-Identifier: BSD-3-Clause
// faultline/faultline.h: the API in addition to verbs.
#include <algorithm>
#include <array>

#include "odp/guards.hpp"
#include "stack/include/faultline/faultline.h"
#include "stack/status/failure_text.hpp"
#include "stack/verbs/objects/counter_list.hpp"
#include "stack/verbs/objects/objects.hpp"

namespace faultline::verbs {

namespace {

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

}  // namespace

void set_last_error(std::string text) {
  last_error() = std::move(text);
}

FAULTLINE_VERB int faultline_configure(const char* path) {
  configure(path);
  std::string error;
  (void)list_devices(error);
  if (error.empty()) return 0;
  set_last_error(std::move(error));
  return EINVAL;
}

FAULTLINE_VERB const char* faultline_last_error() {
  return last_error().c_str();
}

FAULTLINE_VERB int faultline_query_counters(ibv_context* context, faultline_counter* counters,
                                            size_t capacity) {
  if (!is_live(context) || (counters == nullptr && capacity != 0)) {
    errno = EINVAL;
    return -1;
  }
  OpenDevice* const engine = open_device_of(context_of(context));
  if (engine == nullptr) return -1;
  try {
    const std::vector<CounterText>& texts = counter_texts();
    const std::vector<uint64_t> values = counter_values(*engine->backend);
    for (size_t i = 0; i < std::min(capacity, texts.size()); ++i)
      counters[i] = {texts[i].name.c_str(), values[i]};
    return static_cast<int>(texts.size());
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}

FAULTLINE_VERB int faultline_query_mr_counters(ibv_mr* mr, faultline_counter* counters, size_t capacity) {
  if (!is_live(mr) || (counters == nullptr && capacity != 0)) {
    errno = EINVAL;
    return -1;
  }
  odp::RegionCounters values;
  if (!context_of(mr->context).started.load()->backend->memory().region_counters(mr->lkey, values)) {
    errno = EINVAL;
    return -1;
  }
  constexpr size_t kCount = std::size(odp::kRegionCounterRows);
  for (size_t i = 0; i < std::min(capacity, kCount); ++i)
    counters[i] = {odp::kRegionCounterRows[i].name.data(), values.*odp::kRegionCounterRows[i].member};
  return static_cast<int>(kCount);
}

FAULTLINE_VERB int faultline_query_guards(faultline_guard* guards, size_t capacity) {
  static_assert(static_cast<int>(odp::GuardState::missing) == FAULTLINE_GUARD_MISSING);
  static_assert(static_cast<int>(odp::GuardState::limited) == FAULTLINE_GUARD_LIMITED);
  static_assert(static_cast<int>(odp::GuardState::works) == FAULTLINE_GUARD_WORKS);
  static_assert(sizeof(odp::Guard::text) == FAULTLINE_GUARD_TEXT_BYTES);
  if (guards == nullptr && capacity != 0) {
    errno = EINVAL;
    return -1;
  }
  const odp::GuardList list = odp::query_guards();
  for (size_t i = 0; i < std::min(capacity, list.count); ++i) {
    const odp::Guard& guard = list.guards[i];
    guards[i].name = guard.name;
    guards[i].state = static_cast<int>(guard.state);
    guards[i].error = guard.error;
    std::copy(guard.text.begin(), guard.text.end(), guards[i].text);
  }
  return static_cast<int>(list.count);
}

FAULTLINE_VERB int faultline_query_last_error(ibv_qp* qp, faultline_qp_error* error) {
  if (!is_live(qp) || error == nullptr) return refused(EINVAL);
  const Qp& handle = qp_of(qp);
  const SharedQp& shared = *handle.shared;
  status::FailureRecord record;
  if (!handle.engine->backend->last_failure(shared.core_index, qp->qp_num, shared.created_ns, record))
    return refused(ENOENT);
  *error = {};
  error->vendor_err = static_cast<uint32_t>(record.cause);
  error->status = record.status;
  error->time_ns = record.time_ns;
  error->qp_num = record.qpn;
  error->peer_qp_num = record.peer_qpn;
  error->psn = record.psn;
  const bool is_refusal = record.refused_key != 0 || record.refused_length_bytes != 0;
  error->key = is_refusal ? record.refused_key : record.key;
  error->address = is_refusal ? record.refused_va : record.remote_va;
  error->length = is_refusal ? record.refused_length_bytes : record.length_bytes;
  error->unacknowledged_packets = record.unanswered_packets;
  error->name = status::row_of(record.cause).name.data();  // a literal, which ends with a zero
  try {
    const std::string text = status::text_of(record);
    text.copy(error->text, sizeof error->text - 1);
  } catch (const std::bad_alloc&) {
    return refused(ENOMEM);
  }
  return 0;
}

FAULTLINE_VERB double faultline_measure_copy_crc(size_t bytes, unsigned milliseconds) {
  return measure_copy_crc(bytes, milliseconds);
}

FAULTLINE_VERB double faultline_measure_port_tx(ibv_context* context, size_t frame_bytes,
                                                unsigned milliseconds) {
  if (!is_live(context)) return -refused(EINVAL);
  OpenDevice* const engine = open_device_of(context_of(context));
  if (engine == nullptr) return -errno;
  if (engine->qps.load(std::memory_order_relaxed) != 0) return -refused(EBUSY);
  return engine->backend->measure_port_tx(frame_bytes, milliseconds);
}

FAULTLINE_VERB double faultline_measure_port_rx(ibv_context* context, unsigned milliseconds) {
  if (!is_live(context)) return -refused(EINVAL);
  OpenDevice* const engine = open_device_of(context_of(context));
  if (engine == nullptr) return -errno;
  return engine->backend->measure_port_rx(milliseconds);
}

FAULTLINE_VERB void faultline_wr_flush(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, size_t len,
                                       uint8_t type, uint8_t level) {
  qp_of(qp).wr_flush(qp, rkey, remote_addr, len, type, level);
}

FAULTLINE_VERB void faultline_progress(ibv_context* context) {
  if (OpenDevice* const engine = open_device_of(context_of(context))) engine->backend->drive();
}

}  // namespace faultline::verbs
