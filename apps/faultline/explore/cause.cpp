// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/explore/cause.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "apps/faultline/explore/ddmin.hpp"

namespace faultline::cli {
namespace {

constexpr int kConfirmations = 3;

class CauseSearch {
 public:
  CauseSearch(const Bench& bench, Finding& finding) : bench_(bench), finding_(finding) {}

  /// Takes the seed's run and what it decided.
  void take(const Outcome& outcome) {
    for (size_t i = 0; i < outcome.journals.size(); ++i) {
      Journal journal = outcome.journals[i];
      if (journal.header.empty())
        journal.header =
            make_header(bench_.scenario_name, finding_.seed, bench_.plan.test.programs[i].words[0]);
      finding_.made.insert(finding_.made.end(), journal.decisions.begin(), journal.decisions.end());
      finding_.journals.push_back(std::move(journal));
    }
    finding_.kept = finding_.made;
    keep("run");
  }

  /// Returns whether the replay failed as the seed did. The run's folder is kept then.
  Trial replay(const std::vector<Decision>& decisions, bool is_recorded) {
    Trouble trouble{TroubleKind::replay, finding_.seed, {}, is_recorded};
    for (size_t i = 0; i < finding_.journals.size(); ++i)
      trouble.journals.push_back(journal_text(finding_.journals[i].header, i, decisions));
    ++finding_.replays;
    const Outcome outcome = bench_.run(trouble, "replay");
    if (outcome.is_stopped || !outcome.mistake.empty()) {
      is_stopped_ = true;
      return Trial::unknown;
    }
    if (outcome.verdict.failure != finding_.verdict.failure) return Trial::passes;
    keep("replay");
    finding_.verdict = outcome.verdict;
    return Trial::fails;
  }

  /// Tries the decisions of an earlier seed at once.
  bool is_like(const KnownCauses::Cause& cause) {
    if (replay(cause.decisions, true) != Trial::fails) return false;
    finding_.is_repeatable = true;
    finding_.is_minimal = true;
    finding_.kept = cause.decisions;
    finding_.like = cause.seed;
    return true;
  }

  bool confirm() {
    while (tries_ < kConfirmations && !finding_.is_repeatable && !is_stopped_) {
      ++tries_;
      finding_.is_repeatable = replay(finding_.made, false) == Trial::fails;
    }
    return finding_.is_repeatable;
  }

  /// A failure that the first replay did not repeat depends on chance too: a trial has as many replays.
  Trial trial(const std::vector<Decision>& decisions) {
    Trial result = Trial::passes;
    for (int i = 0; i < tries_ && result == Trial::passes; ++i) result = replay(decisions, false);
    return result;
  }

  void shrink(size_t most_replays) {
    const auto chosen = [this](const Subset& subset) {
      std::vector<Decision> decisions;
      for (const size_t i : subset) decisions.push_back(finding_.made[i]);
      return decisions;
    };
    const Reduction reduction = reduce(finding_.made.size(), most_replays / static_cast<size_t>(tries_),
                                       [&](const Subset& subset) { return trial(chosen(subset)); });
    finding_.kept = chosen(reduction.kept);
    finding_.is_minimal = reduction.is_minimal;
    if (is_stopped_) return;
    if (replay(finding_.kept, true) == Trial::passes)
      finding_.recording_note = "the replay that was recorded did not fail";
  }

  [[nodiscard]] bool is_stopped() const { return is_stopped_; }

 private:
  /// Renames a run's folder to that of the newest failure.
  void keep(const std::string& name) {
    finding_.outputs = bench_.folder + "/failed";
    std::error_code error;
    std::filesystem::remove_all(finding_.outputs, error);
    std::filesystem::rename(bench_.folder + "/" + name, finding_.outputs, error);
  }

  const Bench& bench_;
  Finding& finding_;
  int tries_ = 0;  ///< replays until one failed
  bool is_stopped_ = false;
};

}  // namespace

void KnownCauses::add(const Finding& finding) {
  if (!finding.is_repeatable || !finding.is_minimal || finding.kept.empty()) return;
  const std::lock_guard lock(mutex_);
  causes_.push_back({finding.seed, finding.verdict.failure, finding.kept});
}

std::optional<KnownCauses::Cause> KnownCauses::find(Failure failure, const std::vector<Decision>& made) {
  const std::lock_guard lock(mutex_);
  for (const Cause& cause : causes_) {
    const auto is_made = [&made](const Decision& wanted) {
      return std::ranges::any_of(made, [&wanted](const Decision& one) { return one.is_same(wanted); });
    };
    if (cause.failure == failure && std::ranges::all_of(cause.decisions, is_made)) return cause;
  }
  return std::nullopt;
}

std::optional<Finding> find_cause(const Bench& bench, uint64_t seed, const Outcome& outcome,
                                  size_t most_replays, KnownCauses& known) {
  Finding finding;
  finding.seed = seed;
  finding.verdict = outcome.verdict;
  CauseSearch search(bench, finding);
  search.take(outcome);
  const auto cause = known.find(finding.verdict.failure, finding.made);
  if (!cause || !search.is_like(*cause)) {
    if (!search.is_stopped() && search.confirm()) search.shrink(most_replays);
    if (!finding.is_repeatable) finding.recording_note = "no replay failed";
    if (!search.is_stopped()) known.add(finding);
  }
  if (search.is_stopped()) return std::nullopt;
  return finding;
}

}  // namespace faultline::cli
