// SPDX-License-Identifier: BSD-3-Clause
// The marks of a program call in progress, and how they end. Uses ProgramCall without a system call, so that
// each phase lasts as long as the test needs.
#include <array>

#include <gtest/gtest.h>

#include "odp/invalidation/program_call.hpp"
#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test::call_marks_test {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kPages = 8;
constexpr std::array<uint8_t, 8> kData{9};

class CallMarks : public testing::Test {
 protected:
  Target add(uint32_t access) {
    const RegionResult region = domain_->register_region({.domain = 1,
                                                          .address = memory_.address(),
                                                          .length_bytes = memory_.size(),
                                                          .iova = memory_.address(),
                                                          .access = kLocalWrite | kRemoteWrite | access});
    EXPECT_EQ(region.error, 0);
    return {region.key, 1, kRemoteWrite};
  }
  [[nodiscard]] uint64_t at(size_t page) const { return memory_.address() + page * kPage; }
  Outcome write_page(const Target& target, size_t page) {
    return write_all(*session_, target, at(page), kData);
  }
  /// Tries the access once, without a fault request.
  Outcome try_page(const Target& target, size_t page) {
    session_->enter();
    const Outcome outcome = session_->write(target, at(page), kData);
    session_->leave();
    return outcome;
  }

  const std::unique_ptr<MemoryDomain> domain_ = make_domain();
  const Mapping memory_{kPages};
  const std::unique_ptr<EngineSession> session_ = domain_->attach_engine();
};

TEST_F(CallMarks, APageThatIsBeingUnmappedIsNotTouched) {
  for (const uint32_t kind : {uint32_t{0}, uint32_t{kOnDemand}}) {
    const Target target = add(kind);
    ASSERT_EQ(write_page(target, 2), Outcome::done);
    {
      const ProgramCall unmap(at(2), at(3), PageEvent::kill);
      EXPECT_EQ(try_page(target, 2), Outcome::miss) << "how the call ends decides";
      EXPECT_EQ(write_page(target, 1), Outcome::done) << "of another page";
    }
    EXPECT_EQ(write_page(target, 2), Outcome::violation);
    EXPECT_EQ(domain_->deregister_region(target.key), 0);
  }
}

TEST_F(CallMarks, NoPageBecomesResidentDuringTheCall) {
  for (const PageEvent change : {PageEvent::kill, PageEvent::drop}) {
    const Target before = add(kOnDemand);
    auto call = std::make_unique<ProgramCall>(at(2), at(4), change);
    // No region existed when the call began, so none of its pages is marked. The memory may disappear at any
    // moment.
    const Target target = add(kOnDemand);
    session_->enter();
    ASSERT_TRUE(session_->request_fault({target, at(3), kData.size(), {5}}));
    session_->leave();
    std::array<Resolution, 1> resolution;
    for (int i = 0; i < 100; ++i) {
      session_->enter();
      ASSERT_EQ(session_->take_resolutions(resolution), 0U) << "the fault was served during the call";
      session_->leave();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(try_page(target, 3), Outcome::miss);
    call.reset();
    EXPECT_EQ(next_resolution(*session_).outcome, Outcome::done)
        << "it was registered after the call had begun";
    session_->leave();
    EXPECT_EQ(domain_->deregister_region(target.key), 0);
    EXPECT_EQ(domain_->deregister_region(before.key), 0);
  }
}

TEST_F(CallMarks, ACallThatEndsLeavesThePagesOfOneThatUnmaps) {
  const Target target = add(kOnDemand);
  for (size_t page = 0; page < kPages; ++page) ASSERT_EQ(write_page(target, page), Outcome::done);
  auto unmap = std::make_unique<ProgramCall>(at(2), at(5), PageEvent::kill);
  { const ProgramCall advise(at(4), at(7), PageEvent::drop); }
  EXPECT_EQ(write_page(target, 6), Outcome::done) << "the advice is over";
  EXPECT_EQ(try_page(target, 4), Outcome::miss);
  unmap.reset();
  for (size_t page = 0; page < kPages; ++page)
    EXPECT_EQ(write_page(target, page), page >= 2 && page < 5 ? Outcome::violation : Outcome::done) << page;
}

}  // namespace
}  // namespace faultline::odp::test::call_marks_test
