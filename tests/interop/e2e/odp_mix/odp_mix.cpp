// SPDX-License-Identifier: BSD-3-Clause
// Everything that a program can do to on-demand memory, by two of its threads at random, under a peer's RC
// WRITEs, READs and FETCH_ADDs at full speed. Two processes on memif and this one, which watches over them.
//
// No byte changes that no region covers any more; each line of memory is zero or whole, unless its WRITE has
// failed; arenas whose contents no call loses keep exactly what was acknowledged; an access fails only where
// its memory is away or protected, and never for time.
#include "tests/interop/e2e/odp_mix/odp_mix.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "apps/command_line/command_line.hpp"
#include "tests/huge_pages.hpp"
#include "tests/interop/e2e/odp_mix/odp_mix_main.hpp"
#include "tests/interop/e2e/side.hpp"

namespace {

using namespace faultline::e2e;
using faultline::e2e::mix::Backing;
using faultline::e2e::mix::Plan;

bool has_hugetlb() {
  void* memory = mmap(nullptr, mix::kHugeBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (memory == MAP_FAILED) return false;
  munmap(memory, mix::kHugeBytes);
  return true;
}

std::vector<Plan> make_plans(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto some = [&random] { return 16 + static_cast<size_t>(random() % 49); };
  std::vector<Plan> plans{
      {Backing::anonymous, true, 64},
      {Backing::anonymous, false, some()},
      {Backing::anonymous, false, 64},
      {Backing::anonymous_huge, true, mix::kHugeBytes / mix::kPageBytes},
      {Backing::anonymous_huge, false, mix::kHugeBytes / mix::kPageBytes},
      {Backing::memfd, true, some()},
      {Backing::memfd, false, some()},
      {Backing::file_private, true, some()},
      {Backing::file_private, false, some()},
      {Backing::file_shared, false, some()},
  };
  if (faultline::test::has_huge_pages_alone() && has_hugetlb())
    plans.push_back({Backing::hugetlb, false, mix::kHugeBytes / mix::kPageBytes});
  return plans;
}

struct DeviceWishes {
  uint64_t pin_budget_mib = 1024;
  std::string progress = "auto";
};

void write_config(const std::string& path, const char* role, const std::string& socket, const char* ip,
                  const DeviceWishes& wishes) {
  std::ofstream(path) << "[odp]\npin_budget_mib = " << wishes.pin_budget_mib
                      << "\n[[device]]\nname = \"faultline0\"\nprogress = \"" << wishes.progress
                      << "\"\nip = \"" << ip << "/24\"\n[device.port]\nkind = \"memif\"\nrole = \"" << role
                      << "\"\nsocket = \"" << socket << "\"\n";
}

}  // namespace

int faultline_odp_mix(int argc, char** argv) try {
  mix::OwnerOptions options;
  uint64_t seed = 1;
  DeviceWishes wishes;
  // RNR retries are finite: a fault must not use them up at a requester of our own.
  unsigned rnr_retry = 3;
  unsigned timeout = kPatientTimeout;
  bool strict_lines = false;
  std::vector<std::string> calls;
  std::vector<std::string> without;
  faultline::CommandLine app{"On-demand memory under everything that a program can do to it"};
  app.add("--amount", options.amount, "Of work: how many times the least of one run").show_default();
  app.add("--seed", seed, "Of the random choices").show_default();
  app.add("--pin-budget-mib", wishes.pin_budget_mib, "Of the devices").show_default();
  app.add("--progress", wishes.progress, "Of the devices").one_of({"auto", "dedicated"}).show_default();
  app.add("--fill-descriptors", options.fill_descriptors,
          "The owner has no free descriptor while the mix runs");
  app.add("--rnr-retry", rnr_retry, "Of the QPs; 7: without end").in_range(0, 7).show_default();
  app.add("--timeout", timeout, "Of the QPs, as ibv_modify_qp takes it").in_range(1, 31).show_default();
  app.add("--strict-lines", strict_lines, "No line may be torn, not even by a hole punched under a copy");
  app.add("--calls", calls, "Only these").as_list();
  app.add("--without", without, "All but these").as_list();
  if (app.parse(argc, argv) != faultline::CommandLine::Outcome::parsed) return app.report();
  const std::span<const char* const> names = mix::calls_of_mix();
  for (const char* name : names) {
    const auto in = [name](const std::vector<std::string>& list) {
      return std::find(list.begin(), list.end(), name) != list.end();
    };
    options.calls.push_back((calls.empty() || in(calls)) && !in(without));
  }

  const bool may_tear = !strict_lines && mix::loses_unseen(options.calls);
  std::string folder = (std::filesystem::temp_directory_path() / "faultline-mix-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) fail("main", "mkdtemp");
  write_config(folder + "/owner.toml", "server", folder + "/wire.sock", "198.18.0.1", wishes);
  write_config(folder + "/peer.toml", "client", folder + "/wire.sock", "198.18.0.2", wishes);
  const mix::Shared shared(
      make_plans(seed), seed,
      {.timeout = static_cast<uint8_t>(timeout), .rnr_retry = static_cast<uint8_t>(rnr_retry)}, may_tear);
  const auto start = [&folder](const auto& life) {
    const pid_t child = fork();
    if (child != 0) return child;
    // Whoever ends this process ends all three.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int status = life(folder);
    std::fflush(stdout);
    std::_Exit(status);
  };
  const pid_t owner =
      start([&](const std::string& in) { return mix::run_owner(in + "/owner.toml", shared, options); });
  const pid_t peer = start([&](const std::string& in) { return mix::run_peer(in + "/peer.toml", shared); });
  if (owner < 0 || peer < 0) fail("main", "fork");
  const int status = mix::watch(shared.head(), owner, peer);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  std::printf("odp_mix: %s\n", status == 0 ? "ok" : "FAILED");
  return status;
} catch (const std::exception& error) {
  std::fprintf(stderr, "odp_mix: %s\n", error.what());
  return 1;
}
