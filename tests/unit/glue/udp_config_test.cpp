// SPDX-License-Identifier: BSD-3-Clause
// The configuration of devices on the host's own addresses.
#include "pmd_glue/config/udp_config.hpp"

#include <string>

#include <gtest/gtest.h>

#include "tests/unit/glue/config_texts.hpp"

namespace faultline::glue::udp_config_test {
namespace {

TEST(UdpConfig, ADeviceHasNothingThatTheKernelDecides) {
  const auto text = [](const std::string& key) {
    return "[[device]]\nname = \"d\"\n" + key + "\n[device.port]\nkind = \"udp\"\n";
  };
  EXPECT_TRUE(parse_config(text(""), "f.toml").devices.at(0).addresses.empty());
  const DeviceConfig device =
      parse_config(text("ip = [\"198.18.0.1\", \"2001:2::1\"]"), "f.toml").devices.at(0);
  EXPECT_EQ(device.addresses.size(), 2U);
  EXPECT_EQ(device.mac, mac_of(device.addresses[0].gid));
  for (const char* key : {"mac = \"02:00:00:00:00:01\"", "vlan = 1", "gateway = \"198.18.0.2\""})
    EXPECT_NE(error_of(text(key)).find(": is the kernel's with a port of kind udp, which has its addresses"),
              std::string::npos)
        << key;
  EXPECT_NE(error_of(text("ip = \"198.18.0.0/24\"")).find("is the address of a network"), std::string::npos);
}

std::string udp_error_of(const std::string& request) {
  try {
    Config config = udp_config(request);
    find_host_addresses(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(UdpConfig, ADeviceHasAddressesOfTheHost) {
  EXPECT_EQ(udp_config("198.18.0.1,2001:2::1").devices.at(0).addresses.size(), 2U);
  EXPECT_TRUE(udp_config("default").devices.at(0).addresses.empty());
  for (const char* request : {"", "198.18.0.1,", "198.18.0.1/24", "127.0.0.1", "x"})
    EXPECT_NE(udp_error_of(request).find("is not an address of a host"), std::string::npos) << request;
  // RFC 5737: no host has an address of TEST-NET-3.
  EXPECT_EQ(udp_error_of("203.0.113.1"),
            "faultline: udp: faultline0: device.ip: no interface of this host has the address 203.0.113.1; a "
            "port of kind udp has an address of the host (ip address)");
}

}  // namespace
}  // namespace faultline::glue::udp_config_test
