// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/explore/run/decision.hpp"

#include <algorithm>
#include <cctype>
#include <optional>
#include <sstream>

#include <spdlog/fmt/fmt.h>
#include <toml++/toml.h>

namespace faultline::cli {
namespace {

using Json = nlohmann::ordered_json;

std::optional<Decision> parse_decision(const Json& json, size_t program, std::string_view line) {
  const auto text = [&json](const char* key) { return json.value(key, std::string()); };
  if (!json.is_object() || !json.contains("event") || !json.contains("n") || !json["n"].is_number_unsigned())
    return std::nullopt;
  Decision decision{program, text("rule"), text("event"), text("object"), json["n"].get<uint64_t>(), {}, ""};
  if (json.contains("do")) decision.action = json["do"];
  decision.line = line;
  return decision;
}

/// The text of a value of `do` in one line: a word without quotes, or JSON.
std::string text_of_value(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// A key of TOML: bare where that is allowed.
std::string key_of(const std::string& key) {
  const bool is_bare = !key.empty() && std::ranges::all_of(key, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  });
  std::ostringstream text;
  if (is_bare) return key;
  text << toml::value<std::string>(key);
  return text.str();
}

/// One TOML value, or an inline table. JSON's null has no form in TOML and is left out of a table.
std::string toml_of(const Json& value) {
  std::ostringstream text;
  if (value.is_object()) {
    std::string pairs;
    for (const auto& [key, inner] : value.items()) {
      if (inner.is_null()) continue;
      pairs += fmt::format("{}{} = {}", pairs.empty() ? "" : ", ", key_of(key), toml_of(inner));
    }
    return pairs.empty() ? "{}" : "{ " + pairs + " }";
  }
  if (value.is_array()) {
    std::string elements;
    for (const Json& inner : value) elements += (elements.empty() ? "" : ", ") + toml_of(inner);
    return "[" + elements + "]";
  }
  if (value.is_string())
    text << toml::value<std::string>(value.get<std::string>());
  else if (value.is_number_float())
    text << toml::value<double>(value.get<double>());
  else
    return value.dump();
  return text.str();
}

}  // namespace

bool Decision::is_same(const Decision& other) const {
  return program == other.program && event == other.event && object == other.object && n == other.n &&
         action == other.action;
}

std::string text_of(const Decision& decision) {
  std::string done;
  if (decision.action.is_object()) {
    for (const auto& [key, value] : decision.action.items())
      done += fmt::format("{}{} {}", done.empty() ? "" : ", ", key, text_of_value(value));
  } else {
    done = decision.action.dump();
  }
  return fmt::format("program {}: {}, {}, n {}: {}", decision.program, decision.event, decision.object,
                     decision.n, done);
}

Journal parse_journal(std::string_view text, size_t program) {
  Journal journal;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("faultline_journal")) {
      if (journal.header.empty()) journal.header = line;
      continue;
    }
    try {
      if (auto decision = parse_decision(json, program, line))
        journal.decisions.push_back(std::move(*decision));
    } catch (const Json::exception&) {
      continue;  // a value of another type: not a decision
    }
  }
  return journal;
}

std::string journal_text(const std::string& header, size_t program, const std::vector<Decision>& kept) {
  std::string text = header + "\n";
  for (const Decision& decision : kept)
    if (decision.program == program) text += decision.line + "\n";
  return text;
}

std::string make_header(const std::string& scenario, uint64_t seed, const std::string& program) {
  Json header;
  header["faultline_journal"] = 1;
  header["scenario"] = scenario;
  header["seed"] = seed;
  header["program"] = program;
  return header.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string scenario_text(const std::string& name, uint64_t seed, size_t program,
                          const std::vector<Decision>& kept) {
  std::string text = fmt::format("name = {}\nseed = {}\n", toml_of(name), seed);
  size_t number = 0;
  for (const Decision& decision : kept) {
    if (decision.program != program) continue;
    // One rule may have made several of the decisions: the number keeps names apart.
    const std::string rule = fmt::format("{}, decision {}", decision.rule, ++number);
    text += fmt::format("\n[[rule]]\nname = {}\nwhen = {{ at = {}, object = {}, n = {} }}\ndo = {}\n",
                        toml_of(rule), toml_of(decision.event), toml_of(decision.object), decision.n,
                        toml_of(decision.action));
  }
  return text;
}

}  // namespace faultline::cli
