// SPDX-License-Identifier: BSD-3-Clause
// Polls completion queues: ibv_poll_cq, and the iteration of ibv_cq_ex.
#include <algorithm>
#include <ctime>

#include <endian.h>

#include "stack/verbs/objects/completion_channel.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"
#include "stack/verbs/trouble/poll_fate.hpp"

namespace faultline::verbs {

namespace {

/// Returns the value of verbs' union: the immediate in network order, or the invalidated key in host order.
__be32 immediate_of(const transport::Completion& completion) {
  if ((completion.flags & transport::kWithInvalidate) != 0) return completion.immediate_or_rkey;
  return htobe32(completion.immediate_or_rkey);
}

void fill(ibv_wc& wc, const transport::Completion& completion) {
  wc.wr_id = completion.wr_id;
  wc.status = static_cast<ibv_wc_status>(completion.status);
  wc.opcode = static_cast<ibv_wc_opcode>(completion.opcode);
  wc.vendor_err = completion.vendor_error;
  wc.byte_len = completion.byte_length;
  wc.imm_data = immediate_of(completion);
  wc.qp_num = completion.qpn;
  wc.src_qp = completion.source_qpn;
  wc.wc_flags = completion.flags;
  wc.pkey_index = 0;
  wc.slid = 0;
  wc.sl = completion.service_level;
  wc.dlid_path_bits = 0;
}

/// Returns whether the queue has completions, after an engine turn if it was empty. Called without the lock,
/// because a turn can be long and other threads may take completions meanwhile.
bool has_completions(Cq& cq) {
  if (!cq.empty()) return true;
  cq.engine->backend->drive();
  return !cq.empty();
}

class PollLock {
 public:
  explicit PollLock(Cq& cq) : cq_(cq) {
    if (!cq_.single_threaded) cq_.poll_lock.lock();
  }
  ~PollLock() {
    if (!cq_.single_threaded) cq_.poll_lock.unlock();
  }
  PollLock(const PollLock&) = delete;
  PollLock& operator=(const PollLock&) = delete;

 private:
  Cq& cq_;
};

}  // namespace

int poll_cq(ibv_cq* ibv_cq_pointer, int entries, ibv_wc* wc) {
  if (entries <= 0) return 0;
  if (wc == nullptr) return -EINVAL;
  Cq& cq = cq_of(ibv_cq_pointer);
  // ibv_poll_cq(3): "in case of a CQ overrun the CQ cannot be used".
  if (!has_completions(cq)) return cq.overrun() ? -1 : 0;
  const PollLock lock(cq);
  return static_cast<int>(
      cq.poll_each(static_cast<uint32_t>(entries),
                   [wc](const transport::Completion& completion) mutable { fill(*wc++, completion); }));
}

namespace {

/// Advances to the next completion: 0 or ENOENT.
int next(Cq& cq) {
  if (cq.poll({&cq.current, 1}) == 0) return ENOENT;
  cq.wr_id = cq.current.wr_id;
  cq.status = static_cast<ibv_wc_status>(cq.current.status);
  return 0;
}

/// Returns the batch's offset from the cores' clock to CLOCK_REALTIME.
int64_t wallclock_offset_ns(Cq& cq) {
  constexpr int64_t kNsPerSecond = 1'000'000'000;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * kNsPerSecond + now.tv_nsec - static_cast<int64_t>(cq.engine->backend->now());
}

/// ibv_create_cq_ex(3): the lock is held from a successful start_poll to end_poll.
template <bool kLocked>
int start_poll(ibv_cq_ex* ibv_cq_pointer, ibv_poll_cq_attr* attributes) {
  if (attributes->comp_mask != 0) return EINVAL;
  Cq& cq = cq_of(ibv_cq_pointer);
  if (!has_completions(cq)) return cq.overrun() ? EIO : ENOENT;
  if constexpr (kLocked) cq.poll_lock.lock();
  const int error = next(cq);
  if (error == 0 && cq.with_wallclock) cq.wallclock_offset_ns = wallclock_offset_ns(cq);
  if constexpr (kLocked) {
    if (error != 0)
      cq.poll_lock.unlock();
    else
      cq.in_batch.store(true, std::memory_order_relaxed);
  }
  return error;
}

int next_poll(ibv_cq_ex* cq) {
  return next(cq_of(cq));
}

template <bool kLocked>
void end_poll(ibv_cq_ex* ibv_cq_pointer) {
  if constexpr (kLocked) {
    Cq& cq = cq_of(ibv_cq_pointer);
    cq.in_batch.store(false, std::memory_order_seq_cst);
    cq.poll_lock.unlock();
    if (cq.owed_look.load(std::memory_order_seq_cst) != Cq::Look::none) look_at_waiting(cq);
  } else {
    static_cast<void>(ibv_cq_pointer);
  }
}

}  // namespace

int poll_cq_in_trouble(ibv_cq* cq, int entries, ibv_wc* wc) {
  if (entries <= 0) return 0;
  // The number of polls that find nothing depends on time, so a scenario does not count them.
  if (!has_completions(cq_of(cq))) return cq_of(cq).overrun() ? -1 : 0;
  if (trouble_of("ibv_poll_cq", cq) != 0) return -1;
  const uint32_t most = decide_poll(cq_of(cq));
  if (most >= static_cast<uint32_t>(entries)) return poll_cq(cq, entries, wc);
  const int found = most == 0 ? 0 : poll_cq(cq, static_cast<int>(most), wc);
  arrive_late(cq_of(cq));
  return found;
}

namespace {

template <bool kLocked>
int start_poll_in_trouble(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
  if (!has_completions(cq_of(cq))) return cq_of(cq).overrun() ? EIO : ENOENT;
  if (const int error = trouble_of("ibv_start_poll", ibv_cq_ex_to_cq(cq)); error != 0) return error;
  const uint32_t most = decide_poll(cq_of(cq));
  if (most == 0) {
    arrive_late(cq_of(cq));
    return ENOENT;
  }
  const int error = start_poll<kLocked>(cq, attributes);
  if (error == 0) cq_of(cq).left_of_batch = most - 1;
  return error;
}

int next_poll_in_trouble(ibv_cq_ex* cq) {
  uint32_t& left = cq_of(cq).left_of_batch;
  if (left == 0) return ENOENT;
  --left;
  return next(cq_of(cq));
}

template <bool kLocked>
void end_poll_in_trouble(ibv_cq_ex* cq) {
  const bool has_more = cq_of(cq).left_of_batch == 0;
  end_poll<kLocked>(cq);
  if (has_more) arrive_late(cq_of(cq));
}

template <bool kLocked>
void set_functions(Cq& cq) {
  const bool in_trouble = trouble::director() != nullptr;
  cq.start_poll = in_trouble ? start_poll_in_trouble<kLocked> : start_poll<kLocked>;
  cq.next_poll = in_trouble ? next_poll_in_trouble : next_poll;
  cq.end_poll = in_trouble ? end_poll_in_trouble<kLocked> : end_poll<kLocked>;
}

}  // namespace

void set_poll_functions(Cq& cq) {
  cq.single_threaded ? set_functions<false>(cq) : set_functions<true>(cq);
  cq.read_opcode = [](ibv_cq_ex* x) { return static_cast<ibv_wc_opcode>(cq_of(x).current.opcode); };
  cq.read_vendor_err = [](ibv_cq_ex* x) { return cq_of(x).current.vendor_error; };
  cq.read_byte_len = [](ibv_cq_ex* x) { return cq_of(x).current.byte_length; };
  cq.read_imm_data = [](ibv_cq_ex* x) { return immediate_of(cq_of(x).current); };
  cq.read_qp_num = [](ibv_cq_ex* x) { return cq_of(x).current.qpn; };
  cq.read_src_qp = [](ibv_cq_ex* x) { return cq_of(x).current.source_qpn; };
  cq.read_wc_flags = [](ibv_cq_ex* x) { return static_cast<unsigned int>(cq_of(x).current.flags); };
  // RoCE has no LIDs, and the priority of a received frame is local to its link.
  cq.read_slid = [](ibv_cq_ex*) { return uint32_t{0}; };
  cq.read_sl = [](ibv_cq_ex* x) { return uint8_t{cq_of(x).current.service_level}; };
  cq.read_dlid_path_bits = [](ibv_cq_ex*) { return uint8_t{0}; };
  cq.read_completion_ts = [](ibv_cq_ex* x) { return uint64_t{cq_of(x).current.timestamp_ns}; };
  cq.read_completion_wallclock_ns = [](ibv_cq_ex* x) {
    const Cq& own = cq_of(x);
    return own.current.timestamp_ns + static_cast<uint64_t>(own.wallclock_offset_ns);
  };
}

}  // namespace faultline::verbs
