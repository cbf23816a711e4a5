// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/capture/capture.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <utility>

#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "stack/base/log.hpp"
#include "stack/base/private_file.hpp"
#include "stack/base/process/service_thread.hpp"

namespace faultline::glue {

/// A copy of a frame, in a buffer of the capture's pool.
struct CapturedFrame {
  uint64_t time_ns;
  uint32_t original_bytes;
  uint32_t captured_bytes;
  DropCounter why;
  pcapng::Direction direction;
  bool is_attached;  ///< to an mbuf
  std::array<uint8_t, kNicBufferBytes> bytes;
};

namespace {

constexpr unsigned kQueuedFrames = 2048;
constexpr unsigned kBurst = 32;
constexpr auto kWriteEvery = std::chrono::milliseconds(1);

/// Offset of the mbufs' field, as all devices of the process use it; -1: no capture was opened yet.
int field_offset = -1;

CapturedFrame*& attached_to(rte_mbuf& frame) {
  return *RTE_MBUF_DYNFIELD(&frame, field_offset, CapturedFrame**);
}

uint64_t realtime_ns() {
  constexpr uint64_t kNsPerSecond = 1'000'000'000;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}

void free_frame(CapturedFrame* frame) {
  frame->is_attached = false;
  rte_mempool_put(rte_mempool_from_obj(frame), frame);
}

bool write_all(int fd, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

Capture::Copy& Capture::Copy::operator=(Copy&& other) noexcept {
  if (this == &other) return *this;
  if (frame_ != nullptr) free_frame(frame_);
  frame_ = other.release();
  return *this;
}

Capture::Copy::~Copy() {
  if (frame_ != nullptr) free_frame(frame_);
}

std::unique_ptr<Capture> Capture::open(Target target, std::string& error) {
  std::unique_ptr<Capture> capture(new Capture);
  const std::string name = fmt::format("fl_capture_{}", target.port_id);
  const auto clear = [](rte_mempool*, void*, void* element, unsigned) {
    static_cast<CapturedFrame*>(element)->is_attached = false;
  };
  capture->pool_ = rte_mempool_create(name.c_str(), 2 * kQueuedFrames - 1, sizeof(CapturedFrame), 0, 0,
                                      nullptr, nullptr, clear, nullptr, SOCKET_ID_ANY, 0);
  capture->queue_ = rte_ring_create(name.c_str(), kQueuedFrames, SOCKET_ID_ANY, RING_F_SC_DEQ);
  if (capture->pool_ == nullptr || capture->queue_ == nullptr) {
    error = fmt::format("no memory for it: {}", rte_strerror(rte_errno));
    return nullptr;
  }
  constexpr rte_mbuf_dynfield kField = {
      .name = "faultline_captured_frame", .size = sizeof(void*), .align = alignof(void*), .flags = 0};
  field_offset = rte_mbuf_dynfield_register(&kField);
  if (field_offset < 0) {
    error = fmt::format("no room in DPDK's frame buffers: {}", rte_strerror(rte_errno));
    return nullptr;
  }
  capture->comments_ = std::move(target.comments);
  if (!capture->start_file(target, error)) return nullptr;
  capture->thread_ = start_service_thread([self = capture.get()] { self->run(); });
  return capture;
}

bool Capture::start_file(const Target& target, std::string& error) {
  file_ = UniqueFd(open_private_file(target.file));
  if (!file_) {
    error = fmt::format("cannot write {}: {}", target.file,
                        errno == ELOOP ? "it is a symbolic link" : std::strerror(errno));
    return false;
  }
  size_t longest_bytes = 0;
  for (const std::string& comment : comments_) longest_bytes = std::max(longest_bytes, comment.size());
  const size_t most_bytes = kBurst * (kNicBufferBytes + pcapng::kMostPacketOverheadBytes + longest_bytes);
  blocks_.resize(most_bytes);
  const std::span<uint8_t> room(blocks_);
  blocks_bytes_ = pcapng::write_section_header(room, "faultline");
  blocks_bytes_ += pcapng::write_interface(room.subspan(blocks_bytes_), target.interface, target.description);
  const bool done = write_all(file_.get(), std::span(blocks_).first(blocks_bytes_));
  if (!done) error = fmt::format("cannot write {}: {}", target.file, std::strerror(errno));
  blocks_bytes_ = 0;
  return done;
}

Capture::~Capture() {
  stop_.store(true, std::memory_order_release);
  if (thread_.joinable()) thread_.join();
  if (file_) {
    write_queued();
    write_attached();
  }
  if (const uint64_t missed = missed_.load(std::memory_order_relaxed); missed != 0)
    log().warn("capture: {} frames were not captured, the writer did not keep up", missed);
  rte_ring_free(queue_);
  rte_mempool_free(pool_);
}

Capture::Copy Capture::copy(const rte_mbuf& frame, Direction direction) {
  void* element = nullptr;
  if (rte_mempool_get(pool_, &element) != 0) return Copy();
  auto* const to = static_cast<CapturedFrame*>(element);
  to->time_ns = realtime_ns();
  to->original_bytes = frame.pkt_len;
  to->captured_bytes = 0;
  to->why = kNotDropped;
  to->direction = direction;
  to->is_attached = false;
  // Only a frame that the device cannot receive anyway is longer than a buffer; it is cut.
  for (const rte_mbuf* part = &frame; part != nullptr; part = part->next) {
    const size_t bytes = std::min<size_t>(part->data_len, to->bytes.size() - to->captured_bytes);
    std::memcpy(to->bytes.data() + to->captured_bytes, rte_pktmbuf_mtod(part, const uint8_t*), bytes);
    to->captured_bytes += static_cast<uint32_t>(bytes);
  }
  return Copy(to);
}

void Capture::keep(Copy copy) {
  if (copy.frame_ == nullptr) return count_missed(1);
  settle(std::move(copy));
}

void Capture::settle(Copy copy, DropCounter why) {
  if (copy.frame_ == nullptr) return;
  copy.frame_->why = why;
  if (rte_ring_mp_enqueue(queue_, copy.frame_) == 0)
    static_cast<void>(copy.release());
  else
    count_missed(1);
}

void Capture::attach(rte_mbuf& frame, Direction direction) {
  Copy taken = copy(frame, direction);
  if (taken.frame_ == nullptr) count_missed(1);
  attach(frame, std::move(taken));
}

void Capture::attach(rte_mbuf& frame, Copy copy) {
  if (copy.frame_ != nullptr) copy.frame_->is_attached = true;
  attached_to(frame) = copy.release();
}

Capture::Copy Capture::detach(rte_mbuf& frame) {
  CapturedFrame*& attached = attached_to(frame);
  Copy copy(attached);
  attached = nullptr;
  if (copy.frame_ != nullptr) copy.frame_->is_attached = false;
  return copy;
}

void Capture::forget(rte_mbuf& copied) {
  if (field_offset >= 0) attached_to(copied) = nullptr;
}

void Capture::format(const CapturedFrame& frame) {
  blocks_bytes_ +=
      pcapng::write_packet(std::span(blocks_).subspan(blocks_bytes_),
                           {.time_ns = frame.time_ns,
                            .direction = frame.direction,
                            .original_bytes = frame.original_bytes,
                            .bytes = {frame.bytes.data(), frame.captured_bytes},
                            .comment = frame.why < comments_.size() ? std::string_view(comments_[frame.why])
                                                                    : std::string_view()});
}

void Capture::write_blocks(unsigned frames) {
  if (!write_all(file_.get(), std::span(blocks_).first(blocks_bytes_))) count_missed(frames);
  blocks_bytes_ = 0;
}

void Capture::write_queued() {
  std::array<CapturedFrame*, kBurst> frames;
  while (const unsigned count =
             rte_ring_sc_dequeue_burst(queue_, reinterpret_cast<void**>(frames.data()), kBurst, nullptr)) {
    for (unsigned i = 0; i < count; ++i) {
      format(*frames[i]);
      free_frame(frames[i]);
    }
    write_blocks(count);
  }
}

/// Frames that the engines have not settled: the model of a bad link holds them, or no turn delivered them.
void Capture::write_attached() {
  std::vector<CapturedFrame*> attached;
  const auto collect = [](rte_mempool*, void* list, void* element, unsigned) {
    auto* const frame = static_cast<CapturedFrame*>(element);
    if (frame->is_attached) static_cast<std::vector<CapturedFrame*>*>(list)->push_back(frame);
  };
  rte_mempool_obj_iter(pool_, collect, &attached);
  std::ranges::sort(attached, {}, &CapturedFrame::time_ns);
  for (const CapturedFrame* frame : attached) {
    format(*frame);
    write_blocks(1);
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
