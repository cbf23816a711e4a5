// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine/capture.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_pcapng.h>
#include <rte_ring.h>
#include <rte_version.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "stack/base/log.hpp"
#include "stack/base/private_file.hpp"
#include "stack/base/process/service_thread.hpp"

namespace faultline::glue {
namespace {

constexpr unsigned kQueuedFrames = 2048;
constexpr unsigned kBurst = 32;
constexpr auto kWriteEvery = std::chrono::milliseconds(1);

}  // namespace

Capture::Copy::~Copy() {
  rte_pktmbuf_free(frame_);
}

std::unique_ptr<Capture> Capture::open(const std::string& file, uint16_t port_id, std::string& error) {
  std::unique_ptr<Capture> capture(new Capture);
  capture->port_id_ = port_id;
  const std::string name = fmt::format("fl_capture_{}", port_id);
  capture->pool_ =
      rte_pktmbuf_pool_create(name.c_str(), 2 * kQueuedFrames - 1, 0, 0,
                              static_cast<uint16_t>(rte_pcapng_mbuf_size(kBufferBytes)), SOCKET_ID_ANY);
  capture->queue_ = rte_ring_create(name.c_str(), kQueuedFrames, SOCKET_ID_ANY, RING_F_SC_DEQ);
  if (capture->pool_ == nullptr || capture->queue_ == nullptr) {
    error = fmt::format("no memory for it: {}", rte_strerror(rte_errno));
    return nullptr;
  }
  const int fd = open_private_file(file);
  if (fd < 0) {
    error = fmt::format("cannot write {}: {}", file,
                        errno == ELOOP ? "it is a symbolic link" : std::strerror(errno));
    return nullptr;
  }
  capture->writer_ = rte_pcapng_fdopen(fd, nullptr, nullptr, "faultline", nullptr);
  if (capture->writer_ == nullptr) {
    close(fd);
    error = fmt::format("cannot write {}: {}", file, rte_strerror(rte_errno));
    return nullptr;
  }
  capture->thread_ = start_service_thread([self = capture.get()] { self->run(); });
  return capture;
}

Capture::~Capture() {
  stop_.store(true, std::memory_order_release);
  if (thread_.joinable()) thread_.join();
  if (writer_ != nullptr) {
    write_queued();
    rte_pcapng_close(writer_);
  }
  if (const uint64_t missed = missed_.load(std::memory_order_relaxed); missed != 0)
    log().warn("capture: {} frames were not captured, the writer did not keep up", missed);
  rte_ring_free(queue_);
  rte_mempool_free(pool_);
}

Capture::Copy Capture::copy(const rte_mbuf& frame, Direction direction) {
  const rte_pcapng_direction way =
      direction == Direction::in ? RTE_PCAPNG_DIRECTION_IN : RTE_PCAPNG_DIRECTION_OUT;
#if RTE_VERSION >= RTE_VERSION_NUM(23, 11, 0, 0)
  // From this release on, the function reads the clock itself, and takes a comment.
  return Copy(rte_pcapng_copy(port_id_, 0, &frame, pool_, UINT32_MAX, way, nullptr));
#else
  return Copy(rte_pcapng_copy(port_id_, 0, &frame, pool_, UINT32_MAX, rte_get_tsc_cycles(), way));
#endif
}

void Capture::keep(Copy copy) {
  if (copy.frame_ != nullptr && rte_ring_mp_enqueue(queue_, copy.frame_) == 0)
    copy.frame_ = nullptr;
  else
    missed_.fetch_add(1, std::memory_order_relaxed);
}

void Capture::write_queued() {
  std::array<rte_mbuf*, kBurst> frames;
  while (const unsigned count =
             rte_ring_sc_dequeue_burst(queue_, reinterpret_cast<void**>(frames.data()), kBurst, nullptr)) {
    if (rte_pcapng_write_packets(writer_, frames.data(), static_cast<uint16_t>(count)) < 0)
      missed_.fetch_add(count, std::memory_order_relaxed);
    rte_pktmbuf_free_bulk(frames.data(), count);
  }
}

void Capture::await_writer() {
  std::this_thread::sleep_for(2 * kWriteEvery);
}

void Capture::run() {
  register_this_thread();
  while (!stop_.load(std::memory_order_acquire)) {
    write_queued();
    std::this_thread::sleep_for(kWriteEvery);
  }
}

}  // namespace faultline::glue
