// SPDX-License-Identifier: BSD-3-Clause
// A program opens its device, closes it, and begins again, for as long as it lives: nothing is left of a
// cycle, no memory, descriptor or thread.
//   open_close CYCLES     of the first device in the list
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include <infiniband/verbs.h>

namespace {

[[noreturn]] void fail(const char* what, long cycle) {
  std::fprintf(stderr, "%s in cycle %ld\n", what, cycle);
  std::exit(1);
}

void cycle(ibv_device* device, long number) {
  ibv_context* const context = ibv_open_device(device);
  if (context == nullptr) fail("ibv_open_device", number);
  // The device opens with its first protection domain.
  ibv_pd* const pd = ibv_alloc_pd(context);
  if (pd == nullptr) fail("ibv_alloc_pd", number);
  ibv_comp_channel* const channel = ibv_create_comp_channel(context);
  ibv_cq* const cq = channel != nullptr ? ibv_create_cq(context, 16, nullptr, channel, 0) : nullptr;
  if (cq == nullptr) fail("ibv_create_cq", number);
  if (ibv_destroy_cq(cq) != 0 || ibv_destroy_comp_channel(channel) != 0 || ibv_dealloc_pd(pd) != 0 ||
      ibv_close_device(context) != 0)
    fail("close", number);
}

struct Held {
  long resident_kb = 0, threads = 0, descriptors = 0;
};

Held held() {
  Held now;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) now.resident_kb = std::atol(line.c_str() + 6);
    if (line.starts_with("Threads:")) now.threads = std::atol(line.c_str() + 8);
  }
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd"))
    ++now.descriptors;
  return now;
}

}  // namespace

int main(int argc, char** argv) {
  const long cycles = argc == 2 ? std::atol(argv[1]) : 0;
  // What is made once is made by then.
  constexpr long kFirst = 50;
  if (cycles <= kFirst) return 2;
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  if (list == nullptr || count == 0) fail("ibv_get_device_list", 0);
  Held before;
  for (long number = 0; number < cycles; ++number) {
    if (number == kFirst) before = held();
    cycle(list[0], number);
  }
  const Held after = held();
  ibv_free_device_list(list);
  const double bytes_each = static_cast<double>(after.resident_kb - before.resident_kb) * 1024 /
                            static_cast<double>(cycles - kFirst);
  std::printf("%ld cycles: %ld to %ld kB (%.0f bytes a cycle), %ld to %ld descriptors, %ld to %ld threads\n",
              cycles, before.resident_kb, after.resident_kb, bytes_each, before.descriptors,
              after.descriptors, before.threads, after.threads);
  // The allocator's and the kernel's grain is in it: a quarter of a page a cycle, and a megabyte once.
  constexpr long kGrainKb = 1024;
  const long allowed_kb = kGrainKb + cycles / 4;
  const bool constant = after.resident_kb - before.resident_kb <= allowed_kb &&
                        after.descriptors == before.descriptors && after.threads == before.threads;
  return constant ? 0 : 1;
}
