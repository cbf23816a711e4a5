// SPDX-License-Identifier: BSD-3-Clause
// The implicit region: every operation through one key that covers the whole address space.
#include "tests/unit/odp/pager/implicit_region.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <isa-l/crc.h>

namespace faultline::odp::test::implicit_region_test {
namespace {

constexpr uint64_t kPage = 4096;

std::vector<uint8_t> counted_bytes(size_t count, uint8_t first) {
  std::vector<uint8_t> bytes(count);
  std::iota(bytes.begin(), bytes.end(), first);
  return bytes;
}

TEST(ImplicitRegion, IsRegisteredAsVerbsSayAndNotOtherwise) {
  auto domain = make_domain();
  RegionRequest request = implicit_request();
  const auto error_of = [&](const RegionRequest& asked) { return domain->register_region(asked).error; };
  request.iova = 4096;
  EXPECT_EQ(error_of(request), EINVAL);
  request = implicit_request();
  request.domain = 0;
  EXPECT_EQ(error_of(request), EINVAL);
  EXPECT_EQ(error_of(implicit_request(kImplicitAccess & ~static_cast<uint32_t>(kOnDemand))), EINVAL);
  EXPECT_EQ(error_of(implicit_request(kOnDemand | kRemoteWrite)), EINVAL) << "remote write without local";
  EXPECT_EQ(error_of(implicit_request(kOnDemand | kRemoteAtomic)), EINVAL);
  EXPECT_EQ(error_of(implicit_request(kOnDemand | kFlushPersistent)), EINVAL);
  EXPECT_EQ(error_of(implicit_request(kOnDemand | 1U << 30)), EINVAL);
  // A request for nearly the whole address space is not an implicit region.
  request = implicit_request();
  request.length_bytes = kEverywhere - 1;
  EXPECT_EQ(error_of(request), EINVAL);
  request = implicit_request();
  request.address = kPage;
  EXPECT_EQ(error_of(request), EINVAL);
  EXPECT_EQ(domain->counters().num_odp_mrs, 0U);

  const Key key = add_implicit(*domain, kOnDemand);
  EXPECT_EQ(domain->counters().num_odp_mrs, 1U);
  EXPECT_EQ(domain->counters().num_implicit_children, 0U);
  EXPECT_EQ(domain->counters().num_odp_mr_pages, 0U);
  EXPECT_EQ(domain->deregister_region(key), 0);
  EXPECT_EQ(domain->deregister_region(key), ENOENT);
  EXPECT_EQ(domain->counters().num_odp_mrs, 0U);
}

TEST(ImplicitRegion, EachOperationWorksOnMemoryNeverTouched) {
  auto domain = make_domain();
  const Pieces memory(1);
  const Key key = add_implicit(*domain);
  auto session = domain->attach_engine();
  uint64_t va = memory.address();
  const auto bytes = counted_bytes(3 * kPage, 1);
  std::vector<uint8_t> back(bytes.size());
  for (const uint32_t write_right :
       {static_cast<uint32_t>(kLocalWrite), static_cast<uint32_t>(kRemoteWrite)}) {
    va += 16 * kPage;
    EXPECT_EQ(write_all(*session, {key, 1, write_right}, va + 100, bytes), Outcome::done);
    EXPECT_EQ(std::memcmp(reinterpret_cast<void*>(va + 100), bytes.data(), bytes.size()), 0);
  }
  for (const uint32_t read_right : {static_cast<uint32_t>(kLocalRead), static_cast<uint32_t>(kRemoteRead)}) {
    EXPECT_EQ(read_all(*session, {key, 1, read_right}, va + 100, back), Outcome::done);
    EXPECT_EQ(back, bytes);
    std::array<uint8_t, 16> zeros{};
    zeros.fill(1);
    va += 16 * kPage;
    EXPECT_EQ(read_all(*session, {key, 1, read_right}, va, zeros), Outcome::done);
    EXPECT_EQ(zeros, (std::array<uint8_t, 16>{}));
    va -= 16 * kPage;
  }

  va = memory.address() + 128 * kPage;
  const auto* const word = reinterpret_cast<const uint64_t*>(va);
  const Target atomic{key, 1, kRemoteAtomic};
  const auto perform = [&](const Target& target, const AtomicRequest& request, uint64_t& original) {
    return until_settled(*session, {target, va, sizeof original, {1}},
                         [&] { return session->atomic(target, va, request, original); });
  };
  uint64_t original = 9;
  EXPECT_EQ(perform(atomic, {.op = AtomicOp::fetch_add, .operand = 5}, original), Outcome::done);
  EXPECT_EQ(original, 0U);
  EXPECT_EQ(perform(atomic, {.op = AtomicOp::compare_swap, .compare = 5, .operand = 77}, original),
            Outcome::done);
  EXPECT_EQ(original, 5U);
  EXPECT_EQ(perform(atomic, {.op = AtomicOp::compare_swap, .compare = 5, .operand = 78}, original),
            Outcome::done);
  EXPECT_EQ(original, 77U);
  EXPECT_EQ(*word, 77U);
  EXPECT_EQ(perform({key, 1, kRemoteWrite}, {.op = AtomicOp::store, .operand = 0x0102030405060708}, original),
            Outcome::done);
  EXPECT_EQ(*word, 0x0102030405060708U);
  session->enter();
  EXPECT_EQ(session->atomic(atomic, va + 4, {.op = AtomicOp::fetch_add, .operand = 5}, original),
            Outcome::violation)
      << "not aligned";
  EXPECT_EQ(session->flush({key, 1, kFlushGlobal}, va, 8, FlushKind::global), Outcome::done);
  EXPECT_EQ(session->flush({key, 1, kFlushPersistent}, va, 8, FlushKind::persistent), Outcome::violation);
  session->leave();
}

TEST(ImplicitRegion, RightsAndBoundsAreThoseOfAnyRegion) {
  auto domain = make_domain();
  const Pieces memory(1);
  const Key key = add_implicit(*domain, kOnDemand | kRemoteRead);
  auto session = domain->attach_engine();
  std::array<uint8_t, 64> bytes{};
  const uint64_t va = memory.address();
  EXPECT_EQ(read_all(*session, {key, 1, kRemoteRead}, va, bytes), Outcome::done);
  session->enter();
  EXPECT_EQ(session->write({key, 1, kRemoteWrite}, va, bytes), Outcome::violation);
  EXPECT_EQ(session->write({key, 1, kLocalWrite}, va, bytes), Outcome::violation);
  EXPECT_EQ(session->read({key, 2, kRemoteRead}, va, bytes), Outcome::violation);
  EXPECT_EQ(session->read({key ^ 1, 1, kRemoteRead}, va, bytes), Outcome::violation);
  EXPECT_EQ(session->check({key, 1, kRemoteAtomic}, va, 8), Outcome::violation);
  EXPECT_EQ(session->check({key, 1, kRemoteRead}, kAddressSpaceBytes - 1, 1), Outcome::done);
  EXPECT_EQ(session->check({key, 1, kRemoteRead}, kAddressSpaceBytes - 1, 2), Outcome::violation);
  EXPECT_EQ(session->check({key, 1, kRemoteRead}, kAddressSpaceBytes, 1), Outcome::violation);
  EXPECT_EQ(session->check({key, 1, kRemoteRead}, kEverywhere, 1), Outcome::violation);
  EXPECT_EQ(session->check({key, 1, kRemoteRead}, 1, kEverywhere), Outcome::violation);
  uint64_t start = 1;
  uint64_t length_bytes = 0;
  EXPECT_TRUE(session->range_of(key, start, length_bytes));
  EXPECT_EQ(start, 0U);
  EXPECT_EQ(length_bytes, kAddressSpaceBytes);
  session->leave();
  // Addresses without memory in any program: the first page and the last ones.
  for (const uint64_t nowhere : {uint64_t{0}, uint64_t{8}, kAddressSpaceBytes - 64})
    EXPECT_EQ(read_all(*session, {key, 1, kRemoteRead}, nowhere, bytes), Outcome::violation) << nowhere;
  EXPECT_EQ(domain->counters().num_failed_resolutions, 3U);
  EXPECT_EQ(read_all(*session, {key, 1, kRemoteRead}, va + 2 * kPage, bytes), Outcome::done);
}

TEST(ImplicitRegion, AccessesGoOnOverTheBordersOfChildren) {
  auto domain = make_domain();
  const Pieces memory(4);
  const Key key = add_implicit(*domain);
  auto session = domain->attach_engine();
  const Target write{key, 1, kRemoteWrite};
  const Target read{key, 1, kRemoteRead};
  // Single bytes, one page each, and more than a whole child between two others.
  struct Span {
    uint64_t before_border;
    uint64_t length;
    uint64_t children;
  };
  constexpr std::array kSpans{Span{1, 2, 2}, Span{kPage, 2 * kPage, 2}, Span{100, 2 * kPage, 2},
                              Span{5000, kChildBytes + 10'000, 3}};
  uint8_t first = 1;
  for (const Span& span : kSpans) {
    ASSERT_EQ(madvise(memory.data(), memory.size(), MADV_DONTNEED), 0);
    const uint64_t made_before = domain->counters().implicit_children_made;
    const uint64_t va = memory.address() + kChildBytes - span.before_border;
    const auto bytes = counted_bytes(span.length, first++);
    ASSERT_EQ(write_all(*session, write, va, bytes), Outcome::done);
    EXPECT_EQ(std::memcmp(reinterpret_cast<void*>(va), bytes.data(), bytes.size()), 0);
    EXPECT_EQ(*reinterpret_cast<uint8_t*>(va - 1), 0);
    EXPECT_EQ(*reinterpret_cast<uint8_t*>(va + span.length), 0);
    EXPECT_LE(domain->counters().implicit_children_made - made_before, span.children);
    std::vector<uint8_t> back(bytes.size());
    EXPECT_EQ(read_all(*session, read, va, back), Outcome::done);
    EXPECT_EQ(back, bytes);
    std::ranges::fill(back, uint8_t{0});
    uint32_t crc = 0;
    session->enter();
    EXPECT_EQ(session->read_with_crc(read, va, back, crc), Outcome::done);
    session->leave();
    EXPECT_EQ(back, bytes);
    EXPECT_EQ(crc, crc32_gzip_refl(0, bytes.data(), bytes.size()));
  }
  EXPECT_EQ(domain->counters().num_implicit_children, 3U);
  session->enter();
  EXPECT_EQ(session->probe(read, memory.address() + kChildBytes - 5000, kChildBytes + 10'000), Outcome::done);
  EXPECT_EQ(session->probe(read, memory.address() + 2 * kChildBytes + 4999, 2), Outcome::done);
  EXPECT_EQ(session->probe(read, memory.address() + 3 * kChildBytes, 1), Outcome::miss);
  EXPECT_EQ(session->flush({key, 1, kFlushGlobal}, memory.address(), memory.size(), FlushKind::global),
            Outcome::done);
  session->leave();
  // Eight bytes on either side of a border.
  for (const uint64_t va : {memory.address() + 3 * kChildBytes - 8, memory.address() + 3 * kChildBytes}) {
    uint64_t original = 1;
    const Target target{key, 1, kRemoteAtomic};
    EXPECT_EQ(until_settled(*session, {target, va, 8, {1}},
                            [&] {
                              return session->atomic(target, va, {.op = AtomicOp::fetch_add, .operand = va},
                                                     original);
                            }),
              Outcome::done);
    EXPECT_EQ(original, 0U);
    EXPECT_EQ(*reinterpret_cast<uint64_t*>(va), va);
  }
}

TEST(ImplicitRegion, WindowsAreBoundToIt) {
  auto domain = make_domain();
  const Pieces memory(2);
  const Key key = add_implicit(*domain);
  auto session = domain->attach_engine();
  constexpr uint32_t kQpn = 0x77;
  const uint64_t va = memory.address() + kChildBytes - 3 * kPage;
  constexpr uint64_t kBytes = 6 * kPage;
  for (const WindowType type : {WindowType::type1, WindowType::type2}) {
    const Key window = domain->allocate_window(1, type).key;
    const Key bound = (window & ~0xffU) | ((window + 1) & 0xff);
    session->enter();
    ASSERT_EQ(session->bind_window({.window = window,
                                    .new_key = bound,
                                    .type = type,
                                    .domain = 1,
                                    .qpn = kQpn,
                                    .region = key,
                                    .va = va,
                                    .length_bytes = kBytes,
                                    .access = kRemoteWrite | kRemoteRead | kRemoteAtomic}),
              Outcome::done);
    session->leave();
    EXPECT_EQ(domain->deregister_region(key), EBUSY);
    const auto bytes = counted_bytes(kBytes, static_cast<uint8_t>(type));
    std::vector<uint8_t> back(kBytes);
    ASSERT_EQ(madvise(memory.data(), memory.size(), MADV_DONTNEED), 0);
    EXPECT_EQ(write_all(*session, {bound, 1, kRemoteWrite, kQpn}, va, bytes), Outcome::done);
    EXPECT_EQ(std::memcmp(reinterpret_cast<void*>(va), bytes.data(), bytes.size()), 0);
    EXPECT_EQ(read_all(*session, {bound, 1, kRemoteRead, kQpn}, va, back), Outcome::done);
    EXPECT_EQ(back, bytes);
    EXPECT_EQ(write_all(*session, {bound, 1, kRemoteWrite, kQpn}, va + 1, bytes), Outcome::violation);
    EXPECT_EQ(write_all(*session, {bound, 1, kRemoteWrite, kQpn}, va - 1, {bytes.data(), 1}),
              Outcome::violation);
    const Outcome of_another_qp =
        write_all(*session, {bound, 1, kRemoteWrite, kQpn + 1}, va, {bytes.data(), 1});
    EXPECT_EQ(of_another_qp, type == WindowType::type2 ? Outcome::violation : Outcome::done);
    EXPECT_EQ(domain->deallocate_window(window), 0);
    EXPECT_EQ(write_all(*session, {bound, 1, kRemoteWrite, kQpn}, va, bytes), Outcome::violation);
  }
  EXPECT_EQ(domain->deregister_region(key), 0);
}

TEST(ImplicitRegion, GoesOnAfterHolesAndProtectedPages) {
  auto domain = make_domain();
  const Pieces memory(2);
  const Key key = add_implicit(*domain);
  auto session = domain->attach_engine();
  const Target write{key, 1, kRemoteWrite};
  const Target read{key, 1, kRemoteRead};
  std::vector<uint8_t> bytes(3 * kPage, 0x31);
  const uint64_t va = memory.address();
  ASSERT_EQ(write_all(*session, write, va, bytes), Outcome::done);

  ASSERT_EQ(munmap(memory.data() + kPage, kPage), 0);
  EXPECT_EQ(write_all(*session, write, va, bytes), Outcome::violation);
  EXPECT_EQ(read_all(*session, read, va + kPage + 5, {bytes.data(), 1}), Outcome::violation);
  EXPECT_EQ(write_all(*session, write, va + 2 * kPage, {bytes.data(), kPage}), Outcome::done);
  // The region covers whatever is mapped: memory that fills the hole belongs to it.
  memory.map(kPage, kPage);
  EXPECT_EQ(write_all(*session, write, va, bytes), Outcome::done);
  EXPECT_EQ(memory.data()[kPage + 1], 0x31);

  ASSERT_EQ(mprotect(memory.data() + kPage, kPage, PROT_NONE), 0);
  EXPECT_EQ(write_all(*session, write, va + kPage, {bytes.data(), 1}), Outcome::violation);
  EXPECT_EQ(write_all(*session, write, va, {bytes.data(), kPage}), Outcome::done);
  ASSERT_EQ(mprotect(memory.data() + kPage, kPage, PROT_READ), 0);
  bytes.assign(bytes.size(), 0x32);
  EXPECT_EQ(write_all(*session, write, va + kPage, {bytes.data(), 1}), Outcome::violation);
  EXPECT_EQ(read_all(*session, read, va + kPage, {bytes.data(), 1}), Outcome::done);
  EXPECT_EQ(bytes[0], 0x31);
  ASSERT_EQ(mprotect(memory.data() + kPage, kPage, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(write_all(*session, write, va, bytes), Outcome::done);

  // A child that could never be created, and its neighbour.
  ASSERT_EQ(munmap(memory.piece(1), kChildBytes), 0);
  EXPECT_EQ(write_all(*session, write, va + kChildBytes - 1, {bytes.data(), 2}), Outcome::violation);
  EXPECT_EQ(write_all(*session, write, va + kChildBytes - 1, {bytes.data(), 1}), Outcome::done);
  EXPECT_TRUE(eventually([&] { return domain->counters().num_implicit_children == 1; }));
  // A page in the middle of a hole, and then more pages before it.
  memory.map(kChildBytes + 300 * kPage, kPage);
  EXPECT_EQ(write_all(*session, write, va + kChildBytes + 300 * kPage, {bytes.data(), kPage}), Outcome::done);
  EXPECT_EQ(write_all(*session, write, va + kChildBytes + 299 * kPage, {bytes.data(), kPage}),
            Outcome::violation);
  memory.map(kChildBytes, 300 * kPage);
  EXPECT_EQ(write_all(*session, write, va + kChildBytes + 299 * kPage, {bytes.data(), 2 * kPage}),
            Outcome::done);
  EXPECT_GT(domain->counters().num_failed_resolutions, 0U);
}

TEST(ImplicitRegion, ReachesWhatTheProgramHasWithoutAsking) {
  auto domain = make_domain();
  const Key key = add_implicit(*domain);
  auto session = domain->attach_engine();
  // The heap, a stack and static memory: neighbouring memory is watched as well.
  std::vector<uint8_t> heap(100'000, 1);
  std::array<uint8_t, 5000> stack{};
  static std::array<uint8_t, 9000> fixed;
  const auto bytes = counted_bytes(5000, 3);
  for (uint8_t* const at : {heap.data(), stack.data(), fixed.data()}) {
    ASSERT_EQ(write_all(*session, {key, 1, kRemoteWrite}, reinterpret_cast<uint64_t>(at), bytes),
              Outcome::done);
    EXPECT_EQ(std::memcmp(at, bytes.data(), bytes.size()), 0);
  }
  // Read-only memory of the program's executable.
  static constexpr std::array<uint8_t, 5> kConstant{'c', 'o', 'n', 's', 't'};
  std::array<uint8_t, 5> back{};
  EXPECT_EQ(read_all(*session, {key, 1, kRemoteRead}, reinterpret_cast<uint64_t>(kConstant.data()), back),
            Outcome::done);
  EXPECT_EQ(back, kConstant);
  EXPECT_EQ(write_all(*session, {key, 1, kRemoteWrite}, reinterpret_cast<uint64_t>(kConstant.data()), back),
            Outcome::violation);
  // The program allocates and frees memory meanwhile, through the C library.
  for (int i = 0; i < 50; ++i) {
    std::vector<uint8_t> large(1 << 20, 4);
    ASSERT_EQ(
        write_all(*session, {key, 1, kRemoteWrite}, reinterpret_cast<uint64_t>(large.data()) + 77, bytes),
        Outcome::done);
    ASSERT_EQ(std::memcmp(large.data() + 77, bytes.data(), bytes.size()), 0);
  }
  EXPECT_EQ(domain->deregister_region(key), 0);
  EXPECT_EQ(domain->counters().num_implicit_children, 0U);
}

TEST(ImplicitRegion, TwoAtOnceKeepTheirOwn) {
  auto domain = make_domain();
  const Pieces memory(2);
  const Key writer = add_implicit(*domain);
  const Key reader = add_implicit(*domain, kOnDemand | kRemoteRead);
  auto session = domain->attach_engine();
  const auto bytes = counted_bytes(kChildBytes + kPage, 8);
  std::vector<uint8_t> back(bytes.size());
  ASSERT_EQ(write_all(*session, {writer, 1, kRemoteWrite}, memory.address(), bytes), Outcome::done);
  EXPECT_EQ(domain->counters().num_implicit_children, 2U);
  ASSERT_EQ(read_all(*session, {reader, 1, kRemoteRead}, memory.address(), back), Outcome::done);
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(domain->counters().num_implicit_children, 4U);
  EXPECT_EQ(domain->counters().num_odp_mrs, 2U);
  RegionCounters of_reader;
  ASSERT_TRUE(domain->region_counters(reader, of_reader));
  EXPECT_EQ(of_reader.resident_pages, kChildPages + 1);
  EXPECT_EQ(of_reader.page_faults, kChildPages + 1);
  // Memory that the program discards is removed from both regions.
  ASSERT_EQ(madvise(memory.data(), kPage, MADV_DONTNEED), 0);
  const auto is_there = [&](const Target& target, uint64_t va) {
    session->enter();
    const Outcome outcome = session->probe(target, va, 1);
    session->leave();
    return outcome == Outcome::done;
  };
  EXPECT_FALSE(is_there({writer, 1, kRemoteWrite}, memory.address()));
  EXPECT_FALSE(is_there({reader, 1, kRemoteRead}, memory.address()));
  EXPECT_TRUE(eventually([&] {
    return is_there({reader, 1, kRemoteRead}, memory.address() + kPage);
  })) << "when the gate is down again";
  EXPECT_EQ(domain->deregister_region(writer), 0);
  EXPECT_EQ(domain->counters().num_implicit_children, 2U);
  EXPECT_EQ(read_all(*session, {reader, 1, kRemoteRead}, memory.address(), back), Outcome::done);
  EXPECT_EQ(back[0], 0);
  EXPECT_EQ(std::memcmp(back.data() + kPage, bytes.data() + kPage, bytes.size() - kPage), 0);
  EXPECT_EQ(write_all(*session, {writer, 1, kRemoteWrite}, memory.address(), bytes), Outcome::violation);
  // The other region's children are still watched.
  ASSERT_EQ(munmap(memory.piece(0), kChildBytes), 0);
  EXPECT_EQ(read_all(*session, {reader, 1, kRemoteRead}, memory.address(), {back.data(), 8}),
            Outcome::violation);
  EXPECT_EQ(domain->deregister_region(reader), 0);
  EXPECT_EQ(domain->counters().num_implicit_children, 0U);
  EXPECT_EQ(domain->counters().num_odp_mr_pages, 0U);
  EXPECT_EQ(domain->counters().pinned_bytes, 0U);
}

}  // namespace
}  // namespace faultline::odp::test::implicit_region_test
