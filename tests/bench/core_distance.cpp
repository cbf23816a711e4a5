// SPDX-License-Identifier: BSD-3-Clause
// How long a cache line takes from one CPU to the other, asked again and again while something else is
// measured on the two: a host that moves virtual CPUs between its caches makes everything that two of them do
// together several times slower.
//
// core_distance CPU CPU EVERY_MS: a line "SECONDS NANOSECONDS" each time, CLOCK_MONOTONIC and one way, until
// it is ended.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <thread>

#include <pthread.h>
#include <sched.h>
#include <time.h>

namespace {

constexpr int kBatches = 4;  // the least of them counts: an interrupt spoils one
constexpr int kTripsOfBatch = 25;
constexpr uint64_t kTrips = uint64_t{kBatches} * kTripsOfBatch;
constexpr uint64_t kFirstOfLook =
    1024;  // beyond kTrips: a look that was given up is not taken for the next one
constexpr int64_t kLookLimit_ns = 2'000'000;
constexpr int64_t kNsOfSecond = 1'000'000'000;
constexpr int kSpinsBetweenClocks = 64;
constexpr int kUsageStatus = 2;

struct alignas(128) Line {  // 128: neighbouring lines are fetched in pairs
  std::atomic<uint64_t> trip{0};
};
Line there;
Line back;

int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kNsOfSecond + time.tv_nsec;
}

void sleep_until(int64_t moment_ns) {
  const timespec until{.tv_sec = moment_ns / kNsOfSecond, .tv_nsec = moment_ns % kNsOfSecond};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
}

bool take_place_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) return false;
  // Where it is allowed: both are to run at the same moment, for some microseconds, whoever else is busy
  // there.
  const sched_param priority{.sched_priority = 1};
  pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority);
  return true;
}

bool arrives(const Line& line, uint64_t trip, int64_t deadline_ns) {
  for (int spins = 1; line.trip.load(std::memory_order_acquire) != trip; ++spins)
    if (spins % kSpinsBetweenClocks == 0 && now_ns() > deadline_ns) return false;
  return true;
}

void answer_look(uint64_t look, int64_t deadline_ns) {
  const uint64_t first = look * kFirstOfLook;
  for (uint64_t trip = first + 1; trip <= first + kTrips; ++trip) {
    if (!arrives(there, trip, deadline_ns)) return;
    back.trip.store(trip, std::memory_order_release);
  }
}

std::optional<double> look_ns(uint64_t look, int64_t deadline_ns) {
  uint64_t trip = look * kFirstOfLook;
  double least_ns = std::numeric_limits<double>::max();
  for (int batch = 0; batch < kBatches; ++batch) {
    const int64_t begin_ns = now_ns();
    for (int i = 0; i < kTripsOfBatch; ++i) {
      there.trip.store(++trip, std::memory_order_release);
      if (!arrives(back, trip, deadline_ns)) return std::nullopt;
    }
    least_ns = std::min(least_ns, static_cast<double>(now_ns() - begin_ns) / (2.0 * kTripsOfBatch));
  }
  return least_ns;
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  std::array<std::optional<int>, 3> given;
  for (size_t i = 0; i < given.size() && static_cast<int>(i) + 1 < argc; ++i) given[i] = number(argv[i + 1]);
  const auto [one, other, every_ms] = given;
  if (argc != 4 || !one || !other || !every_ms || *one == *other || *every_ms == 0) {
    std::fputs("core_distance: CPU CPU EVERY_MS, the two CPUs different\n", stderr);
    return kUsageStatus;
  }
  const int64_t every_ns = int64_t{*every_ms} * 1'000'000;
  const int64_t start_ns = now_ns() + every_ns;
  std::thread([&, other_cpu = *other] {
    if (!take_place_on(other_cpu)) return;
    for (uint64_t look = 1;; ++look) {
      const int64_t moment_ns = start_ns + static_cast<int64_t>(look) * every_ns;
      sleep_until(moment_ns);
      answer_look(look, moment_ns + kLookLimit_ns);
    }
  }).detach();
  if (!take_place_on(*one)) {
    std::fprintf(stderr, "core_distance: CPU %d cannot be had: %s\n", *one, std::strerror(errno));
    return 1;
  }
  for (uint64_t look = 1;; ++look) {
    const int64_t moment_ns = start_ns + static_cast<int64_t>(look) * every_ns;
    sleep_until(moment_ns);
    if (const auto took_ns = look_ns(look, moment_ns + kLookLimit_ns)) {
      std::printf("%.6f %.1f\n", static_cast<double>(moment_ns) / static_cast<double>(kNsOfSecond), *took_ns);
      std::fflush(stdout);
    }
  }
}
