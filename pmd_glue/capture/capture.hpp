// SPDX-License-Identifier: BSD-3-Clause
// Captures every received and transmitted frame to a pcapng file. The data path copies a frame into a buffer
// and queues it; a separate thread writes the file. Frames that find the queue full are not captured, but
// counted.
//
// A received frame's fate is known only when the engine has processed it, perhaps on another core. So its
// copy is attached to the mbuf (a dynamic field, rte_mbuf_dyn.h) until settle() queues it with the counter
// that counted the frame as dropped; the file has that counter's text as the packet's comment.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "pmd_glue/capture/drop_counter.hpp"
#include "pmd_glue/capture/pcapng.hpp"
#include "stack/base/unique_fd.hpp"

struct rte_mbuf;
struct rte_mempool;
struct rte_ring;

namespace faultline::glue {

struct CapturedFrame;

class Capture {
 public:
  using Direction = pcapng::Direction;

  /// The copy of a frame before it is queued. Owns the copy, which may be none.
  class Copy {
   public:
    explicit Copy(CapturedFrame* frame = nullptr) : frame_(frame) {}
    Copy(Copy&& other) noexcept : frame_(other.release()) {}
    Copy& operator=(Copy&& other) noexcept;
    ~Copy();

   private:
    friend class Capture;
    [[nodiscard]] CapturedFrame* release() {
      CapturedFrame* const frame = frame_;
      frame_ = nullptr;
      return frame;
    }
    CapturedFrame* frame_;
  };

  struct Target {
    std::string file;
    std::string interface;    ///< if_name
    std::string description;  ///< if_description
    uint16_t port_id = 0;     ///< unique in the process
    /// The comment of a packet by the counter that counted it as dropped.
    std::vector<std::string> comments;
  };
  /// Opens the file of `target`. Returns nullptr with one line in `error` (without a prefix) on failure.
  [[nodiscard]] static std::unique_ptr<Capture> open(Target target, std::string& error);
  /// Writes all frames, attached ones too. No other thread uses the capture any more.
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Called by the engines' threads.
  /// Copies a frame; an empty copy if the buffers are used up.
  [[nodiscard]] Copy copy(const rte_mbuf& frame, Direction direction);
  /// Queues the copy of a sent frame. An empty copy counts as missed.
  void keep(Copy copy);

  /// Copies a frame that is not settled yet; the copy stays attached to the mbuf.
  void attach(rte_mbuf& frame, Direction direction);
  /// Queues the attached copy, if there is one; `why` is the counter that counted the frame as dropped.
  void settle(rte_mbuf& frame, DropCounter why = kNotDropped) { settle(detach(frame), why); }
  void settle(Copy copy, DropCounter why = kNotDropped);
  /// Takes the attached copy from the mbuf.
  [[nodiscard]] static Copy detach(rte_mbuf& frame);
  /// Attaches what detach() has returned.
  static void attach(rte_mbuf& frame, Copy copy);
  /// Call for an mbuf that was copied from one with an attached copy: it has none. Without effect if no
  /// capture was ever opened.
  static void forget(rte_mbuf& copied);

  /// Sleeps for a few milliseconds, so that the writer empties the queue in a process that ends without the
  /// destructor.
  static void await_writer();
  /// Frames that are not in the file, because its writer did not keep up. Any thread.
  [[nodiscard]] uint64_t missed() const { return missed_.load(std::memory_order_relaxed); }

 private:
  Capture() = default;
  [[nodiscard]] bool start_file(const Target& target, std::string& error);
  void count_missed(uint64_t frames) { missed_.fetch_add(frames, std::memory_order_relaxed); }
  void write_queued();
  void write_attached();
  /// Appends the frame's block to `blocks_`; the frame stays the caller's.
  void format(const CapturedFrame& frame);
  /// Writes `blocks_`, which has `frames` frames, and empties it.
  void write_blocks(unsigned frames);
  void run();

  rte_mempool* pool_ = nullptr;
  rte_ring* queue_ = nullptr;
  UniqueFd file_;
  std::vector<std::string> comments_;
  std::vector<uint8_t> blocks_;  ///< formatted and not yet written
  size_t blocks_bytes_ = 0;
  std::atomic<uint64_t> missed_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace faultline::glue
