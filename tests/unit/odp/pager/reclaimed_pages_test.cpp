// SPDX-License-Identifier: BSD-3-Clause
// A file page that the kernel reclaims while the engine regards it as present: an access to it waits for the
// disk.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "odp/regions/address_space.hpp"
#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test::reclaimed_pages_test {
namespace {

constexpr uint64_t kPage = 4096;
constexpr size_t kPages = 16;
constexpr uint64_t kBytes = kPages * kPage;

class DepartedPages : public testing::Test {
 protected:
  void SetUp() override {
    file_ = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    ASSERT_GE(file_, 0);
    const std::vector<uint8_t> bytes(kBytes, 0x3c);
    ASSERT_EQ(::write(file_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    take_away_unmapped();
    data_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    ASSERT_NE(data_, MAP_FAILED);
    if (!all_are_out())
      GTEST_SKIP() << "the file system under the working directory keeps its pages in memory";
  }
  void TearDown() override {
    if (data_ != MAP_FAILED) munmap(data_, kBytes);
    if (file_ >= 0) close(file_);
  }

  [[nodiscard]] uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }
  [[nodiscard]] bool all_are_out() const {
    std::array<unsigned char, kPages> in_core{};
    return mincore(data_, kBytes, in_core.data()) == 0 &&
           std::none_of(in_core.begin(), in_core.end(), [](unsigned char page) { return (page & 1U) != 0; });
  }
  /// Like reclaim: no event, and no hook, since the call bypasses the C library's name.
  [[nodiscard]] bool take_away() const {
    return eventually([this] {
      if (syscall(SYS_madvise, data_, kBytes, MADV_PAGEOUT) != 0) return false;
      take_away_unmapped();
      return all_are_out();
    });
  }
  void take_away_unmapped() const {
    ASSERT_EQ(fsync(file_), 0);
    ASSERT_EQ(posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED), 0);
  }

  int file_ = -1;
  void* data_ = MAP_FAILED;
};

TEST_F(DepartedPages, AreAMissAndNotAWaitForTheDisk) {
  auto domain = make_domain();
  const auto region =
      domain->register_region({.domain = 1,
                               .address = address(),
                               .length_bytes = kBytes,
                               .iova = address(),
                               .access = kLocalWrite | kRemoteWrite | kRemoteRead | kOnDemand});
  ASSERT_EQ(region.error, 0);
  auto session = domain->attach_engine();
  const Target reader{region.key, 1, kRemoteRead};
  const Target writer{region.key, 1, kRemoteWrite};
  std::array<uint8_t, kPage + 100> bytes{};
  const auto try_both = [&] {
    session->enter();
    const Outcome read = session->read(reader, address() + 50, bytes);
    const Outcome written = session->write(writer, address() + 8 * kPage + 50, bytes);
    session->leave();
    return std::pair(read, written);
  };
  constexpr std::pair kBothDone{Outcome::done, Outcome::done};
  constexpr std::pair kBothMissed{Outcome::miss, Outcome::miss};
  unsigned there = 0;
  for (unsigned round = 0; round < 20; ++round) {
    ASSERT_EQ(read_all(*session, reader, address(), std::span(bytes).first(8)), Outcome::done);
    ASSERT_EQ(write_all(*session, writer, address() + 8 * kPage, bytes), Outcome::done);
    ASSERT_EQ(read_all(*session, reader, address() + 50, bytes), Outcome::done);
    // The kernel may take a page away by itself meanwhile.
    there += try_both() == kBothDone ? 1 : 0;
    ASSERT_TRUE(take_away());
    EXPECT_EQ(try_both(), kBothMissed);
    EXPECT_TRUE(all_are_out()) << "the engine waited for the disk";
  }
  // A call that holds mmap_lock, MADV_COLLAPSE for one, stops a thread that asks the kernel. A copy goes on.
  {
    ASSERT_EQ(read_all(*session, reader, address(), std::span(bytes).first(8)), Outcome::done);
    ASSERT_EQ(write_all(*session, writer, address() + 8 * kPage, bytes), Outcome::done);
    ASSERT_EQ(read_all(*session, reader, address() + 50, bytes), Outcome::done);
    const AddressSpaceCall of_another_thread;
    ASSERT_TRUE(take_away());
    const uint64_t before = domain->counters().departures_seen;
    EXPECT_EQ(try_both(), kBothDone);
    EXPECT_EQ(domain->counters().departures_seen, before) << "the engine asked the kernel";
  }
  EXPECT_GT(there, 0U) << "what is there is no miss";
  EXPECT_GT(domain->counters().departures_seen, 0U);
  ASSERT_EQ(read_all(*session, reader, address() + kPage, bytes), Outcome::done);
  EXPECT_EQ(bytes[0], 0x3c);
}

}  // namespace
}  // namespace faultline::odp::test::reclaimed_pages_test
