// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/wire_config.hpp"

#include "pmd_glue/switch_seat.hpp"

namespace faultline::glue {
namespace {

constexpr uint8_t kIpv4PrefixBits = 96;  ///< ::ffff:0:0/96

DeviceConfig device_of(const std::shared_ptr<SwitchSeat>& seat) {
  const SwitchGrant& grant = seat->grant();
  DeviceConfig device;
  device.name = "faultline0";
  device.addresses = {
      {wire::Gid::from_ipv4(grant.ipv4), static_cast<uint8_t>(kIpv4PrefixBits + grant.prefix_bits)}};
  device.mac.bytes = grant.mac;
  device.mtu_bytes = grant.mtu_bytes;
  device.port.kind = PortKind::memif;
  device.port.socket = grant.memif_socket.data();
  device.seat = seat;
  return device;
}

}  // namespace

Config wire_config(const std::string& text) {
  std::string error;
  const auto request = parse_wire_request(text, error);
  if (!request) throw ConfigError(error);
  const std::shared_ptr<SwitchSeat> seat = SwitchSeat::take(*request, error);
  if (seat == nullptr) throw ConfigError(error);
  Config config;
  config.path = "wire " + request->wire;
  config.devices.push_back(device_of(seat));
  return config;
}

}  // namespace faultline::glue
