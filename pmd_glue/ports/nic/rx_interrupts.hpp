// SPDX-License-Identifier: BSD-3-Clause
// The receive interrupts of a NIC: one descriptor a queue, which becomes readable when a frame arrives while
// the queue is armed. A queue that is polled is not armed, so that frames cost no interrupts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace faultline::glue {

class RxInterrupts {
 public:
  /// Finds the interrupts of a started port that was configured with them (rte_eth_conf::intr_conf.rxq), and
  /// leaves all queues unarmed; nullopt if the PMD has none.
  [[nodiscard]] static std::optional<RxInterrupts> find(uint16_t port, uint16_t queue_count);

  /// Returns the descriptors by queue. The PMD closes them when the port stops.
  [[nodiscard]] std::vector<int> descriptors() const;

  // --- each queue: the thread that holds the turn of its core ---

  /// Arms a queue; returns its descriptor, or -1 if the queue has to be polled. The caller looks for frames
  /// once more, since those that arrived before may raise no interrupt.
  [[nodiscard]] int arm(uint16_t queue);
  /// Clears the descriptor; call it before the frames that it reports are received.
  void disarm(uint16_t queue);
  /// Notes the result of the turn after a sleep: whether the descriptor had reported, and whether frames were
  /// received. A queue whose descriptor never reports is polled from then on.
  void note_wake(uint16_t queue, bool reported, bool received);
  /// True once the queue's interrupts have worked.
  [[nodiscard]] bool is_proven(uint16_t queue) const {
    return queue < queues_.size() && queues_[queue].is_proven;
  }

 private:
  struct Queue {
    int descriptor = -1;
    bool is_armed = false;
    bool is_proven = false;
    unsigned silent = 0;  ///< wake-ups with frames and without an interrupt
  };
  RxInterrupts(uint16_t port, std::vector<Queue> queues) : port_(port), queues_(std::move(queues)) {}

  uint16_t port_;
  std::vector<Queue> queues_;
};

}  // namespace faultline::glue
