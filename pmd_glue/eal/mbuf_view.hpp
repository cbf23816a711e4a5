// SPDX-License-Identifier: BSD-3-Clause
// Views of a contiguous mbuf: as bytes, and as the core's RxFrame.
#pragma once

#include <cstdint>
#include <span>

#include <rte_mbuf.h>

#include "stack/transport/shared/port.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::glue {

inline std::span<uint8_t> bytes_of(rte_mbuf* frame) {
  return {rte_pktmbuf_mtod(frame, uint8_t*), frame->data_len};
}

inline void set_length(rte_mbuf* frame, size_t length_bytes) {
  frame->data_len = static_cast<uint16_t>(length_bytes);
  frame->pkt_len = static_cast<uint32_t>(length_bytes);
}

inline transport::RxFrame rx_frame_of(rte_mbuf* frame) {
  const auto is = [flags = frame->ol_flags](uint64_t mask, uint64_t good) { return (flags & mask) == good; };
  const uint32_t checks = wire::rx_checks(is(RTE_MBUF_F_RX_IP_CKSUM_MASK, RTE_MBUF_F_RX_IP_CKSUM_GOOD),
                                          is(RTE_MBUF_F_RX_L4_CKSUM_MASK, RTE_MBUF_F_RX_L4_CKSUM_GOOD));
  return {rte_pktmbuf_mtod(frame, const uint8_t*), frame->data_len, checks, frame};
}

}  // namespace faultline::glue
