// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/options.hpp"

#include <cstdlib>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "apps/command_line/command_line.hpp"
#include "pmd_glue/config/port_kinds.hpp"
#include "pmd_glue/config/udp_config.hpp"

namespace faultline::switching {
namespace {

// Default --linger of a switch that a program started.
constexpr unsigned kLingerSeconds = 5;
// Half of it is for frames: two thousand for each of a few slow ports, and the frames under way.
constexpr uint32_t kMemoryMib = 160;

/// Returns a device on addresses of the host, those of the default route if `addresses` is "default".
glue::DeviceConfig socket_uplink(const std::string& addresses) {
  glue::Config config = glue::udp_config(addresses);
  config.devices[0].name = "uplink";
  glue::find_host_addresses(config);
  return config.devices[0];
}

glue::DeviceConfig parse_uplink(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string name = colon == std::string::npos ? "" : text.substr(colon + 1);
  for (const glue::PortKindRow& row : glue::port_kinds()) {
    if (!row.may_be_uplink || text.substr(0, colon) != row.name) continue;
    if (row.has_host_addresses) return socket_uplink(colon == std::string::npos ? "default" : name);
    if (name.empty()) continue;
    glue::DeviceConfig device;
    device.name = "uplink";
    device.port.kind = row.kind;
    device.port.*row.address = name;
    device.port.is_server = row.is_server;
    if (row.address == &glue::PortConfig::socket && !glue::is_socket_path(name))
      throw glue::ConfigError(
          fmt::format("faultline-switch: --uplink: \"{}\" is not the path of a socket, of at most 107 bytes "
                      "and without a comma, such as /run/user/1000/vm.sock",
                      name));
    return device;
  }
  throw glue::ConfigError(fmt::format(
      "faultline-switch: --uplink: \"{}\" is none of tap:NAME, af_packet:NAME, af_xdp:NAME, pci:ADDRESS, "
      "vhost:SOCKET, virtio_user:SOCKET, udp, udp:ADDRESSES",
      text));
}

/// Refuses what only a program's device can have.
void check_device(const std::string& path, const glue::DeviceConfig& device) {
  const auto refuse = [&](std::string_view key, std::string_view message) {
    throw glue::ConfigError(fmt::format("faultline-switch: {}: device.{}: {}", path, key, message));
  };
  if (!glue::row_of(device.port.kind).may_be_uplink)
    refuse("port.kind",
           fmt::format("\"{}\" is no port of an uplink; it must be tap, af_packet, af_xdp, pci, vhost, "
                       "virtio_user or udp",
                       glue::name_of(device.port.kind)));
  const bool is_one = device.addresses.size() == 1 && device.addresses[0].gid.is_ipv4();
  if (!is_one && !device.has_host_addresses) refuse("ip", "an uplink has one address, of IPv4");
  if (!device.routes.empty()) refuse("gateway", "the programs of a wire have no routes");
  if (device.lcores.size() > 1) refuse("lcores", "the switch has one thread: name one lcore");
  if (!device.capture.empty()) refuse("capture", "a switch captures no frames; a program's device does");
  if (!device.chaos.harmless()) refuse("chaos", "a switch has no chaos; a program's device has");
}

std::string parse_exception(const std::string& text) {
  constexpr std::string_view kTap = "tap:";
  if (text.starts_with(kTap) && glue::is_interface_name(text.substr(kTap.size())))
    return text.substr(kTap.size());
  throw glue::ConfigError(
      fmt::format("faultline-switch: --exception: \"{}\" is not tap:NAME, such as tap:fl0", text));
}

void check_exception(const Options& options) {
  if (options.exception.empty()) return;
  if (!options.has_host)
    throw glue::ConfigError("faultline-switch: --exception: needs the host's address: --ip, or --config");
  if (options.uplink->has_host_addresses)
    throw glue::ConfigError(
        "faultline-switch: the exception port: the kernel keeps the addresses of an udp uplink; leave it "
        "out");
}

void set_host(const std::string& text, Options& options) {
  if (options.uplink->has_host_addresses)
    throw glue::ConfigError(fmt::format(
        "faultline-switch: --ip: an uplink of kind udp names the addresses itself: --uplink udp:{}",
        text.substr(0, text.find('/'))));
  const auto address = glue::parse_address(text);
  if (!address || !address->gid.is_ipv4() || text.find('/') == std::string::npos)
    throw glue::ConfigError(
        fmt::format("faultline-switch: --ip: \"{}\" is not an IPv4 address such as 198.18.9.1/24", text));
  options.uplink->addresses = {*address};
  options.uplink->mac = glue::mac_of(address->gid);
  options.has_host = true;
}

void read_config(const std::string& path, bool keeps_log_level, Options& options) {
  glue::Config config = glue::load_config(path);
  if (config.devices.size() != 1)
    throw glue::ConfigError(
        fmt::format("faultline-switch: {}: device: there are {}, and a switch has one uplink", path,
                    config.devices.size()));
  glue::find_host_addresses(config);
  check_device(path, config.devices[0]);
  options.config_path = path;
  options.uplink = std::move(config.devices[0]);
  options.has_host = true;
  options.exception = config.wire_switch.exception;
  options.rates = {.program_mbps = config.wire_switch.program_rate_mbps,
                   .uplink_mbps = config.wire_switch.uplink_rate_mbps};
  options.eal = std::move(config.eal);
  if (!keeps_log_level) options.log_level = config.log_level;
  options.log_file = config.log_file;
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Options options;
  options.eal.memory_mib = kMemoryMib;
  std::string uplink;
  std::string config;
  std::string host;
  std::string exception;
  Rates rates;
  CommandLine app(
      "The wire that programs of one host meet on (faultline-run --wire). Mostly the first of them starts "
      "it.");
  const auto wire = app.add("--wire", options.wire, "the wire's name");
  std::string asked;
  const auto status =
      app.add("--status", asked, "print what the switch of this wire has, and exit").excludes(wire);
  app.add("--json", options.as_json, "print the status as JSON").needs(status);
  const auto by_name =
      app.add("--uplink", uplink,
              "where frames for others go: tap:NAME, af_packet:NAME, af_xdp:NAME, pci:ADDRESS, "
              "vhost:SOCKET, virtio_user:SOCKET, or UDP sockets of the host's own addresses: udp or "
              "udp:ADDRESS,...");
  app.add("--config", config, "a TOML file, whose device is the uplink").excludes(by_name);
  app.add("--ip", host, "the host's address on the uplink, ADDRESS/PREFIX, which the programs share")
      .needs(by_name);
  app.add("--exception", exception, "tap:NAME, an interface by which the kernel has the host's address too");
  app.add("--program-rate-mbps", rates.program_mbps, "the most that a program sends to the uplink, in Mb/s")
      .in_range(1U, unsigned{glue::kMostRateMbps});
  app.add("--uplink-rate-mbps", rates.uplink_mbps, "the most that all send to the uplink, in Mb/s")
      .in_range(1U, unsigned{glue::kMostRateMbps});
  app.add("--linger", options.linger_seconds, "end so many seconds after the last program has left");
  const auto log_level = app.add("--log", options.log_level, "trace, debug, info, warn, err, critical or off")
                             .one_of({"trace", "debug", "info", "warn", "err", "critical", "off"});
  app.add("--listener", options.listener, "a listening control socket, inherited").hide();
  // A test names the modules that no NIC of its machine needs.
  app.add("--pmd", options.pmds, "load a PMD's module: mlx4, mlx5 or mana").hide();
  app.add("--recover", options.recover, "let programs of a switch that died come first").hide();
  if (app.parse(argc, argv) != CommandLine::Outcome::parsed) std::exit(app.report());
  if (status.count() + wire.count() == 0)
    throw glue::ConfigError("faultline-switch: --wire: it is missing; name the wire that this switch serves");
  options.asks_status = status.count() != 0;
  if (options.asks_status) options.wire = asked;
  if (!uplink.empty()) options.uplink = parse_uplink(uplink);
  if (!host.empty()) set_host(host, options);
  if (options.uplink && options.uplink->has_host_addresses) options.has_host = true;
  if (!config.empty()) read_config(config, log_level.count() != 0, options);
  if (!exception.empty()) options.exception = parse_exception(exception);
  check_exception(options);
  if (rates.program_mbps != 0) options.rates.program_mbps = rates.program_mbps;
  if (rates.uplink_mbps != 0) options.rates.uplink_mbps = rates.uplink_mbps;
  if (!options.uplink && (rates.program_mbps != 0 || rates.uplink_mbps != 0))
    throw glue::ConfigError("faultline-switch: a rate: needs an uplink: --uplink, or --config");
  if (options.listener && !options.linger_seconds) options.linger_seconds = kLingerSeconds;
  return options;
}

glue::Config config_of(const Options& options) {
  glue::Config config;
  config.path = options.config_path.empty() ? "wire " + options.wire : options.config_path;
  config.log_level = options.log_level;
  config.eal = options.eal;
  // The frame pool and the PCI addresses are derived from the devices.
  config.devices.resize(2);
  if (options.uplink) config.devices[0] = *options.uplink;
  return config;
}

}  // namespace faultline::switching
