// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/options.hpp"

#include <cstdlib>

#include <CLI/CLI.hpp>
#include <spdlog/fmt/fmt.h>

#include "pmd_glue/config/port_kinds.hpp"

namespace faultline::switching {
namespace {

// Default --linger of a switch that a program started.
constexpr unsigned kLingerSeconds = 5;
// Half of it is for frames: two thousand for each of a few slow ports, and the frames under way.
constexpr uint32_t kMemoryMib = 160;

glue::PortConfig parse_uplink(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string name = colon == std::string::npos ? "" : text.substr(colon + 1);
  for (const glue::PortKindRow& row : glue::port_kinds()) {
    if (!row.may_be_uplink || text.substr(0, colon) != row.name || name.empty()) continue;
    glue::PortConfig port;
    port.kind = row.kind;
    port.*row.address = name;
    return port;
  }
  throw glue::ConfigError(fmt::format(
      "faultline-switch: --uplink: \"{}\" is none of tap:NAME, af_packet:NAME, af_xdp:NAME, pci:ADDRESS",
      text));
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Options options;
  std::string uplink;
  CLI::App app(
      "The wire that programs of one host meet on (faultline-run --wire). Mostly the first of them starts "
      "it.");
  app.add_option("--wire", options.wire, "the wire's name")->required();
  app.add_option("--uplink", uplink,
                 "where frames for others go: tap:NAME, af_packet:NAME, af_xdp:NAME or pci:ADDRESS");
  app.add_option("--linger", options.linger_seconds, "end so many seconds after the last program has left");
  app.add_option("--log", options.log_level, "trace, debug, info, warn, err, critical or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "err", "critical", "off"}));
  app.add_option("--listener", options.listener, "a listening control socket, inherited")->group("");
  app.add_flag("--recover", options.recover, "let programs of a switch that died come first")->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  if (!uplink.empty()) options.uplink = parse_uplink(uplink);
  if (options.listener && !options.linger_seconds) options.linger_seconds = kLingerSeconds;
  return options;
}

glue::Config config_of(const Options& options) {
  glue::Config config;
  config.path = "wire " + options.wire;
  config.log_level = options.log_level;
  config.eal.memory_mib = kMemoryMib;
  // The frame pool and the PCI addresses are derived from the devices.
  config.devices.resize(2);
  if (options.uplink) config.devices[0].port = *options.uplink;
  return config;
}

}  // namespace faultline::switching
