// SPDX-License-Identifier: BSD-3-Clause
// Configuration texts that tests start from.
#pragma once

#include <string>
#include <string_view>

#include "pmd_glue/config/config.hpp"

namespace faultline::glue {

inline constexpr std::string_view kDevice = R"([[device]]
name = "faultline0"
ip = "198.18.0.1/24"
[device.port]
kind = "memif"
role = "server"
socket = "/tmp/x.sock"
)";

inline std::string error_of(const std::string& text) {
  try {
    static_cast<void>(parse_config(text, "f.toml"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

inline std::string with_device_key(const std::string& key_and_value) {
  return "[[device]]\nname = \"d\"\nip = \"198.18.0.1/24\"\n" + key_and_value +
         "\n[device.port]\nkind = \"tap\"\ninterface = \"fl0\"\n";
}

inline std::string with_port(const std::string& port) {
  return "[[device]]\nname = \"d\"\nip = \"198.18.0.1/24\"\n[device.port]\n" + port;
}

inline std::string with_chaos(const std::string& key_and_value) {
  return with_port("kind = \"tap\"\ninterface = \"fl0\"\n[device.chaos]\n" + key_and_value);
}

}  // namespace faultline::glue
