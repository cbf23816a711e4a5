// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/config/config.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <net/if.h>
#include <sched.h>
#include <spdlog/fmt/fmt.h>
#include <sys/un.h>

#include "pmd_glue/config/config_reader.hpp"
#include "pmd_glue/config/port_kinds.hpp"

namespace faultline::glue {
namespace {

constexpr std::array<std::string_view, 8> kLinkSpeeds{"SDR", "DDR", "QDR", "FDR10",
                                                      "FDR", "EDR", "HDR", "NDR"};
constexpr std::array<std::string_view, 7> kLogLevels{"trace", "debug",    "info", "warn",
                                                     "err",   "critical", "off"};

// Parses "0-1,4" into a sorted list; empty if the text is not such a list.
std::vector<unsigned> parse_cpu_list(std::string_view text) {
  std::vector<unsigned> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    unsigned first = 0;
    std::from_chars_result result = std::from_chars(at, end, first);
    if (result.ec != std::errc{}) return {};
    unsigned last = first;
    if (result.ptr != end && *result.ptr == '-') result = std::from_chars(result.ptr + 1, end, last);
    if (result.ec != std::errc{}) return {};
    const char* after = result.ptr;
    if (last < first || last >= CPU_SETSIZE) return {};
    for (unsigned cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (after == end) break;
    if (*after != ',') return {};
    at = after + 1;
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

bool may_run_on(unsigned cpu) {
  cpu_set_t affinity;
  CPU_ZERO(&affinity);
  if (sched_getaffinity(0, sizeof affinity, &affinity) != 0) return true;
  return cpu < CPU_SETSIZE && CPU_ISSET(cpu, &affinity);
}

std::optional<wire::MacAddress> parse_mac(const std::string& text) {
  wire::MacAddress mac;
  if (text.size() != 17) return std::nullopt;
  for (size_t i = 0; i < 6; ++i) {
    const char* at = text.data() + 3 * i;
    const auto [after, error] = std::from_chars(at, at + 2, mac.bytes[i], 16);
    if (error != std::errc{} || after != at + 2 || (i < 5 && *after != ':')) return std::nullopt;
  }
  return mac;
}

EalConfig read_eal(const std::string& path, const toml::table& table) {
  ConfigReader reader(path, table, "eal");
  EalConfig eal;
  eal.huge_pages = reader.boolean("huge_pages", eal.huge_pages);
  eal.memory_mib = static_cast<uint32_t>(reader.number("memory_mib", eal.memory_mib, 64, 1U << 20));
  if (const std::string list = reader.text("lcores"); !list.empty()) {
    eal.lcores = parse_cpu_list(list);
    if (eal.lcores.empty())
      reader.fail("lcores", fmt::format("\"{}\" is not a list of CPUs such as \"0-1\" or \"0,2\"", list));
    const auto denied = std::find_if_not(eal.lcores.begin(), eal.lcores.end(), may_run_on);
    if (denied != eal.lcores.end())
      reader.fail("lcores", fmt::format("this process may not run on CPU {}", *denied));
  }
  eal.extra_args = reader.texts("extra_args");
  reader.finish();
  return eal;
}

void read_odp(const std::string& path, const toml::table& table, Config& config) {
  ConfigReader reader(path, table, "odp");
  odp::DomainConfig& domain = config.domain;
  transport::CoreConfig& core = config.core;
  domain.pin_budget_bytes =
      reader.number("pin_budget_mib", domain.pin_budget_bytes >> 20, 0, uint64_t{1} << 32) << 20;
  domain.monitor_invalidations = reader.boolean("monitor", domain.monitor_invalidations);
  domain.realtime_pager = reader.boolean("realtime_pager", domain.realtime_pager);
  domain.userfault_async = reader.boolean("watch_files", domain.userfault_async);
  domain.allow_unguarded = reader.boolean("allow_unguarded", domain.allow_unguarded);
  constexpr std::array<std::string_view, 2> kUnpinned{"allow", "refuse"};
  domain.refuse_unpinned_classic =
      reader.choice("unpinned_classic", kUnpinned, domain.refuse_unpinned_classic ? 1 : 0) == 1;
  domain.pager_threads = static_cast<unsigned>(reader.number("pager_threads", domain.pager_threads, 1, 64));
  domain.implicit_children =
      static_cast<uint32_t>(reader.number("implicit_children", domain.implicit_children, 64, 1U << 20));
  constexpr std::array<std::string_view, 3> kStalls{"park", "rnr", "park-then-rnr"};
  core.stall = static_cast<transport::Stall>(reader.choice("stall", kStalls, static_cast<int>(core.stall)));
  core.answer_deadline_ns =
      1000 * reader.number("answer_deadline_us", core.answer_deadline_ns / 1000, 0, 1'000'000);
  core.park_deadline_ns =
      1000 * reader.number("park_deadline_us", core.park_deadline_ns / 1000, 0, 1'000'000);
  core.unreliable_deadline_ns =
      1000 * reader.number("unreliable_deadline_us", core.unreliable_deadline_ns / 1000, 0, 60'000'000);
  core.park_packets_per_qp =
      static_cast<uint32_t>(reader.number("park_packets_per_qp", core.park_packets_per_qp, 0, 4096));
  core.park_packets_total =
      static_cast<uint32_t>(reader.number("park_packets_total", core.park_packets_total, 0, 4096));
  core.fault_rnr_timer = static_cast<uint8_t>(reader.number("rnr_timer_code", core.fault_rnr_timer, 0, 31));
  reader.finish();
}

constexpr uint64_t kBytesPerMbit = 125'000;

void read_dcqcn(const std::string& path, const toml::table& table, transport::DcqcnConfig& dcqcn) {
  ConfigReader reader(path, table, "transport.congestion.dcqcn");
  dcqcn.gain = 1.0 / static_cast<double>(reader.number("gain_divisor", 256, 1, 1U << 20));
  dcqcn.alpha_timer_ns = 1000 * reader.number("alpha_timer_us", dcqcn.alpha_timer_ns / 1000, 1, 1'000'000);
  dcqcn.increase_timer_ns =
      1000 * reader.number("increase_timer_us", dcqcn.increase_timer_ns / 1000, 1, 1'000'000);
  dcqcn.increase_bytes = reader.number("increase_bytes", dcqcn.increase_bytes, 1, uint64_t{1} << 40);
  dcqcn.fast_recovery_rounds =
      static_cast<uint32_t>(reader.number("fast_recovery_rounds", dcqcn.fast_recovery_rounds, 1, 1000));
  const auto rate = [&reader](std::string_view key, uint64_t& bytes_per_s) {
    bytes_per_s = kBytesPerMbit * reader.number(key, bytes_per_s / kBytesPerMbit, 1, 1'000'000);
  };
  rate("additive_mbit_per_s", dcqcn.additive_bytes_per_s);
  rate("hyper_mbit_per_s", dcqcn.hyper_bytes_per_s);
  rate("min_mbit_per_s", dcqcn.min_bytes_per_s);
  rate("line_mbit_per_s", dcqcn.line_bytes_per_s);
  reader.finish();
}

void read_swift(const std::string& path, const toml::table& table, transport::SwiftConfig& swift) {
  ConfigReader reader(path, table, "transport.congestion.swift");
  swift.target_delay_ns =
      1000 * reader.number("target_delay_us", swift.target_delay_ns / 1000, 1, 10'000'000);
  swift.scaling_range_ns =
      1000 * reader.number("scaling_range_us", swift.scaling_range_ns / 1000, 0, 10'000'000);
  const auto packets = [&reader](std::string_view key, double& value) {
    value = static_cast<double>(reader.number(key, static_cast<uint64_t>(value), 1, 65536));
  };
  packets("initial_window_packets", swift.initial_window_packets);
  packets("max_window_packets", swift.max_window_packets);
  packets("additive_packets", swift.additive_packets);
  swift.min_bytes_per_s =
      kBytesPerMbit * reader.number("min_mbit_per_s", swift.min_bytes_per_s / kBytesPerMbit, 1, 1'000'000);
  const auto percent = [&reader](std::string_view key, double& value) {
    value = static_cast<double>(reader.number(key, static_cast<uint64_t>(value * 100), 1, 99)) / 100;
  };
  percent("beta_percent", swift.beta);
  percent("max_decrease_percent", swift.max_decrease);
  reader.finish();
}

void read_congestion(const std::string& path, const toml::table& table,
                     transport::CongestionConfig& congestion) {
  ConfigReader reader(path, table, "transport.congestion");
  constexpr std::array<std::string_view, 3> kAlgorithms{"none", "dcqcn", "swift"};
  congestion.algorithm =
      static_cast<transport::CongestionAlgorithm>(reader.choice("algorithm", kAlgorithms, 0));
  congestion.cnp_interval_ns =
      1000 * reader.number("cnp_interval_us", congestion.cnp_interval_ns / 1000, 0, 1'000'000);
  if (const toml::table* dcqcn = reader.table("dcqcn")) read_dcqcn(path, *dcqcn, congestion.dcqcn);
  if (const toml::table* swift = reader.table("swift")) read_swift(path, *swift, congestion.swift);
  reader.finish();
}

void read_transport(const std::string& path, const toml::table& table, Config& config) {
  ConfigReader reader(path, table, "transport");
  transport::CoreConfig& core = config.core;
  core.window_packets = static_cast<uint32_t>(reader.number("window_packets", core.window_packets, 1, 65536));
  core.selective_ack = reader.boolean("selective_ack", core.selective_ack);
  core.early_probe = reader.boolean("early_probe", core.early_probe);
  core.credits = reader.boolean("credits", core.credits);
  core.reorder_packets_per_qp =
      static_cast<uint32_t>(reader.number("reorder_packets_per_qp", core.reorder_packets_per_qp, 0, 256));
  core.ack_every_packets =
      static_cast<uint32_t>(reader.number("ack_every_packets", core.ack_every_packets, 1, 65536));
  core.rxe_flush_icrc = reader.boolean("rxe_flush_icrc", core.rxe_flush_icrc);
  config.udp_checksum = reader.boolean("udp_checksum", config.udp_checksum);
  config.icrc = reader.boolean("icrc", config.icrc);
  if (const toml::table* congestion = reader.table("congestion"))
    read_congestion(path, *congestion, core.congestion);
  reader.finish();
}

/// Returns whether an address is its network's address, or IPv4's broadcast address in the network (RFC 1122,
/// 3.2.1.3; RFC 4291, 2.6.1). A network of two addresses has neither (RFC 3021, RFC 6164).
bool is_network_itself(const IpNetwork& address) {
  constexpr uint8_t kGidBits = 128;
  constexpr uint8_t kIpv4Offset = 96;
  const uint8_t host_bits = kGidBits - address.prefix_bits;
  if (host_bits < 2 || address.prefix_bits == (address.gid.is_ipv4() ? kIpv4Offset : 0)) return false;
  bool zeros = true;
  bool ones = true;
  for (uint8_t bit = address.prefix_bits; bit < kGidBits; ++bit) {
    const bool set = (address.gid.bytes[bit / 8] >> (7 - bit % 8) & 1) != 0;
    zeros = zeros && !set;
    ones = ones && set;
  }
  return zeros || (ones && address.gid.is_ipv4());
}

void read_addresses(ConfigReader& reader, DeviceConfig& device) {
  for (const std::string& text : reader.required_text_or_list("ip", "198.18.0.1/24")) {
    const auto address = parse_address(text);
    if (!address)
      reader.fail("ip", fmt::format("\"{}\" is not a unicast address such as \"198.18.0.1/24\" or "
                                    "\"2001:2::1/64\"",
                                    text));
    if (is_network_itself(*address))
      reader.fail("ip", fmt::format("\"{}\" is the address of a network, not of a host in it", text));
    const auto same = [&](const IpNetwork& other) { return other.gid == address->gid; };
    if (std::any_of(device.addresses.begin(), device.addresses.end(), same))
      reader.fail("ip", fmt::format("\"{}\" is there twice", text));
    device.addresses.push_back(*address);
  }
  if (device.addresses.size() > kMaxAddresses)
    reader.fail("ip", fmt::format("must be at most {} addresses", kMaxAddresses));
}

void read_vlan(ConfigReader& reader, DeviceConfig& device) {
  // IEEE 802.1Q, 9.6: VLAN ID 0 is no VLAN, 4095 is reserved.
  if (const uint64_t id = reader.number("vlan", 0, 1, 4094); id != 0)
    device.vlan_id = static_cast<uint16_t>(id);
  device.vlan_priority = static_cast<uint8_t>(reader.number("vlan_priority", 0, 0, 7));
  if (reader.has("vlan_priority") && !device.vlan_id) reader.fail("vlan_priority", "only goes with vlan");
}

// A gateway must be a neighbour.
void check_gateway(const ConfigReader& reader, std::string_view key, const wire::Gid& via,
                   const std::string& text, const DeviceConfig& device) {
  const bool on_link =
      wire::is_link_local(via) || std::any_of(device.addresses.begin(), device.addresses.end(),
                                              [&](const IpNetwork& own) { return own.contains(via); });
  const bool own = std::any_of(device.addresses.begin(), device.addresses.end(),
                               [&](const IpNetwork& address) { return address.gid == via; });
  if (!on_link || own)
    reader.fail(key, fmt::format("\"{}\" is not another host on a network of this device", text));
}

void read_routes(const std::string& path, ConfigReader& reader, DeviceConfig& device) {
  for (const std::string& text : reader.text_or_list("gateway")) {
    const auto gateway = parse_address(text);
    if (!gateway || text.find('/') != std::string::npos)
      reader.fail("gateway", fmt::format("\"{}\" is not an address such as \"198.18.0.254\"", text));
    check_gateway(reader, "gateway", gateway->gid, text, device);
    device.routes.push_back({*parse_network(gateway->gid.is_ipv4() ? "0.0.0.0/0" : "::/0"), gateway->gid});
  }
  if (const toml::array* routes = reader.tables("route"))
    for (const toml::node& node : *routes) {
      ConfigReader route(path, *node.as_table(), "device.route");
      const std::string to = route.required_text("to", "198.19.0.0/16");
      const auto network = parse_network(to);
      if (!network) route.fail("to", fmt::format("\"{}\" is not a network such as \"198.19.0.0/16\"", to));
      const std::string via = route.required_text("via", "198.18.0.254");
      const auto gateway = parse_address(via);
      if (!gateway || via.find('/') != std::string::npos || gateway->gid.is_ipv4() != network->gid.is_ipv4())
        route.fail("via", fmt::format("\"{}\" is not an address of the same family as \"{}\"", via, to));
      check_gateway(route, "via", gateway->gid, via, device);
      device.routes.push_back({*network, gateway->gid});
      route.finish();
    }
  if (device.routes.size() > kMaxRoutes) reader.fail("route", fmt::format("must be at most {}", kMaxRoutes));
}

void read_lcores(ConfigReader& reader, DeviceConfig& device) {
  const uint64_t one = reader.number("lcore", 0, 0, CPU_SETSIZE - 1);
  const std::vector<uint64_t> several = reader.numbers("lcores", 0, CPU_SETSIZE - 1);
  const char* const key = reader.has("lcores") ? "lcores" : "lcore";
  if (!reader.has(key)) return;
  if (reader.has("lcore") && reader.has("lcores"))
    reader.fail("lcores", "stands instead of lcore, not beside it");
  if (device.progress != Progress::dedicated) reader.fail(key, "only goes with progress = \"dedicated\"");
  if (reader.has("lcore"))
    device.lcores = {static_cast<unsigned>(one)};
  else
    device.lcores.assign(several.begin(), several.end());
  if (device.lcores.empty() || device.lcores.size() > kMaxCores)
    reader.fail(key, fmt::format("must be 1 to {} CPUs", kMaxCores));
  for (size_t i = 0; i < device.lcores.size(); ++i) {
    const unsigned cpu = device.lcores[i];
    if (!may_run_on(cpu)) reader.fail(key, fmt::format("this process may not run on CPU {}", cpu));
    if (std::find(device.lcores.begin(), device.lcores.begin() + static_cast<ptrdiff_t>(i), cpu) !=
        device.lcores.begin() + static_cast<ptrdiff_t>(i))
      reader.fail(key, fmt::format("CPU {} is there twice", cpu));
  }
}

ChaosConfig read_chaos(const std::string& path, const toml::table& table) {
  ConfigReader reader(path, table, "device.chaos");
  ChaosConfig chaos;
  constexpr std::array<std::string_view, 3> kDirections{"both", "rx", "tx"};
  const size_t direction = reader.choice("direction", kDirections, 0);
  chaos.receive = direction != 2;
  chaos.transmit = direction != 1;
  chaos.link.loss = reader.ratio("loss");
  chaos.link.reorder = reader.ratio("reorder");
  chaos.link.duplicate = reader.ratio("duplicate");
  chaos.link.corrupt = reader.ratio("corrupt");
  chaos.link.ecn_mark = reader.ratio("ecn_mark");
  constexpr uint64_t kMostUs = 10'000'000;
  chaos.link.delay_ns = 1000 * reader.number("delay_us", 0, 0, kMostUs);
  chaos.link.delay_jitter_ns = 1000 * reader.number("delay_jitter_us", 0, 0, kMostUs);
  chaos.faults.delay_ns = 1000 * reader.number("fault_delay_us", 0, 0, kMostUs);
  chaos.faults.failure = reader.ratio("fault_failure");
  chaos.link.seed = chaos.faults.seed = reader.number("seed", 1, 0, INT64_MAX);
  reader.finish();
  return chaos;
}

DeviceConfig read_device(const std::string& path, const toml::table& table) {
  ConfigReader reader(path, table, "device");
  DeviceConfig device;
  device.name = reader.required_text("name", "faultline0");
  // IBV_SYSFS_NAME_MAX is 64, and the name becomes part of port and file names.
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  };
  if (device.name.size() > 24 || !std::all_of(device.name.begin(), device.name.end(), is_plain))
    reader.fail("name", "must be 1 to 24 letters, digits, _ or -");

  const bool seated = table["port"]["kind"].value<std::string_view>() == name_of(PortKind::wire);
  if (seated) {
    for (const char* key : {"ip", "mac", "gateway", "route"})
      if (reader.has(key))
        reader.fail(key, "is what the wire gives out; [device.port] may ask for an ip or a side");
  } else if (table["port"]["kind"].value<std::string_view>() == name_of(PortKind::udp)) {
    for (const char* key : {"mac", "vlan", "gateway", "route"})
      if (reader.has(key))
        reader.fail(key, "is the kernel's with a port of kind udp, which has its addresses");
    if (reader.has("ip")) read_addresses(reader, device);
  } else {
    read_addresses(reader, device);
  }
  if (!device.addresses.empty()) device.mac = mac_of(device.addresses[0].gid);
  if (const std::string text = reader.text("mac"); !text.empty()) {
    const auto mac = parse_mac(text);
    if (!mac || (mac->bytes[0] & 1U) != 0 || *mac == wire::MacAddress{})
      reader.fail("mac",
                  fmt::format("\"{}\" is not a unicast MAC address such as \"02:46:4c:00:00:01\"", text));
    device.mac = *mac;
    device.has_configured_mac = true;
  }
  if (const uint64_t mtu = reader.number("mtu", 0, kLeastMtuBytes, 9000); mtu != 0)
    device.mtu_bytes = static_cast<uint32_t>(mtu);

  read_vlan(reader, device);
  device.dscp = static_cast<uint8_t>(reader.number("dscp", 0, 0, 63));
  read_routes(path, reader, device);

  // "inline" is an older name of "auto".
  constexpr std::array<std::string_view, 3> kModes{"auto", "dedicated", "inline"};
  device.progress = reader.choice("progress", kModes, 0) == 1 ? Progress::dedicated : Progress::automatic;
  read_lcores(reader, device);
  device.vendor_id = static_cast<uint32_t>(reader.number("vendor_id", device.vendor_id, 0, 0xffffff));
  device.vendor_part_id =
      static_cast<uint32_t>(reader.number("vendor_part_id", device.vendor_part_id, 0, UINT32_MAX));
  constexpr std::array<uint64_t, 5> kWidths{1, 2, 4, 8, 12};
  const uint64_t width = reader.number("active_width", device.active_width, 1, 12);
  if (std::find(kWidths.begin(), kWidths.end(), width) == kWidths.end())
    reader.fail("active_width", "must be 1, 2, 4, 8 or 12 lanes");
  device.active_width = static_cast<uint32_t>(width);
  device.active_speed = static_cast<LinkSpeed>(
      reader.choice("active_speed", kLinkSpeeds, static_cast<int>(device.active_speed)));
  device.device_memory_bytes =
      reader.number("device_memory_kib", device.device_memory_bytes >> 10, 0, 1U << 20) << 10;
  device.capture = reader.text("capture");
  device.publish = reader.boolean("publish", device.publish);

  const toml::table* port = reader.table("port");
  if (port == nullptr) reader.fail("port", "is missing; add a table [device.port] with a kind");
  device.port = read_port(path, *port);
  if (const toml::table* chaos = reader.table("chaos")) device.chaos = read_chaos(path, *chaos);
  const PortKindRow& row = row_of(device.port.kind);
  if (row.most_mtu_bytes != 0 && device.mtu_bytes.value_or(0) > row.most_mtu_bytes)
    reader.fail("mtu", fmt::format("a {} port carries at most {}", row.name, row.most_mtu_bytes));
  reader.finish();
  return device;
}

SwitchConfig read_switch(const std::string& path, const toml::table& table) {
  ConfigReader reader(path, table, "switch");
  SwitchConfig config;
  config.exception = reader.text("exception");
  if (reader.has("exception") && !is_interface_name(config.exception))
    reader.fail("exception", fmt::format("\"{}\" is not the name of a network interface such as \"fl0\"",
                                         config.exception));
  config.program_rate_mbps = static_cast<uint32_t>(reader.number("program_rate_mbps", 0, 1, kMostRateMbps));
  config.uplink_rate_mbps = static_cast<uint32_t>(reader.number("uplink_rate_mbps", 0, 1, kMostRateMbps));
  reader.finish();
  return config;
}

bool share_address(const DeviceConfig& a, const DeviceConfig& b) {
  return std::any_of(a.addresses.begin(), a.addresses.end(), [&](const IpNetwork& one) {
    return std::any_of(b.addresses.begin(), b.addresses.end(),
                       [&](const IpNetwork& other) { return one.gid == other.gid; });
  });
}

void reject_twins(const Config& config, const ConfigReader& root) {
  const auto& devices = config.devices;
  for (size_t i = 0; i < devices.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      if (devices[i].name == devices[j].name)
        root.fail("device", fmt::format("two devices are named \"{}\"", devices[i].name));
      if (share_address(devices[i], devices[j]))
        root.fail("device", fmt::format("{} and {} have the same ip", devices[j].name, devices[i].name));
      const PortConfig& a = devices[j].port;
      const PortConfig& b = devices[i].port;
      const PortKindRow& row = row_of(a.kind);
      if (a.kind == b.kind && row.collide != nullptr && row.collide(a, b))
        root.fail("device", fmt::format("{} and {} {}", devices[j].name, devices[i].name, row.collision));
    }
}

/// Without an ICRC a damaged packet is not detected. So it may be off only if packets never leave memory and
/// [device.chaos] damages none.
void reject_missing_icrc(const Config& config, const ConfigReader& transport) {
  if (config.icrc) return;
  for (const DeviceConfig& device : config.devices) {
    const PortKindRow& row = row_of(device.port.kind);
    if (!row.stays_in_memory)
      transport.fail("icrc", fmt::format("false only goes with ports of kind memif and ring, and {} is on {}",
                                         device.name, row.name));
    if (device.chaos.link.corrupt > 0)
      transport.fail("icrc",
                     fmt::format("false would take what the chaos of {} corrupts for good", device.name));
  }
}

}  // namespace

uint32_t core_count_of(const DeviceConfig& device) {
  return static_cast<uint32_t>(std::max<size_t>(device.lcores.size(), 1));
}

wire::VlanTag vlan_tag_of(const DeviceConfig& device) {
  if (!device.vlan_id) return {};
  return {true, wire::vlan_tci(*device.vlan_id, device.vlan_priority)};
}

std::span<const std::string_view> log_levels() {
  return kLogLevels;
}

Config parse_config(std::string_view text, const std::string& path) {
  toml::table table;
  try {
    table = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    throw ConfigError(config_error_line(path, error.source().begin.line, error.description()));
  }

  Config config;
  config.path = path;
  ConfigReader root(path, table, "");
  if (const toml::table* eal = root.table("eal")) config.eal = read_eal(path, *eal);
  if (const toml::table* odp = root.table("odp")) read_odp(path, *odp, config);
  const toml::table* const transport = root.table("transport");
  if (transport != nullptr) read_transport(path, *transport, config);
  if (const toml::table* log = root.table("log")) {
    ConfigReader reader(path, *log, "log");
    config.log_level = kLogLevels[reader.choice("level", kLogLevels, 3)];
    config.log_file = reader.text("file");
    reader.finish();
  }
  if (const toml::table* table_of_switch = root.table("switch"))
    config.wire_switch = read_switch(path, *table_of_switch);
  const toml::array* devices = root.tables("device");
  root.finish();
  if (devices == nullptr) root.fail("device", "is missing; add at least one [[device]]");
  for (const toml::node& device : *devices) config.devices.push_back(read_device(path, *device.as_table()));
  reject_twins(config, root);
  if (transport != nullptr) reject_missing_icrc(config, ConfigReader(path, *transport, "transport"));
  return config;
}

Config load_config(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw ConfigError(
        fmt::format("faultline: {}: cannot read the configuration: {}", path, std::strerror(errno)));
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown))
    throw ConfigError(fmt::format("faultline: {}: is a folder; name a TOML file", path));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad())
    throw ConfigError(
        fmt::format("faultline: {}: cannot read the configuration: {}", path, std::strerror(errno)));
  if (std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isspace(c) != 0; }))
    throw ConfigError(fmt::format("faultline: {}: is empty; add at least one [[device]]", path));
  return parse_config(text, path);
}

}  // namespace faultline::glue
