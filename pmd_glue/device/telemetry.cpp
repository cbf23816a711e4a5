// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/device/telemetry.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include <rte_telemetry.h>
#include <rte_version.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include "pmd_glue/device/registry.hpp"
#include "stack/trouble/director.hpp"
#include "stack/verbs/objects/counter_list.hpp"

namespace faultline::glue {
namespace {

#if RTE_VERSION >= RTE_VERSION_NUM(23, 3, 0, 0)
constexpr auto add_unsigned = rte_tel_data_add_dict_uint;
#else
constexpr auto add_unsigned = rte_tel_data_add_dict_u64;
#endif

/// DPDK allows letters, digits, '_' and '/' in a name.
std::string telemetry_name(const verbs::CounterText& text) {
  std::string name = text.name;
  std::replace(name.begin(), name.end(), '.', '/');
  return name;
}

int list_running(const char* /*command*/, const char* /*parameters*/, rte_tel_data* data) {
  rte_tel_data_start_array(data, RTE_TEL_STRING_VAL);
  for (const std::string& name : Registry::instance().running())
    rte_tel_data_add_array_string(data, name.c_str());
  return 0;
}

int show_units(const char* /*command*/, const char* /*parameters*/, rte_tel_data* data) {
  rte_tel_data_start_dict(data);
  for (const verbs::CounterText& text : verbs::counter_texts()) {
    const std::string words = std::string(name_of(text.kind)) + ' ' + std::string(text.unit);
    if (const int error = rte_tel_data_add_dict_string(data, telemetry_name(text).c_str(), words.c_str());
        error != 0)
      return error;
  }
  return 0;
}

/// One answer has no room for all help texts, so each has those of one component.
int show_help(const char* /*command*/, const char* parameters, rte_tel_data* data) {
  const std::string component = std::string(parameters != nullptr ? parameters : "") + '.';
  rte_tel_data_start_dict(data);
  for (const verbs::CounterText& text : verbs::counter_texts()) {
    if (text.name.rfind('.') + 1 != component.size() || !text.name.starts_with(component)) continue;
    if (const int error = rte_tel_data_add_dict_string(data, telemetry_name(text).c_str(), text.help.c_str());
        error != 0)
      return error;
  }
  return 0;
}

int show_counters(const char* /*command*/, const char* parameters, rte_tel_data* data) {
  const auto device = Registry::instance().find(parameters != nullptr ? parameters : "");
  if (device == nullptr) return -EINVAL;
  rte_tel_data_start_dict(data);
  const std::vector<verbs::CounterText>& texts = verbs::counter_texts();
  const std::vector<uint64_t> values = verbs::counter_values(*device);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (const int error = add_unsigned(data, telemetry_name(texts[i]).c_str(), values[i]); error != 0)
      return error;
  }
  return 0;
}

/// The answer to a command for a scenario: "ok", or why nothing happened.
std::string give_command(const std::string& name, bool begins) {
  trouble::Director* const director = trouble::director();
  if (director == nullptr) return "the program runs without a scenario";
  if (!director->command(name, begins)) {
    const std::vector<std::string> known = director->commands();
    return known.empty() ? "no rule waits for a command"
                         : fmt::format("no rule waits for it; rules wait for: {}", fmt::join(known, ", "));
  }
  // What the command began takes place in the engines' turns, and a device without work has none.
  Registry& registry = Registry::instance();
  for (const std::string& device : registry.running())
    if (const auto running = registry.find(device)) running->drive();
  return "ok";
}

int begin_command(const char* /*command*/, const char* parameters, rte_tel_data* data) {
  return rte_tel_data_string(data, give_command(parameters != nullptr ? parameters : "", true).c_str());
}

int end_command(const char* /*command*/, const char* parameters, rte_tel_data* data) {
  return rte_tel_data_string(data, give_command(parameters != nullptr ? parameters : "", false).c_str());
}

}  // namespace

void register_telemetry() {
  rte_telemetry_register_cmd("/faultline/devices", list_running, "Names of the running devices");
  rte_telemetry_register_cmd("/faultline/counters", show_counters,
                             "Counters of a device. Parameter: its name");
  rte_telemetry_register_cmd("/faultline/units", show_units, "Kind and unit of each counter");
  rte_telemetry_register_cmd(
      "/faultline/help", show_help,
      "What each counter of a component counts. Parameter: the name before its last '.'");
  rte_telemetry_register_cmd("/faultline/trouble", begin_command,
                             "Begins a command of the program's scenario. Parameter: its name");
  rte_telemetry_register_cmd("/faultline/trouble/end", end_command,
                             "Ends a command of the program's scenario. Parameter: its name");
}

}  // namespace faultline::glue
