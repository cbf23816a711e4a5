// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <ctime>
#include <new>
#include <string>
#include <utility>

#include <sys/mman.h>

#include "tests/interop/e2e/odp_mix/odp_mix.hpp"
#include "tests/interop/e2e/side.hpp"

namespace faultline::e2e::mix {
namespace {

uint64_t mix_bits(uint64_t x) {  // the finalizer of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

void* map_shared(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("main", "mmap of the ledger");
  return memory;
}

void tell_wrong_line(const Shared& shared, size_t arena, size_t line, const Line& found, uint64_t least,
                     uint64_t most, const char* seen_by) {
  if (!may_tell()) return;
  const Plan& plan = shared.plans()[arena];
  std::fprintf(stderr,
               "odp_mix: %s: arena %zu (%s%s, %zu pages) page %zu line %zu: counter between %llu and %llu "
               "expected; words",
               seen_by, arena, name_of(plan.backing), plan.exact ? ", exact" : "", plan.pages,
               line / kLinesPerPage, line % kLinesPerPage, static_cast<unsigned long long>(least),
               static_cast<unsigned long long>(most));
  const Line whole = make_line(arena, line, found[1]);
  for (size_t i = 0; i < found.size(); ++i)
    std::fprintf(stderr, " %016llx%s", static_cast<unsigned long long>(found[i]),
                 found[i] == whole[i] ? "" : "!");
  std::fprintf(stderr, "\n");
}

/// Each word is that of a line that may stand there, or zero where the arena may lose its contents.
bool is_cut(size_t arena, size_t line, const Line& found, uint64_t least, uint64_t most, bool may_be_zero) {
  for (size_t word = 0; word < found.size(); ++word) {
    bool known = found[word] == 0 && (may_be_zero || least == 0);
    for (uint64_t counter = std::max<uint64_t>(least, 1); !known && counter <= most; ++counter)
      known = found[word] == make_line(arena, line, counter)[word];
    if (!known) return false;
  }
  return true;
}

/// Each word is zero or that of one line that may stand there.
bool is_torn(size_t arena, size_t line, const Line& found, uint64_t least, uint64_t most) {
  for (uint64_t counter = std::max<uint64_t>(least, 1); counter <= most; ++counter) {
    const Line whole = make_line(arena, line, counter);
    if (std::equal(found.begin(), found.end(), whole.begin(),
                   [](uint64_t word, uint64_t of_whole) { return word == 0 || word == of_whole; }))
      return true;
  }
  return false;
}

}  // namespace

bool may_tell() {
  static std::atomic<int> told{0};
  return told.fetch_add(1, std::memory_order_relaxed) < 16;
}

const char* name_of(Backing backing) {
  switch (backing) {
    case Backing::anonymous:
      return "anonymous";
    case Backing::anonymous_huge:
      return "anonymous, huge pages";
    case Backing::memfd:
      return "memfd";
    case Backing::file_private:
      return "private file";
    case Backing::file_shared:
      return "shared file";
    case Backing::hugetlb:
      return "hugetlb";
  }
  return "?";
}

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(now.tv_nsec);
}

Line make_line(size_t arena, size_t line, uint64_t counter) {
  Line words;
  words[0] = mix_bits((uint64_t{arena} + 1) << 40 | line);
  words[1] = counter;
  for (size_t i = 2; i < words.size(); ++i) words[i] = mix_bits(words[0] ^ (counter << 8 | i));
  return words;
}

Shared::Shared(std::vector<Plan> plans, uint64_t seed, Retries retries, bool may_tear)
    : plans_(std::move(plans)), seed_(seed), retries_(retries), may_tear_(may_tear) {
  head_ = new (map_shared(sizeof(SharedHead))) SharedHead;
  for (const Plan& plan : plans_) {
    // A page of cells has more records than a page of lines: each page gets its number.
    const size_t count = plan.pages * kCellsPerPage;
    // Fresh memory is zero, as the records begin; only what is used becomes resident.
    records_.push_back(static_cast<Record*>(map_shared(count * sizeof(Record))));
  }
}

bool Shared::may_tear(size_t arena) const {
  const Plan& plan = plans_[arena];
  const bool is_file = plan.backing == Backing::memfd || plan.backing == Backing::file_private ||
                       plan.backing == Backing::file_shared;
  return may_tear_ && is_file && !plan.exact;
}

bool Shared::may_be_torn(size_t arena, size_t line) const {
  const Record& record = this->line(arena, line);
  // The pending WRITE first: its end sets may_be_torn before it clears pending_since.
  const uint64_t since = record.pending_since.load(std::memory_order_acquire);
  if (since != 0 && had_holes(arena, since - 1)) return true;
  return record.may_be_torn.load(std::memory_order_acquire);
}

bool Shared::may_be_cut(size_t arena, size_t line) const {
  const Record& record = this->line(arena, line);
  // As above: the end of a WRITE sets has_failed before it clears pending_since.
  return record.pending_since.load(std::memory_order_acquire) != 0 ||
         record.has_failed.load(std::memory_order_acquire);
}

void Shared::note_posted(size_t arena, size_t line) const {
  this->line(arena, line)
      .pending_since.store(1 + head_->postings[arena].holes_over.load(std::memory_order_acquire),
                           std::memory_order_release);
}

void Shared::note_acknowledged(size_t arena, size_t line) const {
  Record& record = this->line(arena, line);
  const uint64_t since = record.pending_since.load(std::memory_order_relaxed) - 1;
  record.may_be_torn.store(had_holes(arena, since), std::memory_order_release);
  record.has_failed.store(false, std::memory_order_release);
  record.pending_since.store(0, std::memory_order_release);
}

void Shared::note_failed(size_t arena, size_t line) const {
  Record& record = this->line(arena, line);
  const uint64_t since = record.pending_since.load(std::memory_order_relaxed) - 1;
  // It may have stored or not: what an earlier WRITE left torn may still be there.
  if (had_holes(arena, since)) record.may_be_torn.store(true, std::memory_order_release);
  record.has_failed.store(true, std::memory_order_release);
  record.pending_since.store(0, std::memory_order_release);
}

Record& Shared::record(size_t arena, size_t page, size_t index) const {
  return records_[arena][page * kCellsPerPage + index];
}

void note_before(const Shared& shared, size_t arena, size_t first_line, std::span<Before> before) {
  for (size_t i = 0; i < before.size(); ++i) {
    const size_t line = first_line + i;
    before[i] = {};
    if (is_cell_page(line / kLinesPerPage)) continue;
    before[i] = {shared.line(arena, line).least.load(std::memory_order_acquire),
                 shared.may_be_torn(arena, line), shared.may_be_cut(arena, line)};
  }
}

Look look_at(const Shared& shared, size_t arena, size_t first_line, std::span<const uint64_t> words,
             std::span<const Before> before, bool holes_meanwhile, const char* seen_by) {
  constexpr size_t kWordsPerLine = kLineBytes / sizeof(uint64_t);
  const bool exact = shared.plans()[arena].exact;
  Look look;
  for (size_t i = 0; i * kWordsPerLine < words.size(); ++i) {
    const size_t line = first_line + i;
    Line found;
    std::copy_n(words.data() + i * kWordsPerLine, kWordsPerLine, found.begin());
    if (is_cell_page(line / kLinesPerPage)) {
      for (size_t word = 0; word < kWordsPerLine; ++word) {
        const Record& record = shared.cell(arena, line * kWordsPerLine + word);
        if (found[word] <= record.most.load(std::memory_order_acquire)) continue;
        tell_wrong_line(shared, arena, line, found, 0, record.most.load(std::memory_order_relaxed), seen_by);
        ++look.wrong;
      }
      continue;
    }
    const uint64_t most = shared.line(arena, line).most.load(std::memory_order_acquire);
    const bool zero = std::all_of(found.begin(), found.end(), [](uint64_t word) { return word == 0; });
    const uint64_t least = before[i].least;
    const bool good = zero ? !exact || least == 0
                           : found[1] >= std::max<uint64_t>(least, 1) && found[1] <= most &&
                                 found == make_line(arena, line, found[1]);
    if (good) continue;
    const bool hole_beside = before[i].may_be_torn || holes_meanwhile || shared.may_be_torn(arena, line);
    if (shared.may_tear(arena) && hole_beside && is_torn(arena, line, found, least, most)) {
      ++look.torn;
      continue;
    }
    const bool failed_beside = before[i].may_be_cut || shared.may_be_cut(arena, line);
    if (failed_beside && is_cut(arena, line, found, least, most, !exact)) {
      ++look.cut;
      continue;
    }
    ++look.wrong;
    tell_wrong_line(shared, arena, line, found, least, most, seen_by);
  }
  return look;
}

void Pauses::note() {
  constexpr uint64_t kStepNs = 5'000'000;
  const uint64_t now = now_ns();
  const uint64_t pause = last_ns_ == 0 ? 0 : now - last_ns_;
  last_ns_ = now;
  if (now < read_at_ns_ + kStepNs) return;
  read_at_ns_ = now;
  uint64_t waited = 0;
  if (std::FILE* file = std::fopen("/proc/thread-self/schedstat", "re")) {
    unsigned long long ran = 0;
    unsigned long long waited_so_far = 0;
    if (std::fscanf(file, "%llu %llu", &ran, &waited_so_far) == 2) waited = waited_so_far;
    static_cast<void>(std::fclose(file));
  }
  if (pause > longest_ns_) {
    longest_ns_ = pause;
    of_it_waited_ns_ = std::min(pause, waited - waited_ns_);
  }
  waited_ns_ = waited;
}

void Pauses::tell(const char* who) const {
  std::printf("%s: away from its engine for %.1f ms at most, %.1f ms of that without a CPU\n", who,
              static_cast<double>(longest_ns_) / 1e6, static_cast<double>(of_it_waited_ns_) / 1e6);
}

void tell_counters(const char* who, ibv_context* context) {
  std::array<faultline_counter, 256> counters;
  const int count = std::min(faultline_query_counters(context, counters.data(), counters.size()), 256);
  std::fprintf(stderr, "odp_mix: %s:", who);
  for (int i = 0; i < count; ++i) {
    const faultline_counter& counter = counters[static_cast<size_t>(i)];
    if (counter.value != 0)
      std::fprintf(stderr, " %s %llu", counter.name, static_cast<unsigned long long>(counter.value));
  }
  std::fprintf(stderr, "\n");
}

void connect(ibv_qp* qp, const char* who, uint32_t peer_qpn, const ibv_gid& peer_gid, uint32_t rq_psn,
             uint32_t sq_psn, Retries retries) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  if (error == 0)
    error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer_qpn;
  attr.rq_psn = rq_psn;
  attr.max_dest_rd_atomic = 8;
  attr.min_rnr_timer = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = peer_gid;
  attr.ah_attr.grh.hop_limit = 64;
  // While the wire comes up nobody may answer.
  const uint64_t end = now_ns() + kHangNs;
  while (error == 0 || (error == EHOSTUNREACH && now_ns() < end)) {
    error = ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error == 0) break;
  }
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = sq_psn;
  attr.timeout = retries.timeout;
  attr.retry_cnt = 7;
  attr.rnr_retry = retries.rnr_retry;
  attr.max_rd_atomic = 8;
  if (error == 0)
    error = ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                              IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) {
    errno = error;
    fail(who, "ibv_modify_qp");
  }
}

}  // namespace faultline::e2e::mix
