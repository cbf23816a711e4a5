// SPDX-License-Identifier: BSD-3-Clause
// Every kind of memory that a program may register, for tests: how it is made, and what is true of it.
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
  file_read_only,  ///< shared, of a file opened for reading
  sysv
};

struct KindFacts {
  const char* name;
  bool is_shared;
  bool is_file;      ///< can be truncated and punched
  bool needs_async;  ///< userfaultfd needs WP_ASYNC for it: neither anonymous nor the kernel's own shmem
                     ///< mapping
  bool is_writable;  ///< by this mapping
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

/// Never 0, other for each seed, page and byte, so that neither a page in the wrong place nor a zero page
/// passes for it.
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

/// A mapping of one kind, at a low address where the kernel places nobody else's. As many bytes again are
/// free behind it (for growing), and behind these (for moving to).
class KindMemory {
 public:
  static constexpr unsigned kFileSeed = 99;  ///< pattern of the file's bytes at the start

  KindMemory(Kind kind, size_t bytes) : kind_(kind), bytes_(bytes), data_(arena()) { map(); }
  KindMemory(const KindMemory&) = delete;
  KindMemory& operator=(const KindMemory&) = delete;
  ~KindMemory() {
    munmap(arena(), kArenaBytes - kHugeBytes);
    if (file_ >= 0) close(file_);
  }

  /// Why it is not to be had; empty where it is.
  [[nodiscard]] const std::string& missing() const { return missing_; }
  /// Whether that is the machine's doing (no huge pages, no /dev/shm, a folder that is not ours) and not the
  /// test's own.
  [[nodiscard]] bool is_excused() const {
    return kind_ != Kind::anonymous && kind_ != Kind::memfd && reason_ != EEXIST && reason_ != 0;
  }
  [[nodiscard]] const KindFacts& facts() const { return facts_of(kind_); }
  [[nodiscard]] uint8_t* data() const { return data_; }
  [[nodiscard]] size_t size() const { return bytes_; }
  [[nodiscard]] uint8_t* behind() const { return data_ + bytes_; }
  [[nodiscard]] uint8_t* elsewhere() const { return data_ + 2 * bytes_; }
  [[nodiscard]] int file() const { return file_; }  ///< may be written even where the mapping may not
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
  /// A file of a folder, which has no name any more.
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
    shmctl(segment_, IPC_RMID, nullptr);  // goes with its last mapping
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
        // Without MAP_NORESERVE it fails here where there are no pages, and not by SIGBUS later.
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
