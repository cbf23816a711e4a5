// SPDX-License-Identifier: BSD-3-Clause
// Every kind of memory that a program may register, for tests: its creation and its properties.
#pragma once

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include "tests/huge_pages.hpp"
#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test {

enum class Kind : uint8_t {
  anonymous,
  huge,  ///< transparent huge pages
  hugetlb,
  memfd,
  tmpfs,
  file_shared,
  file_private,
  file_read_only,  ///< shared mapping of a file opened for reading
  sysv
};

struct KindFacts {
  const char* name;
  bool is_shared;
  bool is_file;  ///< can be truncated and punched
  /// userfaultfd needs WP_ASYNC for it: neither anonymous nor a shmem mapping created by the kernel
  bool needs_async;
  bool is_writable;  ///< through this mapping
};

inline const KindFacts& facts_of(Kind kind) {
  static constexpr std::array<KindFacts, 9> kFacts{{
      {"anonymous", false, false, false, true},
      {"huge", false, false, false, true},
      {"hugetlb", false, false, false, true},
      {"memfd", true, true, false, true},
      {"tmpfs", true, true, false, true},
      {"file_shared", true, true, true, true},
      {"file_private", false, true, true, true},
      {"file_read_only", true, true, true, false},
      {"sysv", true, false, true, true},
  }};
  return kFacts[static_cast<size_t>(kind)];
}

/// Never 0, and different for each seed, page and byte. Neither a page in the wrong place nor a zero page can
/// match it.
inline uint8_t pattern_byte(unsigned seed, size_t i) {
  return static_cast<uint8_t>((seed * 62 + i * 14 + (i >> 12) * 90) | 1);
}
inline void fill_pattern(uint8_t* to, size_t bytes, unsigned seed, size_t from = 0) {
  for (size_t i = 0; i < bytes; ++i) to[i] = pattern_byte(seed, from + i);
}
inline std::vector<uint8_t> pattern(size_t bytes, unsigned seed, size_t from = 0) {
  std::vector<uint8_t> data(bytes);
  fill_pattern(data.data(), bytes, seed, from);
  return data;
}

constexpr size_t kHugeBytes = size_t{2} << 20;

/// A mapping of one kind, at a low address where the kernel places no other mapping. The same number of bytes
/// is free after it (for growth), and again after these (as a destination for moves).
class KindMemory {
 public:
  static constexpr unsigned kFileSeed = 99;  ///< pattern of the file's initial bytes

  KindMemory(Kind kind, size_t bytes) : kind_(kind), bytes_(bytes), data_(arena()) { map(); }
  KindMemory(const KindMemory&) = delete;
  KindMemory& operator=(const KindMemory&) = delete;
  ~KindMemory() {
    munmap(arena(), kArenaBytes - kHugeBytes);
    if (file_ >= 0) close(file_);
  }

  /// Returns why the memory is not available; empty if it is.
  [[nodiscard]] const std::string& missing() const { return missing_; }
  /// Returns whether the machine is the cause (no huge pages, no /dev/shm, a folder of another user), not the
  /// test.
  [[nodiscard]] bool is_excused() const {
    return kind_ != Kind::anonymous && kind_ != Kind::memfd && reason_ != EEXIST && reason_ != 0;
  }
  [[nodiscard]] const KindFacts& facts() const { return facts_of(kind_); }
  [[nodiscard]] uint8_t* data() const { return data_; }
  [[nodiscard]] size_t size() const { return bytes_; }
  [[nodiscard]] uint8_t* behind() const { return data_ + bytes_; }
  [[nodiscard]] uint8_t* elsewhere() const { return data_ + 2 * bytes_; }
  [[nodiscard]] int file() const { return file_; }  ///< may be writable even if the mapping is not
  [[nodiscard]] int segment() const { return segment_; }
  [[nodiscard]] int protection() const { return facts().is_writable ? PROT_READ | PROT_WRITE : PROT_READ; }

 private:
  static constexpr size_t kArenaBytes = size_t{64} << 20;

  static uint8_t* arena() {
    static auto* const start = static_cast<uint8_t*>(low_address(kArenaBytes));
    const auto address = reinterpret_cast<uint64_t>(start);
    return start + ((address + kHugeBytes - 1) / kHugeBytes * kHugeBytes - address);
  }

  void lack(const std::string& what) {
    reason_ = errno;
    missing_ = what + ": " + std::strerror(reason_);
  }

  void map_with(int flags, int file) {
    void* const at = mmap(data_, bytes_, protection(), flags | MAP_FIXED_NOREPLACE, file, 0);
    if (at != data_) lack(std::string("mmap of ") + facts().name);
  }
  /// Creates an unlinked file in a folder.
  void open_in(const std::string& folder) {
    std::string path = folder + "/faultline-kinds-XXXXXX";
    file_ = mkostemp(path.data(), O_CLOEXEC);
    if (file_ < 0) return lack("a file in " + folder);
    read_only_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    unlink(path.c_str());
  }
  void map_file(int flags) {
    if (file_ < 0) {
      if (missing_.empty()) lack("a file");
      return;
    }
    const std::vector<uint8_t> content = pattern(bytes_, kFileSeed);
    if (pwrite(file_, content.data(), bytes_, 0) != static_cast<ssize_t>(bytes_))
      return lack("room in the file");
    map_with(flags, kind_ == Kind::file_read_only ? read_only_ : file_);
    if (read_only_ >= 0) close(read_only_);
  }
  static std::string temporary_folder() {
    const char* const folder = std::getenv("TMPDIR");
    return folder != nullptr && *folder != 0 ? folder : "/tmp";
  }
  void map_sysv() {
    segment_ = shmget(IPC_PRIVATE, bytes_, IPC_CREAT | 0600);
    if (segment_ < 0) return lack("a System V segment");
    if (shmat(segment_, data_, 0) != data_) lack("shmat");
    shmctl(segment_, IPC_RMID, nullptr);  // removed with its last mapping
  }

  void map() {
    switch (kind_) {
      case Kind::anonymous:
        return map_with(MAP_PRIVATE | MAP_ANONYMOUS, -1);
      case Kind::huge:
        map_with(MAP_PRIVATE | MAP_ANONYMOUS, -1);
        if (missing_.empty() && madvise(data_, bytes_, MADV_HUGEPAGE) != 0) lack("MADV_HUGEPAGE");
        return;
      case Kind::hugetlb:
        // Without MAP_NORESERVE the call fails here if no pages are left, instead of a SIGBUS later.
        if (!faultline::test::has_huge_pages_alone()) {
          errno = EBUSY;
          return lack("the machine's huge pages, for this test alone");
        }
        return map_with(MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
      case Kind::memfd:
        file_ = memfd_create("kinds", MFD_CLOEXEC);
        return map_file(MAP_SHARED);
      case Kind::tmpfs:
        open_in("/dev/shm");
        return map_file(MAP_SHARED);
      case Kind::file_shared:
      case Kind::file_read_only:
        open_in(temporary_folder());
        return map_file(MAP_SHARED);
      case Kind::file_private:
        open_in(temporary_folder());
        return map_file(MAP_PRIVATE);
      case Kind::sysv:
        return map_sysv();
    }
  }

  const Kind kind_;
  const size_t bytes_;
  uint8_t* const data_;
  int file_ = -1;
  int read_only_ = -1;
  int segment_ = -1;
  std::string missing_;
  int reason_ = 0;
};

}  // namespace faultline::odp::test
