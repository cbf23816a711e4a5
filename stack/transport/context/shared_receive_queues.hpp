// SPDX-License-Identifier: BSD-3-Clause
// The shared receive queues of a core, by number. Each core of a device has its own numbers. Owner: the
// core's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "stack/transport/qp/config.hpp"
#include "stack/transport/qp/shared_receive_queue.hpp"

namespace faultline::transport {

class SharedReceiveQueues {
 public:
  explicit SharedReceiveQueues(const CoreConfig& config) : config_(config) {}

  /// Returns nullptr without memory or numbers.
  [[nodiscard]] SharedReceiveQueue* create(const SrqInit& init);
  void destroy(SharedReceiveQueue* srq);
  [[nodiscard]] SharedReceiveQueue* find(uint32_t number) const;

 private:
  const CoreConfig& config_;
  std::vector<std::unique_ptr<SharedReceiveQueue>> queues_;  // by slot
};

}  // namespace faultline::transport
