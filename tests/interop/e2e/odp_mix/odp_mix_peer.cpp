// SPDX-License-Identifier: BSD-3-Clause
// The peer of odp_mix: RC WRITE, READ and FETCH_ADD on random places of random arenas, as fast as they go.
#include <algorithm>
#include <memory>
#include <random>

#include "tests/interop/e2e/odp_mix/odp_mix.hpp"
#include "tests/interop/e2e/side.hpp"

namespace faultline::e2e::mix {
namespace {

constexpr const char* kPeerRole = "peer";
constexpr size_t kMostLines = 256;  ///< of one request
constexpr size_t kSlotBytes = kMostLines * kLineBytes;
constexpr size_t kSlots = kQps * kDepth;
constexpr size_t kWordsPerLine = kLineBytes / sizeof(uint64_t);

/// An arena as the peer last saw it posted. An old view is used as it is: that is what a stale key is.
struct View {
  uint32_t sequence = 0;
  uint32_t rkey = 0;
  uint64_t va = 0;
  uint64_t pages = 0;
};

struct Slot {
  ibv_wr_opcode opcode = IBV_WR_RDMA_READ;
  size_t qp = 0;
  size_t arena = 0;
  size_t first = 0;  ///< line, or cell of a FETCH_ADD
  size_t count = 0;  ///< of lines
  uint64_t disturbances_over = 0;
  uint64_t posted_at_ns = 0;
  bool under_way = false;
  uint64_t holes_over = 0;
  std::array<Before, kMostLines> before{};
};

struct Lane {
  ibv_qp* qp = nullptr;
  bool alive = false;
  uint32_t outstanding = 0;
  uint32_t psn = 0;
  uint64_t wanted_at_ns = 0;
  std::vector<size_t> free_slots;
  std::vector<size_t> limbo;  ///< failed: what they wrote may or may not be there
};

class Peer {
 public:
  Peer(const std::string& config, const Shared& shared)
      : shared_(shared),
        head_(shared.head()),
        side_(kPeerRole, config),
        slots_(kSlots),
        random_(shared.seed()),
        work_(shared.head().peer_work) {
    buffer_.resize(kSlots * kSlotBytes / sizeof(uint64_t));
    const int access = IBV_ACCESS_LOCAL_WRITE;
    mr_ = ibv_reg_mr(side_.pd, buffer_.data(), kSlots * kSlotBytes, access);
    if (mr_ == nullptr) fail(kPeerRole, "ibv_reg_mr");
    for (const Plan& plan : shared.plans()) busy_.emplace_back(plan.pages * kCellsPerPage);
    views_.resize(shared.plans().size());
    avoid_until_ns_.resize(shared.plans().size());
    head_.peer_gid = side_.gid;
    for (size_t i = 0; i < kQps; ++i) {
      side_.make_qp(kDepth);
      lanes_[i].qp = side_.qp;
      head_.connections[i].peer_qpn.store(side_.qp->qp_num, std::memory_order_relaxed);
      for (size_t slot = i * kDepth; slot < (i + 1) * kDepth; ++slot) lanes_[i].free_slots.push_back(slot);
    }
    for (size_t i = 0; i < kQps; ++i) want_connection(i);
    head_.peer_ready.store(true, std::memory_order_release);
    while (!head_.owner_ready.load(std::memory_order_acquire)) faultline_progress(side_.context);
  }

  int run() {
    uint64_t turns = 0;
    for (;;) {
      const bool over = head_.stop.load(std::memory_order_acquire);
      bool idle = true;
      for (size_t i = 0; i < kQps; ++i) {
        Lane& lane = lanes_[i];
        if (over) {
          idle &= lane.outstanding == 0;
        } else if (lane.alive) {
          while (!lane.free_slots.empty() && post(i)) {
          }
        } else if (lane.outstanding == 0) {
          revive(i);
        }
      }
      if (over && idle) break;
      poll();
      if (++turns % 1024 == 0) look_for_hangs();
    }
    return report();
  }

 private:
  /// Of this thread alone; the owner only reads.
  static void count(std::atomic<uint64_t>& counter, uint64_t more = 1) {
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }

  void want_connection(size_t number) {
    Lane& lane = lanes_[number];
    Connection& connection = head_.connections[number];
    // Far from the last life's: nothing of it can be taken for this one's.
    lane.psn = (lane.psn + 0x500000 + static_cast<uint32_t>(random_() % 0x100000)) & 0xffffff;
    lane.wanted_at_ns = now_ns();
    connection.peer_psn.store(lane.psn, std::memory_order_relaxed);
    connection.stage.store(Stage::wanted, std::memory_order_release);
  }

  void revive(size_t number) {
    Lane& lane = lanes_[number];
    Connection& connection = head_.connections[number];
    const Stage stage = connection.stage.load(std::memory_order_acquire);
    if (stage == Stage::connected) return want_connection(number);
    if (stage != Stage::answered) return;
    connect(lane.qp, kPeerRole, connection.owner_qpn.load(std::memory_order_relaxed), head_.owner_gid,
            connection.owner_psn.load(std::memory_order_relaxed), lane.psn, shared_.retries());
    // What failed can no more be executed: its lines may be written again.
    for (const size_t slot : lane.limbo) {
      note_failed(slots_[slot]);
      free_slot(slot);
    }
    lane.limbo.clear();
    lane.alive = true;
    ++lives_;
    connection.stage.store(Stage::connected, std::memory_order_release);
  }

  const View& view_of(size_t arena) {
    const Posting& posting = head_.postings[arena];
    View& view = views_[arena];
    const uint32_t before = posting.sequence.load(std::memory_order_acquire);
    if (before % 2 != 0 || before == view.sequence) return view;
    const View fresh{before, posting.rkey.load(std::memory_order_relaxed),
                     posting.va.load(std::memory_order_relaxed),
                     posting.pages.load(std::memory_order_relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (posting.sequence.load(std::memory_order_relaxed) == before) view = fresh;
    return view;
  }

  [[nodiscard]] std::vector<bool>::reference busy(size_t arena, size_t page, size_t index) {
    return busy_[arena][page * kCellsPerPage + index];
  }
  [[nodiscard]] std::vector<bool>::reference line_busy(size_t arena, size_t line) {
    return busy(arena, line / kLinesPerPage, line % kLinesPerPage);
  }

  /// False where nothing was found to do.
  bool post(size_t number) {
    const size_t arena = random_() % shared_.plans().size();
    const uint64_t now = now_ns();
    if (now < avoid_until_ns_[arena]) return false;
    Lane& lane = lanes_[number];
    const size_t slot_number = lane.free_slots.back();
    Slot& slot = slots_[slot_number];
    slot.qp = number;
    slot.arena = arena;
    slot.posted_at_ns = now;
    // Before the view: what a disturbance that is over has posted is then seen.
    slot.disturbances_over = head_.postings[arena].disturbances_over.load(std::memory_order_acquire);
    const View& view = view_of(arena);
    uint64_t* words = buffer_.data() + slot_number * kSlotBytes / sizeof(uint64_t);
    ibv_sge piece{reinterpret_cast<uint64_t>(words), 0, mr_->lkey};
    ibv_send_wr request{};
    const uint64_t dice = random_() % 100;
    if (dice < 45) {
      if (!prepare_write(slot, view, words)) return false;
    } else if (dice < 80) {
      prepare_read(slot, view);
    } else if (!prepare_add(slot, view)) {
      return false;
    }
    if (slot.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      piece.length = sizeof(uint64_t);
      request.wr.atomic.remote_addr = view.va + slot.first * sizeof(uint64_t);
      request.wr.atomic.rkey = view.rkey;
      request.wr.atomic.compare_add = 1;
    } else {
      piece.length = static_cast<uint32_t>(slot.count * kLineBytes);
      request.wr.rdma = {view.va + slot.first * kLineBytes, view.rkey};
    }
    request.wr_id = slot_number;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = slot.opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    errno = ibv_post_send(lane.qp, &request, &bad);
    if (errno != 0) fail(kPeerRole, "ibv_post_send");
    slot.under_way = true;
    lane.free_slots.pop_back();
    ++lane.outstanding;
    return true;
  }

  size_t some_lines() {
    switch (random_() % 4) {
      case 0:
        return 1;
      case 1:
        return 1 + random_() % 16;
      case 2:
        return kLinesPerPage;
      default:
        return 1 + random_() % kMostLines;
    }
  }

  bool prepare_write(Slot& slot, const View& view, uint64_t* words) {
    slot.opcode = IBV_WR_RDMA_WRITE;
    for (int attempt = 0; attempt < 8; ++attempt) {
      slot.first = random_() % (view.pages * kLinesPerPage);
      const size_t most = std::min(some_lines(), view.pages * kLinesPerPage - slot.first);
      for (slot.count = 0; slot.count < most; ++slot.count) {
        const size_t line = slot.first + slot.count;
        if (is_cell_page(line / kLinesPerPage) || line_busy(slot.arena, line)) break;
      }
      if (slot.count != 0) break;
    }
    for (size_t i = 0; i < slot.count; ++i) {
      const size_t line = slot.first + i;
      line_busy(slot.arena, line) = true;
      shared_.note_posted(slot.arena, line);
      const uint64_t counter =
          shared_.line(slot.arena, line).most.fetch_add(1, std::memory_order_acq_rel) + 1;
      const Line bytes = make_line(slot.arena, line, counter);
      std::copy(bytes.begin(), bytes.end(), words + i * kWordsPerLine);
    }
    return slot.count != 0;
  }

  void prepare_read(Slot& slot, const View& view) {
    slot.opcode = IBV_WR_RDMA_READ;
    slot.first = random_() % (view.pages * kLinesPerPage);
    slot.count = std::min(some_lines(), view.pages * kLinesPerPage - slot.first);
    slot.holes_over = head_.postings[slot.arena].holes_over.load(std::memory_order_acquire);
    note_before(shared_, slot.arena, slot.first, std::span(slot.before).first(slot.count));
  }

  bool prepare_add(Slot& slot, const View& view) {
    slot.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    slot.count = 0;
    const size_t page = random_() % (view.pages / kCellPageEvery) * kCellPageEvery + kCellPageEvery - 1;
    const size_t index = random_() % kCellsPerPage;
    if (busy(slot.arena, page, index)) return false;
    busy(slot.arena, page, index) = true;
    slot.first = page * kCellsPerPage + index;
    shared_.cell(slot.arena, slot.first).most.fetch_add(1, std::memory_order_acq_rel);
    return true;
  }

  void note_failed(const Slot& slot) {
    if (slot.opcode != IBV_WR_RDMA_WRITE) return;
    for (size_t i = 0; i < slot.count; ++i) shared_.note_failed(slot.arena, slot.first + i);
  }

  void free_slot(size_t number) {
    Slot& slot = slots_[number];
    if (slot.opcode == IBV_WR_RDMA_WRITE) {
      for (size_t i = 0; i < slot.count; ++i) line_busy(slot.arena, slot.first + i) = false;
    } else if (slot.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      busy(slot.arena, slot.first / kCellsPerPage, slot.first % kCellsPerPage) = false;
    }
    lanes_[slot.qp].free_slots.push_back(number);
  }

  void poll() {
    pauses_.note();
    std::array<ibv_wc, 32> completions;
    const int count = ibv_poll_cq(side_.cq, completions.size(), completions.data());
    if (count < 0) fail(kPeerRole, "ibv_poll_cq");
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = completions[static_cast<size_t>(i)];
      Slot& slot = slots_[completion.wr_id];
      Lane& lane = lanes_[slot.qp];
      slot.under_way = false;
      --lane.outstanding;
      if (completion.status == IBV_WC_SUCCESS) {
        settle(slot, completion.wr_id);
        free_slot(completion.wr_id);
      } else {
        fail_slot(slot, completion.status);
        lane.alive = false;
        lane.limbo.push_back(completion.wr_id);
      }
    }
  }

  void settle(const Slot& slot, size_t number) {
    const uint64_t* words = buffer_.data() + number * kSlotBytes / sizeof(uint64_t);
    switch (slot.opcode) {
      case IBV_WR_RDMA_WRITE:
        count(work_.writes);
        bytes_ += slot.count * kLineBytes;
        for (size_t i = 0; i < slot.count; ++i) {
          // One request a line: what was posted last is what has been acknowledged.
          Record& record = shared_.line(slot.arena, slot.first + i);
          record.least.store(record.most.load(std::memory_order_relaxed), std::memory_order_release);
          shared_.note_acknowledged(slot.arena, slot.first + i);
        }
        return;
      case IBV_WR_RDMA_READ:
        count(work_.reads);
        bytes_ += slot.count * kLineBytes;
        count(work_.bytes_verified, slot.count * kLineBytes);
        look_at_answer(slot, words);
        return;
      default:
        count(work_.adds);
        settle_add(slot, *words);
    }
  }

  void look_at_answer(const Slot& slot, const uint64_t* words) {
    const Look look = look_at(shared_, slot.arena, slot.first, {words, slot.count * kWordsPerLine},
                              std::span(slot.before).first(slot.count),
                              shared_.had_holes(slot.arena, slot.holes_over), "READ");
    wrong_ += look.wrong;
    torn_ += look.torn;
    cut_ += look.cut;
  }

  void settle_add(const Slot& slot, uint64_t original) {
    Record& record = shared_.cell(slot.arena, slot.first);
    const uint64_t most = record.most.load(std::memory_order_relaxed) - 1;
    const bool exact = shared_.plans()[slot.arena].exact;
    const uint64_t least = exact ? record.least.load(std::memory_order_relaxed) : 0;
    const bool wrong = original < least || original > most;
    wrong_ += wrong ? 1 : 0;
    if (wrong && may_tell()) {
      std::fprintf(
          stderr, "odp_mix: FETCH_ADD: arena %zu (%s%s) cell %zu held %llu, between %llu and %llu expected\n",
          slot.arena, name_of(shared_.plans()[slot.arena].backing), exact ? ", exact" : "", slot.first,
          static_cast<unsigned long long>(original), static_cast<unsigned long long>(least),
          static_cast<unsigned long long>(most));
    }
    if (!exact) return;
    // The answer says which of the adds before it, whose answers were lost, were done.
    record.least.store(original + 1, std::memory_order_release);
    record.most.store(original + 1, std::memory_order_release);
  }

  [[nodiscard]] bool was_disturbed(const Slot& slot) const {
    const Posting& posting = head_.postings[slot.arena];
    return posting.disturbances_begun.load(std::memory_order_acquire) != slot.disturbances_over;
  }

  void tell(const Slot& slot, const char* what, const char* why) const {
    const Plan& plan = shared_.plans()[slot.arena];
    const char* const operation = slot.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? "FETCH_ADD of cell"
                                  : slot.opcode == IBV_WR_RDMA_WRITE         ? "WRITE of line"
                                                                             : "READ of line";
    std::fprintf(
        stderr, "odp_mix: %s: QP %zu, arena %zu (%s%s, %zu pages), %s %zu, %zu lines, posted %llu us ago%s\n",
        what, slot.qp, slot.arena, name_of(plan.backing), plan.exact ? ", exact" : "", plan.pages, operation,
        slot.first, slot.count, static_cast<unsigned long long>((now_ns() - slot.posted_at_ns) / 1000), why);
  }

  /// The end, with what may explain it.
  [[noreturn]] void give_up() {
    tell_counters(kPeerRole, side_.context);
    pauses_.tell(kPeerRole);
    std::fflush(stdout);
    head_.peer_failed.store(true, std::memory_order_release);
    std::_Exit(1);
  }

  void fail_slot(const Slot& slot, ibv_wc_status status) {
    if (status == IBV_WC_WR_FLUSH_ERR) return;
    if (status != IBV_WC_REM_ACCESS_ERR) {
      tell(slot, ibv_wc_status_str(status), "");
      give_up();
    }
    count(work_.access_errors);
    // Full speed elsewhere until it may be back.
    avoid_until_ns_[slot.arena] = now_ns() + 50'000 + random_() % 300'000;
    if (was_disturbed(slot)) return;
    // A request before the refused one whose answer has not come fails in its place.
    const bool may_take_blame = slot.opcode != IBV_WR_RDMA_WRITE;
    if (may_take_blame && std::any_of(slots_.begin(), slots_.end(), [&](const Slot& other) {
          return other.under_way && other.qp == slot.qp && was_disturbed(other);
        })) {
      ++blamed_;
      return;
    }
    if (may_tell()) tell(slot, ibv_wc_status_str(status), ", though its memory was there all the time");
    ++wrong_;
  }

  void look_for_hangs() {
    const uint64_t now = now_ns();
    if (!timeout_told_ && side_.counter("transport.timeouts") != 0) {
      timeout_told_ = true;
      std::fprintf(stderr, "odp_mix: peer: a timeout\n");
      pauses_.tell(kPeerRole);
      std::fflush(stdout);
      head_.timeout_seen.store(true, std::memory_order_release);
    }
    for (const Slot& slot : slots_) {
      if (slot.under_way && now > slot.posted_at_ns + kHangNs) {
        tell(slot, "hangs", "");
        give_up();
      }
    }
    for (size_t i = 0; i < kQps; ++i) {
      if (!lanes_[i].alive && lanes_[i].outstanding == 0 && now > lanes_[i].wanted_at_ns + kHangNs &&
          head_.connections[i].stage.load(std::memory_order_acquire) == Stage::wanted)
        fail(kPeerRole, "the owner does not bring its QP back");
    }
  }

  int report() {
    const uint64_t timeouts = side_.counter("transport.timeouts");
    std::printf(
        "peer: %llu WRITEs, %llu READs, %llu FETCH_ADDs, %.1f MB; %llu access errors, %llu of them "
        "told by a READ or FETCH_ADD before the refused request, %llu QP restarts; %llu RNR NAKs, %llu "
        "timeouts, %llu torn, %llu cut, %llu wrong\n",
        static_cast<unsigned long long>(work_.writes.load()),
        static_cast<unsigned long long>(work_.reads.load()),
        static_cast<unsigned long long>(work_.adds.load()), static_cast<double>(bytes_) / 1e6,
        static_cast<unsigned long long>(work_.access_errors.load()), static_cast<unsigned long long>(blamed_),
        static_cast<unsigned long long>(lives_ - kQps),
        static_cast<unsigned long long>(side_.counter("transport.rnr_naks_received")),
        static_cast<unsigned long long>(timeouts), static_cast<unsigned long long>(torn_),
        static_cast<unsigned long long>(cut_), static_cast<unsigned long long>(wrong_));
    pauses_.tell(kPeerRole);
    std::fflush(stdout);
    head_.peer_done.store(true, std::memory_order_release);
    const uint64_t timeout_ns = uint64_t{4096} << shared_.retries().timeout;
    const bool was_away = head_.longest_away_ns.load(std::memory_order_acquire) >= timeout_ns;
    return wrong_ == 0 && (timeouts == 0 || was_away) ? 0 : 1;
  }

  const Shared& shared_;
  SharedHead& head_;
  Side side_;
  ibv_mr* mr_ = nullptr;
  std::vector<uint64_t> buffer_;
  std::vector<Slot> slots_;
  std::array<Lane, kQps> lanes_;
  std::vector<View> views_;
  std::vector<uint64_t> avoid_until_ns_;
  std::vector<std::vector<bool>> busy_;  ///< lines and cells, numbered as the ledger's records
  std::mt19937_64 random_;
  Pauses pauses_;
  bool timeout_told_ = false;
  PeerWork& work_;
  uint64_t bytes_ = 0;
  uint64_t blamed_ = 0, lives_ = 0, torn_ = 0, cut_ = 0, wrong_ = 0;
};

}  // namespace

int run_peer(const std::string& config, const Shared& shared) {
  return std::make_unique<Peer>(config, shared)->run();
}

}  // namespace faultline::e2e::mix
