// SPDX-License-Identifier: BSD-3-Clause
// docs/configuration.md states the defaults that the code has.
#include <cmath>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <spdlog/fmt/fmt.h>

#include "tests/unit/glue/config_texts.hpp"

namespace faultline::glue::config_defaults_test {
namespace {

constexpr uint64_t kBytesPerMbit = 125'000;

std::string text(bool value) {
  return value ? "true" : "false";
}
template <typename Number>
std::string text(Number value) {
  return fmt::format("{}", value);
}
std::string text(double value) {
  return fmt::format("{:g}", value);
}
std::string percent(double share) {
  return text(std::lround(100 * share));
}

/// Returns the value of each key, by "table.key", in a file whose tables are empty.
std::map<std::string, std::string> defaults_of_code() {
  const Config config = parse_config(std::string(kDevice) +
                                         "[device.chaos]\n[odp]\n[eal]\n[log]\n[switch]\n[transport."
                                         "congestion.dcqcn]\n[transport.congestion.swift]\n",
                                     "f.toml");
  const DeviceConfig& device = config.devices.at(0);
  const ChaosConfig& chaos = device.chaos;
  const odp::DomainConfig& domain = config.domain;
  const transport::CoreConfig& core = config.core;
  const transport::DcqcnConfig& dcqcn = core.congestion.dcqcn;
  const transport::SwiftConfig& swift = core.congestion.swift;
  return {
      {"device.vlan_priority", text(device.vlan_priority)},
      {"device.dscp", text(device.dscp)},
      {"device.progress", device.progress == Progress::automatic ? "auto" : "dedicated"},
      {"device.vendor_id", fmt::format("{:#06x}", device.vendor_id)},
      {"device.vendor_part_id", text(device.vendor_part_id)},
      {"device.active_width", text(device.active_width)},
      {"device.active_speed", device.active_speed == LinkSpeed::edr ? "EDR" : "another"},
      {"device.device_memory_kib", text(device.device_memory_bytes >> 10)},
      {"device.min_ack_timeout_ms", text(device.min_ack_timeout_ns / 1'000'000)},
      {"device.port.ring_size", text(device.port.ring_size)},
      {"device.port.queues", text(device.port.queues)},
      {"device.port.share", text(device.port.request.shared)},
      {"device.chaos.direction", chaos.receive && chaos.transmit ? "both" : "one"},
      {"device.chaos.loss", text(chaos.link.loss)},
      {"device.chaos.reorder", text(chaos.link.reorder)},
      {"device.chaos.duplicate", text(chaos.link.duplicate)},
      {"device.chaos.corrupt", text(chaos.link.corrupt)},
      {"device.chaos.ecn_mark", text(chaos.link.ecn_mark)},
      {"device.chaos.delay_us", text(chaos.link.delay_ns / 1000)},
      {"device.chaos.delay_jitter_us", text(chaos.link.delay_jitter_ns / 1000)},
      {"device.chaos.fault_delay_us", text(chaos.faults.delay_ns / 1000)},
      {"device.chaos.fault_failure", text(chaos.faults.failure)},
      {"device.chaos.seed", text(chaos.link.seed)},
      {"log.level", config.log_level},
      {"eal.huge_pages", text(config.eal.huge_pages)},
      {"eal.memory_mib", text(config.eal.memory_mib)},
      {"odp.pin_budget_mib", text(domain.pin_budget_bytes >> 20)},
      {"odp.monitor", text(domain.monitor_invalidations)},
      {"odp.realtime_pager", text(domain.realtime_pager)},
      {"odp.watch_files", text(domain.userfault_async)},
      {"odp.allow_unguarded", text(domain.allow_unguarded)},
      {"odp.unpinned_classic", domain.refuse_unpinned_classic ? "refuse" : "allow"},
      {"odp.pager_threads", text(domain.pager_threads)},
      {"odp.implicit_children", text(domain.implicit_children)},
      {"odp.stall", core.stall == transport::Stall::park_then_rnr ? "park-then-rnr" : "another"},
      {"odp.answer_deadline_us", text(core.answer_deadline_ns / 1000)},
      {"odp.park_deadline_us", text(core.park_deadline_ns / 1000)},
      {"odp.unreliable_deadline_us", text(core.unreliable_deadline_ns / 1000)},
      {"odp.park_packets_per_qp", text(core.park_packets_per_qp)},
      {"odp.park_packets_total", text(core.park_packets_total)},
      {"odp.rnr_timer_code", text(core.fault_rnr_timer)},
      {"transport.window_packets", text(core.window_packets)},
      {"transport.selective_ack", text(core.selective_ack)},
      {"transport.early_probe", text(core.early_probe)},
      {"transport.credits", text(core.credits)},
      {"transport.reorder_packets_per_qp", text(core.reorder_packets_per_qp)},
      {"transport.ack_every_packets", text(core.ack_every_packets)},
      {"transport.rxe_flush_icrc", text(core.rxe_flush_icrc)},
      {"transport.udp_checksum", text(config.udp_checksum)},
      {"transport.icrc", text(config.icrc)},
      {"transport.congestion.algorithm",
       core.congestion.algorithm == transport::CongestionAlgorithm::none ? "none" : "another"},
      {"transport.congestion.cnp_interval_us", text(core.congestion.cnp_interval_ns / 1000)},
      {"transport.congestion.dcqcn.gain_divisor", text(std::lround(1 / dcqcn.gain))},
      {"transport.congestion.dcqcn.alpha_timer_us", text(dcqcn.alpha_timer_ns / 1000)},
      {"transport.congestion.dcqcn.increase_timer_us", text(dcqcn.increase_timer_ns / 1000)},
      {"transport.congestion.dcqcn.increase_bytes", text(dcqcn.increase_bytes)},
      {"transport.congestion.dcqcn.fast_recovery_rounds", text(dcqcn.fast_recovery_rounds)},
      {"transport.congestion.dcqcn.additive_mbit_per_s", text(dcqcn.additive_bytes_per_s / kBytesPerMbit)},
      {"transport.congestion.dcqcn.hyper_mbit_per_s", text(dcqcn.hyper_bytes_per_s / kBytesPerMbit)},
      {"transport.congestion.dcqcn.min_mbit_per_s", text(dcqcn.min_bytes_per_s / kBytesPerMbit)},
      {"transport.congestion.dcqcn.line_mbit_per_s", text(dcqcn.line_bytes_per_s / kBytesPerMbit)},
      {"transport.congestion.swift.target_delay_us", text(swift.target_delay_ns / 1000)},
      {"transport.congestion.swift.scaling_range_us", text(swift.scaling_range_ns / 1000)},
      {"transport.congestion.swift.initial_window_packets", text(swift.initial_window_packets)},
      {"transport.congestion.swift.max_window_packets", text(swift.max_window_packets)},
      {"transport.congestion.swift.additive_packets", text(swift.additive_packets)},
      {"transport.congestion.swift.min_mbit_per_s", text(swift.min_bytes_per_s / kBytesPerMbit)},
      {"transport.congestion.swift.beta_percent", percent(swift.beta)},
      {"transport.congestion.swift.max_decrease_percent", percent(swift.max_decrease)},
  };
}

/// Keys without a default that is a value: the column states where the value comes from.
bool has_no_value(const std::string& stated) {
  static const std::set<std::string> kWords{"required", "none", "anywhere", "no limit", "by the port"};
  // "`client`" ends a list of values; "kind pci: ..." depends on another key.
  return kWords.contains(stated) || stated.starts_with('`') || stated.starts_with("kind ");
}

/// Returns the default of each key in docs/configuration.md, by "table.key": the end of the second column.
std::map<std::string, std::string> defaults_of_document() {
  std::map<std::string, std::string> defaults;
  std::ifstream document(std::string(FAULTLINE_DOCS) + "/configuration.md");
  std::string table;
  for (std::string line; std::getline(document, line);) {
    std::smatch found;
    if (std::regex_search(line, found, std::regex("^## `\\[+([a-z_.]+)\\]+`"))) table = found[1];
    if (!std::regex_search(line, found, std::regex("^\\| `([a-z_]+)` \\| [^|]*[,;] ([^|,;]+) \\|"))) continue;
    defaults[table + "." + found[1].str()] = found[2];
  }
  return defaults;
}

TEST(ConfigDefaults, AreThoseOfTheDocument) {
  std::map<std::string, std::string> stated = defaults_of_document();
  const std::map<std::string, std::string> real = defaults_of_code();
  for (const auto& [key, value] : real) {
    EXPECT_EQ(stated[key], value) << key;
    stated.erase(key);
  }
  for (const auto& [key, value] : stated)
    if (!has_no_value(value)) ADD_FAILURE() << key << " = " << value << ": add it to this test";
}

}  // namespace
}  // namespace faultline::glue::config_defaults_test
