// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/prompt/settings.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "apps/perf/plan/plan.hpp"

namespace faultline::perf {

namespace {

template <typename Value>
std::vector<std::string> names_of(const std::map<std::string, Value>& values) {
  std::vector<std::string> names;
  names.reserve(values.size());
  for (const auto& [name, value] : values) names.push_back(name);
  return names;
}

template <typename Value>
std::optional<Value> value_of(const std::map<std::string, Value>& values, const std::string& name) {
  const auto found = values.find(name);
  if (found == values.end()) return std::nullopt;
  return found->second;
}

/// Returns the number if `text` is one between `least` and `most`.
template <typename Number>
std::optional<Number> number_from(const std::string& text, Number least, Number most) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (!(number >= least && number <= most)) return std::nullopt;
  return number;
}

/// Stores `value` if there is one. Returns whether there is.
template <typename Target, typename Value>
bool store(Target& target, const std::optional<Value>& value) {
  if (value) target = *value;
  return value.has_value();
}

/// Stores 0 for `word`, and otherwise a number between `least` and `most`.
template <typename Number>
bool store_or_zero(Number& target, const char* word, const std::string& text, Number least, Number most) {
  if (text == word) {
    target = 0;
    return true;
  }
  return store(target, number_from(text, least, most));
}

std::string text_or(const char* word, uint64_t number) {
  return number == 0 ? word : std::to_string(number);
}

bool set_op(Settings& to, const std::string& text) {
  const auto op = value_of(ops_by_name(), text);
  if (op) to.test.ops = {*op};
  return op.has_value();
}

bool set_region(Settings& to, const std::string& text) {
  const auto region = value_of(regions_by_name(), text);
  if (region) to.test.regions = {*region};
  return region.has_value();
}

bool set_size(Settings& to, const std::string& text) {
  const auto size_bytes = size_from(text);
  if (size_bytes) to.test.sizes_bytes = {*size_bytes};
  return size_bytes.has_value();
}

bool set_mtu(Settings& to, const std::string& text) {
  uint32_t mtu_bytes = 0;
  if (!store_or_zero(mtu_bytes, "auto", text, kMtusBytes.front(), to.max_mtu_bytes)) return false;
  if (mtu_bytes != 0 && std::ranges::find(kMtusBytes, mtu_bytes) == kMtusBytes.end()) return false;
  to.test.mtu_bytes = mtu_bytes;
  return true;
}

bool set_verify(Settings& to, const std::string& text) {
  if (text != "on" && text != "off") return false;
  to.test.verify = text == "on";
  return true;
}

std::string depth_text(const Settings& of) {
  if (of.test.depth != 0) return std::to_string(of.test.depth);
  return "auto (" + std::to_string(Plan::depth_for(of.test.sizes_bytes.front())) + ")";
}

std::string mtu_text(const Settings& of) {
  if (of.test.mtu_bytes != 0) return std::to_string(of.test.mtu_bytes);
  return "auto (" + std::to_string(of.max_mtu_bytes) + ")";
}

std::string seconds_text(const Settings& of) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", of.length.seconds);
  return of.length.seconds > 0 ? text : "off";
}

std::vector<std::string> none() {
  return {};
}

std::vector<std::string> mtu_values() {
  std::vector<std::string> values;
  values.reserve(kMtusBytes.size() + 1);
  for (const uint32_t mtu_bytes : kMtusBytes) values.push_back(std::to_string(mtu_bytes));
  values.emplace_back("auto");
  return values;
}

const std::array kSettings{
    Setting{"op", "operation", "write, write_imm, read, send, ud_send",
            [] { return names_of(ops_by_name()); }, set_op,
            [](const Settings& of) -> std::string { return name_of(of.test.ops.front()); }},
    Setting{"mode", "bandwidth or latency", "bw, lat", [] { return names_of(modes_by_name()); },
            [](Settings& to, const std::string& text) {
              return store(to.test.mode, value_of(modes_by_name(), text));
            },
            [](const Settings& of) -> std::string { return name_of(of.test.mode); }},
    Setting{"size", "bytes of a message", "1 to 1g, such as 64, 4k or 1m", none, set_size,
            [](const Settings& of) { return std::to_string(of.test.sizes_bytes.front()); }},
    Setting{"qps", "queue pairs", "1 to 16384", none,
            [](Settings& to, const std::string& text) {
              return store(to.test.qps, number_from(text, 1U, kMaxQps));
            },
            [](const Settings& of) { return std::to_string(of.test.qps); }},
    Setting{"depth", "messages under way of each queue pair", "1 to 8192, or auto",
            [] { return std::vector<std::string>{"auto"}; },
            [](Settings& to, const std::string& text) {
              return store_or_zero(to.test.depth, "auto", text, 1U, kMaxDepth);
            },
            depth_text},
    Setting{"mtu", "path MTU in bytes", "256, 512, 1024, 2048 or 4096 as far as both ports carry it, or auto",
            mtu_values, set_mtu, mtu_text},
    Setting{"region", "kind of memory", "pinned, odp", [] { return names_of(regions_by_name()); }, set_region,
            [](const Settings& of) -> std::string { return name_of(of.test.regions.front()); }},
    Setting{"touch", "state of on-demand memory before a message", "warm, cold, prefetch",
            [] { return names_of(touches_by_name()); },
            [](Settings& to, const std::string& text) {
              return store(to.test.touch, value_of(touches_by_name(), text));
            },
            [](const Settings& of) -> std::string { return name_of(of.test.touch); }},
    Setting{"idle-ms", "latency: pause before each message", "1 to 60000, or off",
            [] { return std::vector<std::string>{"off"}; },
            [](Settings& to, const std::string& text) {
              return store_or_zero(to.test.idle_ms, "off", text, 1U, kMaxIdleMs);
            },
            [](const Settings& of) { return text_or("off", of.test.idle_ms); }},
    Setting{"verify", "compare every byte", "on, off",
            [] {
              return std::vector<std::string>{"on", "off"};
            },
            set_verify, [](const Settings& of) -> std::string { return of.test.verify ? "on" : "off"; }},
    Setting{"seconds", "length of a run", "0.01 to 86400, or off: until stop",
            [] { return std::vector<std::string>{"off"}; },
            [](Settings& to, const std::string& text) {
              return store_or_zero(to.length.seconds, "off", text, kMinSeconds, kMaxSeconds);
            },
            seconds_text},
    Setting{"iters", "messages of a run, instead of seconds", "1 or more, or off",
            [] { return std::vector<std::string>{"off"}; },
            [](Settings& to, const std::string& text) {
              return store_or_zero(to.length.iterations, "off", text, uint64_t{1}, UINT64_MAX);
            },
            [](const Settings& of) { return text_or("off", of.length.iterations); }},
};

}  // namespace

std::span<const Setting> settings() {
  return kSettings;
}

const Setting* setting_of(const std::string& name) {
  const auto found =
      std::ranges::find_if(kSettings, [&](const Setting& setting) { return setting.name == name; });
  return found == kSettings.end() ? nullptr : &*found;
}

}  // namespace faultline::perf
