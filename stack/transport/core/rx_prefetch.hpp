// SPDX-License-Identifier: BSD-3-Clause
// Prefetches the state that a received burst will use: QPs, progress of the sends that responses complete,
// and their WQEs. Each step needs the data of the previous step. The steps therefore run one QP apart and
// fetch a few lines at a time (TxPrefetch). Consecutive frames mostly belong to the same QP; its lines are
// fetched once. Owner: the core's thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "stack/transport/qp/queue_pair.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::transport {

template <size_t kBurst>
class RxPrefetch {
 public:
  /// Adds a packet of the burst, in burst order. `qp` is the table entry in the packet's slot (perhaps
  /// another QP), or nullptr.
  void add(QueuePair* qp, const wire::Packet& packet, size_t at) {
    if (qp == nullptr) return;
    qps_[count_] = qp;
    is_request_[count_] = packet.info->request;
    first_packets_[count_++] = static_cast<uint8_t>(at);
  }
  /// True if reach() has more to fetch.
  [[nodiscard]] bool has_several() const { return count_ > 1; }
  void start() {
    if (count_ == 0) return;
    for (size_t i = 0; i < kLinesAhead; ++i) fetch_lines(i);
    fetch_progress(0);
    fetch_progress(1);
  }
  /// Called when the packet at `at` is processed next.
  void reach(size_t at) {
    if (at_ + 1 >= count_ || first_packets_[at_ + 1] != at) return;
    ++at_;
    fetch_lines(at_ + kLinesAhead);
    fetch_progress(at_ + 2);
    fetch_sends(at_ + 1);
  }

 private:
  static constexpr size_t kLinesAhead = 3;

  void fetch_lines(size_t i) const {
    if (i >= count_) return;
    if (is_request_[i])
      qps_[i]->prefetch_to_receive();
    else
      qps_[i]->prefetch_to_send();
  }
  [[nodiscard]] bool ends_sends(size_t i) const {
    return i < count_ && !is_request_[i] && qps_[i]->awaits_answers();
  }
  void fetch_progress(size_t i) const {
    if (ends_sends(i)) qps_[i]->prefetch_progress(qps_[i]->send_ring.head(), qps_[i]->requester.started);
  }
  void fetch_sends(size_t i) const {
    if (ends_sends(i)) qps_[i]->prefetch_completion(qps_[i]->send_ring.head(), qps_[i]->requester.started);
  }

  // One entry for each packet that follows a packet of a different QP.
  std::array<QueuePair*, kBurst> qps_;
  std::array<bool, kBurst> is_request_;
  std::array<uint8_t, kBurst> first_packets_;
  size_t count_ = 0;
  size_t at_ = 0;
};

}  // namespace faultline::transport
