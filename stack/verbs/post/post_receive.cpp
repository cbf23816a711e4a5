// SPDX-License-Identifier: BSD-3-Clause
// ibv_post_recv and ibv_post_srq_recv.
#include <algorithm>
#include <array>
#include <span>

#include "stack/verbs/post/work_request.hpp"

namespace faultline::verbs {

namespace {

int build_receive(transport::ReceiveRing& ring, const ibv_recv_wr& wr, transport::ReceiveWqe& wqe) {
  const uint32_t sge_count = static_cast<uint32_t>(load_once(wr.num_sge));
  if (sge_count > ring.max_sge()) return EINVAL;
  wqe.wr_id = load_once(wr.wr_id);
  wqe.sge_count = sge_count;
  uint64_t room_bytes = 0;
  const int error = copy_elements(load_once(wr.sg_list), sge_count, ring.sges_of(&wqe), room_bytes);
  // The elements may be larger than any message.
  wqe.length_bytes = static_cast<uint32_t>(std::min<uint64_t>(room_bytes, kMaxMessageBytes));
  return error;
}

/// Requests the pages of posted receives before the data arrives, in batches, for elements outside the
/// settled range.
class ReceiveHints {
 public:
  ReceiveHints(odp::MemoryDomain& memory, const Pd& pd, odp::SettledRange& settled)
      : memory_(memory),
        domain_(pd.domain),
        any_wanted_(pd.odp_regions->load(std::memory_order_relaxed) != 0),
        settled_(settled) {
    if (any_wanted_ && settled.losses == memory.page_losses().load(std::memory_order_acquire)) now_ = settled;
  }
  ReceiveHints(const ReceiveHints&) = delete;
  ReceiveHints& operator=(const ReceiveHints&) = delete;
  ~ReceiveHints() { give(); }

  void add(std::span<const transport::Sge> sges) {
    if (!any_wanted_) return;
    for (const transport::Sge& sge : sges) {
      if (!now_.holds({sge.va, sge.lkey, sge.length_bytes})) keep(sge.va, sge.lkey, sge.length_bytes);
    }
  }

 private:
  static constexpr size_t kMost = 32;

  /// Not inlined: the compiler would load key and length as one word, right after the two stores that wrote
  /// them. Such a load stalls until both stores have left the store buffer.
  [[gnu::noinline]] void keep(uint64_t va, odp::Key key, uint32_t length_bytes) {
    if (count_ == kMost) give();
    hints_[count_++] = {va, key, length_bytes};
  }
  void give() {
    if (count_ != 0) memory_.hint_will_write(domain_, {hints_.data(), count_}, settled_);
    count_ = 0;
    now_ = settled_;
  }

  odp::MemoryDomain& memory_;
  const odp::ProtectionDomain domain_;
  const bool any_wanted_;
  odp::SettledRange& settled_;
  odp::SettledRange now_;  ///< copy of `settled_`, while it is valid
  size_t count_ = 0;
  std::array<odp::WriteHint, kMost> hints_;  // the first count_ elements are valid
};

/// Posts a chain to a ring whose lock is held. `not_ready` is the error if posting is not allowed now, or 0.
int post_chain(odp::MemoryDomain& memory, const Pd& pd, transport::ReceiveRing& ring, int not_ready,
               odp::SettledRange& settled, ibv_recv_wr* wr, ibv_recv_wr** bad_wr, bool& published) {
  ReceiveHints hints(memory, pd, settled);
  int error = 0;
  for (; wr != nullptr && error == 0; wr = wr->next) {
    transport::ReceiveWqe* const wqe = not_ready == 0 ? ring.prepare() : nullptr;
    if (wqe == nullptr)
      error = not_ready == 0 ? ENOMEM : not_ready;
    else
      error = build_receive(ring, *wr, *wqe);
    if (error != 0) {
      if (bad_wr != nullptr) *bad_wr = wr;
      break;
    }
    hints.add({ring.sges_of(wqe), wqe->sge_count});
    ring.advance();
    published = true;
  }
  if (published) ring.publish();
  return error;
}

}  // namespace

int post_recv(ibv_qp* ibv_qp_pointer, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Qp& qp = qp_of(ibv_qp_pointer);
  const ibv_qp& base = qp.qp_base;
  if (base.srq != nullptr || base.recv_cq == nullptr) {
    if (bad_wr != nullptr) *bad_wr = wr;  // the QP uses an SRQ, or it does not receive
    return EINVAL;
  }
  bool published = false;
  int error = 0;
  {
    const std::lock_guard lock(qp.receive_lock);
    const bool ready = transport::state_of(qp.transport_qp) != transport::QpState::reset;
    error = post_chain(qp.engine->backend->memory(), pd_of(base.pd), *qp.receive_ring, ready ? 0 : EINVAL,
                       qp.settled_receives, wr, bad_wr, published);
  }
  if (published) qp.core->ring_doorbell(qp.transport_qp);
  return error;
}

int post_srq_recv(ibv_srq* ibv_srq_pointer, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Srq& srq = srq_of(ibv_srq_pointer);
  bool published = false;
  const std::lock_guard lock(srq.lock);
  // No doorbell: a message takes a receive when it arrives.
  return post_chain(srq.engine->backend->memory(), pd_of(srq.pd),
                    transport::receive_ring_of(srq.transport_srq), 0, srq.settled_receives, wr, bad_wr,
                    published);
}

}  // namespace faultline::verbs
