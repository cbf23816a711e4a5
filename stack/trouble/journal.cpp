// SPDX-License-Identifier: BSD-3-Clause
#include "stack/trouble/journal.hpp"

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include "stack/trouble/names.hpp"

namespace faultline::trouble {
namespace {

using nlohmann::ordered_json;

constexpr int kVersion = 1;

std::string read_decision(const ordered_json& line, Exact& exact) {
  for (const char* const key : {"rule", "event", "object"})
    if (!line.contains(key) || !line[key].is_string()) return fmt::format("needs \"{}\", a text", key);
  if (!line.contains("n") || !line["n"].is_number_unsigned()) return "needs \"n\", a number";
  if (!line.contains("do") || !line["do"].is_object()) return "needs \"do\", an object";
  exact.rule = line["rule"].get<std::string>();
  exact.event = line["event"].get<std::string>();
  exact.object = line["object"].get<std::string>();
  exact.n = line["n"].get<uint64_t>();
  const std::string wrong = read_action(line["do"], exact.action);
  return wrong.empty() ? fit_to_event(exact) : wrong;
}

std::string read_header(const ordered_json& line, Scenario& scenario) {
  if (!line.contains("faultline_journal") || line["faultline_journal"] != kVersion)
    return fmt::format("is no journal of version {}", kVersion);
  scenario.name = line.value("scenario", "");
  scenario.seed = line.value("seed", uint64_t{1});
  return {};
}

}  // namespace

std::string header_line(const Scenario& scenario, std::string_view program) {
  return ordered_json{{"faultline_journal", kVersion},
                      {"scenario", scenario.name},
                      {"seed", scenario.seed},
                      {"program", program}}
      .dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string decision_line(std::string_view rule, std::string_view event, std::string_view object, uint64_t n,
                          std::string_view action_text) {
  return ordered_json{{"rule", rule},
                      {"event", event},
                      {"object", object},
                      {"n", n},
                      {"do", ordered_json::parse(action_text)}}
      .dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string read_journal(std::string_view text, Scenario& scenario) {
  scenario = {};
  size_t number = 0;
  bool has_header = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty()) continue;
    const ordered_json json = ordered_json::parse(line, nullptr, false);
    if (!json.is_object()) return fmt::format("line {}: is not a JSON object", number);
    Exact exact;
    const bool is_header = json.contains("faultline_journal") || !has_header;
    const std::string wrong = is_header ? read_header(json, scenario) : read_decision(json, exact);
    if (!wrong.empty()) return fmt::format("line {}: {}", number, wrong);
    has_header = true;
    if (!is_header) scenario.exact.push_back(std::move(exact));
  }
  return has_header ? std::string() : "is empty";
}

}  // namespace faultline::trouble
