// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/explore/campaign.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "apps/faultline/explore/cause.hpp"
#include "apps/faultline/explore/junit.hpp"
#include "apps/faultline/explore/seed_folder.hpp"

namespace faultline::cli {
namespace {

class Seeds {
 public:
  explicit Seeds(const Campaign& campaign) : campaign_(campaign) {}

  CampaignResult run() {
    {
      std::vector<std::jthread> jobs;
      for (unsigned job = 0; job < campaign_.jobs; ++job) jobs.emplace_back([this, job] { work(job); });
    }
    if (result_.mistake.empty()) conclude();
    return result_;
  }

 private:
  std::optional<uint64_t> next_seed() {
    const std::lock_guard lock(mutex_);
    if (is_over_ || begun_ == campaign_.runs) return std::nullopt;
    return campaign_.first_seed + begun_++;
  }

  void work(unsigned job) {
    const OwnNetwork& network = campaign_.networks[job];
    const Bench bench{campaign_.plan, campaign_.scenario_name, fmt::format("{}/{}", campaign_.scratch, job),
                      job, network.fds()};
    while (const auto seed = next_seed()) try_seed(bench, *seed);
  }

  void try_seed(const Bench& bench, uint64_t seed) {
    const Outcome outcome = bench.run({TroubleKind::seed, seed}, "run");
    if (outcome.is_stopped || !outcome.mistake.empty()) return give_up(outcome.mistake);
    if (outcome.verdict.failure == Failure::none) return note(seed, outcome, {fmt::format("seed {}", seed)});
    const std::optional<Finding> finding = find_cause(bench, seed, outcome, campaign_.shrink_runs, known_);
    if (!finding) return give_up("");
    const std::string folder = fmt::format("{}/seed-{}", campaign_.out, seed);
    const std::string text = text_of(*finding);
    {
      const std::lock_guard lock(print_mutex_);
      std::fputs(text.c_str(), stderr);
    }
    if (const std::string wrong =
            write_seed_folder(folder, campaign_.plan, campaign_.scenario_name, *finding);
        !wrong.empty())
      return give_up(wrong);
    note(seed, outcome,
         {fmt::format("seed {}", seed), std::string(name_of(finding->verdict.failure)), finding->verdict.text,
          text + "files: " + folder + "\n"});
  }

  void note(uint64_t seed, const Outcome& outcome, JunitCase result) {
    const std::lock_guard lock(mutex_);
    if (!result.failure_type.empty()) ++result_.failures;
    for (const Journal& journal : outcome.journals) decisions_ += journal.decisions.size();
    cases_.emplace(seed, std::move(result));
  }

  void give_up(const std::string& mistake) {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    if (result_.mistake.empty()) result_.mistake = mistake;
  }

  void conclude() {
    std::vector<JunitCase> cases;
    for (const auto& [seed, one] : cases_) cases.push_back(one);
    const std::string path = campaign_.out + "/junit.xml";
    std::ofstream file(path, std::ios::trunc);
    file << junit_text("faultline explore: " + campaign_.scenario_name, cases);
    if (!file.flush()) result_.mistake = fmt::format("cannot write {}: {}", path, std::strerror(errno));
    std::fprintf(stderr, "%zu of %llu runs, %llu failed; results in %s\n", cases.size(),
                 static_cast<unsigned long long>(campaign_.runs),
                 static_cast<unsigned long long>(result_.failures), campaign_.out.c_str());
    if (decisions_ == 0 && !cases.empty())
      std::fputs(
          "faultline explore: no run made a decision: no rule of the scenario matched, or the programs do "
          "not run "
          "on Faultline\n",
          stderr);
  }

  const Campaign& campaign_;
  KnownCauses known_;
  std::mutex print_mutex_;
  std::mutex mutex_;  ///< of what follows
  uint64_t begun_ = 0;
  bool is_over_ = false;
  size_t decisions_ = 0;
  std::map<uint64_t, JunitCase> cases_;
  CampaignResult result_;
};

}  // namespace

CampaignResult explore_seeds(const Campaign& campaign) {
  return Seeds(campaign).run();
}

}  // namespace faultline::cli
