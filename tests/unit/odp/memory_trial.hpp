// SPDX-License-Identifier: BSD-3-Clause
// One trial of a kind of memory, a call and a region, and what must hold afterwards, for tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "odp/invalidation/invalidation_monitor.hpp"
#include "odp/mappings/page_survey.hpp"
#include "tests/unit/odp/engine_loop.hpp"
#include "tests/unit/odp/invalidation/memory_kinds.hpp"

namespace faultline::odp::test {

constexpr bool kHooked = ODP_HOOKED != 0;
constexpr size_t kPage = 4096;

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
inline constexpr std::array<const char*, 22> kCallNames{"dontneed",
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
inline constexpr std::array<const char*, 4> kModeNames{"usual", "ordinary_user", "without_async",
                                                       "without_monitor"};

struct Case {
  Kind kind;
  Call call;
  bool is_implicit;
  Mode mode;
};

inline std::string name_of(const Case& c) {
  return std::string(facts_of(c.kind).name) + "_" + kCallNames[static_cast<size_t>(c.call)] + "_" +
         (c.is_implicit ? "implicit" : "explicit") +
         (c.mode == Mode::usual ? std::string() : std::string("_") + kModeNames[static_cast<size_t>(c.mode)]);
}
inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << name_of(c);
}

/// Returns whether the call applies to the kind.
inline bool applies(Kind kind, Call call) {
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

/// Returns whether the kernel refuses the call (madvise(2), mremap(2)). It must then change nothing.
inline bool is_refused(Kind kind, Call call) {
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

inline size_t bytes_for(Kind kind, Call call) {
  if (kind == Kind::hugetlb) return 4 * kHugeBytes;
  return kind == Kind::huge || call == Call::split || call == Call::collapse ? 2 * kHugeBytes : 32 * kPage;
}

/// A child process that reads or writes its own memory on command.
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

/// What an engine may do with the memory now.
enum class Rights : uint8_t { none, read, write };

/// One case: a domain, the memory, its region, and a second region that no call touches.
class MemoryTrial {
 public:
  MemoryTrial(const Case& c, const DomainConfig& config)
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

 protected:
  static constexpr uint32_t kAccess = kLocalWrite | kRemoteWrite | kRemoteRead | kOnDemand;
  static constexpr unsigned kFirstSeed = 1;
  static constexpr uint64_t kIova = 0x5500'0000'0000;

  /// A registered range: its address, iova and key. The iova differs from the address, except for the
  /// implicit region.
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

  /// Accesses in packets, as an engine does: each fault request covers the rest of the message.
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

  /// Returns -1, or the index of the first byte that differs.
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

  /// The engine reads first: its cached state must not be correct only because the program has touched the
  /// memory.
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

  /// Engine and program share one memory, in both directions.
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

  /// mincore(2): ENOMEM if nothing is mapped.
  [[nodiscard]] static bool is_mapped(uint8_t* at) {
    unsigned char in_core = 0;
    return mincore(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(at) & ~uintptr_t{4095}), 1,
                   &in_core) == 0;
  }
  void expect_nothing(const View& view, uint8_t* at, size_t bytes) {
    std::vector<uint8_t> data = pattern(bytes, next_seed());
    EXPECT_EQ(engine_writes(view, at, data), Outcome::violation) << "all of it";
    EXPECT_EQ(engine_reads(view, at, data), Outcome::violation) << "all of it";
    const std::span<uint8_t> few = std::span(data).first(8);
    for (uint8_t* const piece : {at, at + bytes / 2, at + bytes - few.size()}) {
      // An allocation in this test may have filled the hole (a sanitizer maps each large one). It then
      // belongs to the implicit region.
      if (case_.is_implicit && is_mapped(piece)) continue;
      EXPECT_EQ(engine_writes(view, piece, few), Outcome::violation) << "at " << piece - at;
      EXPECT_EQ(engine_reads(view, piece, few), Outcome::violation) << "at " << piece - at;
    }
  }
  void expect_nothing(uint8_t* at, size_t bytes) { expect_nothing(region_, at, bytes); }

  /// Returns whether the library detects the removal of a mapping of this kind. If not, an explicit region
  /// cannot distinguish a later mapping at the address from the registered one.
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

  /// Another mapping replaces the region's mapping.
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
  /// Nothing is mapped there any more; then a new mapping is.
  void expect_gone(uint8_t* at, size_t bytes) {
    expect_nothing(at, bytes);
    void* const filled =
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    ASSERT_EQ(filled, at);
    expect_other_mapping(at, bytes);
  }
  /// All memory except the part is unchanged and usable.
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

  /// The file receives none of the engine's bytes through a private mapping, and all of them through a shared
  /// one.
  void expect_file(const std::vector<uint8_t>& wanted) const {
    std::vector<uint8_t> content(wanted.size());
    ASSERT_EQ(pread(memory_.file(), content.data(), content.size(), 0), static_cast<ssize_t>(content.size()));
    EXPECT_EQ(difference(content, wanted.data()), -1) << "bytes of the file";
  }

  [[nodiscard]] bool refused() const { return is_refused(case_.kind, case_.call); }

  /// Checks the contents of a discarded private page: the bytes of its file, or zeros.
  void expect_thrown_away(uint8_t* at, size_t bytes) {
    if (facts().is_shared) return expect_pattern(at, bytes, first_seed_);
    if (facts().is_file) return expect_pattern(at, bytes, KindMemory::kFileSeed);
    expect_zeros(at, bytes);
  }

  /// Bytes that the engine writes through a shared mapping are in its file.
  void expect_file_follows() {
    if (!facts().is_file || !facts().is_shared || !facts().is_writable) return;
    const std::vector<uint8_t> written = pattern(memory_.size(), next_seed());
    ASSERT_EQ(engine_writes(region_, memory_.data(), written), Outcome::done);
    expect_file(written);
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
  unsigned first_seed_ = kFirstSeed;  ///< seed of the contents before the call
};

}  // namespace faultline::odp::test
