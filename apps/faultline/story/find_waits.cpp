// SPDX-License-Identifier: BSD-3-Clause
// Waits of work requests in a recording: for what, and how long. The rules of thumb about them state their
// limits below; docs/seeing/story.md has them too.
#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "apps/faultline/story/analysis.hpp"

namespace faultline::story {
namespace {

using status::WaitsFor;

constexpr double kNsPerMillisecond = 1e6;
// A rule applies to waits of half the connection's time, and of at least 10 ms in all.
constexpr uint64_t kLeastTotalNs = 10'000'000;
constexpr uint64_t kShare = 2;
// A full window is usual. One wait of that length shows that the acknowledgements make slow progress.
constexpr uint64_t kSlowProgressNs = 1'000'000;

struct Wait {
  WaitsFor what = WaitsFor::nothing;
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  uint32_t window_packets = 0;
  uint32_t requests = 0;
  bool is_cut = false;
  bool saw_trouble = false;  ///< a loss, a page fault or an RNR NAK explains the wait
};

/// Waits of one kind.
struct Total {
  uint64_t ns = 0;
  uint64_t longest_ns = 0;
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  uint32_t waits = 0;
  uint32_t least_window_packets = ~0U;
  uint32_t most_requests = 0;

  void add(const Wait& wait) {
    const uint64_t length_ns = wait.end_ns - wait.begin_ns;
    if (waits++ == 0) begin_ns = wait.begin_ns;
    end_ns = wait.end_ns;
    ns += length_ns;
    longest_ns = std::max(longest_ns, length_ns);
    least_window_packets = std::min(least_window_packets, wait.window_packets);
    most_requests = std::max(most_requests, wait.requests);
  }
  [[nodiscard]] bool is_long(const Connection& connection) const {
    return ns >= kLeastTotalNs && ns * kShare >= connection.end_ns - connection.begin_ns;
  }
};

/// The requests of a connection's first end: a recording has no waits of the other.
struct Queue {
  std::optional<Wait> wait;
  Wait last;                     ///< the last one that ended
  std::deque<uint32_t> unsent;   ///< places in Story::requests, in the queue's order
  std::deque<uint32_t> unacked;  ///< likewise
  Total slow;                    ///< full windows whose acknowledgements made slow progress
  Total cut;
  Total paced;
};

class WaitFinder {
 public:
  explicit WaitFinder(Story& story) : story_(story), all_(story.connections.size()) {}

  void run() {
    for (Event& event : story_.events) {
      Queue& queue = all_[event.connection];
      if (event.kind == EventKind::post) {
        queue.unsent.push_back(event.argument);
        queue.unacked.push_back(event.argument);
      } else if (event.kind == EventKind::wait) {
        begin(event, queue);
      } else if (event.kind == EventKind::packet && event.requester() == 0) {
        on_packet(event, queue);
      } else if (event.kind == EventKind::timer && event.requester() == 0 && queue.wait) {
        queue.wait->saw_trouble = true;
      }
    }
    for (size_t i = 0; i < all_.size(); ++i) finish(static_cast<uint16_t>(i));
  }

 private:
  static void begin(const Event& event, Queue& queue) {
    end(queue, event.time_ns);
    const auto what = static_cast<WaitsFor>(event.code);
    queue.wait = Wait{.what = what,
                      .begin_ns = event.time_ns,
                      .window_packets = event.argument,
                      .requests = event.length_bytes,
                      .is_cut = event.is(kCutWindow)};
  }

  static void end(Queue& queue, uint64_t now_ns) {
    if (!queue.wait) return;
    queue.wait->end_ns = now_ns;
    const Wait& wait = queue.last = *std::exchange(queue.wait, std::nullopt);
    if (wait.what == WaitsFor::pace) queue.paced.add(wait);
    if (wait.what != WaitsFor::window) return;
    if (wait.is_cut)
      queue.cut.add(wait);
    else if (!wait.saw_trouble && wait.end_ns - wait.begin_ns >= kSlowProgressNs)
      queue.slow.add(wait);
  }

  void on_packet(const Event& event, Queue& queue) {
    if (!event.info().request) return on_answer(event, queue);
    const bool is_new = !event.is(kRetransmitted);
    if (!is_new && queue.wait) queue.wait->saw_trouble = true;
    if (is_new || (queue.wait && queue.wait->what == WaitsFor::pace)) end(queue, event.time_ns);
    if (is_new) start_requests(event, queue);
  }

  /// Work requests before the packet's have none of their own.
  void start_requests(const Event& event, Queue& queue) {
    while (!queue.unsent.empty()) {
      WorkRequest& request = story_.requests[queue.unsent.front()];
      if (request.has_started() && request.psn > event.psn) return;
      queue.unsent.pop_front();
      if (!request.has_started() || request.first_packet_ns == request.posted_ns) continue;
      request.waited_for = queue.last.end_ns > request.posted_ns ? queue.last.what : WaitsFor::turn;
    }
  }

  void on_answer(const Event& event, Queue& queue) {
    if (event.info().service == wire::Service::cnp) return;
    const unsigned kind =
        event.info().has(wire::kAeth) ? event.syndrome & wire::kAethKindMask : unsigned{wire::kAethAck};
    const bool is_selective = event.info().operation == wire::Operation::selective_acknowledge;
    const bool before = is_selective || kind != wire::kAethAck;
    if (queue.wait && (before || event.is(kPageFault))) queue.wait->saw_trouble = true;
    const int32_t acked = before ? event.psn - 1 : event.psn;
    while (!queue.unacked.empty()) {
      WorkRequest& request = story_.requests[queue.unacked.front()];
      if (request.has_started()) {
        if (request.first_packet_ns > event.time_ns || last_psn(request) > acked) return;
        request.acknowledged_ns = event.time_ns;
      } else if (request.completed_ns > event.time_ns) {
        return;
      }
      queue.unacked.pop_front();
    }
  }

  [[nodiscard]] int32_t last_psn(const WorkRequest& request) const {
    // ibv_wr_opcode of atomics, FLUSH and ATOMIC WRITE: one packet, whatever the length.
    constexpr std::array<uint8_t, 4> kOfOnePacket{5, 6, 14, 15};
    if (std::ranges::find(kOfOnePacket, request.operation) != kOfOnePacket.end()) return request.psn;
    const uint32_t known = story_.connections[request.connection].mtu_bytes;
    const uint32_t packets = wire::packets_of(request.length_bytes, known == 0 ? kUsualMtuBytes : known);
    return request.psn + static_cast<int32_t>(std::max(packets, 1U)) - 1;
  }

  void finish(uint16_t index) {
    Queue& queue = all_[index];
    const Connection& connection = story_.connections[index];
    // What has not started waits to the end.
    for (const uint32_t place : queue.unsent)
      if (queue.wait && !story_.requests[place].has_started())
        story_.requests[place].waited_for = queue.wait->what;
    end(queue, connection.end_ns);
    if (queue.slow.is_long(connection))
      add(Rule::full_window, index, queue.slow,
          fmt::format("All {} packets of the window were unacknowledged for {:.1f} ms in all, {:.1f} ms at a "
                      "time, and up to {} work requests waited: acknowledgements make slow progress.",
                      queue.slow.least_window_packets, ms(queue.slow.ns), ms(queue.slow.longest_ns),
                      queue.slow.most_requests));
    if (queue.cut.is_long(connection))
      add(Rule::cut_window, index, queue.cut,
          fmt::format("Losses have cut the window to {} packets, and work requests waited for it for {:.1f} "
                      "ms in all, up to {} at a time.",
                      queue.cut.least_window_packets, ms(queue.cut.ns), queue.cut.most_requests));
    if (queue.paced.is_long(connection))
      add(Rule::paced_queue, index, queue.paced,
          fmt::format(
              "Congestion control paced the packets: work requests, up to {}, waited for {:.1f} ms in "
              "all, in {} waits.",
              queue.paced.most_requests, ms(queue.paced.ns), queue.paced.waits));
  }

  static double ms(uint64_t ns) { return static_cast<double>(ns) / kNsPerMillisecond; }

  void add(Rule rule, uint16_t connection, const Total& total, std::string text) {
    story_.findings.push_back({rule, connection, 0, total.begin_ns, total.end_ns, std::move(text)});
  }

  Story& story_;
  std::vector<Queue> all_;
};

}  // namespace

void find_waits(Story& story) {
  WaitFinder(story).run();
}

}  // namespace faultline::story
