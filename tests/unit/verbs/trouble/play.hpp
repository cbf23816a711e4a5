// SPDX-License-Identifier: BSD-3-Clause
// A scenario for devices in memory. Devices are opened while it is there, and closed before it ends.
#pragma once

#include <string>
#include <vector>

#include "pmd_glue/trouble/scenario_file.hpp"
#include "stack/base/clock.hpp"
#include "stack/trouble/director.hpp"

namespace faultline::verbs::test {

class Play {
 public:
  explicit Play(const std::string& toml)
      : director_(glue::parse_scenario(toml, "test.toml"), monotonic_ns,
                  [this](const std::string& line) { lines_.push_back(line); }) {
    trouble::set_director(&director_);
  }
  ~Play() { trouble::set_director(nullptr); }
  Play(const Play&) = delete;
  Play& operator=(const Play&) = delete;

  /// The rules that wait for `after = "armed"` may decide from now on.
  void arm() {
    static_cast<void>(director_.decide({.kind = trouble::EventKind::cm_event, .name = kGo, .object = {}}));
    lines_.clear();
  }
  /// The journal since arm(). No thread decides meanwhile.
  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }

  /// The text of a rule that decides once, after arm().
  static std::string rule(const std::string& when, const std::string& action, const std::string& rest = "") {
    return "[[rule]]\nname = \"armed\"\nwhen = { cm_event = \"" + std::string(kGo) +
           "\" }\ndo = { link = \"up\" }\n[[rule]]\nname = \"r\"\nwhen = { after = \"armed\", " + when +
           " }\ndo = { " + action + " }\n" + rest;
  }

 private:
  static constexpr const char* kGo = "RDMA_CM_EVENT_TIMEWAIT_EXIT";
  std::vector<std::string> lines_;
  trouble::Director director_;
};

}  // namespace faultline::verbs::test
