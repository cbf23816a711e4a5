// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/config/port_kinds.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cstddef>

#include <net/if.h>
#include <spdlog/fmt/fmt.h>
#include <sys/un.h>

#include "stack/toml/checked_table.hpp"

namespace faultline::glue {
namespace {

std::string read_interface(CheckedTable& reader, std::string_view like) {
  std::string name = reader.required_text("interface", like);
  if (!is_interface_name(name))
    reader.fail("interface",
                fmt::format("\"{}\" is not the name of a network interface (at most {} characters)", name,
                            IFNAMSIZ - 1));
  return name;
}

/// Returns whether the text has hexadecimal digits where the shape has zeros, and is the shape otherwise.
bool has_shape(std::string_view text, std::string_view shape) {
  return text.size() == shape.size() &&
         std::equal(text.begin(), text.end(), shape.begin(), [](char c, char expected) {
           return expected == '0' ? std::isxdigit(static_cast<unsigned char>(c)) != 0 : c == expected;
         });
}

bool is_pci_address(std::string_view text) {
  // domain:bus:device.function, as lspci -D prints it.
  return has_shape(text, "0000:00:00.0");
}

/// Returns whether the text is empty, or arguments of a PMD: ",key=value,key=value" (EAL's -a).
bool is_pmd_arguments(std::string_view text) {
  while (!text.empty()) {
    const std::string_view argument = text.substr(1, text.find(',', 1) - 1);
    const size_t equals = argument.find('=');
    if (text[0] != ',' || equals == 0 || equals == std::string_view::npos || equals + 1 == argument.size() ||
        argument.find_first_of(" \t\n") != std::string_view::npos)
      return false;
    text.remove_prefix(argument.size() + 1);
  }
  return true;
}

// Reads the keys of a seat. Without a name, $FAULTLINE_WIRE is the whole request.
WireRequest read_request(CheckedTable& reader) {
  WireRequest seat;
  seat.wire = reader.text("wire");
  const std::string side = reader.text("side");
  const std::string ip = reader.text("ip");
  reader.read("share", seat.shared);
  if (reader.has("wire") && !is_wire_name(seat.wire))
    reader.fail("wire", fmt::format("must be 1 to {} letters, digits, _ or -", kMaxWireNameBytes));
  for (const char* key : {"side", "ip", "share"})
    if (reader.has(key) && !reader.has("wire")) reader.fail(key, "only goes with wire");
  if (reader.has("side") && reader.has("ip")) reader.fail("ip", "stands instead of side, not beside it");
  if (reader.has("side")) {
    const auto address = ipv4_of_side(side);
    if (!address) reader.fail("side", fmt::format("\"{}\" is not one letter, a to z", side));
    seat.ipv4 = *address;
  }
  if (reader.has("ip")) {
    const auto address = ipv4_of_seat(ip);
    if (!address) reader.fail("ip", fmt::format("\"{}\" is not an IPv4 address such as \"198.18.0.7\"", ip));
    seat.ipv4 = *address;
  }
  return seat;
}

constexpr std::array<std::string_view, 2> kRoles{"server", "client"};
constexpr int kServer = 0;
constexpr int kClient = 1;
constexpr int kRequired = -1;

// Reads the role and the path of a port on a Unix socket.
void read_socket(CheckedTable& reader, PortConfig& port, int default_role, std::string_view like) {
  port.is_server = reader.choice("role", kRoles, default_role) == kServer;
  port.socket = reader.required_text("socket", like);
  if (!is_socket_path(port.socket))
    reader.fail("socket",
                fmt::format("must be a path with a directory, without a comma, of at most {} characters",
                            sizeof(sockaddr_un::sun_path) - 1));
}

void read_memif(CheckedTable& reader, PortConfig& port) {
  read_socket(reader, port, kRequired, "/run/user/1000/faultline.sock");
  // 2^14 is memif's largest.
  reader.read("ring_size", port.ring_size, 32, 1U << 14);
  if (!std::has_single_bit(port.ring_size))
    reader.fail("ring_size", "must be a power of two from 32 to 16384");
}

// The keys of both ends of vhost-user.
void read_vhost_user(CheckedTable& reader, PortConfig& port) {
  read_socket(reader, port, row_of(port.kind).is_server ? kServer : kClient, "/run/user/1000/vm.sock");
  reader.read("queues", port.queues, 1, kMaxCores);
}

void read_ring(CheckedTable& reader, PortConfig& port) {
  constexpr std::array<std::string_view, 2> kSides{"a", "b"};
  port.wire = reader.required_text("wire", "w0");
  if (port.wire.size() > 16) reader.fail("wire", "must be a name of at most 16 characters");
  port.side_b = reader.choice("side", kSides, -1) == 1;
}

void read_tap(CheckedTable& reader, PortConfig& port) {
  port.interface = read_interface(reader, "fl0");
}

void read_kernel_interface(CheckedTable& reader, PortConfig& port) {
  port.interface = read_interface(reader, "veth0");
}

void read_pci(CheckedTable& reader, PortConfig& port) {
  port.address = reader.required_text("address", "0000:01:00.0");
  const std::string_view address = pci_address_of(port.address);
  if (!is_pci_address(address) && !is_vmbus_address(address))
    reader.fail("address", fmt::format("\"{}\" is not a PCI address such as \"0000:01:00.0\"", address));
  if (!is_pmd_arguments(std::string_view(port.address).substr(address.size())))
    reader.fail("address", fmt::format("\"{}\": the PMD's arguments are not such as \"{},key=value\"",
                                       port.address, address));
}

void read_wire(CheckedTable& reader, PortConfig& port) {
  port.request = read_request(reader);
}

void read_udp(CheckedTable& /*reader*/, PortConfig& /*port*/) {}

// net_memif keeps one socket for each path in a process, which either listens or does not. A vhost-user
// socket joins one back end and one front end.
bool share_socket(const PortConfig& a, const PortConfig& b) {
  return a.socket == b.socket;
}

bool share_nic(const PortConfig& a, const PortConfig& b) {
  return pci_address_of(a.address) == pci_address_of(b.address);
}

bool share_end(const PortConfig& a, const PortConfig& b) {
  return a.wire == b.wire && a.side_b == b.side_b;
}

constexpr std::array<PortKindRow, 10> kRows{{
    {.kind = PortKind::memif,
     .name = "memif",
     .address_key = "socket",
     .address = &PortConfig::socket,
     .read = read_memif,
     .stays_in_memory = true,
     .collide = share_socket,
     .collision = "have the same socket"},
    {.kind = PortKind::ring,
     .name = "ring",
     .address_key = "wire",
     .address = &PortConfig::wire,
     .read = read_ring,
     .stays_in_memory = true,
     .collide = share_end,
     .collision = "are on the same side of one wire"},
    {.kind = PortKind::tap,
     .name = "tap",
     .address_key = "interface",
     .address = &PortConfig::interface,
     .read = read_tap,
     .may_be_uplink = true,
     .most_mtu_bytes = kTapMtuBytes},
    {.kind = PortKind::af_packet,
     .name = "af_packet",
     .address_key = "interface",
     .address = &PortConfig::interface,
     .read = read_kernel_interface,
     .may_be_uplink = true},
    {.kind = PortKind::af_xdp,
     .name = "af_xdp",
     .address_key = "interface",
     .address = &PortConfig::interface,
     .read = read_kernel_interface,
     .may_be_uplink = true},
    {.kind = PortKind::pci,
     .name = "pci",
     .address_key = "address",
     .address = &PortConfig::address,
     .read = read_pci,
     .may_be_uplink = true,
     .is_on_pci = true,
     .collide = share_nic,
     .collision = "have the same NIC"},
    {.kind = PortKind::wire, .name = "wire", .address_key = "wire", .address = nullptr, .read = read_wire},
    {.kind = PortKind::vhost,
     .name = "vhost",
     .address_key = "socket",
     .address = &PortConfig::socket,
     .read = read_vhost_user,
     .may_be_uplink = true,
     .is_server = true,
     .collide = share_socket,
     .collision = "have the same socket"},
    {.kind = PortKind::virtio_user,
     .name = "virtio_user",
     .address_key = "socket",
     .address = &PortConfig::socket,
     .read = read_vhost_user,
     .may_be_uplink = true,
     .shares_memory = true,
     .collide = share_socket,
     .collision = "have the same socket"},
    // [[device]] ip has the addresses, which no other device may have.
    {.kind = PortKind::udp,
     .name = "udp",
     .address_key = "kind",
     .address = nullptr,
     .read = read_udp,
     .may_be_uplink = true,
     .has_host_addresses = true},
}};

constexpr bool is_in_order() {
  for (size_t i = 0; i < kRows.size(); ++i)
    if (static_cast<size_t>(kRows[i].kind) != i) return false;
  return true;
}
static_assert(is_in_order());

}  // namespace

std::string_view pci_address_of(std::string_view address) {
  return address.substr(0, address.find(','));
}

bool is_vmbus_address(std::string_view address) {
  return has_shape(address, "00000000-0000-0000-0000-000000000000");
}

std::span<const PortKindRow> port_kinds() {
  return kRows;
}

bool is_interface_name(std::string_view name) {
  return !name.empty() && name.size() < IFNAMSIZ && name.find_first_of("/, \t") == std::string_view::npos;
}

bool is_socket_path(std::string_view path) {
  return path.size() < sizeof(sockaddr_un::sun_path) && path.find(',') == std::string_view::npos &&
         path.find('/') != std::string_view::npos;
}

const PortKindRow& row_of(PortKind kind) {
  return kRows[static_cast<size_t>(kind)];
}

bool any_pci_port(const Config& config) {
  return std::ranges::any_of(config.devices,
                             [](const DeviceConfig& device) { return row_of(device.port.kind).is_on_pci; });
}

std::string_view name_of(PortKind kind) {
  return row_of(kind).name;
}

PortConfig read_port(CheckedTable reader) {
  std::array<std::string_view, kRows.size()> names;
  std::ranges::transform(kRows, names.begin(), &PortKindRow::name);
  PortConfig port;
  port.kind = kRows[reader.choice("kind", names, -1)].kind;
  row_of(port.kind).read(reader, port);
  reader.finish();
  return port;
}

}  // namespace faultline::glue
