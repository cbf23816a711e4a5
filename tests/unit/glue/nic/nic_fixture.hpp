// SPDX-License-Identifier: BSD-3-Clause
// A port of kind pci on a model NIC.
#pragma once

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "pmd_glue/config/config.hpp"
#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/link/address_table.hpp"
#include "pmd_glue/ports/port.hpp"
#include "tests/unit/glue/model_nic.hpp"

namespace faultline::test {

class NicFixture : public testing::Test {
 protected:
  void SetUp() override {
    config.path = "nic.toml";
    config.eal.memory_mib = 256;
    config.domain.monitor_invalidations = false;
    std::string failure;
    ASSERT_TRUE(glue::start_eal(config, failure)) << failure;
    device.name = "nic0";
    device.addresses = {*glue::parse_address("198.18.0.1/24")};
    device.port.kind = glue::PortKind::pci;
  }

  std::unique_ptr<glue::EthernetPort> open(const ModelNic& nic) {
    device.port.address = nic.name();
    config.devices = {device};
    std::string error;
    auto port = glue::EthernetPort::open(config, device, error);
    EXPECT_NE(port, nullptr) << error;
    return port;
  }

  glue::Config config;
  glue::DeviceConfig device;
};

}  // namespace faultline::test
