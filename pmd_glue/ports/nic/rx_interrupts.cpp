// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/ports/nic/rx_interrupts.hpp"

#include <cerrno>

#include <rte_ethdev.h>
#include <unistd.h>

namespace faultline::glue {
namespace {

// Some PMDs accept the configuration, and their NIC sends no interrupt. A frame may arrive between the sleep
// and the turn, so one silent frame proves nothing.
constexpr unsigned kMostSilent = 8;

}  // namespace

std::optional<RxInterrupts> RxInterrupts::find(uint16_t port, uint16_t queue_count) {
  std::vector<Queue> queues(queue_count);
  for (uint16_t queue = 0; queue < queue_count; ++queue) {
    // ethdev logs an error if it is asked for the descriptor of a PMD without this operation. Some PMDs start
    // with armed queues.
    if (rte_eth_dev_rx_intr_disable(port, queue) != 0) return std::nullopt;
    queues[queue].descriptor = rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue);
    if (queues[queue].descriptor < 0) return std::nullopt;
  }
  return RxInterrupts(port, std::move(queues));
}

std::vector<int> RxInterrupts::descriptors() const {
  std::vector<int> all;
  for (const Queue& queue : queues_) all.push_back(queue.descriptor);
  return all;
}

int RxInterrupts::arm(uint16_t queue) {
  if (queue >= queues_.size()) return -1;
  Queue& armed = queues_[queue];
  if (armed.descriptor >= 0 && !armed.is_armed)
    armed.is_armed = rte_eth_dev_rx_intr_enable(port_, queue) == 0;
  return armed.is_armed ? armed.descriptor : -1;
}

void RxInterrupts::disarm(uint16_t queue) {
  if (queue >= queues_.size() || !queues_[queue].is_armed) return;
  Queue& armed = queues_[queue];
  armed.is_armed = false;
  static_cast<void>(rte_eth_dev_rx_intr_disable(port_, queue));
  uint64_t count = 0;
  // With any other error it would stay readable.
  if (read(armed.descriptor, &count, sizeof count) < 0 && errno != EAGAIN) armed.descriptor = -1;
}

void RxInterrupts::note_wake(uint16_t queue, bool reported, bool received) {
  if (queue >= queues_.size() || !received) return;
  Queue& woken = queues_[queue];
  if (reported) woken.is_proven = true;
  if (!woken.is_proven && ++woken.silent == kMostSilent) woken.descriptor = -1;
}

}  // namespace faultline::glue
