// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/engine/virtual_clock.hpp"

#include <atomic>

#include <time.h>

namespace faultline::glue::test {
namespace {

std::atomic<TimeNs> now_ns{1'000 * kSecond};

}  // namespace

TimeNs VirtualClock::now() {
  return now_ns.load();
}

void VirtualClock::advance(TimeNs by_ns) {
  now_ns.fetch_add(by_ns);
}

void VirtualClock::advance_to(TimeNs time) {
  if (time > now()) now_ns.store(time);
}

}  // namespace faultline::glue::test

extern "C" {

// Names that the linker gives to the C library's function and to its replacement.
int __real_clock_gettime(clockid_t clock, timespec* to);

int __wrap_clock_gettime(clockid_t clock, timespec* to) {
  using faultline::glue::test::kSecond;
  if (clock != CLOCK_MONOTONIC) return __real_clock_gettime(clock, to);
  const faultline::TimeNs now = faultline::glue::test::VirtualClock::now();
  *to = {.tv_sec = static_cast<time_t>(now / kSecond), .tv_nsec = static_cast<long>(now % kSecond)};
  return 0;
}

}  // extern "C"
