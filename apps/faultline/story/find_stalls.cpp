// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "apps/faultline/story/analysis.hpp"

namespace faultline::story {
namespace {

/// A shorter wait is a usual round trip.
constexpr uint64_t kLeastStallNs = 100'000;

/// The requests of one end.
struct Progress {
  bool has_begun = false;
  int32_t sent = 0;       ///< highest relative PSN sent
  int32_t acked = 0;      ///< highest relative PSN acknowledged
  uint64_t since_ns = 0;  ///< of the last acknowledgement, or of the first packet after all was acknowledged
  bool saw_page_fault = false;
  bool saw_rnr = false;
  bool saw_loss = false;
  std::optional<Fault> fault;
};

class StallFinder {
 public:
  explicit StallFinder(Story& story) : story_(story), all_(story.connections.size()) {}

  void run() {
    for (const Event& event : story_.events) {
      const wire::Service service = story_.connections[event.connection].service;
      if (event.kind == EventKind::fault) begin_fault(event);
      if (event.kind == EventKind::fault_end) end_fault(event);
      if (event.kind != EventKind::packet || event.info().service == wire::Service::cnp) continue;
      if (service != wire::Service::rc && service != wire::Service::xrc) continue;
      if (event.info().request)
        on_request(event);
      else
        on_answer(event);
    }
    for (size_t i = 0; i < all_.size(); ++i)
      for (uint8_t end = 0; end < 2; ++end) at_end(static_cast<uint16_t>(i), end);
    for (auto& [key, fault] : open_faults_) {
      fault.end_ns = story_.events.back().time_ns;
      story_.faults.push_back(fault);
    }
    sort_by_length(story_.stalls);
    sort_by_length(story_.faults);
  }

 private:
  Progress& progress_of(const Event& event) { return all_[event.connection][event.requester()]; }

  void on_request(const Event& event) {
    Progress& progress = progress_of(event);
    if (event.is(kRetransmitted)) {
      progress.saw_loss = true;
      return;
    }
    start(progress, event.psn - 1);
    if (progress.sent <= progress.acked) begin(progress, event.time_ns);
    progress.sent = std::max(progress.sent, event.psn);
  }

  static void start(Progress& progress, int32_t acked) {
    if (std::exchange(progress.has_begun, true)) return;
    progress.sent = progress.acked = acked;
  }

  void on_answer(const Event& event) {
    Progress& progress = progress_of(event);
    start(progress, event.psn - 1);
    const bool has_aeth = event.info().has(wire::kAeth);
    const unsigned kind = has_aeth ? event.syndrome & wire::kAethKindMask : wire::kAethAck;
    if (event.is(kPageFault)) note_fault(event, progress);
    if (event.info().operation == wire::Operation::selective_acknowledge) {
      progress.saw_loss = true;
      return advance(event, progress, event.psn - 1);
    }
    switch (kind) {
      case wire::kAethRnrNak:
        (event.is(kPageFault) ? progress.saw_page_fault : progress.saw_rnr) = true;
        return advance(event, progress, event.psn - 1);
      case wire::kAethNak:
        progress.saw_loss = true;
        return advance(event, progress, event.psn - 1);
      default:
        return advance(event, progress, event.psn);
    }
  }

  void note_fault(const Event& event, Progress& progress) {
    progress.saw_page_fault = true;
    // A positive acknowledgement states that the packet after it waits.
    const bool nak = (event.syndrome & wire::kAethKindMask) == wire::kAethRnrNak;
    const int32_t psn = nak ? event.psn : event.psn + 1;
    // A late answer states what is over.
    if (progress.fault || psn <= progress.acked) return;
    progress.fault = Fault{.connection = event.connection,
                           .end = static_cast<uint8_t>(event.requester()),
                           .at = static_cast<uint8_t>(1 - event.requester()),
                           .psn = psn,
                           .begin_ns = event.time_ns};
  }

  void begin_fault(const Event& event) {
    open_faults_[{event.connection, event.argument}] = {
        .connection = event.connection,
        .end = static_cast<uint8_t>(event.requester()),
        .at = static_cast<uint8_t>(event.is(kOfSecondEnd) ? 1 : 0),
        .psn = event.psn,
        .begin_ns = event.time_ns,
        .length_bytes = event.length_bytes};
  }

  void end_fault(const Event& event) {
    const auto begun = open_faults_.find({event.connection, event.argument});
    if (begun == open_faults_.end()) return;
    begun->second.end_ns = event.time_ns;
    story_.faults.push_back(begun->second);
    open_faults_.erase(begun);
  }

  void advance(const Event& event, Progress& progress, int32_t psn) {
    if (progress.fault && psn >= progress.fault->psn) {
      progress.fault->end_ns = event.time_ns;
      story_.faults.push_back(*progress.fault);
      progress.fault.reset();
    }
    if (psn <= progress.acked) return;
    if (progress.sent > progress.acked)
      add_stall(event.connection, static_cast<uint8_t>(event.requester()), progress, event.time_ns);
    progress.acked = psn;
    begin(progress, event.time_ns);
  }

  static void begin(Progress& progress, uint64_t now_ns) {
    progress.since_ns = now_ns;
    progress.saw_page_fault = progress.saw_rnr = progress.saw_loss = false;
  }

  void add_stall(uint16_t connection, uint8_t end, const Progress& progress, uint64_t now_ns) {
    if (now_ns - progress.since_ns < kLeastStallNs) return;
    StallCause cause = StallCause::unknown;
    if (progress.saw_loss) cause = StallCause::loss;
    if (progress.saw_rnr) cause = StallCause::receiver_unready;
    if (progress.saw_page_fault) cause = StallCause::page_fault;
    story_.stalls.push_back({.connection = connection,
                             .end = end,
                             .cause = cause,
                             .psn = progress.acked + 1,
                             .packets = static_cast<uint32_t>(progress.sent - progress.acked),
                             .begin_ns = progress.since_ns,
                             .end_ns = now_ns});
  }

  /// The capture's end is a stall's too.
  void at_end(uint16_t connection, uint8_t end) {
    Progress& progress = all_[connection][end];
    const uint64_t last_ns = story_.events.empty() ? 0 : story_.events.back().time_ns;
    if (progress.acked < progress.sent) add_stall(connection, end, progress, last_ns);
    if (!progress.fault) return;
    progress.fault->end_ns = last_ns;
    story_.faults.push_back(*progress.fault);
  }

  template <typename Row>
  static void sort_by_length(std::vector<Row>& rows) {
    std::ranges::stable_sort(
        rows, [](const Row& a, const Row& b) { return a.end_ns - a.begin_ns > b.end_ns - b.begin_ns; });
  }

  Story& story_;
  std::vector<std::array<Progress, 2>> all_;
  std::map<std::pair<uint16_t, uint32_t>, Fault> open_faults_;  ///< of a recording, by connection and number
};

}  // namespace

void find_stalls(Story& story) {
  StallFinder(story).run();
}

}  // namespace faultline::story
