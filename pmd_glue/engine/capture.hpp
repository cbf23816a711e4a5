// SPDX-License-Identifier: BSD-3-Clause
// Captures every received and transmitted frame to a pcapng file. The data path copies a frame into a buffer
// and queues it; a separate thread writes the file. Frames that find the queue full are not captured, but
// counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

struct rte_mbuf;
struct rte_mempool;
struct rte_pcapng;
struct rte_ring;

namespace faultline::glue {

class Capture {
 public:
  enum class Direction : uint8_t { in, out };

  /// The copy of a frame before it is queued. Owns the copy.
  class Copy {
   public:
    explicit Copy(rte_mbuf* frame) : frame_(frame) {}
    Copy(Copy&& other) noexcept : frame_(other.frame_) { other.frame_ = nullptr; }
    Copy& operator=(Copy&&) = delete;
    ~Copy();

   private:
    friend class Capture;
    rte_mbuf* frame_;
  };

  /// Opens `file` for the port. Returns nullptr with one line in `error` (without a prefix) on failure.
  [[nodiscard]] static std::unique_ptr<Capture> open(const std::string& file, uint16_t port_id,
                                                     std::string& error);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Called by the engines' threads.
  [[nodiscard]] Copy copy(const rte_mbuf& frame, Direction direction);
  void keep(Copy copy);
  void take(const rte_mbuf& frame, Direction direction) { keep(copy(frame, direction)); }

  /// Sleeps for a few milliseconds, so that the writer empties the queue in a process that ends without the
  /// destructor.
  static void await_writer();
  /// Frames that are not in the file, because its writer did not keep up. Any thread.
  [[nodiscard]] uint64_t missed() const { return missed_.load(std::memory_order_relaxed); }

 private:
  Capture() = default;
  void write_queued();
  void run();

  uint16_t port_id_ = 0;
  rte_mempool* pool_ = nullptr;
  rte_ring* queue_ = nullptr;
  rte_pcapng* writer_ = nullptr;
  std::atomic<uint64_t> missed_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace faultline::glue
