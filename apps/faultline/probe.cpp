// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/probe.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <arpa/inet.h>
#include <spdlog/fmt/fmt.h>

#include "apps/faultline/probe_report.hpp"
#include "apps/faultline/transfer.hpp"
#include "apps/faultline/verbs_calls.hpp"

namespace faultline::cli {
namespace {

std::vector<GuardReport> query_guards(const VerbsCalls& verbs) {
  std::vector<faultline_guard> guards(static_cast<size_t>(std::max(0, verbs.query_guards(nullptr, 0))));
  const int count = verbs.query_guards(guards.data(), guards.size());
  std::vector<GuardReport> reports;
  for (int i = 0; i < count; ++i) {
    const faultline_guard& guard = guards[static_cast<size_t>(i)];
    reports.push_back({guard.name, guard.state, guard.error, guard.text});
  }
  return reports;
}

/// Returns the IPv4 or IPv6 address that a GID is (IBA A17.4.5).
std::string text_of(const ibv_gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  in6_addr address{};
  std::memcpy(&address, gid.raw, sizeof address);
  if (IN6_IS_ADDR_V4MAPPED(&address))
    inet_ntop(AF_INET, &address.s6_addr[12], text.data(), text.size());
  else
    inet_ntop(AF_INET6, &address, text.data(), text.size());
  return text.data();
}

void query(const VerbsCalls& verbs, ibv_context* context, DeviceReport& report) {
  ibv_port_attr port{};
  ibv_device_attr device{};
  int error = verbs.query_port(context, 1, &port);
  if (error == 0) error = verbs.query_device(context, &device);
  if (error != 0) {
    report.error = fmt::format("faultline: {}: it cannot be queried: {}", report.name, std::strerror(error));
    return;
  }
  report.port_state = verbs.port_state_text(port.state);
  report.path_mtu_bytes = 128U << port.active_mtu;  // IBV_MTU_256 is 1
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid gid{};
    const bool is_set = verbs.query_gid(context, 1, i, &gid) == 0 &&
                        std::any_of(std::begin(gid.raw), std::end(gid.raw), [](uint8_t b) { return b != 0; });
    if (is_set) report.gids.push_back(text_of(gid));
  }
  report.max_qp = device.max_qp;
  report.max_qp_wr = device.max_qp_wr;
  report.max_sge = device.max_sge;
  report.max_cq = device.max_cq;
  report.max_cqe = device.max_cqe;
  report.max_mr = device.max_mr;
  report.max_srq = device.max_srq;
}

void open_devices(const VerbsCalls& verbs, bool transfers, ProbeReport& report) {
  int count = 0;
  ibv_device** const list = verbs.get_device_list(&count);
  if (list == nullptr || count == 0) {
    report.error = verbs.last_error();
    if (report.error.empty()) report.error = "faultline: ibv_get_device_list returns no device";
  }
  for (int i = 0; list != nullptr && i < count; ++i) {
    DeviceReport device;
    device.name = verbs.get_device_name(list[i]);
    ibv_context* const context = verbs.open_device(list[i]);
    if (context == nullptr) {
      const int error = errno;
      device.error = verbs.last_error();
      if (device.error.empty())
        device.error = fmt::format("faultline: {}: ibv_open_device: {}", device.name, std::strerror(error));
    } else {
      query(verbs, context, device);
      if (transfers && i == 0 && device.port_state == kActivePort) report.transfer = transfer(verbs, context);
      // Those that a start has found, rather than what one would find.
      if (i == 0) report.guards = query_guards(verbs);
      verbs.close_device(context);
    }
    report.devices.push_back(device);
  }
  if (list != nullptr) verbs.free_device_list(list);
}

}  // namespace

int run_probe(const char* what) {
  ProbeReport report;
  if (const auto verbs = find_verbs_calls()) {
    report.has_library = true;
    if (std::string_view(what) != kProbeGuards)
      open_devices(*verbs, std::string_view(what) == kProbeTransfer, report);
    if (report.guards.empty()) report.guards = query_guards(*verbs);
  } else {
    report.error = "faultline: the library could not be preloaded";
  }
  // The texts of the system need not be UTF-8.
  const std::string text =
      nlohmann::json(report).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return std::puts(text.c_str()) >= 0 && std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace faultline::cli
