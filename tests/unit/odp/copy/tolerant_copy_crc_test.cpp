// SPDX-License-Identifier: BSD-3-Clause
#include "odp/copy/tolerant_copy_crc.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "odp/copy/fault_handler.hpp"
#include "tests/unit/odp/copy/routines.hpp"
#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::tolerant_copy_crc_test {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kLongest = 9000;  // a jumbo frame
constexpr size_t kLine = 64;

/// The CRC by definition, one bit at a time, on a register without final inversion.
uint32_t plain_step(uint32_t rest, uint8_t byte) {
  rest ^= byte;
  for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ ((rest & 1) != 0 ? 0xedb88320U : 0U);
  return rest;
}

uint32_t plain_crc(uint32_t crc, const uint8_t* bytes, size_t length) {
  uint32_t rest = ~crc;
  for (size_t i = 0; i < length; ++i) rest = plain_step(rest, bytes[i]);
  return ~rest;
}

/// Returns the CRCs of all prefixes.
std::vector<uint32_t> plain_crcs(uint32_t crc, const uint8_t* bytes, size_t longest) {
  std::vector<uint32_t> crcs(longest + 1, crc);
  uint32_t rest = ~crc;
  for (size_t i = 0; i < longest; ++i) {
    rest = plain_step(rest, bytes[i]);
    crcs[i + 1] = ~rest;
  }
  return crcs;
}

class TolerantCopyCrc : public testing::TestWithParam<CopyCrcRoutine> {
 protected:
  static constexpr size_t kPages = 4;

  void SetUp() override {
    if (!copy_crc_routine_supported(GetParam())) GTEST_SKIP() << "this CPU lacks the routine";
    install_fault_handler();
    std::mt19937 random(7);
    for (uint8_t& byte : from_) byte = static_cast<uint8_t>(random());
    edge_ = static_cast<uint8_t*>(mmap(test::low_address((kPages + 1) * kPage), (kPages + 1) * kPage,
                                       PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(edge_, MAP_FAILED);
    munmap(hole(), kPage);
  }
  void TearDown() override {
    if (edge_ != nullptr) munmap(edge_, kPages * kPage);
  }
  [[nodiscard]] uint8_t* hole() const { return edge_ + kPages * kPage; }

  size_t copy(void* to, const void* from, size_t length, uint32_t& crc) const {
    return tolerant_copy_crc_with(GetParam(), to, from, length, crc);
  }

  uint8_t* edge_ = nullptr;  ///< pages, then a hole
  std::vector<uint8_t> from_ = std::vector<uint8_t>(kLongest + kLine);
};

TEST_P(TolerantCopyCrc, CopiesAndSumsEveryLengthAtEveryAlignment) {
  constexpr uint8_t kUntouched = 0xa5;
  std::vector<uint8_t> out(kLongest + 3 * kLine, kUntouched);
  for (size_t at = 0; at < kLine; ++at) {
    const auto seed = static_cast<uint32_t>(at * 0x9e3779b9U);
    const std::vector<uint32_t> crcs = plain_crcs(seed, from_.data() + at, kLongest);
    // Every length at eight alignments.
    for (size_t length = at % 8; length <= kLongest; length += 8) {
      const size_t to = kLine + (length + at * 7) % kLine;
      uint32_t crc = seed;
      ASSERT_EQ(copy(out.data() + to, from_.data() + at, length, crc), length);
      ASSERT_EQ(crc, crcs[length]) << length << " bytes from " << at;
      ASSERT_EQ(std::memcmp(out.data() + to, from_.data() + at, length), 0) << length;
      for (size_t i = 0; i < kLine; ++i) {
        ASSERT_EQ(out[to - 1 - i], kUntouched) << length;
        ASSERT_EQ(out[to + length + i], kUntouched) << length;
      }
      std::fill_n(out.begin() + static_cast<ptrdiff_t>(to), length, kUntouched);
    }
  }
}

TEST_P(TolerantCopyCrc, GoesOnWhereTheLastPieceEnded) {
  std::vector<uint8_t> out(kLongest);
  const uint32_t whole = plain_crc(0, from_.data(), kLongest);
  for (size_t cut = 0; cut <= kLongest; cut += 61) {
    uint32_t crc = 0;
    ASSERT_EQ(copy(out.data(), from_.data(), cut, crc), cut);
    ASSERT_EQ(copy(out.data() + cut, from_.data() + cut, kLongest - cut, crc), kLongest - cut);
    ASSERT_EQ(crc, whole) << cut;
  }
}

// Lengths of each kind: without the fused loop, at its limits, within it, and with a remainder after it.
constexpr std::array<size_t, 14> kFaultLengths{1,   63,  64,   255,  256,  257,  320,
                                               511, 512, 1000, 4095, 4096, 4097, 9000};

TEST_P(TolerantCopyCrc, StopsShortAtAHoleInTheSource) {
  std::vector<uint8_t> out(kLongest);
  for (size_t i = 0; i < kPages * kPage; ++i) edge_[i] = static_cast<uint8_t>(i * 31);
  for (const size_t length : kFaultLengths) {
    for (size_t inside = 0; inside < length; inside += 1 + length / 97) {
      const uint8_t* from = hole() - inside;
      uint32_t crc = 0;
      const size_t copied = copy(out.data(), from, length, crc);
      ASSERT_LE(copied, inside) << length;
      ASSERT_EQ(std::memcmp(out.data(), from, copied), 0) << length << " bytes, " << inside << " there";
    }
  }
}

TEST_P(TolerantCopyCrc, StopsShortAtAHoleInTheDestination) {
  for (const size_t length : kFaultLengths) {
    for (size_t inside = 0; inside < length; inside += 1 + length / 97) {
      uint8_t* to = hole() - inside;
      std::memset(edge_, 0, kPages * kPage);
      uint32_t crc = 0;
      const size_t copied = copy(to, from_.data(), length, crc);
      ASSERT_LE(copied, inside) << length;
      ASSERT_EQ(std::memcmp(to, from_.data(), copied), 0) << length << " bytes, " << inside << " there";
    }
  }
}

TEST_P(TolerantCopyCrc, IsRightAgainAfterAFault) {
  std::vector<uint8_t> out(kPage);
  uint32_t crc = 0;
  ASSERT_LT(copy(out.data(), hole() - kPage / 2, kPage, crc), kPage);
  crc = 0;
  ASSERT_EQ(copy(out.data(), from_.data(), kPage, crc), kPage);
  EXPECT_EQ(crc, plain_crc(0, from_.data(), kPage));
}

TEST_P(TolerantCopyCrc, SurvivesATruncatedFile) {
  const int file = memfd_create("truncated", 0);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, 2 * kPage), 0);
  auto* memory = static_cast<uint8_t*>(mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(ftruncate(file, kPage), 0);
  std::vector<uint8_t> out(kPage);
  uint32_t crc = 0;
  EXPECT_LT(copy(out.data(), memory + kPage / 2, kPage, crc), kPage);
  crc = 0;
  EXPECT_EQ(copy(out.data(), memory, kPage, crc), kPage);
  EXPECT_EQ(crc, plain_crc(0, memory, kPage));
  munmap(memory, 2 * kPage);
  close(file);
}

TEST_P(TolerantCopyCrc, SumsUpOtherBytesBesideACopy) {
  std::vector<uint8_t> out(kLongest + kLine);
  const std::vector<uint8_t> summed(from_.rbegin(), from_.rend());
  const std::vector<uint32_t> crcs = plain_crcs(77, summed.data() + 5, kLongest);
  for (const size_t summed_bytes :
       {size_t{0}, size_t{255}, size_t{256}, size_t{1000}, size_t{4096}, kLongest}) {
    for (size_t length = 0; length <= kLongest; length += length < 600 ? 1 : 97) {
      std::ranges::fill(out, uint8_t{0});
      CrcBeside sum{std::span(summed).subspan(5, summed_bytes), 77, false};
      const size_t at = length % kLine;
      ASSERT_EQ(tolerant_copy_beside_with(GetParam(), out.data() + at, from_.data() + 3, length, sum),
                length);
      ASSERT_EQ(std::memcmp(out.data() + at, from_.data() + 3, length), 0) << length;
      ASSERT_EQ(sum.crc, sum.done ? crcs[summed_bytes] : 77U) << length << " beside " << summed_bytes;
      ASSERT_EQ(sum.done, GetParam() == CopyCrcRoutine::avx512 && std::min(length, summed_bytes) >= 256);
    }
  }
}

TEST_P(TolerantCopyCrc, ACopyThatStopsShortLeavesTheSumBesideItAlone) {
  const std::vector<uint8_t> summed(2 * kPage, 9);
  for (const size_t length : kFaultLengths) {
    for (size_t inside = 0; inside < length; inside += 1 + length / 31) {
      uint8_t* to = hole() - inside;
      std::memset(edge_, 0, kPages * kPage);
      CrcBeside sum{summed, 11, false};
      const size_t copied = tolerant_copy_beside_with(GetParam(), to, from_.data(), length, sum);
      ASSERT_LE(copied, inside) << length;
      ASSERT_EQ(std::memcmp(to, from_.data(), copied), 0) << length;
      // If the copy meets the hole after the fused loop, the CRC is complete and stays correct.
      ASSERT_EQ(sum.crc, sum.done ? plain_crc(11, summed.data(), summed.size()) : 11U) << length;
      ASSERT_TRUE(!sum.done || inside >= 256);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Routines, TolerantCopyCrc, testing::ValuesIn(test::kCopyCrcRoutines),
                         [](const auto& routine) {
                           switch (routine.param) {
                             case CopyCrcRoutine::chunks:
                               return "chunks";
                             case CopyCrcRoutine::pclmul:
                               return "pclmul";
                             case CopyCrcRoutine::avx512:
                               return "avx512";
                           }
                           return "none";
                         });

TEST(CopyCrcChoice, IsTheWidestThatTheCpuHas) {
  CopyCrcRoutine widest = CopyCrcRoutine::chunks;
  for (const CopyCrcRoutine routine : {CopyCrcRoutine::pclmul, CopyCrcRoutine::avx512})
    if (copy_crc_routine_supported(routine)) widest = routine;
  EXPECT_EQ(copy_crc_routine(), widest);
  std::vector<uint8_t> from(kPage, 0x3c);
  std::vector<uint8_t> out(kPage);
  uint32_t crc = 5;
  EXPECT_EQ(tolerant_copy_crc(out.data(), from.data(), kPage, crc), kPage);
  EXPECT_EQ(crc, plain_crc(5, from.data(), kPage));
  EXPECT_EQ(out, from);
}

}  // namespace
}  // namespace faultline::odp::tolerant_copy_crc_test
