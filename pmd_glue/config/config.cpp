// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/config/config.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include <net/if.h>
#include <sched.h>
#include <spdlog/fmt/fmt.h>
#include <sys/un.h>

#include "pmd_glue/config/config_keys.hpp"
#include "pmd_glue/config/port_kinds.hpp"
#include "stack/base/process/file_text.hpp"
#include "stack/toml/checked_table.hpp"

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

/// Before any value: a misspelt key is the likely cause of a missing one.
void check_keys(const CheckedTable& table) {
  if (const auto key = table.first_other(keys_of(table.name())))
    table.fail(*key, unknown_key_message(table.name(), *key));
}

EalConfig read_eal(CheckedTable reader) {
  EalConfig eal;
  reader.read("huge_pages", eal.huge_pages);
  reader.read("memory_mib", eal.memory_mib, 64, 1U << 20);
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

void read_odp(CheckedTable reader, Config& config) {
  odp::DomainConfig& domain = config.domain;
  transport::CoreConfig& core = config.core;
  reader.read("pin_budget_mib", domain.pin_budget_bytes, 0, uint64_t{1} << 32, 1U << 20);
  reader.read("monitor", domain.monitor_invalidations);
  reader.read("realtime_pager", domain.realtime_pager);
  reader.read("watch_files", domain.userfault_async);
  reader.read("allow_unguarded", domain.allow_unguarded);
  constexpr std::array<std::string_view, 2> kUnpinned{"allow", "refuse"};
  domain.refuse_unpinned_classic =
      reader.choice("unpinned_classic", kUnpinned, domain.refuse_unpinned_classic ? 1 : 0) == 1;
  reader.read("pager_threads", domain.pager_threads, 1, 64);
  reader.read("implicit_children", domain.implicit_children, 64, 1U << 20);
  constexpr std::array<std::string_view, 3> kStalls{"park", "rnr", "park-then-rnr"};
  reader.read("stall", core.stall, kStalls);
  reader.read("answer_deadline_us", core.answer_deadline_ns, 0, 1'000'000, 1000);
  reader.read("park_deadline_us", core.park_deadline_ns, 0, 1'000'000, 1000);
  reader.read("unreliable_deadline_us", core.unreliable_deadline_ns, 0, 60'000'000, 1000);
  reader.read("park_packets_per_qp", core.park_packets_per_qp, 0, 4096);
  reader.read("park_packets_total", core.park_packets_total, 0, 4096);
  reader.read("rnr_timer_code", core.fault_rnr_timer, 0, 31);
  reader.finish();
}

constexpr uint64_t kBytesPerMbit = 125'000;

void read_dcqcn(CheckedTable reader, transport::DcqcnConfig& dcqcn) {
  dcqcn.gain = 1.0 / static_cast<double>(reader.number("gain_divisor", 256, 1, 1U << 20));
  reader.read("alpha_timer_us", dcqcn.alpha_timer_ns, 1, 1'000'000, 1000);
  reader.read("increase_timer_us", dcqcn.increase_timer_ns, 1, 1'000'000, 1000);
  reader.read("increase_bytes", dcqcn.increase_bytes, 1, uint64_t{1} << 40);
  reader.read("fast_recovery_rounds", dcqcn.fast_recovery_rounds, 1, 1000);
  const auto rate = [&reader](std::string_view key, uint64_t& bytes_per_s) {
    reader.read(key, bytes_per_s, 1, 1'000'000, kBytesPerMbit);
  };
  rate("additive_mbit_per_s", dcqcn.additive_bytes_per_s);
  rate("hyper_mbit_per_s", dcqcn.hyper_bytes_per_s);
  rate("min_mbit_per_s", dcqcn.min_bytes_per_s);
  rate("line_mbit_per_s", dcqcn.line_bytes_per_s);
  reader.finish();
}

void read_swift(CheckedTable reader, transport::SwiftConfig& swift) {
  reader.read("target_delay_us", swift.target_delay_ns, 1, 10'000'000, 1000);
  reader.read("scaling_range_us", swift.scaling_range_ns, 0, 10'000'000, 1000);
  const auto packets = [&reader](std::string_view key, double& value) {
    value = static_cast<double>(reader.number(key, static_cast<uint64_t>(value), 1, 65536));
  };
  packets("initial_window_packets", swift.initial_window_packets);
  packets("max_window_packets", swift.max_window_packets);
  packets("additive_packets", swift.additive_packets);
  reader.read("min_mbit_per_s", swift.min_bytes_per_s, 1, 1'000'000, kBytesPerMbit);
  const auto percent = [&reader](std::string_view key, double& value) {
    value = static_cast<double>(reader.number(key, static_cast<uint64_t>(value * 100), 1, 99)) / 100;
  };
  percent("beta_percent", swift.beta);
  percent("max_decrease_percent", swift.max_decrease);
  reader.finish();
}

void read_congestion(CheckedTable reader, transport::CongestionConfig& congestion) {
  constexpr std::array<std::string_view, 3> kAlgorithms{"none", "dcqcn", "swift"};
  reader.read("algorithm", congestion.algorithm, kAlgorithms);
  reader.read("cnp_interval_us", congestion.cnp_interval_ns, 0, 1'000'000, 1000);
  read_dcqcn(reader.table("dcqcn"), congestion.dcqcn);
  read_swift(reader.table("swift"), congestion.swift);
  reader.finish();
}

void read_transport(CheckedTable reader, Config& config) {
  transport::CoreConfig& core = config.core;
  reader.read("window_packets", core.window_packets, 1, 65536);
  reader.read("selective_ack", core.selective_ack);
  reader.read("early_probe", core.early_probe);
  reader.read("credits", core.credits);
  reader.read("reorder_packets_per_qp", core.reorder_packets_per_qp, 0, 256);
  reader.read("ack_every_packets", core.ack_every_packets, 1, 65536);
  reader.read("rxe_flush_icrc", core.rxe_flush_icrc);
  reader.read("udp_checksum", config.udp_checksum);
  reader.read("icrc", config.icrc);
  read_congestion(reader.table("congestion"), core.congestion);
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

void read_addresses(CheckedTable& reader, DeviceConfig& device) {
  reader.require("ip", "give one, such as \"198.18.0.1/24\"");
  for (const std::string& text : reader.text_or_list("ip")) {
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

void read_vlan(CheckedTable& reader, DeviceConfig& device) {
  // IEEE 802.1Q, 9.6: VLAN ID 0 is no VLAN, 4095 is reserved.
  if (reader.has("vlan")) reader.read("vlan", device.vlan_id.emplace(), 1, 4094);
  reader.read("vlan_priority", device.vlan_priority, 0, 7);
  if (reader.has("vlan_priority") && !device.vlan_id) reader.fail("vlan_priority", "only goes with vlan");
}

// A gateway must be a neighbour.
void check_gateway(const CheckedTable& reader, std::string_view key, const wire::Gid& via,
                   const std::string& text, const DeviceConfig& device) {
  const bool on_link =
      wire::is_link_local(via) || std::any_of(device.addresses.begin(), device.addresses.end(),
                                              [&](const IpNetwork& own) { return own.contains(via); });
  const bool own = std::any_of(device.addresses.begin(), device.addresses.end(),
                               [&](const IpNetwork& address) { return address.gid == via; });
  if (!on_link || own)
    reader.fail(key, fmt::format("\"{}\" is not another host on a network of this device", text));
}

void read_routes(CheckedTable& reader, DeviceConfig& device) {
  for (const std::string& text : reader.text_or_list("gateway")) {
    const auto gateway = parse_address(text);
    if (!gateway || text.find('/') != std::string::npos)
      reader.fail("gateway", fmt::format("\"{}\" is not an address such as \"198.18.0.254\"", text));
    check_gateway(reader, "gateway", gateway->gid, text, device);
    device.routes.push_back({*parse_network(gateway->gid.is_ipv4() ? "0.0.0.0/0" : "::/0"), gateway->gid});
  }
  for (CheckedTable& route : reader.tables("route")) {
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

void read_lcores(CheckedTable& reader, DeviceConfig& device) {
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

ChaosConfig read_chaos(CheckedTable reader) {
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
  reader.read("delay_us", chaos.link.delay_ns, 0, kMostUs, 1000);
  reader.read("delay_jitter_us", chaos.link.delay_jitter_ns, 0, kMostUs, 1000);
  reader.read("fault_delay_us", chaos.faults.delay_ns, 0, kMostUs, 1000);
  chaos.faults.failure = reader.ratio("fault_failure");
  reader.read("seed", chaos.link.seed);
  chaos.faults.seed = chaos.link.seed;
  reader.finish();
  return chaos;
}

DeviceConfig read_device(CheckedTable reader) {
  DeviceConfig device;
  device.name = reader.required_text("name", "faultline0");
  // IBV_SYSFS_NAME_MAX is 64, and the name becomes part of port and file names.
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  };
  if (device.name.size() > 24 || !std::all_of(device.name.begin(), device.name.end(), is_plain))
    reader.fail("name", "must be 1 to 24 letters, digits, _ or -");

  const auto kind = reader.raw()["port"]["kind"].value<std::string_view>();
  if (kind == name_of(PortKind::wire)) {
    for (const char* key : {"ip", "mac", "gateway", "route"})
      if (reader.has(key))
        reader.fail(key, "is what the wire gives out; [device.port] may ask for an ip or a side");
  } else if (kind == name_of(PortKind::udp)) {
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
  if (reader.has("mtu")) reader.read("mtu", device.mtu_bytes.emplace(), kLeastMtuBytes, 9000);
  read_vlan(reader, device);
  reader.read("dscp", device.dscp, 0, 63);
  read_routes(reader, device);

  // "inline" is an older name of "auto".
  constexpr std::array<std::string_view, 3> kModes{"auto", "dedicated", "inline"};
  device.progress = reader.choice("progress", kModes, 0) == 1 ? Progress::dedicated : Progress::automatic;
  read_lcores(reader, device);
  reader.read("vendor_id", device.vendor_id, 0, 0xffffff);
  reader.read("vendor_part_id", device.vendor_part_id, 0, UINT32_MAX);
  device.firmware = reader.text("firmware");
  // ibv_device_attr::fw_ver has 64 bytes, and ends with a zero.
  if (device.firmware.size() > 63) reader.fail("firmware", "must be at most 63 bytes");
  constexpr std::array<uint32_t, 5> kWidths{1, 2, 4, 8, 12};
  reader.read("active_width", device.active_width, 1, 12);
  if (std::find(kWidths.begin(), kWidths.end(), device.active_width) == kWidths.end())
    reader.fail("active_width", "must be 1, 2, 4, 8 or 12 lanes");
  reader.read("active_speed", device.active_speed, kLinkSpeeds);
  reader.read("device_memory_kib", device.device_memory_bytes, 0, 1U << 20, 1U << 10);
  reader.read("min_ack_timeout_ms", device.min_ack_timeout_ns, 0, 60'000, 1'000'000);
  device.capture = reader.text("capture");
  reader.read("publish", device.publish);
  reader.require("port", "add a table [device.port] with a kind");
  device.port = read_port(reader.table("port"));
  device.chaos = read_chaos(reader.table("chaos"));
  const PortKindRow& row = row_of(device.port.kind);
  if (row.most_mtu_bytes != 0 && device.mtu_bytes.value_or(0) > row.most_mtu_bytes)
    reader.fail("mtu", fmt::format("a {} port carries at most {}", row.name, row.most_mtu_bytes));
  reader.finish();
  return device;
}

SwitchConfig read_switch(CheckedTable reader) {
  SwitchConfig config;
  config.exception = reader.text("exception");
  if (reader.has("exception") && !is_interface_name(config.exception))
    reader.fail("exception", fmt::format("\"{}\" is not the name of a network interface such as \"fl0\"",
                                         config.exception));
  reader.read("program_rate_mbps", config.program_rate_mbps, 1, kMostRateMbps);
  reader.read("uplink_rate_mbps", config.uplink_rate_mbps, 1, kMostRateMbps);
  reader.finish();
  return config;
}

bool share_address(const DeviceConfig& a, const DeviceConfig& b) {
  return std::any_of(a.addresses.begin(), a.addresses.end(), [&](const IpNetwork& one) {
    return std::any_of(b.addresses.begin(), b.addresses.end(),
                       [&](const IpNetwork& other) { return one.gid == other.gid; });
  });
}

void reject_twins(const Config& config, const CheckedTable& root) {
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
void reject_missing_icrc(const Config& config, const CheckedTable& transport) {
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
  const CheckedFile file{"faultline", path, raise_as<ConfigError>, check_keys};
  const toml::table table = file.parse(text);
  Config config;
  config.path = path;
  CheckedTable root(file, &table);
  config.eal = read_eal(root.table("eal"));
  read_odp(root.table("odp"), config);
  const CheckedTable transport = root.table("transport");
  read_transport(transport, config);
  CheckedTable log = root.table("log");
  config.log_level = kLogLevels[log.choice("level", kLogLevels, 3)];
  config.log_file = log.text("file");
  log.finish();
  config.wire_switch = read_switch(root.table("switch"));
  root.require("device", "add at least one [[device]]");
  for (CheckedTable& device : root.tables("device")) config.devices.push_back(read_device(std::move(device)));
  root.finish();
  reject_twins(config, root);
  reject_missing_icrc(config, transport);
  return config;
}

Config load_config(const std::string& path) {
  const std::optional<std::string> text = text_of_file(path);
  if (!text && errno == EISDIR)
    throw ConfigError(fmt::format("faultline: {}: is a folder; name a TOML file", path));
  if (!text)
    throw ConfigError(
        fmt::format("faultline: {}: cannot read the configuration: {}", path, std::strerror(errno)));
  if (std::all_of(text->begin(), text->end(), [](unsigned char c) { return std::isspace(c) != 0; }))
    throw ConfigError(fmt::format("faultline: {}: is empty; add at least one [[device]]", path));
  return parse_config(*text, path);
}

}  // namespace faultline::glue
