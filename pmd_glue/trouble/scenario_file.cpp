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
#include <spdlog/fmt/ranges.h>

#include "pmd_glue/config/config.hpp"
#include "stack/toml/checked_table.hpp"
#include "stack/trouble/calls.hpp"
#include "stack/trouble/names.hpp"
#include "stack/wire/link/address_text.hpp"

namespace faultline::glue {
namespace {

using trouble::Condition;
using trouble::EventKind;

constexpr uint64_t kNsPerMs = 1'000'000;
constexpr size_t kDeepest = 8;  ///< of nested conditions

using Key = std::string_view;
constexpr Key kFileKeys[] = {"name", "seed", "illegal", "rule"};
constexpr Key kRuleKeys[] = {"name", "when", "do", "times", "probability"};
constexpr Key kExactKeys[] = {"at", "object", "n"};
constexpr Key kWhenKeys[] = {"call",       "send",   "packet",  "fault",    "poll",     "request",
                             "receive",    "list",   "event",   "cm_event", "nth",      "from",
                             "every",      "qp",     "thread",  "object",   "device",   "least_bytes",
                             "most_bytes", "peer",   "counter", "least",    "since_ms", "before_ms",
                             "after",      "before", "command", "any",      "all"};
/// Keys of an event, which need one beside them.
constexpr Key kFilterKeys[] = {"nth",    "from",   "every",       "qp",         "thread",
                               "object", "device", "least_bytes", "most_bytes", "peer"};

/// Returns an IPv4 or IPv6 address (inet_pton(3)).
std::optional<wire::Gid> parse_host(const std::string& text) {
  wire::Gid gid;
  if (inet_pton(AF_INET6, text.c_str(), gid.bytes.data()) == 1) return gid;
  in_addr ipv4{};
  if (inet_pton(AF_INET, text.c_str(), &ipv4) != 1) return std::nullopt;
  return wire::Gid::from_ipv4(ntohl(ipv4.s_addr));
}

class ScenarioReader {
 public:
  trouble::Scenario read(CheckedTable file);

 private:
  [[nodiscard]] Condition read_condition(CheckedTable& table, size_t depth);
  [[nodiscard]] Condition read_parts(std::vector<CheckedTable> tables, Condition::Kind kind, size_t depth);
  /// Returns whether the table names an event.
  [[nodiscard]] bool read_event(CheckedTable& table, Condition& leaf) const;
  /// Returns the address in the form of its packets; "" without one.
  [[nodiscard]] std::string read_peer(CheckedTable& table, EventKind event) const;
  [[nodiscard]] Condition read_counter(CheckedTable& table);
  [[nodiscard]] trouble::Action read_do(const CheckedTable& table) const;
  void read_rule(CheckedTable& table, size_t number, trouble::Scenario& scenario);
  void check_places(const CheckedTable& table, const trouble::Rule& rule) const;
  void check_after(const trouble::Scenario& scenario, const CheckedTable& file) const;

  bool illegal_ = false;
  uint32_t leaves_ = 0;
  std::vector<std::string> after_;
};

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

bool ScenarioReader::read_event(CheckedTable& table, Condition& leaf) const {
  struct EventKey {
    Key key;
    EventKind kind;
  };
  constexpr auto kKeys = std::to_array<EventKey>({{"call", EventKind::call},
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
  for (const EventKey& one : kKeys) {
    const std::string name = table.text(one.key);
    if (name.empty()) continue;
    if (found) table.fail(one.key, "a table names one event; use any or all");
    found = true;
    leaf.event = one.kind;
    const bool has_names = one.kind == EventKind::call || one.kind == EventKind::send ||
                           one.kind == EventKind::packet || one.kind == EventKind::async_event ||
                           one.kind == EventKind::cm_event;
    if (name != "*" && !has_names) table.fail(one.key, "must be \"*\"");
    if (has_names) leaf.name = name;
    if (one.kind == EventKind::packet && !name.starts_with("in ") && !name.starts_with("out "))
      table.fail(one.key, "must be \"in OPCODE\" or \"out OPCODE\", such as \"out rc_write*\"");
    if (!is_known(one.kind, name))
      table.fail(one.key, fmt::format("\"{}\" is unknown: see docs/trouble/trouble.md", name));
  }
  return found;
}

std::string ScenarioReader::read_peer(CheckedTable& table, EventKind event) const {
  const std::string address = table.text("peer");
  if (address.empty()) return {};
  if (event != EventKind::packet) table.fail("peer", "needs `packet` in the same table");
  const auto gid = parse_host(address);
  if (!gid) table.fail("peer", fmt::format("\"{}\" is no IP address, such as \"198.18.0.1\"", address));
  return wire::text_of(*gid);
}

Condition ScenarioReader::read_counter(CheckedTable& table) {
  Condition condition{.kind = Condition::Kind::counter, .counter = table.text("counter"), .least = 1};
  condition.leaf = leaves_++;
  table.read("least", condition.least);
  if (condition.counter.empty()) table.fail("least", "needs `counter` in the same table");
  constexpr auto kComponents =
      std::to_array<std::string_view>({"odp.", "transport.", "parse.", "drop.", "port."});
  if (std::ranges::none_of(
          kComponents, [&](std::string_view component) { return condition.counter.starts_with(component); }))
    table.fail("counter", fmt::format("\"{}\": must begin with one of {}", condition.counter,
                                      fmt::join(kComponents, ", ")));
  return condition;
}

Condition ScenarioReader::read_parts(std::vector<CheckedTable> tables, Condition::Kind kind, size_t depth) {
  Condition condition{.kind = kind};
  for (CheckedTable& part : tables) condition.parts.push_back(read_condition(part, depth + 1));
  return condition;
}

Condition ScenarioReader::read_condition(CheckedTable& table, size_t depth) {
  if (depth > kDeepest)
    table.fail_whole(fmt::format("{}: more than {} tables within each other", table.name(), kDeepest));
  table.allow_only(kWhenKeys);
  Condition all;
  Condition leaf{.kind = Condition::Kind::event};
  bool has_event = read_event(table, leaf);
  if (const std::string command = table.text("command"); !command.empty()) {
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
    leaf.object = table.text("object");
    leaf.device = table.text("device");
    table.read("nth", leaf.nth);
    table.read("from", leaf.from);
    table.read("every", leaf.every);
    table.read("least_bytes", leaf.least_bytes);
    table.read("most_bytes", leaf.most_bytes);
    if (table.has("thread")) table.read("thread", leaf.thread.emplace(), 0, 0xff'ffff);
    if (table.has("qp")) table.read("qp", leaf.qp.emplace(), 0, 0xff'ffff);
    leaf.peer = read_peer(table, leaf.event);
    leaf.leaf = leaves_++;
    all.parts.push_back(leaf);
  } else {
    for (const Key key : kFilterKeys)
      if (table.has(key))
        table.fail(key,
                   "needs an event in the same table: call, send, receive, packet, fault, poll, request, "
                   "list, event, cm_event or command");
  }
  for (const auto& [key, kind] :
       {std::pair{"since_ms", Condition::Kind::since}, {"before_ms", Condition::Kind::until}})
    if (table.has(key))
      all.parts.push_back({.kind = kind, .since_ns = kNsPerMs * table.number(key, 0, 0, 86'400'000)});
  for (const auto& [key, kind] :
       {std::pair{"after", Condition::Kind::after}, {"before", Condition::Kind::before}})
    if (const std::string rule = table.text(key); !rule.empty()) {
      after_.push_back(rule);
      all.parts.push_back({.kind = kind, .after_rule = rule});
    }
  if (table.has("counter") || table.has("least")) all.parts.push_back(read_counter(table));
  for (const auto& [key, kind] : {std::pair{"any", Condition::Kind::any}, {"all", Condition::Kind::all}})
    if (table.has(key)) all.parts.push_back(read_parts(table.tables(key), kind, depth));
  if (all.parts.empty()) table.fail_whole(table.name() + ": is empty");
  return all;
}

trouble::Action ScenarioReader::read_do(const CheckedTable& table) const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [key, node] : table.raw()) {
    const std::string name(key.str());
    if (node.is_string())
      json[name] = *node.value<std::string>();
    else if (node.is_integer() && *node.value<int64_t>() >= 0)
      json[name] = static_cast<uint64_t>(*node.value<int64_t>());
    else
      table.fail(name, "must be a string in quotes or a whole number");
  }
  trouble::Action action;
  if (const std::string wrong = read_action(json, action); !wrong.empty())
    table.fail_whole(table.name() + "." + wrong);
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
void ScenarioReader::check_places(const CheckedTable& table, const trouble::Rule& rule) const {
  const auto place = place_of(rule.action.kind);
  if (concern_of(rule.action.kind) == trouble::kConcernsCm && names_any_event(rule.when) &&
      !names_event(rule.when, EventKind::call) && !names_event(rule.when, EventKind::cm_event))
    table.fail_whole(
        fmt::format("{}: never acts: cm_event acts at calls of rdma_cm and their events", rule.name));
  if (place && names_any_event(rule.when) && !names_event(rule.when, *place))
    table.fail_whole(
        fmt::format("{}: never acts: `do` acts on another kind of event than `when` waits for", rule.name));
  if (rule.action.kind == trouble::Action::Kind::page_out && names_any_event(rule.when) &&
      !names_memory(rule.when))
    table.fail_whole(
        fmt::format("{}: never acts: page_out needs a fault, a packet, a send or a receive", rule.name));
  if (illegal_) return;
  if (const std::string why = why_illegal(rule.action, rule.when); !why.empty())
    table.fail_whole(fmt::format("{}: {}; illegal = true allows it", rule.name, why));
}

void ScenarioReader::read_rule(CheckedTable& table, size_t number_of_rule, trouble::Scenario& scenario) {
  table.allow_only(kRuleKeys);
  const std::string name = table.text("name");
  for (const char* const key : {"when", "do"})
    if (!table.has(key)) table.fail_whole(fmt::format("rule: needs {}, a table", key));
  CheckedTable when = table.table("when");
  const trouble::Action action = read_do(table.table("do"));
  if (when.has("at")) {
    when.allow_only(kExactKeys);
    trouble::Exact exact{name.empty() ? fmt::format("rule {}", number_of_rule) : name, when.text("at"),
                         when.text("object"), when.number("n", 0, 0, INT64_MAX), action};
    if (exact.object.empty() || exact.n == 0) when.fail_whole(when.name() + ": `at` needs object and n");
    if (const std::string wrong = fit_to_event(exact); !wrong.empty()) table.fail_whole(wrong);
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
    if (!wrong.empty()) table.fail_whole(fmt::format("{}: {}", rule.name, wrong));
  }
  table.read("times", rule.times);
  rule.probability = table.ratio("probability", rule.probability);
  if (rule.probability <= 0) table.fail("probability", "must be more than 0, at most 1");
  check_places(table, rule);
  scenario.rules.push_back(std::move(rule));
}

void ScenarioReader::check_after(const trouble::Scenario& scenario, const CheckedTable& file) const {
  for (const std::string& name : after_)
    if (std::ranges::find(scenario.rules, name, &trouble::Rule::name) == scenario.rules.end())
      file.fail_whole(fmt::format("after and before: no rule has the name \"{}\"", name));
}

trouble::Scenario ScenarioReader::read(CheckedTable file) {
  file.allow_only(kFileKeys);
  trouble::Scenario scenario;
  scenario.name = file.text("name");
  file.read("seed", scenario.seed);
  file.read("illegal", illegal_);
  scenario.illegal = illegal_;
  if (!file.has("rule")) file.fail_whole("has no [[rule]]");
  size_t number_of_rule = 0;
  for (CheckedTable& rule : file.tables("rule")) read_rule(rule, ++number_of_rule, scenario);
  check_after(scenario, file);
  return scenario;
}

}  // namespace

trouble::Scenario parse_scenario(const std::string& text, const std::string& path) {
  const CheckedFile file{"faultline", path, raise_as<ConfigError>};
  const toml::table table = file.parse(text);
  return ScenarioReader().read({file, &table});
}

trouble::Scenario load_scenario(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    throw ConfigError(fmt::format("faultline: {}: the scenario cannot be read: does the file exist?", path));
  return parse_scenario(text.str(), path);
}

}  // namespace faultline::glue
