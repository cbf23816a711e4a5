// SPDX-License-Identifier: BSD-3-Clause
#include "tests/interop/e2e/odp_mix/odp_mix_arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/interop/e2e/side.hpp"

namespace faultline::e2e::mix {
namespace {

constexpr const char* kArenaRole = "owner";

int open_memory(const Plan& plan, const std::string& folder, size_t number) {
  int fd = -1;
  switch (plan.backing) {
    case Backing::anonymous:
    case Backing::anonymous_huge:
    case Backing::hugetlb:
      return -1;
    case Backing::memfd:
      fd = memfd_create("odp_mix", MFD_CLOEXEC);
      break;
    case Backing::file_private:
    case Backing::file_shared: {
      const std::string path = folder + "/arena" + std::to_string(number);
      fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
      if (fd >= 0) unlink(path.c_str());
      break;
    }
  }
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(plan.pages * kPageBytes)) != 0)
    fail(kArenaRole, "the file of an arena");
  return fd;
}

}  // namespace

Arena::Arena(const Shared& shared, size_t number, ibv_pd* pd, const std::string& folder, Findings& findings)
    : shared_(shared), plan_(shared.plans()[number]), number_(number), pd_(pd), findings_(findings) {
  fd_ = open_memory(plan_, folder, number);
  void* base = nullptr;
  if (plan_.backing == Backing::anonymous_huge) {
    // A place that is aligned to huge pages.
    auto* room = static_cast<uint8_t*>(mmap(nullptr, length_bytes() + kHugeBytes, PROT_NONE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (room == MAP_FAILED) fail(kArenaRole, "mmap");
    const size_t skip = kHugeBytes - reinterpret_cast<uintptr_t>(room) % kHugeBytes;
    base = map(room + skip, {0, plan_.pages}, MAP_FIXED);
  } else {
    base = map(nullptr, {0, plan_.pages}, 0);
  }
  if (base == MAP_FAILED) fail(kArenaRole, "mmap of an arena");
  base_ = static_cast<uint8_t*>(base);
}

void* Arena::map(void* place, Pages pages, int flags) const {
  int kind = fd_ < 0 ? MAP_ANONYMOUS : 0;
  kind |= is_shared() ? MAP_SHARED : MAP_PRIVATE;
  if (plan_.backing == Backing::hugetlb) kind |= MAP_HUGETLB;
  return mmap(place, bytes_of(pages), PROT_READ | PROT_WRITE, kind | flags, fd_,
              fd_ < 0 ? 0 : static_cast<off_t>(pages.first * kPageBytes));
}

void Arena::register_and_post(size_t pages) {
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ON_DEMAND;
  mr_ = ibv_reg_mr(pd_, base_, pages * kPageBytes, access);
  if (mr_ == nullptr) fail(kArenaRole, "ibv_reg_mr");
  Posting& posting = this->posting();
  const uint32_t sequence = posting.sequence.load(std::memory_order_relaxed);
  posting.sequence.store(sequence + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  posting.rkey.store(mr_->rkey, std::memory_order_relaxed);
  posting.va.store(reinterpret_cast<uint64_t>(base_), std::memory_order_relaxed);
  posting.pages.store(pages, std::memory_order_relaxed);
  posting.sequence.store(sequence + 2, std::memory_order_release);
}

void Arena::deregister_and_check(size_t pages) {
  errno = ibv_dereg_mr(mr_);
  if (errno != 0) fail(kArenaRole, "ibv_dereg_mr");
  mr_ = nullptr;
  check(pages);
}

void Arena::check(size_t pages) const {
  size_t wrong = 0;
  std::array<Before, kLinesPerPage> before;
  for (size_t page = 0; page < pages; ++page) {
    const size_t first_line = page * kLinesPerPage;
    note_before(shared_, number_, first_line, before);
    const std::span words(reinterpret_cast<const uint64_t*>(at(page)), kCellsPerPage);
    if (plan_.exact && is_cell_page(page)) {
      for (size_t i = 0; i < kCellsPerPage; ++i) {
        const uint64_t expected =
            shared_.cell(number_, page * kCellsPerPage + i).least.load(std::memory_order_acquire);
        if (words[i] >= expected) continue;
        ++wrong;
        if (!may_tell()) continue;
        std::fprintf(
            stderr, "odp_mix: arena %zu (%s, exact): page %zu cell %zu holds %llu, %llu adds were answered\n",
            number_, name_of(plan_.backing), page, i, static_cast<unsigned long long>(words[i]),
            static_cast<unsigned long long>(expected));
      }
    }
    // The caller holds the arena's lock alone, so no call makes a hole meanwhile.
    const Look look = look_at(shared_, number_, first_line, words, before, false, "owner");
    wrong += look.wrong;
    findings_.torn.fetch_add(look.torn, std::memory_order_relaxed);
    findings_.cut.fetch_add(look.cut, std::memory_order_relaxed);
  }
  findings_.wrong.fetch_add(wrong, std::memory_order_relaxed);
  findings_.bytes_verified.fetch_add(pages * kPageBytes, std::memory_order_relaxed);
}

void Arena::tell_stale(const char* call, size_t words) const {
  if (words == 0) return;
  findings_.stale_writes.fetch_add(words, std::memory_order_relaxed);
  if (!may_tell()) return;
  std::fprintf(stderr, "odp_mix: arena %zu (%s): %zu words written by the peer after %s\n", number_,
               name_of(plan_.backing), words, call);
}

Watched::Watched(uint8_t* memory, size_t length_bytes, Contents contents)
    : words_(reinterpret_cast<uint64_t*>(memory)) {
  constexpr uint64_t kOwn = 0xa1b2c3d4e5f60718;
  const size_t count = length_bytes / sizeof(uint64_t);
  if (contents == Contents::fill) {
    for (size_t i = 0; i < count; ++i) words_[i] = kOwn ^ i;
  }
  before_.assign(words_, words_ + count);
  if (contents == Contents::keep) return;
  // What was changed between the filling and the copy is a change too.
  for (size_t i = 0; i < count; ++i) before_[i] = kOwn ^ i;
}

size_t Watched::changed() const {
  size_t changed = 0;
  for (size_t i = 0; i < before_.size(); ++i)
    changed += static_cast<const volatile uint64_t*>(words_)[i] != before_[i] ? 1 : 0;
  return changed;
}

}  // namespace faultline::e2e::mix
