// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/trouble/scenario_file.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <sstream>

#include <arpa/inet.h>
#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>
#include <toml++/toml.h>

#include "pmd_glue/config/config.hpp"
#include "pmd_glue/config/config_reader.hpp"
#include "stack/trouble/calls.hpp"
#include "stack/trouble/names.hpp"
#include "stack/wire/link/address_text.hpp"

namespace faultline::glue {
namespace {

using trouble::Condition;
using trouble::EventKind;

constexpr uint64_t kNsPerMs = 1'000'000;
constexpr size_t kDeepest = 8;  ///< of nested conditions

/// Returns an IPv4 or IPv6 address (inet_pton(3)).
std::optional<wire::Gid> parse_address(const std::string& text) {
  wire::Gid gid;
  if (inet_pton(AF_INET6, text.c_str(), gid.bytes.data()) == 1) return gid;
  in_addr ipv4{};
  if (inet_pton(AF_INET, text.c_str(), &ipv4) != 1) return std::nullopt;
  return wire::Gid::from_ipv4(ntohl(ipv4.s_addr));
}

class ScenarioReader {
 public:
  explicit ScenarioReader(const std::string& path) : path_(path) {}

  trouble::Scenario read(const toml::table& file);

 private:
  [[noreturn]] void fail(const toml::node& node, const std::string& message) const {
    throw ConfigError(config_error_line(path_, std::max(node.source().begin.line, 1U), message));
  }
  void check_keys(const toml::table& table, std::string_view what,
                  std::initializer_list<std::string_view> known) const;
  [[nodiscard]] std::string text(const toml::table& table, std::string_view key) const;
  [[nodiscard]] uint64_t number(const toml::table& table, std::string_view key, uint64_t otherwise,
                                uint64_t most = INT64_MAX) const;
  [[nodiscard]] const toml::table& table_of(const toml::table& table, std::string_view key,
                                            std::string_view what) const;
  [[nodiscard]] Condition read_condition(const toml::table& table, size_t depth);
  [[nodiscard]] Condition read_parts(const toml::node& list, Condition::Kind kind, size_t depth);
  /// Returns whether the table names an event.
  [[nodiscard]] bool read_event(const toml::table& table, Condition& leaf) const;
  /// Returns the address in the form of its packets; "" without one.
  [[nodiscard]] std::string read_peer(const toml::table& table, EventKind event) const;
  [[nodiscard]] Condition read_counter(const toml::table& table);
  [[nodiscard]] trouble::Action read_do(const toml::table& table) const;
  void read_rule(const toml::table& table, size_t number, trouble::Scenario& scenario);
  void check_places(const toml::table& table, const trouble::Rule& rule) const;
  void check_after(const trouble::Scenario& scenario, const toml::table& file) const;

  const std::string& path_;
  bool illegal_ = false;
  uint32_t leaves_ = 0;
  std::vector<std::string> after_;
};

void ScenarioReader::check_keys(const toml::table& table, std::string_view what,
                                std::initializer_list<std::string_view> known) const {
  for (const auto& [key, node] : table)
    if (std::ranges::find(known, key.str()) == known.end())
      fail(node, fmt::format("{}{}: unknown key; known here: {}", what, key.str(), fmt::join(known, ", ")));
}

std::string ScenarioReader::text(const toml::table& table, std::string_view key) const {
  const toml::node* const node = table.get(key);
  if (node == nullptr) return {};
  if (!node->is_string()) fail(*node, fmt::format("{}: must be a text", key));
  auto value = *node->value<std::string>();
  if (value.empty()) fail(*node, fmt::format("{}: is empty", key));
  return value;
}

uint64_t ScenarioReader::number(const toml::table& table, std::string_view key, uint64_t otherwise,
                                uint64_t most) const {
  const toml::node* const node = table.get(key);
  if (node == nullptr) return otherwise;
  const int64_t value = node->is_integer() ? *node->value<int64_t>() : -1;
  if (value < 0 || static_cast<uint64_t>(value) > most)
    fail(*node, fmt::format("{}: must be a whole number from 0 to {}", key, most));
  return static_cast<uint64_t>(value);
}

const toml::table& ScenarioReader::table_of(const toml::table& table, std::string_view key,
                                            std::string_view what) const {
  const toml::node* const node = table.get(key);
  if (node == nullptr) fail(table, fmt::format("{}: needs {}, a table", what, key));
  if (!node->is_table()) fail(*node, fmt::format("{}: must be a table", key));
  return *node->as_table();
}

/// False if no event of this kind can have the name.
bool is_known(EventKind kind, std::string_view name) {
  switch (kind) {
    case EventKind::call:
      return trouble::is_known_call(name);
    case EventKind::async_event:
      return trouble::is_async_event(name);
    case EventKind::cm_event:
      return trouble::is_cm_event(name);
    default:
      return true;
  }
}

bool ScenarioReader::read_event(const toml::table& table, Condition& leaf) const {
  struct Key {
    std::string_view key;
    EventKind kind;
  };
  constexpr auto kKeys = std::to_array<Key>({{"call", EventKind::call},
                                             {"send", EventKind::send},
                                             {"packet", EventKind::packet},
                                             {"fault", EventKind::fault},
                                             {"poll", EventKind::poll},
                                             {"request", EventKind::request},
                                             {"receive", EventKind::receive},
                                             {"list", EventKind::list},
                                             {"event", EventKind::async_event},
                                             {"cm_event", EventKind::cm_event}});
  bool found = false;
  for (const Key& one : kKeys) {
    const std::string name = text(table, one.key);
    if (name.empty()) continue;
    if (found) fail(*table.get(one.key), fmt::format("{}: a table names one event; use any or all", one.key));
    found = true;
    leaf.event = one.kind;
    const bool has_names = one.kind == EventKind::call || one.kind == EventKind::send ||
                           one.kind == EventKind::packet || one.kind == EventKind::async_event ||
                           one.kind == EventKind::cm_event;
    if (name != "*" && !has_names) fail(*table.get(one.key), fmt::format("{}: must be \"*\"", one.key));
    if (has_names) leaf.name = name;
    if (one.kind == EventKind::packet && !name.starts_with("in ") && !name.starts_with("out "))
      fail(*table.get(one.key), "packet: must be \"in OPCODE\" or \"out OPCODE\", such as \"out rc_write*\"");
    if (!is_known(one.kind, name))
      fail(*table.get(one.key),
           fmt::format("{}: \"{}\" is unknown: see docs/trouble/trouble.md", one.key, name));
  }
  return found;
}

std::string ScenarioReader::read_peer(const toml::table& table, EventKind event) const {
  const std::string address = text(table, "peer");
  if (address.empty()) return {};
  const toml::node& node = *table.get("peer");
  if (event != EventKind::packet) fail(node, "peer: needs `packet` in the same table");
  const auto gid = parse_address(address);
  if (!gid) fail(node, fmt::format("peer: \"{}\" is no IP address, such as \"198.18.0.1\"", address));
  return wire::text_of(*gid);
}

Condition ScenarioReader::read_counter(const toml::table& table) {
  Condition condition{.kind = Condition::Kind::counter, .counter = text(table, "counter")};
  condition.leaf = leaves_++;
  condition.least = number(table, "least", 1);
  if (condition.counter.empty()) fail(*table.get("least"), "least: needs `counter` in the same table");
  constexpr auto kComponents =
      std::to_array<std::string_view>({"odp.", "transport.", "parse.", "drop.", "port."});
  if (std::ranges::none_of(
          kComponents, [&](std::string_view component) { return condition.counter.starts_with(component); }))
    fail(*table.get("counter"), fmt::format("counter: \"{}\": must begin with one of {}", condition.counter,
                                            fmt::join(kComponents, ", ")));
  return condition;
}

Condition ScenarioReader::read_parts(const toml::node& list, Condition::Kind kind, size_t depth) {
  Condition condition{.kind = kind};
  const toml::array* const parts = list.as_array();
  if (parts == nullptr || parts->empty()) fail(list, "any and all: must be lists of tables");
  for (const toml::node& part : *parts) {
    if (!part.is_table()) fail(part, "any and all: must be lists of tables");
    condition.parts.push_back(read_condition(*part.as_table(), depth + 1));
  }
  return condition;
}

Condition ScenarioReader::read_condition(const toml::table& table, size_t depth) {
  if (depth > kDeepest) fail(table, fmt::format("when: more than {} tables within each other", kDeepest));
  check_keys(table, "when.",
             {"call",   "send",        "packet",     "fault", "poll",    "request", "receive",  "list",
              "event",  "cm_event",    "nth",        "from",  "every",   "qp",      "thread",   "object",
              "device", "least_bytes", "most_bytes", "peer",  "counter", "least",   "since_ms", "before_ms",
              "after",  "before",      "command",    "any",   "all"});
  Condition all;
  Condition leaf{.kind = Condition::Kind::event};
  bool has_event = read_event(table, leaf);
  if (const std::string command = text(table, "command"); !command.empty()) {
    // Beside another event it is a state; alone it is the event.
    if (has_event) {
      all.parts.push_back({.kind = Condition::Kind::commanded, .command = command});
    } else {
      has_event = true;
      leaf.event = EventKind::command;
      leaf.name = command;
    }
  }
  if (has_event) {
    leaf.object = text(table, "object");
    leaf.device = text(table, "device");
    leaf.nth = number(table, "nth", 0);
    leaf.from = number(table, "from", 0);
    leaf.every = number(table, "every", 0);
    leaf.least_bytes = number(table, "least_bytes", 0);
    leaf.most_bytes = number(table, "most_bytes", UINT64_MAX);
    if (table.contains("thread")) leaf.thread = static_cast<uint32_t>(number(table, "thread", 0, 0xff'ffff));
    if (table.contains("qp")) leaf.qp = static_cast<uint32_t>(number(table, "qp", 0, 0xff'ffff));
    leaf.peer = read_peer(table, leaf.event);
    leaf.leaf = leaves_++;
    all.parts.push_back(leaf);
  } else {
    for (const std::string_view key :
         {"nth", "from", "every", "qp", "thread", "object", "device", "least_bytes", "most_bytes", "peer"})
      if (const toml::node* const node = table.get(key))
        fail(*node,
             fmt::format("{}: needs an event in the same table: call, send, receive, packet, fault, poll, "
                         "request, list, event, cm_event or command",
                         key));
  }
  for (const auto& [key, kind] :
       {std::pair{"since_ms", Condition::Kind::since}, {"before_ms", Condition::Kind::until}})
    if (table.contains(key))
      all.parts.push_back({.kind = kind, .since_ns = kNsPerMs * number(table, key, 0, 86'400'000)});
  for (const auto& [key, kind] :
       {std::pair{"after", Condition::Kind::after}, {"before", Condition::Kind::before}})
    if (const std::string rule = text(table, key); !rule.empty()) {
      after_.push_back(rule);
      all.parts.push_back({.kind = kind, .after_rule = rule});
    }
  if (table.contains("counter") || table.contains("least")) all.parts.push_back(read_counter(table));
  if (const toml::node* const list = table.get("any"))
    all.parts.push_back(read_parts(*list, Condition::Kind::any, depth));
  if (const toml::node* const list = table.get("all"))
    all.parts.push_back(read_parts(*list, Condition::Kind::all, depth));
  if (all.parts.empty()) fail(table, "when: is empty");
  return all;
}

trouble::Action ScenarioReader::read_do(const toml::table& table) const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (node.is_string())
      json[name] = *node.value<std::string>();
    else if (node.is_integer() && *node.value<int64_t>() >= 0)
      json[name] = static_cast<uint64_t>(*node.value<int64_t>());
    else
      fail(node, fmt::format("do.{}: must be a text or a whole number", name));
  }
  trouble::Action action;
  if (const std::string wrong = read_action(json, action); !wrong.empty()) fail(table, "do." + wrong);
  return action;
}

bool names_event(const Condition& condition, EventKind kind) {
  if (condition.kind == Condition::Kind::event) return condition.event == kind;
  return std::ranges::any_of(condition.parts,
                             [kind](const Condition& part) { return names_event(part, kind); });
}

bool names_any_event(const Condition& condition) {
  if (condition.kind == Condition::Kind::event) return true;
  return std::ranges::any_of(condition.parts, names_any_event);
}

/// Events that have a region.
bool names_memory(const Condition& condition) {
  return names_event(condition, EventKind::fault) || names_event(condition, EventKind::packet) ||
         names_event(condition, EventKind::send) || names_event(condition, EventKind::receive);
}

/// A rule whose events and action exclude each other would never act.
void ScenarioReader::check_places(const toml::table& table, const trouble::Rule& rule) const {
  const auto place = place_of(rule.action.kind);
  if (concern_of(rule.action.kind) == trouble::kConcernsCm && names_any_event(rule.when) &&
      !names_event(rule.when, EventKind::call) && !names_event(rule.when, EventKind::cm_event))
    fail(table, fmt::format("{}: never acts: cm_event acts at calls of rdma_cm and their events", rule.name));
  if (place && names_any_event(rule.when) && !names_event(rule.when, *place))
    fail(table,
         fmt::format("{}: never acts: `do` acts on another kind of event than `when` waits for", rule.name));
  if (rule.action.kind == trouble::Action::Kind::page_out && names_any_event(rule.when) &&
      !names_memory(rule.when))
    fail(table,
         fmt::format("{}: never acts: page_out needs a fault, a packet, a send or a receive", rule.name));
  if (illegal_) return;
  if (const std::string why = why_illegal(rule.action, rule.when); !why.empty())
    fail(table, fmt::format("{}: {}; illegal = true allows it", rule.name, why));
}

void ScenarioReader::read_rule(const toml::table& table, size_t number_of_rule, trouble::Scenario& scenario) {
  check_keys(table, "rule.", {"name", "when", "do", "times", "probability"});
  const std::string name = text(table, "name");
  const toml::table& when = table_of(table, "when", "rule");
  const trouble::Action action = read_do(table_of(table, "do", "rule"));
  if (when.contains("at")) {
    check_keys(when, "when.", {"at", "object", "n"});
    trouble::Exact exact{name.empty() ? fmt::format("rule {}", number_of_rule) : name, text(when, "at"),
                         text(when, "object"), number(when, "n", 0), action};
    if (exact.object.empty() || exact.n == 0) fail(when, "when: `at` needs object and n");
    if (const std::string wrong = fit_to_event(exact); !wrong.empty()) fail(table, wrong);
    scenario.exact.push_back(std::move(exact));
    return;
  }
  trouble::Rule rule;
  rule.name = name.empty() ? fmt::format("rule {}", number_of_rule) : name;
  rule.when = read_condition(when, 0);
  rule.action = action;
  if (action.kind == trouble::Action::Kind::fail_send && names_event(rule.when, EventKind::receive)) {
    std::string wrong = make_of_receive(rule.action);
    if (wrong.empty() && names_event(rule.when, EventKind::send))
      wrong = "status: of sends or of receives, not of both";
    if (!wrong.empty()) fail(table, fmt::format("{}: {}", rule.name, wrong));
  }
  rule.times = number(table, "times", 1);
  if (const toml::node* const node = table.get("probability")) {
    const auto value = node->value<double>();
    if (!node->is_number() || !value || *value <= 0 || *value > 1)
      fail(*node, "probability: must be more than 0, at most 1");
    rule.probability = *value;
  }
  check_places(table, rule);
  scenario.rules.push_back(std::move(rule));
}

void ScenarioReader::check_after(const trouble::Scenario& scenario, const toml::table& file) const {
  for (const std::string& name : after_)
    if (std::ranges::find(scenario.rules, name, &trouble::Rule::name) == scenario.rules.end())
      fail(file, fmt::format("after and before: no rule has the name \"{}\"", name));
}

trouble::Scenario ScenarioReader::read(const toml::table& file) {
  check_keys(file, "", {"name", "seed", "illegal", "rule"});
  trouble::Scenario scenario;
  scenario.name = text(file, "name");
  scenario.seed = number(file, "seed", 1);
  if (const toml::node* const node = file.get("illegal")) {
    if (!node->is_boolean()) fail(*node, "illegal: must be true or false");
    scenario.illegal = illegal_ = *node->value<bool>();
  }
  const toml::node* const list = file.get("rule");
  if (list == nullptr) fail(file, "has no [[rule]]");
  const toml::array* const rules = list->as_array();
  if (rules == nullptr || rules->empty()) fail(*list, "rule: must be [[rule]] tables");
  size_t number_of_rule = 0;
  for (const toml::node& node : *rules) {
    if (!node.is_table()) fail(node, "rule: must be [[rule]] tables");
    read_rule(*node.as_table(), ++number_of_rule, scenario);
  }
  check_after(scenario, file);
  return scenario;
}

}  // namespace

trouble::Scenario parse_scenario(const std::string& text, const std::string& path) {
  try {
    return ScenarioReader(path).read(toml::parse(text, path));
  } catch (const toml::parse_error& error) {
    throw ConfigError(config_error_line(path, error.source().begin.line, error.description()));
  }
}

trouble::Scenario load_scenario(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    throw ConfigError(fmt::format("faultline: {}: the scenario cannot be read: does the file exist?", path));
  return parse_scenario(text.str(), path);
}

}  // namespace faultline::glue
