// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/doctor.hpp"

#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include "apps/faultline/devices.hpp"
#include "apps/faultline/probe.hpp"

namespace faultline::cli {
namespace {

constexpr const char* kRuns = "verbs programs run here";
constexpr const char* kRunsNot = "verbs programs do not run here";

std::string line_of(std::string_view name, const Finding& finding) {
  std::string line = fmt::format("{:<19} {:<8} {}", name, text_of(finding.state), finding.reason);
  if (finding.state != State::ok) line += fmt::format("; lost: {}; to mend: {}", finding.lost, finding.mend);
  // A reason may be a program's line.
  std::ranges::replace(line, '\n', ' ');
  return line + "\n";
}

const Finding& deciding_one(const std::vector<Finding>& findings) {
  const auto rows = checks();
  const auto row = std::ranges::find(rows, kDecidingCheck, &Check::name);
  return findings[static_cast<size_t>(row - rows.begin())];
}

std::vector<Finding> find_all(const Facts& facts) {
  std::vector<Finding> findings;
  for (const Check& check : checks()) findings.push_back(check.find(facts));
  return findings;
}

}  // namespace

std::string doctor_page(const Facts& facts, bool as_json) {
  const std::vector<Finding> findings = find_all(facts);
  const bool runs = deciding_one(findings).state != State::missing;
  const auto rows = checks();
  if (as_json) {
    nlohmann::ordered_json page{{"programs_run", runs}, {"checks", nlohmann::ordered_json::array()}};
    for (size_t i = 0; i < rows.size(); ++i)
      page["checks"].push_back({{"name", rows[i].name},
                                {"state", text_of(findings[i].state)},
                                {"reason", findings[i].reason},
                                {"lost", findings[i].lost},
                                {"mend", findings[i].mend}});
    return page.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }
  std::string page;
  for (size_t i = 0; i < rows.size(); ++i) page += line_of(rows[i].name, findings[i]);
  return page + (runs ? kRuns : kRunsNot) + "\n";
}

bool do_programs_run(const Facts& facts) {
  return deciding_one(find_all(facts)).state != State::missing;
}

int run_doctor(const DeviceChoice& devices, bool as_json) {
  Facts facts;
  facts.host = gather_host_facts();
  facts.devices = text_of(devices);
  if (facts.devices.empty()) {
    // A name that no user's wire has, so that the probe disturbs none. Its switch ends five seconds later.
    facts.devices = "a wire of its own";
    facts.program = ask_probe({.wire = fmt::format("doctor-{}", getpid())}, kProbeTransfer);
    if (!do_programs_run(facts) && facts.program.has_library)
      facts.by_udp = ask_probe({.udp = "default"}, kProbeTransfer);
  } else {
    facts.program = ask_probe(devices, kProbeTransfer);
  }
  std::fputs(doctor_page(facts, as_json).c_str(), stdout);
  return do_programs_run(facts) ? 0 : 1;
}

}  // namespace faultline::cli
