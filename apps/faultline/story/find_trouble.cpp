// SPDX-License-Identifier: BSD-3-Clause
// Rules of thumb. Each states its limits below; docs/seeing/story.md has them too.
#include <algorithm>
#include <array>
#include <deque>

#include <spdlog/fmt/fmt.h>

#include "apps/faultline/story/analysis.hpp"

namespace faultline::story {
namespace {

constexpr uint64_t kNsPerMs = 1'000'000;
// An episode is a run of retransmissions in the order of PSNs, without a NAK or a new packet between them.
// Two episodes of 8 packets, or one of 64, are a storm.
constexpr uint32_t kEpisodePackets = 8;
constexpr uint32_t kLongEpisodePackets = 64;
constexpr uint32_t kStormEpisodes = 2;
// RNR NAKs within a time.
constexpr size_t kStormNaks = 5;
constexpr uint64_t kStormNs = 100 * kNsPerMs;
// Stalls of faults: one that is long, or a tenth of the connection's time.
constexpr uint64_t kLongFaultStallNs = kNsPerMs;
constexpr uint64_t kFaultShare = 10;
// A completion queue that is half full.
constexpr uint32_t kUnreadCompletions = 16;
// Acknowledgements whose credits are 0, of those that have credits: nine of ten, if messages need them.
constexpr uint32_t kClosedAcks = 8;

std::string duration_text(uint64_t ns) {
  if (ns >= 1'000 * kNsPerMs) return fmt::format("{:.2f} s", static_cast<double>(ns) / 1e9);
  if (ns >= kNsPerMs) return fmt::format("{:.2f} ms", static_cast<double>(ns) / 1e6);
  return fmt::format("{:.1f} us", static_cast<double>(ns) / 1e3);
}

struct Episode {
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  uint32_t packets = 0;
  int32_t last_psn = 0;
};

/// What one end's requests met.
struct Trouble {
  Episode episode;
  std::vector<Episode> storms;  ///< episodes of enough packets
  std::deque<uint64_t> recent_naks_ns;
  Finding rnr;
  uint32_t rnr_naks = 0;
  uint32_t receives = 0;  ///< messages that need a receive, and so a credit
  uint32_t closed_acks = 0;
  uint32_t credit_acks = 0;
  uint64_t first_closed_ns = 0;
  uint64_t last_closed_ns = 0;
  uint32_t most_unread = 0;
  uint32_t cq_entries = 0;
  uint64_t unread_since_ns = 0;
  uint64_t unread_until_ns = 0;
};

class Rules {
 public:
  explicit Rules(Story& story) : story_(story), all_(story.connections.size()) {}

  void run() {
    for (const Event& event : story_.events) {
      Trouble& trouble = all_[event.connection][event.requester()];
      if (event.kind == EventKind::completion) {
        note_unread(event, trouble);
      } else if (event.kind == EventKind::packet) {
        if (event.info().request) note_request(event, trouble);
        if (takes_receive(event.info())) ++trouble.receives;
        if (event.info().operation == wire::Operation::acknowledge) note_answer(event, trouble);
      }
    }
    for (size_t i = 0; i < all_.size(); ++i)
      for (uint8_t end = 0; end < 2; ++end) {
        find_storms(static_cast<uint16_t>(i), end);
        find_faults(static_cast<uint16_t>(i), end);
        find_others(static_cast<uint16_t>(i), end);
      }
    std::ranges::stable_sort(story_.findings, {}, &Finding::begin_ns);
  }

 private:
  static void close(Trouble& trouble) {
    if (trouble.episode.packets >= kEpisodePackets) trouble.storms.push_back(trouble.episode);
    trouble.episode = {};
  }

  static bool takes_receive(const wire::OpcodeInfo& info) {
    return info.ends_message() && (info.operation == wire::Operation::send || info.has(wire::kImmDt));
  }

  static void note_request(const Event& event, Trouble& trouble) {
    Episode& episode = trouble.episode;
    if (!event.is(kRetransmitted) || (episode.packets != 0 && event.psn <= episode.last_psn)) close(trouble);
    if (!event.is(kRetransmitted)) return;
    if (episode.packets++ == 0) episode.begin_ns = event.time_ns;
    episode.last_psn = event.psn;
    episode.end_ns = event.time_ns;
  }

  static void note_answer(const Event& event, Trouble& trouble) {
    const unsigned kind = event.syndrome & wire::kAethKindMask;
    if (kind == wire::kAethRnrNak && !event.is(kPageFault)) return note_rnr(event, trouble);
    if (kind == wire::kAethNak) close(trouble);
    const unsigned credits = event.syndrome & wire::kAethValueMask;
    if (kind != wire::kAethAck || credits == wire::kAethCreditsInvalid) return;
    ++trouble.credit_acks;
    if (credits != 0) return;
    if (trouble.closed_acks++ == 0) trouble.first_closed_ns = event.time_ns;
    trouble.last_closed_ns = event.time_ns;
  }

  static void note_rnr(const Event& event, Trouble& trouble) {
    std::deque<uint64_t>& recent = trouble.recent_naks_ns;
    ++trouble.rnr_naks;
    recent.push_back(event.time_ns);
    while (event.time_ns - recent.front() > kStormNs) recent.pop_front();
    if (recent.size() < kStormNaks) return;
    if (trouble.rnr.end_ns == 0) trouble.rnr.begin_ns = recent.front();
    trouble.rnr.end_ns = event.time_ns;
  }

  static void note_unread(const Event& event, Trouble& trouble) {
    const uint32_t unread = event.argument;
    const uint32_t entries = event.length_bytes;
    if (unread < kUnreadCompletions || unread < entries / 2) return;
    if (trouble.most_unread == 0) trouble.unread_since_ns = event.time_ns;
    trouble.unread_until_ns = event.time_ns;
    trouble.most_unread = std::max(trouble.most_unread, unread);
    trouble.cq_entries = entries;
  }

  void add(Rule rule, uint16_t connection, uint8_t end, uint64_t begin_ns, uint64_t end_ns,
           std::string text) {
    story_.findings.push_back({rule, connection, end, begin_ns, end_ns, std::move(text)});
  }

  void find_storms(uint16_t connection, uint8_t end) {
    Trouble& trouble = all_[connection][end];
    close(trouble);
    const std::vector<Episode>& storms = trouble.storms;
    uint32_t packets = 0;
    uint32_t longest = 0;
    for (const Episode& storm : storms) {
      packets += storm.packets;
      longest = std::max(longest, storm.packets);
    }
    if (storms.size() < kStormEpisodes && longest < kLongEpisodePackets) return;
    add(Rule::go_back_n_storm, connection, end, storms.front().begin_ns, storms.back().end_ns,
        fmt::format(
            "{} times the requester sent a run of packets again: {} packets in all, {} in the longest run. "
            "Each loss costs all packets after it.",
            storms.size(), packets, longest));
  }

  void find_faults(uint16_t connection, uint8_t end) {
    uint64_t total_ns = 0;
    uint32_t count = 0;
    const Stall* longest = nullptr;
    for (const Stall& stall : story_.stalls) {  // the longest first
      if (stall.connection != connection || stall.end != end || stall.cause != StallCause::page_fault)
        continue;
      if (longest == nullptr) longest = &stall;
      total_ns += stall.end_ns - stall.begin_ns;
      ++count;
    }
    if (longest == nullptr) return;
    const Connection& one = story_.connections[connection];
    const uint64_t longest_ns = longest->end_ns - longest->begin_ns;
    if (longest_ns < kLongFaultStallNs && total_ns * kFaultShare < one.end_ns - one.begin_ns) return;
    add(Rule::fault_in_critical_path, connection, end, longest->begin_ns, longest->end_ns,
        fmt::format("{} stalls waited for a page of the responder, {} in all; the longest, of {}, is marked. "
                    "Prefetch advice before the transfer avoids them.",
                    count, duration_text(total_ns), duration_text(longest_ns)));
  }

  void find_others(uint16_t connection, uint8_t end) {
    const Trouble& trouble = all_[connection][end];
    if (trouble.rnr.end_ns != 0)
      add(Rule::rnr_storm, connection, end, trouble.rnr.begin_ns, trouble.rnr.end_ns,
          fmt::format(
              "{} RNR NAKs: the responder had no receive posted. Post receives before the peer sends, "
              "and more of them.",
              trouble.rnr_naks));
    if (trouble.closed_acks >= kClosedAcks && trouble.receives >= kClosedAcks &&
        trouble.closed_acks * 10 >= trouble.credit_acks * 9)
      add(Rule::closed_window, connection, end, trouble.first_closed_ns, trouble.last_closed_ns,
          fmt::format(
              "{} of {} acknowledgements granted no credit: the requester may send one message at a time.",
              trouble.closed_acks, trouble.credit_acks));
    if (trouble.most_unread != 0)
      add(Rule::unread_cq, connection, end, trouble.unread_since_ns, trouble.unread_until_ns,
          fmt::format(
              "The completion queue had {} unread completions of {}: the program polls it too seldom.",
              trouble.most_unread, trouble.cq_entries));
  }

  Story& story_;
  std::vector<std::array<Trouble, 2>> all_;
};

}  // namespace

void find_trouble(Story& story) {
  Rules(story).run();
}

}  // namespace faultline::story
