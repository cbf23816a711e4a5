// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/info.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include <spdlog/fmt/fmt.h>

#include "apps/faultline/devices.hpp"
#include "apps/faultline/probe.hpp"
#include "pmd_glue/config/port_kinds.hpp"
#include "stack/include/faultline/faultline.h"

namespace faultline::cli {
namespace {

using Json = nlohmann::ordered_json;

Json limit(uint64_t value) {
  return value == kUnlimited ? Json("unlimited") : Json(value);
}

Json versions(const Facts& facts) {
  Json kinds = Json::array();
  for (const glue::PortKindRow& row : glue::port_kinds()) kinds.push_back(row.name);
  return {{"version", FAULTLINE_VERSION},
          {"dpdk", FAULTLINE_DPDK_VERSION},
          {"verbs", "libibverbs.so.1, symbols to " FAULTLINE_VERBS_ABI},
          {"rdma_core", FAULTLINE_RDMA_CORE_VERSION},
          {"library", facts.host.library},
          {"switch", facts.host.switch_program},
          {"port_kinds", kinds}};
}

Json machine(const HostFacts& host) {
  return {{"system", host.system},
          {"kernel", host.kernel},
          {"cpu", host.cpu_model},
          {"cpus", host.online_cpus},
          {"usable_cpus", host.usable_cpus},
          {"memory_bytes", host.memory_bytes},
          {"available_bytes", host.available_bytes},
          {"shm_bytes", host.shm_bytes ? Json(*host.shm_bytes) : Json()},
          {"huge_pages", host.huge_pages},
          {"rdma_devices", host.adapters},
          {"own_addresses", host.own_addresses}};
}

Json limits(const HostFacts& host) {
  const auto number = [](const std::optional<int>& value) { return value ? Json(*value) : Json(); };
  return {{"locked_bytes", limit(host.locked_bytes)},
          {"descriptors", limit(host.descriptors)},
          {"processes", limit(host.processes)},
          {"socket_buffer_bytes", host.socket_buffer_bytes},
          {"capabilities", host.capabilities},
          {"seccomp_filter", host.has_seccomp_filter},
          {"unprivileged_userfaultfd", number(host.unprivileged_userfaultfd)},
          {"io_uring_disabled", number(host.io_uring_disabled)},
          {"directory", host.directory.empty() ? host.directory_error : host.directory}};
}

Json guards(const ProbeReport& program) {
  constexpr std::array<const char*, 3> kStates{"missing", "limited", "works"};
  static_assert(FAULTLINE_GUARD_LIMITED == 1 && FAULTLINE_GUARD_WORKS == 2);
  Json section = Json::object();
  for (const GuardReport& guard : program.guards)
    section[guard.name] =
        fmt::format("{}: {}", kStates[static_cast<size_t>(std::clamp(guard.state, 0, 2))], guard.text);
  return section;
}

Json device(const DeviceReport& report) {
  if (!report.error.empty()) return {{"error", report.error}};
  return {{"port_state", report.port_state},
          {"path_mtu_bytes", report.path_mtu_bytes},
          {"gids", report.gids},
          {"max_qp", report.max_qp},
          {"max_qp_wr", report.max_qp_wr},
          {"max_sge", report.max_sge},
          {"max_cq", report.max_cq},
          {"max_cqe", report.max_cqe},
          {"max_mr", report.max_mr},
          {"max_srq", report.max_srq}};
}

/// Returns the largest unit that divides the bytes, with the number of it.
std::string size_text(uint64_t bytes) {
  constexpr std::array<const char*, 4> kUnits{"bytes", "KiB", "MiB", "GiB"};
  size_t unit = 0;
  while (unit + 1 < kUnits.size() && bytes >= 10'240) {
    bytes >>= 10;
    ++unit;
  }
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

std::string value_text(const std::string& key, const Json& value) {
  if (value.is_null()) return "none";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_unsigned() && key.ends_with("_bytes")) return size_text(value.get<uint64_t>());
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& one : value) text += (text.empty() ? "" : ", ") + one.get<std::string>();
  return text.empty() ? "none" : text;
}

/// Returns the key in words: without its unit, which the value has.
std::string heading(std::string key) {
  constexpr std::string_view kUnit = "_bytes";
  if (key.ends_with(kUnit)) key.resize(key.size() - kUnit.size());
  std::ranges::replace(key, '_', ' ');
  return key;
}

}  // namespace

Json info_of(const Facts& facts) {
  Json page{{"faultline", versions(facts)},
            {"machine", machine(facts.host)},
            {"limits", limits(facts.host)},
            {"guards", guards(facts.program)}};
  if (!facts.program.error.empty()) page["error"] = {{"devices", facts.program.error}};
  for (const DeviceReport& report : facts.program.devices) page["device " + report.name] = device(report);
  return page;
}

std::string info_text(const Json& info) {
  std::string text;
  for (const auto& [name, section] : info.items()) {
    text += name + "\n";
    for (const auto& [key, value] : section.items())
      text += fmt::format("  {:<25} {}\n", heading(key), value_text(key, value));
  }
  return text;
}

int run_info(const DeviceChoice& devices, bool as_json) {
  Facts facts;
  facts.host = gather_host_facts();
  facts.devices = text_of(devices);
  facts.program = ask_probe(devices, facts.devices.empty() ? kProbeGuards : kProbeDevices);
  const Json info = info_of(facts);
  const std::string page =
      as_json ? info.dump(1, ' ', false, Json::error_handler_t::replace) + "\n" : info_text(info);
  std::fputs(page.c_str(), stdout);
  return 0;
}

}  // namespace faultline::cli
