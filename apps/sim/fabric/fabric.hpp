// SPDX-License-Identifier: BSD-3-Clause
// The switches and links between hosts, in virtual time. A switch stores a frame whole, looks up its output,
// and appends it to the output's one queue.
#pragma once

#include <array>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "apps/sim/description/description.hpp"
#include "apps/sim/fabric/channel.hpp"
#include "apps/sim/fabric/event_queue.hpp"
#include "apps/sim/fabric/frame.hpp"
#include "apps/sim/fabric/routes.hpp"
#include "stack/chaos/random.hpp"

namespace faultline::fabric {

/// The hosts as the fabric sees them.
class Hosts {
 public:
  virtual ~Hosts() = default;
  /// Takes ownership of a frame that has arrived.
  virtual void on_frame(uint32_t host, Frame& frame, TimePs now_ps) = 0;
  /// A frame has left the host's transmit ring.
  virtual void on_frame_sent(uint32_t host, TimePs now_ps) = 0;
};

/// What became of frames. At any time: injected = delivered + dropped + frames in queues and under way.
struct FabricCounters {
  uint64_t injected_frames = 0;
  uint64_t delivered_frames = 0;
  uint64_t full_drops = 0;      ///< of a full queue or buffer
  uint64_t failure_drops = 0;   ///< queued or under way on a link that failed, or sent to it
  uint64_t no_route_drops = 0;  ///< no path to the destination
  uint64_t injected_bytes = 0;
  uint64_t delivered_bytes = 0;
  uint64_t dropped_bytes = 0;
  uint64_t marks = 0;
  uint64_t pauses = 0;

  [[nodiscard]] uint64_t dropped_frames() const { return full_drops + failure_drops + no_route_drops; }
};

class Fabric {
 public:
  /// `description`, `events` and `hosts` outlive the fabric. Adds the events of link failures.
  Fabric(const Description& description, EventQueue& events, Hosts& hosts, chaos::Random random,
         std::pmr::memory_resource* memory = std::pmr::new_delete_resource());

  /// Appends a frame to the transmit ring of a host. The caller bounds the ring.
  void inject(uint32_t host, Frame& frame, TimePs now_ps);
  /// Handles an event of a channel or link.
  void handle(const Event& event);

  /// Fetches what an event of a channel will use: a large fabric does not fit into the caches.
  void prefetch(const Event& event, bool is_next) const {
    const Channel& channel = channels_[event.target];
    channel.prefetch();
    if (is_next)
      __builtin_prefetch(event.kind == EventKind::sent ? channel.queue.front() : channel.under_way.front(),
                         1);
  }

  [[nodiscard]] FramePool& frames() { return pool_; }
  [[nodiscard]] std::span<const Channel> channels() const { return channels_; }
  [[nodiscard]] const FabricCounters& counters() const { return counters_; }
  /// Frames in a host's transmit ring.
  [[nodiscard]] uint32_t ring_frames(uint32_t host) const { return channels_[uplink_[host]].queued_frames; }
  /// Count frames and bytes in queues and under way, one by one.
  [[nodiscard]] uint64_t frames_inside() const;
  [[nodiscard]] uint64_t bytes_inside() const;
  /// Brings the queues' statistics up to the end of the run.
  void finish(TimePs now_ps);

 private:
  /// What became of a frame at an output queue.
  enum class Admission : uint8_t { queued, full, down };

  template <typename Visit>
  void visit_frames(Visit visit) const;
  [[nodiscard]] bool is_host(uint32_t node) const { return node < description_.topology.hosts; }
  [[nodiscard]] uint64_t& buffered(uint32_t node) { return buffered_bytes_[node]; }
  void forward(uint32_t node, Frame& frame, uint32_t input, TimePs now_ps);
  [[nodiscard]] Admission admit(const Channel& channel, const Frame& frame);
  void append(uint32_t index, Frame& frame, TimePs now_ps);
  void maybe_mark(Channel& channel, Frame& frame);
  void start(uint32_t index, TimePs now_ps);
  void on_sent(uint32_t index, TimePs now_ps);
  void on_arrived(uint32_t index, TimePs now_ps);
  /// Counts bytes of an input into a switch's buffer, and out of it.
  void hold(uint32_t input, uint32_t bytes, TimePs now_ps);
  void let_go(uint32_t input, uint32_t bytes, TimePs now_ps);
  void send_pause(uint32_t input, EventKind kind, TimePs now_ps);
  void on_pause(uint32_t index, bool pauses, TimePs now_ps);
  void set_link(uint32_t link, bool is_up, TimePs now_ps);
  void lose(Channel& channel, TimePs now_ps);
  void drop(Frame& frame, uint64_t& counter);
  void take_out(Channel& channel, const Frame& frame, TimePs now_ps);

  const Description& description_;
  EventQueue& events_;
  Hosts& hosts_;
  chaos::Random random_;
  FramePool pool_;
  std::pmr::vector<Channel> channels_;
  std::vector<uint32_t> uplink_;          // by host: its channel to the fabric
  std::vector<uint64_t> buffered_bytes_;  // by node
  std::vector<bool> is_up_;               // by link
  Routes routes_;
  FabricCounters counters_;
};

}  // namespace faultline::fabric
