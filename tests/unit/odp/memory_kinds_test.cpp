// SPDX-License-Identifier: BSD-3-Clause
// Every kind of memory under every call that takes memory away, explicit and implicit: afterwards an engine
// reads and writes what the program sees at the address, or gets a violation where there is nothing.
//
// Built twice: with the library's hooks before the C library's names (ODP_HOOKED), and without, when
// userfaultfd and the tolerant copy stand guard alone.
#include "tests/unit/odp/memory_kinds.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "odp/fault_kind.hpp"
#include "odp/invalidation_monitor.hpp"
#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test {
namespace {

constexpr bool kHooked = ODP_HOOKED != 0;
constexpr size_t kPage = 4096;
constexpr int kMadvCollapse = 25;  // Linux 6.1

enum class Call : uint8_t {
  dontneed,
  free,
  remove,
  pageout,
  cold,
  unmap,
  map_over,
  shrink,
  grow_in_place,
  grow_and_move,
  move,
  move_and_leave,
  protect_read_only,
  protect_none,
  fork_parent_writes,
  fork_child_writes,
  truncate,
  punch,
  detach,
  attach_over,
  split,
  collapse
};
constexpr std::array<const char*, 22> kCallNames{"dontneed",
                                                 "free",
                                                 "remove",
                                                 "pageout",
                                                 "cold",
                                                 "unmap",
                                                 "map_over",
                                                 "shrink",
                                                 "grow_in_place",
                                                 "grow_and_move",
                                                 "move",
                                                 "move_and_leave",
                                                 "protect_read_only",
                                                 "protect_none",
                                                 "fork_parent_writes",
                                                 "fork_child_writes",
                                                 "truncate",
                                                 "punch",
                                                 "detach",
                                                 "attach_over",
                                                 "split",
                                                 "collapse"};

enum class Mode : uint8_t { usual, ordinary_user, without_async, without_monitor };
constexpr std::array<const char*, 4> kModeNames{"usual", "ordinary_user", "without_async", "without_monitor"};

struct Case {
  Kind kind;
  Call call;
  bool is_implicit;
  Mode mode;
};

std::string name_of(const Case& c) {
  return std::string(facts_of(c.kind).name) + "_" + kCallNames[static_cast<size_t>(c.call)] + "_" +
         (c.is_implicit ? "implicit" : "explicit") +
         (c.mode == Mode::usual ? std::string() : std::string("_") + kModeNames[static_cast<size_t>(c.mode)]);
}
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << name_of(c);
}

/// Whether the call means anything for the kind.
bool applies(Kind kind, Call call) {
  switch (call) {
    case Call::truncate:
    case Call::punch:
      return facts_of(kind).is_file;
    case Call::detach:
      return kind == Kind::sysv;
    case Call::fork_child_writes:
      return facts_of(kind).is_writable;
    case Call::attach_over:
      return kind != Kind::hugetlb;
    case Call::move_and_leave:
      return kind == Kind::anonymous || kind == Kind::huge || kind == Kind::memfd;
    case Call::split:
      return kind != Kind::hugetlb && kind != Kind::anonymous;
    default:
      return true;
  }
}

/// Whether the kernel refuses it (madvise(2), mremap(2)). Then nothing may have changed.
bool is_refused(Kind kind, Call call) {
  switch (call) {
    case Call::free:
      return kind != Kind::anonymous && kind != Kind::huge;
    case Call::remove:
      return !facts_of(kind).is_shared || !facts_of(kind).is_writable;
    case Call::pageout:
    case Call::cold:
    case Call::grow_in_place:
    case Call::grow_and_move:
      return kind == Kind::hugetlb;
    default:
      return false;
  }
}

size_t bytes_for(Kind kind, Call call) {
  if (kind == Kind::hugetlb) return 4 * kHugeBytes;
  return kind == Kind::huge || call == Call::split || call == Call::collapse ? 2 * kHugeBytes : 32 * kPage;
}

/// A child that looks at its own memory, and writes it, when told to.
class ForkedChild {
 public:
  ForkedChild(uint8_t* data, size_t bytes) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      serve(ends[1], data, bytes);
    }
    close(ends[1]);
    socket_ = ends[0];
  }
  ForkedChild(const ForkedChild&) = delete;
  ForkedChild& operator=(const ForkedChild&) = delete;
  ~ForkedChild() {
    close(socket_);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }

  [[nodiscard]] bool is_there() const { return pid_ > 0; }
  [[nodiscard]] bool sees(unsigned seed) const { return ask('s', seed); }
  [[nodiscard]] bool writes(unsigned seed) const { return ask('w', seed); }

 private:
  struct Question {
    char verb;
    unsigned seed;
  };

  [[noreturn]] static void serve(int socket, uint8_t* data, size_t bytes) {
    Question question{};
    while (::read(socket, &question, sizeof question) == static_cast<ssize_t>(sizeof question)) {
      if (question.verb == 'w') fill_pattern(data, bytes, question.seed);
      char answer = 'y';
      for (size_t i = 0; i < bytes; ++i)
        if (data[i] != pattern_byte(question.seed, i)) answer = 'n';
      if (::write(socket, &answer, 1) != 1) break;
    }
    _exit(0);
  }
  [[nodiscard]] bool ask(char verb, unsigned seed) const {
    const Question question{verb, seed};
    char answer = 'n';
    return ::write(socket_, &question, sizeof question) == static_cast<ssize_t>(sizeof question) &&
           ::read(socket_, &answer, 1) == 1 && answer == 'y';
  }

  pid_t pid_ = -1;
  int socket_ = -1;
};

/// What an engine may do with memory now.
enum class Rights : uint8_t { none, read, write };

/// One case: a domain, the memory, its region, and a second region that nothing happens to.
class Trial {
 public:
  Trial(const Case& c, const DomainConfig& config)
      : case_(c),
        memory_(c.kind, bytes_for(c.kind, c.call)),
        part_(memory_.data() + memory_.size() / 2),
        part_bytes_(memory_.size() / 4),
        domain_(make_domain(config)),
        session_(domain_->attach_engine()),
        other_{bystander_.address()} {
    other_.key = register_range(other_.address, bystander_.size());
    region_ = View{reinterpret_cast<uint64_t>(memory_.data())};
    if (c.is_implicit) {
      region_.iova = region_.address;
      region_.key =
          registered({.domain = 1, .address = 0, .length_bytes = ~uint64_t{0}, .iova = 0, .access = kAccess});
    } else {
      region_.key = register_range(region_.address, memory_.size());
    }
  }

  [[nodiscard]] const KindMemory& memory() const { return memory_; }

  void run() {
    begin();
    if (testing::Test::HasFatalFailure()) return;
    make_call();
    if (testing::Test::HasFatalFailure()) return;
    finish();
  }

 private:
  static constexpr uint32_t kAccess = kLocalWrite | kRemoteWrite | kRemoteRead | kOnDemand;
  static constexpr unsigned kFirstSeed = 1;
  static constexpr uint64_t kIova = 0x5500'0000'0000;

  /// A region and where it stands: keys are used with other numbers than addresses.
  struct View {
    uint64_t address = 0;
    uint64_t iova = kIova;
    Key key = 0;

    [[nodiscard]] uint64_t va_of(const uint8_t* at) const {
      return iova + (reinterpret_cast<uint64_t>(at) - address);
    }
  };

  Key registered(const RegionRequest& request) {
    const RegionResult result = domain_->register_region(request);
    EXPECT_EQ(result.error, 0);
    return result.key;
  }
  Key register_range(uint64_t address, size_t bytes) {
    return registered(
        {.domain = 1, .address = address, .length_bytes = bytes, .iova = kIova, .access = kAccess});
  }

  /// By packets, as an engine does: what is asked of the pager is the rest of the message.
  static constexpr size_t kPacketBytes = kPage;
  template <typename Access>
  Outcome by_packets(const Target& target, uint64_t va, size_t bytes, Access access) {
    for (size_t done = 0; done < bytes; done += kPacketBytes) {
      const FaultRequest fault{.target = target, .va = va + done, .length_bytes = bytes - done};
      const Outcome outcome = until_settled(
          *session_, fault, [&] { return access(va + done, done, std::min(kPacketBytes, bytes - done)); });
      if (outcome != Outcome::done) return outcome;
    }
    return Outcome::done;
  }
  Outcome engine_writes(const View& view, const uint8_t* at, std::span<const uint8_t> bytes) {
    const Target target{view.key, 1, kRemoteWrite};
    return by_packets(target, view.va_of(at), bytes.size(), [&](uint64_t va, size_t first, size_t length) {
      return session_->write(target, va, bytes.subspan(first, length));
    });
  }
  Outcome engine_reads(const View& view, const uint8_t* at, std::span<uint8_t> bytes) {
    const Target target{view.key, 1, kRemoteRead};
    return by_packets(target, view.va_of(at), bytes.size(), [&](uint64_t va, size_t first, size_t length) {
      return session_->read(target, va, bytes.subspan(first, length));
    });
  }

  /// -1, or the first byte at which they differ.
  static ssize_t difference(std::span<const uint8_t> engine, const uint8_t* program) {
    if (std::memcmp(engine.data(), program, engine.size()) == 0) return -1;
    for (size_t i = 0; i < engine.size(); ++i)
      if (engine[i] != program[i]) return static_cast<ssize_t>(i);
    return -1;
  }

  [[nodiscard]] unsigned next_seed() { return ++seed_; }
  [[nodiscard]] Rights full_rights() const { return facts().is_writable ? Rights::write : Rights::read; }
  [[nodiscard]] const KindFacts& facts() const { return memory_.facts(); }
  [[nodiscard]] size_t offset_of(const uint8_t* at) const { return static_cast<size_t>(at - memory_.data()); }
  [[nodiscard]] uint8_t* part_end() const { return part_ + part_bytes_; }

  /// The engine first: what it has cached must not be right only because the program has looked.
  void expect_bytes(const View& view, uint8_t* at, std::span<const uint8_t> wanted) {
    std::vector<uint8_t> seen(wanted.size());
    ASSERT_EQ(engine_reads(view, at, seen), Outcome::done);
    EXPECT_EQ(difference(seen, wanted.data()), -1) << "bytes that the engine reads";
    EXPECT_EQ(difference(wanted, at), -1) << "bytes that the program sees";
  }
  void expect_pattern(uint8_t* at, size_t bytes, unsigned seed, uint8_t* of) {
    expect_bytes(region_, at, pattern(bytes, seed, static_cast<size_t>(at - of)));
  }
  void expect_pattern(uint8_t* at, size_t bytes, unsigned seed) {
    expect_pattern(at, bytes, seed, memory_.data());
  }
  void expect_zeros(uint8_t* at, size_t bytes) { expect_bytes(region_, at, std::vector<uint8_t>(bytes)); }

  /// Engine and program see one memory, both ways.
  void expect_one_memory(const View& view, uint8_t* at, size_t bytes, Rights rights) {
    std::vector<uint8_t> data(bytes);
    ASSERT_EQ(engine_reads(view, at, data), Outcome::done);
    EXPECT_EQ(difference(data, at), -1) << "engine reads what the program sees";
    if (rights == Rights::read) {
      const std::vector<uint8_t> before(at, at + bytes);
      EXPECT_EQ(engine_writes(view, at, pattern(bytes, next_seed())), Outcome::violation);
      EXPECT_EQ(engine_writes(view, at + bytes - 1, pattern(1, next_seed())), Outcome::violation);
      EXPECT_EQ(difference(before, at), -1) << "a refused write leaves nothing behind";
      return;
    }
    const std::vector<uint8_t> written = pattern(bytes, next_seed());
    ASSERT_EQ(engine_writes(view, at, written), Outcome::done);
    EXPECT_EQ(difference(written, at), -1) << "program sees what the engine wrote";
    fill_pattern(at, bytes, next_seed());
    ASSERT_EQ(engine_reads(view, at, data), Outcome::done);
    EXPECT_EQ(difference(data, at), -1) << "engine reads what the program wrote";
  }
  void expect_one_memory(uint8_t* at, size_t bytes, Rights rights) {
    expect_one_memory(region_, at, bytes, rights);
  }

  void expect_nothing(const View& view, uint8_t* at, size_t bytes) {
    std::vector<uint8_t> data = pattern(bytes, next_seed());
    EXPECT_EQ(engine_writes(view, at, data), Outcome::violation) << "all of it";
    EXPECT_EQ(engine_reads(view, at, data), Outcome::violation) << "all of it";
    const std::span<uint8_t> few = std::span(data).first(8);
    for (uint8_t* const piece : {at, at + bytes / 2, at + bytes - few.size()}) {
      EXPECT_EQ(engine_writes(view, piece, few), Outcome::violation) << "at " << piece - at;
      EXPECT_EQ(engine_reads(view, piece, few), Outcome::violation) << "at " << piece - at;
    }
  }
  void expect_nothing(uint8_t* at, size_t bytes) { expect_nothing(region_, at, bytes); }

  /// Whether the library is told that a mapping of this kind goes. Where it is not, an explicit region cannot
  /// know a later mapping at the address from the one that was registered.
  [[nodiscard]] bool is_watched() const {
    if (kHooked) return true;
    // shmdt and shmat send no event.
    if (case_.call == Call::detach || case_.call == Call::attach_over) return false;
    switch (InvalidationMonitor::instance({})->level()) {
      case UserfaultLevel::none:
        return false;
      case UserfaultLevel::without_files:
        return !facts().needs_async;
      case UserfaultLevel::full:
        return case_.kind != Kind::file_read_only;
    }
    return false;
  }

  /// Another mapping stands where the region's was.
  void expect_other_mapping(uint8_t* at, size_t bytes) {
    if (case_.is_implicit) {
      expect_zeros(at, bytes);
      return expect_one_memory(at, bytes, Rights::write);
    }
    if (is_watched()) {
      expect_nothing(at, bytes);
      EXPECT_EQ(difference(std::vector<uint8_t>(bytes), at), -1) << "not even a byte of the other mapping";
    }
    View again{reinterpret_cast<uint64_t>(at)};
    again.key = register_range(again.address, bytes);
    expect_one_memory(again, at, bytes, Rights::write);
    if (is_watched()) expect_nothing(at, bytes);
    EXPECT_EQ(domain_->deregister_region(again.key), 0);
  }
  /// Nothing is mapped there any more; then something else is.
  void expect_gone(uint8_t* at, size_t bytes) {
    expect_nothing(at, bytes);
    void* const filled =
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    ASSERT_EQ(filled, at);
    expect_other_mapping(at, bytes);
  }
  /// All but the part is as it was, and goes on.
  void expect_rest_kept() {
    expect_pattern(memory_.data(), offset_of(part_), first_seed_);
    expect_pattern(part_end(), memory_.size() - offset_of(part_end()), first_seed_);
    expect_one_memory(memory_.data(), offset_of(part_), full_rights());
    expect_one_memory(part_end(), memory_.size() - offset_of(part_end()), full_rights());
  }
  void expect_all_kept() {
    expect_pattern(memory_.data(), memory_.size(), first_seed_);
    expect_one_memory(memory_.data(), memory_.size(), full_rights());
  }

  void begin() {
    if (facts().is_writable) {
      ASSERT_EQ(engine_writes(region_, memory_.data(), pattern(memory_.size(), kFirstSeed)), Outcome::done);
    } else {
      first_seed_ = KindMemory::kFileSeed;
    }
    expect_pattern(memory_.data(), memory_.size(), first_seed_);
    if (case_.kind == Kind::huge && !PageSurveyor().is_huge(region_.address))
      std::printf("[   NOTE   ] %s: the kernel gave small pages\n", name_of(case_).c_str());
    ASSERT_EQ(engine_writes(other_, bystander_.data(), pattern(bystander_.size(), kFirstSeed)),
              Outcome::done);
  }

  void finish() {
    const std::vector<uint8_t> kept = pattern(bystander_.size(), kFirstSeed);
    std::vector<uint8_t> seen(kept.size());
    ASSERT_EQ(engine_reads(other_, bystander_.data(), seen), Outcome::done);
    EXPECT_EQ(difference(seen, kept.data()), -1) << "the other region";
    expect_one_memory(other_, bystander_.data(), bystander_.size(), Rights::write);
    if (case_.kind == Kind::file_private && case_.call != Call::truncate && case_.call != Call::punch)
      expect_file(pattern(memory_.size(), KindMemory::kFileSeed));
    EXPECT_EQ(domain_->deregister_region(region_.key), 0);
    expect_nothing(memory_.data(), kPage);
    expect_one_memory(other_, bystander_.data(), bystander_.size(), Rights::write);
    EXPECT_EQ(domain_->deregister_region(other_.key), 0);
  }

  /// Of a private mapping none of the engine's bytes come here, of a shared one all do.
  void expect_file(const std::vector<uint8_t>& wanted) const {
    std::vector<uint8_t> content(wanted.size());
    ASSERT_EQ(pread(memory_.file(), content.data(), content.size(), 0), static_cast<ssize_t>(content.size()));
    EXPECT_EQ(difference(content, wanted.data()), -1) << "bytes of the file";
  }

  void make_call() {
    switch (case_.call) {
      case Call::dontneed:
        return dontneed();
      case Call::free:
        return advise_free();
      case Call::remove:
        return remove();
      case Call::pageout:
        return advise_and_keep(MADV_PAGEOUT);
      case Call::cold:
        return advise_and_keep(MADV_COLD);
      case Call::unmap:
        return unmap();
      case Call::map_over:
        return map_over();
      case Call::shrink:
        return shrink();
      case Call::grow_in_place:
        return grow_in_place();
      case Call::grow_and_move:
        return grow_and_move();
      case Call::move:
        return move();
      case Call::move_and_leave:
        return move_and_leave();
      case Call::protect_read_only:
        return protect_read_only();
      case Call::protect_none:
        return protect_none();
      case Call::fork_parent_writes:
        return fork_parent_writes();
      case Call::fork_child_writes:
        return fork_child_writes();
      case Call::truncate:
        return truncate();
      case Call::punch:
        return punch();
      case Call::detach:
        return detach();
      case Call::attach_over:
        return attach_over();
      case Call::split:
        return split();
      case Call::collapse:
        return collapse();
    }
  }

  [[nodiscard]] bool refused() const { return is_refused(case_.kind, case_.call); }

  /// What a private page that was thrown away holds then: its file's bytes, or none.
  void expect_thrown_away(uint8_t* at, size_t bytes) {
    if (facts().is_shared) return expect_pattern(at, bytes, first_seed_);
    if (facts().is_file) return expect_pattern(at, bytes, KindMemory::kFileSeed);
    expect_zeros(at, bytes);
  }

  void dontneed() {
    ASSERT_EQ(madvise(part_, part_bytes_, MADV_DONTNEED), 0);
    expect_thrown_away(part_, part_bytes_);
    expect_rest_kept();
    expect_one_memory(memory_.data(), memory_.size(), full_rights());
    // The other order: a write is the first that comes after it.
    ASSERT_EQ(madvise(part_, part_bytes_, MADV_DONTNEED), 0);
    if (!facts().is_writable) return;
    const std::array<uint8_t, 16> few{1, 2, 3};
    ASSERT_EQ(engine_writes(region_, part_ + 100, few), Outcome::done);
    expect_bytes(region_, part_ + 100, few);
    expect_one_memory(part_, part_bytes_, Rights::write);
  }

  void advise_free() {
    const int result = madvise(part_, part_bytes_, MADV_FREE);
    if (refused()) {
      ASSERT_EQ(result, -1);
      return expect_all_kept();
    }
    ASSERT_EQ(result, 0);
    // Each page has its old bytes or none, until it is written to: after that it stays.
    for (uint8_t* page = part_; page != part_end(); page += kPage) {
      std::vector<uint8_t> seen(kPage);
      ASSERT_EQ(engine_reads(region_, page, seen), Outcome::done);
      if (seen == std::vector<uint8_t>(kPage)) continue;
      EXPECT_EQ(difference(seen, pattern(kPage, first_seed_, offset_of(page)).data()), -1);
    }
    const std::vector<uint8_t> written = pattern(part_bytes_, next_seed());
    ASSERT_EQ(engine_writes(region_, part_, written), Outcome::done);
    // Nothing is thrown away that was written since.
    ASSERT_EQ(madvise(memory_.data(), offset_of(part_), MADV_PAGEOUT), 0);
    ASSERT_EQ(madvise(part_, part_bytes_, MADV_PAGEOUT), 0);
    expect_bytes(region_, part_, written);
    expect_rest_kept();
    expect_one_memory(part_, part_bytes_, Rights::write);
  }

  void remove() {
    const int result = madvise(part_, part_bytes_, MADV_REMOVE);
    if (refused()) {
      ASSERT_EQ(result, -1);
      return expect_all_kept();
    }
    ASSERT_EQ(result, 0);
    expect_zeros(part_, part_bytes_);
    expect_rest_kept();
    expect_one_memory(part_, part_bytes_, Rights::write);
    expect_file_follows();
  }

  /// What the engine writes through a shared mapping is in its file.
  void expect_file_follows() {
    if (!facts().is_file || !facts().is_shared || !facts().is_writable) return;
    const std::vector<uint8_t> written = pattern(memory_.size(), next_seed());
    ASSERT_EQ(engine_writes(region_, memory_.data(), written), Outcome::done);
    expect_file(written);
  }

  void advise_and_keep(int advice) {
    const int result = madvise(part_, part_bytes_, advice);
    ASSERT_EQ(result, refused() ? -1 : 0);
    expect_all_kept();
    expect_file_follows();
    ASSERT_EQ(madvise(memory_.data(), memory_.size(), advice), refused() ? -1 : 0);
    expect_one_memory(memory_.data(), memory_.size(), full_rights());
  }

  void unmap() {
    ASSERT_EQ(munmap(part_, part_bytes_), 0);
    // An access that begins in what is left and ends in what is not.
    std::array<uint8_t, 16> few{};
    EXPECT_EQ(engine_reads(region_, part_ - 8, few), Outcome::violation);
    EXPECT_EQ(engine_reads(region_, part_end() - 8, few), Outcome::violation);
    expect_gone(part_, part_bytes_);
    // A call that fails takes nothing away, and gives nothing back that had gone before it.
    ASSERT_EQ(mremap(memory_.data(), memory_.size(), size_t{1} << 62, MREMAP_MAYMOVE), MAP_FAILED);
    if (!case_.is_implicit && is_watched()) expect_nothing(part_, part_bytes_);
    expect_rest_kept();
    ASSERT_EQ(munmap(memory_.data(), memory_.size()), 0);
    expect_gone(memory_.data(), memory_.size());
  }

  void map_over() {
    void* const over =
        mmap(part_, part_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    ASSERT_EQ(over, part_);
    expect_other_mapping(part_, part_bytes_);
    expect_rest_kept();
  }

  void shrink() {
    const size_t left = memory_.size() / 2;
    ASSERT_EQ(mremap(memory_.data(), memory_.size(), left, 0), memory_.data());
    expect_pattern(memory_.data(), left, first_seed_);
    expect_gone(memory_.data() + left, memory_.size() - left);
    expect_one_memory(memory_.data(), left, full_rights());
  }

  /// What the mapping has more than before: a file's, where it has so many bytes.
  void expect_grown(uint8_t* at, size_t bytes, Rights rights) {
    if (!case_.is_implicit || case_.kind == Kind::sysv) return expect_nothing(at, bytes);
    expect_zeros(at, bytes);
    expect_one_memory(at, bytes, rights);
  }
  void make_file_larger() {
    if (!facts().is_file) return;
    ASSERT_EQ(ftruncate(memory_.file(), static_cast<off_t>(2 * memory_.size())), 0);
  }

  void grow_in_place() {
    make_file_larger();
    void* const result = mremap(memory_.data(), memory_.size(), 2 * memory_.size(), MREMAP_MAYMOVE);
    if (refused()) {
      ASSERT_EQ(result, MAP_FAILED);
      return expect_all_kept();
    }
    ASSERT_EQ(result, memory_.data()) << "there is room behind it";
    expect_all_kept();
    expect_grown(memory_.behind(), memory_.size(), full_rights());
    if (case_.is_implicit && case_.kind != Kind::sysv)
      expect_one_memory(memory_.data(), 2 * memory_.size(), full_rights());
  }

  void grow_and_move() {
    make_file_larger();
    // A wall behind it.
    ASSERT_EQ(mmap(memory_.behind(), kHugeBytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0),
              memory_.behind());
    auto* const moved =
        static_cast<uint8_t*>(mremap(memory_.data(), memory_.size(), 2 * memory_.size(), MREMAP_MAYMOVE));
    if (refused()) {
      ASSERT_EQ(moved, MAP_FAILED);
      return expect_all_kept();
    }
    ASSERT_NE(moved, MAP_FAILED);
    ASSERT_NE(moved, memory_.data());
    expect_moved_to(moved);
    if (case_.is_implicit) expect_grown(moved + memory_.size(), memory_.size(), full_rights());
    ASSERT_EQ(munmap(moved, 2 * memory_.size()), 0);
    if (case_.is_implicit) expect_nothing(moved, memory_.size());
  }

  void move() {
    void* const moved = mremap(memory_.data(), memory_.size(), memory_.size(), MREMAP_MAYMOVE | MREMAP_FIXED,
                               memory_.elsewhere());
    ASSERT_EQ(moved, memory_.elsewhere());
    expect_moved_to(memory_.elsewhere());
  }

  /// MREMAP_DONTUNMAP: the pages go, their mapping stays.
  void move_and_leave() {
    void* const moved = mremap(memory_.data(), memory_.size(), memory_.size(),
                               MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, memory_.elsewhere());
    ASSERT_EQ(moved, memory_.elsewhere());
    // userfaultfd's event does not tell it from a move.
    if (kHooked || case_.is_implicit) {
      expect_thrown_away(memory_.data(), memory_.size());
      expect_one_memory(memory_.data(), memory_.size(), Rights::write);
    }
    if (case_.is_implicit) expect_one_memory(memory_.elsewhere(), memory_.size(), Rights::write);
  }

  /// The bytes are at their new address, and nothing is at the old one.
  void expect_moved_to(uint8_t* to) {
    View there = region_;
    if (!case_.is_implicit) {
      ASSERT_EQ(difference(pattern(memory_.size(), first_seed_), to), -1);
      expect_nothing(memory_.data(), memory_.size());
      ASSERT_EQ(difference(pattern(memory_.size(), first_seed_), to), -1);
      there = View{reinterpret_cast<uint64_t>(to)};
      there.key = register_range(there.address, memory_.size());
    }
    expect_bytes(there, to, pattern(memory_.size(), first_seed_));
    expect_one_memory(there, to, memory_.size(), full_rights());
    expect_gone(memory_.data(), memory_.size());
    expect_one_memory(there, to, memory_.size(), full_rights());
    if (case_.is_implicit) return;
    EXPECT_EQ(domain_->deregister_region(there.key), 0);
  }

  void protect_read_only() {
    ASSERT_EQ(mprotect(part_, part_bytes_, PROT_READ), 0);
    expect_pattern(part_, part_bytes_, first_seed_);
    expect_one_memory(part_, part_bytes_, Rights::read);
    expect_rest_kept();
    ASSERT_EQ(mprotect(part_, part_bytes_, memory_.protection()), 0);
    expect_pattern(part_, part_bytes_, first_seed_);
    expect_one_memory(memory_.data(), memory_.size(), full_rights());
    // The first that comes after it is a write.
    ASSERT_EQ(mprotect(part_, part_bytes_, PROT_READ), 0);
    EXPECT_EQ(engine_writes(region_, part_, pattern(64, next_seed())), Outcome::violation);
    ASSERT_EQ(mprotect(part_, part_bytes_, memory_.protection()), 0);
    expect_one_memory(memory_.data(), memory_.size(), full_rights());
  }

  void protect_none() {
    ASSERT_EQ(mprotect(part_, part_bytes_, PROT_NONE), 0);
    expect_nothing(part_, part_bytes_);
    expect_rest_kept();
    ASSERT_EQ(mprotect(part_, part_bytes_, memory_.protection()), 0);
    expect_pattern(part_, part_bytes_, first_seed_);
    expect_one_memory(memory_.data(), memory_.size(), full_rights());
  }

  void fork_parent_writes() {
    const ForkedChild child(memory_.data(), memory_.size());
    ASSERT_TRUE(child.is_there());
    if (!facts().is_writable) {
      expect_all_kept();
      EXPECT_TRUE(child.sees(first_seed_));
      return;
    }
    const auto child_sees = [&](unsigned written) {
      return child.sees(facts().is_shared ? written : first_seed_);
    };
    const unsigned by_engine = next_seed();
    ASSERT_EQ(engine_writes(region_, memory_.data(), pattern(memory_.size(), by_engine)), Outcome::done);
    expect_pattern(memory_.data(), memory_.size(), by_engine);
    EXPECT_TRUE(child_sees(by_engine)) << "the engine has written";
    const unsigned by_program = next_seed();
    fill_pattern(memory_.data(), memory_.size(), by_program);
    expect_pattern(memory_.data(), memory_.size(), by_program);
    EXPECT_TRUE(child_sees(by_program)) << "the program has written";
  }

  void fork_child_writes() {
    const ForkedChild child(memory_.data(), memory_.size());
    ASSERT_TRUE(child.is_there());
    const unsigned by_child = next_seed();
    ASSERT_TRUE(child.writes(by_child));
    expect_pattern(memory_.data(), memory_.size(), facts().is_shared ? by_child : first_seed_);
    const unsigned by_engine = next_seed();
    ASSERT_EQ(engine_writes(region_, memory_.data(), pattern(memory_.size(), by_engine)), Outcome::done);
    EXPECT_TRUE(child.sees(facts().is_shared ? by_engine : by_child));
    const unsigned again = next_seed();
    ASSERT_TRUE(child.writes(again));
    expect_pattern(memory_.data(), memory_.size(), facts().is_shared ? again : by_engine);
  }

  void truncate() {
    // Within a page, which is still there: the one after it is not.
    const size_t left = offset_of(part_) + 100;
    const size_t kept = offset_of(part_) + kPage;
    ASSERT_EQ(ftruncate(memory_.file(), static_cast<off_t>(left)), 0);
    expect_nothing(memory_.data() + kept, memory_.size() - kept);
    expect_pattern(memory_.data(), left, first_seed_);
    if (facts().is_shared) expect_zeros(memory_.data() + left, kept - left);
    expect_one_memory(memory_.data(), kept, full_rights());
    // The mapping has never gone: with the bytes back the region has them again.
    ASSERT_EQ(ftruncate(memory_.file(), static_cast<off_t>(memory_.size())), 0);
    expect_zeros(memory_.data() + kept, memory_.size() - kept);
    expect_one_memory(memory_.data(), memory_.size(), full_rights());
    expect_file_follows();
  }

  void punch() {
    ASSERT_EQ(fallocate(memory_.file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        static_cast<off_t>(offset_of(part_)), static_cast<off_t>(part_bytes_)),
              0);
    // A private page that was written to is the mapping's own.
    if (facts().is_shared) {
      expect_zeros(part_, part_bytes_);
    } else {
      expect_pattern(part_, part_bytes_, first_seed_);
    }
    expect_rest_kept();
    expect_one_memory(memory_.data(), memory_.size(), full_rights());
    expect_file_follows();
  }

  void detach() {
    // The same segment once more, right behind: not its place but its offset tells it from the rest of this.
    uint8_t* const twin = memory_.behind();
    ASSERT_EQ(shmat(memory_.segment(), twin, 0), twin);
    View second{reinterpret_cast<uint64_t>(twin)};
    second.key = register_range(second.address, memory_.size());
    expect_bytes(second, twin, pattern(memory_.size(), first_seed_));
    // Of more than one mapping by now.
    ASSERT_EQ(mprotect(part_, part_bytes_, PROT_READ), 0);
    ASSERT_EQ(shmdt(memory_.data()), 0);
    expect_gone(memory_.data(), memory_.size());
    expect_bytes(second, twin, pattern(memory_.size(), first_seed_));
    expect_one_memory(second, twin, memory_.size(), Rights::write);
    ASSERT_EQ(shmdt(twin), 0);
    expect_nothing(second, twin, memory_.size());
    EXPECT_EQ(domain_->deregister_region(second.key), 0);
  }

  /// SHM_REMAP: a segment over a part of the mapping.
  void attach_over() {
    const int segment = shmget(IPC_PRIVATE, part_bytes_, IPC_CREAT | 0600);
    ASSERT_GE(segment, 0);
    void* const over = shmat(segment, part_, SHM_REMAP);
    shmctl(segment, IPC_RMID, nullptr);
    ASSERT_EQ(over, part_);
    expect_other_mapping(part_, part_bytes_);
    expect_rest_kept();
    // Refused: nothing has gone.
    ASSERT_EQ(shmat(-1, memory_.data(), SHM_REMAP), MAP_FAILED);
    expect_one_memory(memory_.data(), offset_of(part_), full_rights());
  }

  /// Huge pages are broken up: by throwing one page away, and by moving another's place in the kernel's
  /// lists.
  void split() {
    uint8_t* const second = memory_.data() + kHugeBytes;
    uint8_t* const gone = memory_.data() + 5 * kPage;
    uint8_t* const cold = second + 7 * kPage;
    ASSERT_EQ(madvise(gone, kPage, MADV_DONTNEED), 0);
    ASSERT_EQ(madvise(cold, kPage, MADV_COLD), 0);
    ASSERT_EQ(madvise(cold + kPage, kPage, MADV_PAGEOUT), 0);
    expect_thrown_away(gone, kPage);
    expect_pattern(memory_.data(), 5 * kPage, first_seed_);
    expect_pattern(gone + kPage, memory_.size() - 6 * kPage, first_seed_);
    expect_one_memory(memory_.data(), memory_.size(), full_rights());
  }

  void collapse() {
    const int result = madvise(memory_.data(), memory_.size(), kMadvCollapse);
    const int error = result == 0 ? 0 : errno;
    if (error != 0)
      std::printf("[   NOTE   ] %s: MADV_COLLAPSE: %s\n", name_of(case_).c_str(), std::strerror(error));
    // Refused for pages that an engine has pinned, of which the hooks let go; for want of a huge page; and
    // for what the kernel makes no huge pages of.
    if (kHooked && (case_.kind == Kind::anonymous || case_.kind == Kind::huge)) {
      EXPECT_TRUE(error == 0 || error == ENOMEM) << std::strerror(error);
    }
    expect_all_kept();
  }

  const Case case_;
  const KindMemory memory_;
  const Mapping bystander_{16};
  uint8_t* const part_;
  const size_t part_bytes_;
  const std::unique_ptr<MemoryDomain> domain_;
  const std::unique_ptr<EngineSession> session_;
  View other_;
  View region_;
  unsigned seed_ = kFirstSeed;
  unsigned first_seed_ = kFirstSeed;  ///< of what the memory holds before the call
};

DomainConfig config_for(Mode mode) {
  DomainConfig config;
  config.realtime_pager = false;
  config.userfault_async = mode != Mode::without_async;
  config.monitor_invalidations = mode != Mode::without_monitor;
  return config;
}

/// Why it was skipped; empty where it was not.
std::string run_case(const Case& c) {
  Trial trial(c, config_for(c.mode));
  const std::string& missing = trial.memory().missing();
  if (missing.empty()) {
    trial.run();
  } else if (!trial.memory().is_excused()) {
    ADD_FAILURE() << missing;
  } else {
    return missing;
  }
  return {};
}

constexpr int kSkipped = 77;

/// In a child: no test after it is an ordinary user's.
int run_as_ordinary_user(const Case& c) {
  constexpr uid_t kNobody = 65534;
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{rlim_t{8} << 20, rlim_t{8} << 20};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) _exit(2);
    if (geteuid() == 0 && (setgid(kNobody) != 0 || setuid(kNobody) != 0)) _exit(2);
    // The kernel takes it away with the change of user, and with it /proc/self/pagemap: no other user's
    // program is so.
    if (prctl(PR_SET_DUMPABLE, 1) != 0) _exit(2);
    const std::string skipped = run_case(c);
    if (!skipped.empty()) std::printf("[   NOTE   ] %s\n", skipped.c_str());
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : skipped.empty() ? 0 : kSkipped);
  }
  int status = -1;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

class MemoryKinds : public testing::TestWithParam<Case> {};

TEST_P(MemoryKinds, EngineAndProgramSeeTheSame) {
  const Case& c = GetParam();
  if (c.mode == Mode::ordinary_user) {
    const int status = run_as_ordinary_user(c);
    if (status == kSkipped) GTEST_SKIP() << "see above";
    EXPECT_EQ(status, 0);
    return;
  }
  if (const std::string skipped = run_case(c); !skipped.empty()) GTEST_SKIP() << skipped;
}

constexpr std::array kKinds{Kind::anonymous,    Kind::huge,           Kind::hugetlb,
                            Kind::memfd,        Kind::tmpfs,          Kind::file_shared,
                            Kind::file_private, Kind::file_read_only, Kind::sysv};
/// Of each way to hold a mapping one, for the modes in which less is known.
constexpr std::array kSomeKinds{Kind::anonymous, Kind::memfd, Kind::file_shared, Kind::file_private,
                                Kind::sysv};
constexpr std::array kSomeCalls{Call::dontneed,
                                Call::unmap,
                                Call::map_over,
                                Call::move,
                                Call::protect_read_only,
                                Call::protect_none,
                                Call::fork_parent_writes,
                                Call::fork_child_writes,
                                Call::truncate,
                                Call::punch,
                                Call::detach};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Kind kind : kKinds)
    for (size_t call = 0; call < kCallNames.size(); ++call)
      for (const bool is_implicit : {false, true})
        if (applies(kind, static_cast<Call>(call)))
          cases.push_back({kind, static_cast<Call>(call), is_implicit, Mode::usual});
  for (const Mode mode : {Mode::ordinary_user, Mode::without_async, Mode::without_monitor})
    for (const Kind kind : kSomeKinds)
      for (const Call call : kSomeCalls)
        for (const bool is_implicit : {false, true})
          if (applies(kind, call)) cases.push_back({kind, call, is_implicit, mode});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Each, MemoryKinds, testing::ValuesIn(all_cases()),
                         [](const auto& test) { return name_of(test.param); });

/// The kernel may put a mapping that grows anywhere: only when it has chosen is it known that the old place
/// stays. An engine that asks meanwhile must not be told that there is nothing.
TEST(MemoryGrowing, InPlaceIsNeverAViolation) {
  const auto domain = make_domain(config_for(Mode::usual));
  const KindMemory memory(Kind::anonymous, 32 * kPage);
  ASSERT_EQ(memory.missing(), "");
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  const RegionResult region = domain->register_region({.domain = 1,
                                                       .address = address,
                                                       .length_bytes = memory.size(),
                                                       .iova = 0,
                                                       .access = kLocalWrite | kRemoteWrite | kOnDemand});
  ASSERT_EQ(region.error, 0);
  std::atomic<bool> over{false};
  std::atomic<unsigned> violations{0};
  std::thread engine([&] {
    const auto session = domain->attach_engine();
    const std::vector<uint8_t> bytes(64, 1);
    for (size_t page = 0; !over; page = (page + 5) % 32)
      if (write_all(*session, {region.key, 1, kRemoteWrite}, page * kPage, bytes) == Outcome::violation)
        ++violations;
  });
  constexpr int kTimes = 3000;
  int times = 0;
  for (; times < kTimes; ++times) {
    madvise(memory.data(), memory.size(), MADV_DONTNEED);
    if (mremap(memory.data(), memory.size(), 2 * memory.size(), MREMAP_MAYMOVE) != memory.data() ||
        mremap(memory.data(), 2 * memory.size(), memory.size(), 0) != memory.data())
      break;
  }
  over = true;
  engine.join();
  EXPECT_EQ(times, kTimes) << std::strerror(errno);
  EXPECT_EQ(violations, 0U);
  EXPECT_GT(domain->counters().num_page_faults, 0U);
  EXPECT_EQ(domain->deregister_region(region.key), 0);
}

}  // namespace
}  // namespace faultline::odp::test
