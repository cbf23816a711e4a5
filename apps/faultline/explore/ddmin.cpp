// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/explore/ddmin.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace faultline::cli {
namespace {

class Search {
 public:
  Search(size_t most_trials, const std::function<Trial(const Subset&)>& trial)
      : most_trials_(most_trials), trial_(trial) {}

  Trial look(const Subset& subset) {
    if (const auto known = known_.find(subset); known != known_.end()) return known->second;
    if (trials_ == most_trials_) return Trial::unknown;
    ++trials_;
    return known_[subset] = trial_(subset);
  }
  [[nodiscard]] size_t trials() const { return trials_; }

 private:
  size_t most_trials_;
  const std::function<Trial(const Subset&)>& trial_;
  std::map<Subset, Trial> known_;
  size_t trials_ = 0;
};

/// Part `part` of `parts` of about equal size.
Subset part_of(const Subset& whole, size_t part, size_t parts) {
  const auto begin = static_cast<std::ptrdiff_t>(whole.size() * part / parts);
  const auto end = static_cast<std::ptrdiff_t>(whole.size() * (part + 1) / parts);
  return {whole.begin() + begin, whole.begin() + end};
}

Subset without(const Subset& whole, const Subset& part) {
  Subset rest;
  std::ranges::set_difference(whole, part, std::back_inserter(rest));
  return rest;
}

enum class Step : uint8_t { to_part, to_rest, none, stopped };

/// Tries the parts, then what is left without each. A subset that fails replaces `kept`.
Step step(Search& search, Subset& kept, size_t parts) {
  for (const Step kind : {Step::to_part, Step::to_rest}) {
    // With two parts, the rest without one is the other.
    if (kind == Step::to_rest && parts == 2) break;
    for (size_t part = 0; part < parts; ++part) {
      Subset tried = part_of(kept, part, parts);
      if (kind == Step::to_rest) tried = without(kept, tried);
      const Trial result = search.look(tried);
      if (result == Trial::unknown) return Step::stopped;
      if (result == Trial::passes) continue;
      kept = std::move(tried);
      return kind;
    }
  }
  return Step::none;
}

}  // namespace

Reduction reduce(size_t count, size_t most_trials, const std::function<Trial(const Subset&)>& trial) {
  Search search(most_trials, trial);
  Subset kept(count);
  std::iota(kept.begin(), kept.end(), size_t{0});
  size_t parts = 2;
  bool is_minimal = true;
  while (kept.size() >= 2) {
    const Step done = step(search, kept, parts);
    if (done == Step::to_part) {
      parts = 2;
    } else if (done == Step::to_rest) {
      parts = std::max<size_t>(parts - 1, 2);
    } else if (done == Step::none && parts < kept.size()) {
      parts = std::min(parts * 2, kept.size());
    } else {
      is_minimal = done == Step::none;
      break;
    }
  }
  return {std::move(kept), is_minimal, search.trials()};
}

}  // namespace faultline::cli
