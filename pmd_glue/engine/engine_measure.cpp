// SPDX-License-Identifier: BSD-3-Clause
// Measurement of the bare port's limits, without the transport.
#include <array>
#include <cerrno>

#include <rte_mbuf.h>

#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/eal/mbuf_view.hpp"
#include "pmd_glue/engine/poll_engine.hpp"
#include "stack/base/clock.hpp"
#include "stack/wire/link/steering.hpp"

namespace faultline::glue {

double PollEngine::measure_tx(size_t frame_bytes, unsigned milliseconds) {
  if (frame_bytes < wire::kMinFrameBytes || frame_bytes > kBufferBytes || milliseconds == 0) return -EINVAL;
  if (!tx_.is_port_usable() || !port_.link_up()) return -ENETDOWN;
  std::array<rte_mbuf*, kBurst> burst;
  uint64_t sent_total = 0;
  const TimeNs start = monotonic_ns();
  const TimeNs end = start + TimeNs{milliseconds} * 1'000'000;
  TimeNs now = start;
  for (; now < end; now = monotonic_ns()) {
    if (rte_pktmbuf_alloc_bulk(port_.pool(), burst.data(), kBurst) != 0) return -ENOMEM;
    for (rte_mbuf* frame : burst) {
      set_length(frame, frame_bytes);
      wire::write_probe_header(bytes_of(frame), addresses_.mac());
    }
    size_t sent = 0;
    // Frames that the port refuses are offered again until the time is over.
    while (sent < kBurst && now < end) {
      sent += tx_.put(std::span(burst).subspan(sent));
      if (sent < kBurst) now = monotonic_ns();
    }
    sent_total += sent;
    rte_pktmbuf_free_bulk(&burst[sent], static_cast<unsigned>(kBurst - sent));
  }
  return static_cast<double>(sent_total) * 1e9 / static_cast<double>(now - start);
}

double PollEngine::measure_rx(unsigned milliseconds) {
  if (milliseconds == 0) return -EINVAL;
  if (!tx_.is_port_usable()) return -ENETDOWN;
  std::array<rte_mbuf*, kBurst> burst;
  uint64_t received_total = 0;
  TimeNs first = 0;
  TimeNs last = 0;
  const TimeNs end = monotonic_ns() + TimeNs{milliseconds} * 1'000'000;
  for (TimeNs now = monotonic_ns(); now < end; now = monotonic_ns()) {
    const size_t received = port_.receive(0, burst);
    if (received == 0) continue;
    rte_pktmbuf_free_bulk(burst.data(), static_cast<unsigned>(received));
    // The first burst only starts the clock.
    if (first == 0)
      first = now;
    else
      received_total += received;
    last = now;
  }
  counts_.rx_frames.add(received_total);
  if (last == first) return 0;
  return static_cast<double>(received_total) * 1e9 / static_cast<double>(last - first);
}

}  // namespace faultline::glue
