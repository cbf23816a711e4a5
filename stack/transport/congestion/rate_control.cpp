// SPDX-License-Identifier: BSD-3-Clause
#include "stack/transport/congestion/rate_control.hpp"

#include "stack/transport/congestion/dcqcn.hpp"
#include "stack/transport/congestion/swift.hpp"

namespace faultline::transport {

std::unique_ptr<RateControl> make_rate_control(const CongestionConfig& config, uint32_t mtu_bytes) {
  switch (config.algorithm) {
    case CongestionAlgorithm::none:
      return nullptr;
    case CongestionAlgorithm::dcqcn:
      return std::make_unique<Dcqcn>(config.dcqcn);
    case CongestionAlgorithm::swift:
      return std::make_unique<Swift>(config.swift, mtu_bytes);
  }
  return nullptr;
}

}  // namespace faultline::transport
