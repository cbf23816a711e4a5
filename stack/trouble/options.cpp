// SPDX-License-Identifier: BSD-3-Clause
#include "stack/trouble/options.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

namespace faultline::trouble {
namespace {

using Kind = Action::Kind;

constexpr uint64_t kNsPerUs = 1'000;
constexpr uint64_t kNsPerMs = 1'000'000;
constexpr uint64_t kHourNs = 3'600'000'000'000;
constexpr uint64_t kMostBitsPerSecond = 1'000'000'000'000;
constexpr uint64_t kMostQueueBytes = uint64_t{1} << 30;
constexpr uint64_t kDefaultQueueBytes = uint64_t{1} << 18;  ///< of a port of a shallow switch
constexpr uint64_t kMostPackets = 10'000;
constexpr uint64_t kMostCompletions = 10'000;
constexpr uint64_t kMostTimerCode = 31;     ///< of five bits
constexpr uint64_t kDefaultTimerCode = 12;  ///< 0.64 ms

struct Number {
  Kind kind;
  std::string_view key;
  uint64_t Action::*member;
  uint64_t unit;
  uint64_t least;
  uint64_t most;
  std::optional<uint64_t> otherwise;  ///< without the key; nullopt: the key is needed
};
constexpr auto kNumbers = std::to_array<Number>({
    {Kind::delay, "delay_us", &Action::duration_ns, kNsPerUs, 1, kHourNs / kNsPerUs, {}},
    {Kind::delay, "jitter_us", &Action::jitter_ns, kNsPerUs, 1, kHourNs / kNsPerUs, 0},
    {Kind::delay_call, "delay_us", &Action::duration_ns, kNsPerUs, 1, kHourNs / kNsPerUs, {}},
    {Kind::delay_fault, "delay_us", &Action::duration_ns, kNsPerUs, 1, kHourNs / kNsPerUs, {}},
    {Kind::link_down, "for_ms", &Action::duration_ns, kNsPerMs, 1, kHourNs / kNsPerMs, 0},
    {Kind::moderate, "delay_us", &Action::duration_ns, kNsPerUs, 1, kHourNs / kNsPerUs, {}},
    {Kind::reorder, "by", &Action::amount, 1, 1, kMostPackets, {}},
    {Kind::partition, "for_ms", &Action::duration_ns, kNsPerMs, 1, kHourNs / kNsPerMs, {}},
    {Kind::rate, "bits_per_second", &Action::bits_per_second, 1, 1, kMostBitsPerSecond, {}},
    {Kind::rate, "queue_bytes", &Action::queue_bytes, 1, 1, kMostQueueBytes, kDefaultQueueBytes},
    {Kind::rate, "for_ms", &Action::duration_ns, kNsPerMs, 1, kHourNs / kNsPerMs, 0},
    {Kind::slow, "service_us", &Action::service_ns, kNsPerUs, 1, kHourNs / kNsPerUs, {}},
    {Kind::slow, "for_ms", &Action::duration_ns, kNsPerMs, 1, kHourNs / kNsPerMs, 0},
    {Kind::poll_few, "most", &Action::amount, 1, 1, kMostCompletions, {}},
    {Kind::inject_cnp, "count", &Action::amount, 1, 1, kMostPackets, 1},
    {Kind::inject_rnr, "timer", &Action::amount, 1, 0, kMostTimerCode, kDefaultTimerCode},
});

template <Kind kKind>
bool is(Kind kind) {
  return kind == kKind;
}

template <FlowScope kScope>
void set_flow(Action& action) {
  action.flow = kScope;
}

/// A code of a NAK (IBA 9.7.5.2.5).
template <uint32_t kCode>
void set_code(Action& action) {
  action.number = kCode;
}

struct OptionWord {
  bool (*is_for)(Kind kind);
  std::string_view key;
  std::string_view word;
  void (*apply)(Action& action);
  bool is_needed;
};
constexpr auto kOptionWords = std::to_array<OptionWord>({
    {is<Kind::corrupt>, "icrc", "wrong", [](Action&) {}, false},
    {is<Kind::corrupt>, "icrc", "right", [](Action& action) { action.kind = Kind::corrupt_payload; }, false},
    {changes_flow, "flow", "qp", set_flow<FlowScope::qp>, false},
    {changes_flow, "flow", "peer", set_flow<FlowScope::peer>, false},
    {changes_flow, "flow", "port", set_flow<FlowScope::port>, false},
    {is<Kind::inject_nak>, "syndrome", "psn_sequence", set_code<0>, true},
    {is<Kind::inject_nak>, "syndrome", "invalid_request", set_code<1>, true},
    {is<Kind::inject_nak>, "syndrome", "remote_access", set_code<2>, true},
    {is<Kind::inject_nak>, "syndrome", "remote_operational", set_code<3>, true},
});

std::string read_number(const nlohmann::ordered_json& value, const Number& option, Action& action) {
  // A value that a program puts into a table may be signed.
  const bool is_whole =
      value.is_number_unsigned() || (value.is_number_integer() && value.get<int64_t>() >= 0);
  if (!is_whole) return fmt::format("{}: a whole number is expected", option.key);
  const auto number = value.get<uint64_t>();
  if (number < option.least || number > option.most)
    return fmt::format("{}: from {} to {}", option.key, option.least, option.most);
  action.*option.member = number * option.unit;
  return {};
}

std::string read_word(const nlohmann::ordered_json& value, std::string_view key, Kind kind, Action& action) {
  std::string known;
  for (const OptionWord& word : kOptionWords) {
    if (!word.is_for(kind) || word.key != key) continue;
    if (value == word.word) {
      word.apply(action);
      return {};
    }
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", word.word);
  }
  return fmt::format("{}: known here: {}", key, known);
}

}  // namespace

bool is_option(std::string_view key) {
  return std::ranges::find(kNumbers, key, &Number::key) != kNumbers.end() ||
         std::ranges::find(kOptionWords, key, &OptionWord::key) != kOptionWords.end();
}

std::string read_options(const nlohmann::ordered_json& table, Action& action) {
  const Kind kind = action.kind;
  for (const Number& option : kNumbers) {
    if (option.kind != kind) continue;
    if (const auto value = table.find(option.key); value != table.end()) {
      if (std::string wrong = read_number(*value, option, action); !wrong.empty()) return wrong;
    } else if (option.otherwise) {
      action.*option.member = *option.otherwise;
    } else {
      return fmt::format("needs {}", option.key);
    }
  }
  for (const OptionWord& word : kOptionWords)
    if (word.is_needed && word.is_for(kind) && !table.contains(word.key))
      return fmt::format("needs {}", word.key);
  for (const auto& item : table.items()) {
    const std::string& key = item.key();
    if (!is_option(key)) continue;
    if (std::ranges::any_of(kNumbers, [&](const Number& one) { return one.kind == kind && one.key == key; }))
      continue;
    if (std::ranges::none_of(kOptionWords,
                             [&](const OptionWord& one) { return one.is_for(kind) && one.key == key; }))
      return fmt::format("{}: this action does not take it", key);
    if (std::string wrong = read_word(item.value(), key, kind, action); !wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace faultline::trouble
