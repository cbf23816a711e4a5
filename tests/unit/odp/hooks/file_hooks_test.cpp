// SPDX-License-Identifier: BSD-3-Clause
// Bytes that a program removes from a file or from shared memory (fallocate(2), truncate(2)) while a region
// maps them. A pin of such a page would keep its memory until the region is deregistered.
#include <array>
#include <cerrno>
#include <cstdlib>

#include <fcntl.h>

#include "tests/unit/odp/hooks/hooked_program.hpp"

namespace faultline::odp::test::file_hooks_test {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kGranule = 16 * kPage;  ///< most bytes that one pin spans
constexpr size_t kBytes = 8 * kGranule;

/// A file in memory, partly mapped and pinned by a region.
class PinnedFile {
 public:
  explicit PinnedFile(uint64_t first_byte = 0)
      : file_(open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)),
        program_(HookedProgram::without_monitor()) {
    if (file_ < 0 || ftruncate(file_, static_cast<off_t>(first_byte + kBytes)) != 0) return;
    void* const memory = mmap(low_address(kBytes), kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_,
                              static_cast<off_t>(first_byte));
    if (memory == MAP_FAILED) return;
    memory_ = static_cast<uint8_t*>(memory);
    key_ = program_.add_region(memory_, kBytes);
    if (write(0, kBytes, 1) != Outcome::done) memory_ = nullptr;
  }

  [[nodiscard]] bool is_there() const { return memory_ != nullptr; }
  [[nodiscard]] int file() const { return file_; }
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }
  [[nodiscard]] uint8_t* memory() const { return memory_; }
  [[nodiscard]] uint64_t pinned_bytes() { return program_.domain().counters().pinned_bytes; }
  Outcome write(size_t first, size_t bytes, uint8_t value) {
    return program_.peer_writes(key_, memory_ + first, bytes, value);
  }
  /// Returns whether the program sees a peer's write and all pages are pinned again.
  [[nodiscard]] bool takes_part() {
    if (write(0, kBytes, 9) != Outcome::done) return false;
    for (size_t i = 0; i < kBytes; ++i)
      if (memory_[i] != 9) return false;
    return pinned_bytes() == kBytes;
  }

 private:
  int file_;
  uint8_t* memory_ = nullptr;
  HookedProgram program_;
  Key key_ = 0;
};

TEST(FileBytes, PunchedOutAreNotPinned) {
  run_program([] {
    PinnedFile file;
    REQUIRE(file.is_there());
    if (file.pinned_bytes() != kBytes) return kLacks;
    errno = 0;
    REQUIRE(fallocate(file.file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kGranule, 2 * kGranule) == 0);
    REQUIRE(errno == 0);
    REQUIRE(file.pinned_bytes() == kBytes - 2 * kGranule);
    REQUIRE(file.memory()[kGranule - 1] == 1);
    REQUIRE(file.memory()[kGranule] == 0);
    REQUIRE(file.takes_part());
    REQUIRE(fallocate64(file.file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes) == 0);
    REQUIRE(file.pinned_bytes() == 0);
    REQUIRE(file.takes_part());
    return 0;
  });
}

TEST(FileBytes, TruncatedAreNotPinned) {
  run_program([] {
    PinnedFile file;
    REQUIRE(file.is_there());
    if (file.pinned_bytes() != kBytes) return kLacks;
    const auto half = static_cast<off_t>(kBytes / 2);
    const std::string path = file.path();
    const std::array<int (*)(const PinnedFile&, const char*, off_t), 4> calls{
        [](const PinnedFile& of, const char*, off_t size) { return ftruncate(of.file(), size); },
        [](const PinnedFile& of, const char*, off_t size) { return ftruncate64(of.file(), size); },
        [](const PinnedFile&, const char* name, off_t size) { return truncate(name, size); },
        [](const PinnedFile&, const char* name, off_t size) { return truncate64(name, size); }};
    for (const auto call : calls) {
      REQUIRE(call(file, path.c_str(), half) == 0);
      REQUIRE(file.pinned_bytes() == kBytes / 2);
      REQUIRE(file.write(kBytes / 2, kPage, 2) == Outcome::violation);
      REQUIRE(call(file, path.c_str(), static_cast<off_t>(kBytes)) == 0);
      REQUIRE(file.pinned_bytes() == kBytes / 2);
      REQUIRE(file.takes_part());
    }
    return 0;
  });
}

/// A partly removed page stays. Bytes that are not mapped, not removed, or whose removal is refused change no
/// pin.
TEST(FileBytes, ThatStayKeepTheirPins) {
  run_program([] {
    PinnedFile file(kGranule);
    REQUIRE(file.is_there());
    if (file.pinned_bytes() != kBytes) return kLacks;
    const auto end = static_cast<off_t>(kGranule + kBytes);
    REQUIRE(fallocate(file.file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kGranule) == 0);
    REQUIRE(fallocate(file.file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, end, kGranule) == 0);
    REQUIRE(fallocate(file.file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kGranule + 100, 200) == 0);
    REQUIRE(fallocate(file.file(), 0, 0, end) == 0);
    REQUIRE(ftruncate(file.file(), end) == 0);
    REQUIRE(ftruncate(file.file(), end + kPage) == 0);
    REQUIRE(ftruncate(file.file(), -1) == -1);
    REQUIRE(errno == EINVAL);
    REQUIRE(fallocate(-1, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage) == -1);
    REQUIRE(errno == EBADF);
    REQUIRE(truncate("/no such file", 0) == -1);
    REQUIRE(errno == ENOENT);
    REQUIRE(file.pinned_bytes() == kBytes);
    // Truncates another file.
    const int other = memfd_create("other", MFD_CLOEXEC);
    REQUIRE(ftruncate(other, static_cast<off_t>(kBytes)) == 0);
    REQUIRE(ftruncate(other, 0) == 0);
    REQUIRE(file.pinned_bytes() == kBytes);
    // The mapping begins after the file's first bytes: offsets of removed bytes count from the start of the
    // file.
    REQUIRE(ftruncate(file.file(), static_cast<off_t>(3 * kGranule)) == 0);
    REQUIRE(file.pinned_bytes() == 2 * kGranule);
    return 0;
  });
}

/// Two mappings of the same bytes each have separate pins.
TEST(FileBytes, MappedTwiceAreNotPinnedTwice) {
  run_program([] {
    HookedProgram program(HookedProgram::without_monitor());
    const int file = memfd_create("twice", MFD_CLOEXEC);
    REQUIRE(ftruncate(file, static_cast<off_t>(kBytes)) == 0);
    for (uint8_t value = 1; value <= 2; ++value) {
      void* const memory = mmap(low_address(kBytes), kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      REQUIRE(memory != MAP_FAILED);
      const Key key = program.add_region(memory, kBytes);
      REQUIRE(program.peer_writes(key, memory, kBytes, value) == Outcome::done);
    }
    if (program.domain().counters().pinned_bytes != 2 * kBytes) return kLacks;
    REQUIRE(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes) == 0);
    REQUIRE(program.domain().counters().pinned_bytes == 0);
    return 0;
  });
}

}  // namespace
}  // namespace faultline::odp::test::file_hooks_test
