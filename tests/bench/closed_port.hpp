// SPDX-License-Identifier: BSD-3-Clause
// The port of cores that send and receive nothing.
#pragma once

#include "stack/transport/shared/port.hpp"

namespace faultline {

class ClosedPort final : public transport::Port {
 public:
  size_t allocate(std::span<transport::TxFrame>) override { return 0; }
  size_t transmit(std::span<transport::TxFrame>) override { return 0; }
  void free_unsent(std::span<transport::TxFrame>) override {}
  void release(std::span<transport::RxFrame>) override {}
};

}  // namespace faultline
