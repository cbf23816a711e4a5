// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/export/prometheus_text.hpp"

#include <algorithm>
#include <map>
#include <string_view>

#include <spdlog/fmt/fmt.h>

#include "stack/status/fault_latencies.hpp"

namespace faultline::cli {

namespace {

constexpr std::string_view kHistogram = "faultline_odp_fault_duration_seconds";

struct Family {
  std::string type;
  std::string help;
  std::string lines;
};
/// By the metric's name: the format wants all lines of one family together.
using Families = std::map<std::string, Family>;

/// Escapes a label's value, or a help text, in which a quote need not be escaped.
std::string escaped(std::string_view value, bool with_quotes = true) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || (c == '"' && with_quotes)) text += '\\';
    if (c == '\n')
      text += "\\n";
    else
      text += c;
  }
  return text;
}

std::string labels_of(const DeviceSamples& device) {
  return fmt::format("device=\"{}\",pid=\"{}\",program=\"{}\"", escaped(device.device), device.process,
                     escaped(device.program));
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// Returns the metric's name: base units, and "_total" for what only increases.
std::string metric_name(const CounterSample& counter) {
  std::string name = "faultline_" + counter.name;
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  std::ranges::replace_if(
      name, [&](char c) { return !is_allowed(c); }, '_');
  if (counter.unit == "ns") replace_all(name, "_ns_", "_seconds_");
  if (counter.kind == "count" && !name.ends_with("_total")) name += "_total";
  return name;
}

std::string value_text(const CounterSample& counter) {
  constexpr double kNsPerSecond = 1e9;
  if (counter.unit == "ns") return fmt::format("{}", static_cast<double>(counter.value) / kNsPerSecond);
  return fmt::format("{}", counter.value);
}

void add_counter(const CounterSample& counter, const std::string& labels, Families& families) {
  const std::string name = metric_name(counter);
  Family& family = families[name];
  if (family.type.empty()) {
    family.type = counter.kind == "count" ? "counter" : counter.kind.empty() ? "untyped" : "gauge";
    family.help = escaped(counter.help.empty() ? counter.name : counter.help, /*with_quotes=*/false);
  }
  family.lines += fmt::format("{}{{{}}} {}\n", name, labels, value_text(counter));
}

/// Adds the buckets of one device.
void add_latencies(const DeviceSamples& device, const std::string& labels, Families& families) {
  const auto kinds = status::fault_latencies(device.counters);
  if (kinds.empty()) return;
  Family& family = families[std::string(kHistogram)];
  family.type = "histogram";
  family.help = "time from the request of a page to its resolution, by the kind of fault";
  for (const auto& [name, buckets] : kinds) {
    const std::string kind = escaped(name);
    uint64_t sum = 0;
    for (const status::LatencyBucket& bucket : buckets) {
      sum += bucket.count;
      const std::string bound = bucket.bound_us == UINT64_MAX
                                    ? "+Inf"
                                    : fmt::format("{}", static_cast<double>(bucket.bound_us) / 1e6);
      family.lines +=
          fmt::format("{}_bucket{{{},kind=\"{}\",le=\"{}\"}} {}\n", kHistogram, labels, kind, bound, sum);
    }
    family.lines += fmt::format("{}_count{{{},kind=\"{}\"}} {}\n", kHistogram, labels, kind, sum);
  }
}

}  // namespace

std::string prometheus_text(std::span<const DeviceSamples> devices) {
  Families families;
  for (const DeviceSamples& device : devices) {
    const std::string labels = labels_of(device);
    for (const CounterSample& counter : device.counters)
      if (!counter.name.starts_with(status::kLatencyPrefix)) add_counter(counter, labels, families);
    add_latencies(device, labels, families);
  }
  std::string text;
  for (const auto& [name, family] : families)
    text += fmt::format("# HELP {} {}\n# TYPE {} {}\n{}", name, family.help, name, family.type, family.lines);
  text += fmt::format(
      "# HELP faultline_devices devices of running programs\n# TYPE faultline_devices gauge\n"
      "faultline_devices {}\n",
      devices.size());
  return text;
}

}  // namespace faultline::cli
