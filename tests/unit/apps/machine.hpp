// SPDX-License-Identifier: BSD-3-Clause
// Facts of a made-up machine, for tests of `faultline doctor` and `faultline info`.
#pragma once

#include <string>

#include "apps/faultline/checks.hpp"
#include "stack/include/faultline/faultline.h"

namespace faultline::cli {

/// Nothing is missing or limited.
inline Facts whole_machine() {
  Facts facts;
  HostFacts& host = facts.host;
  host.system = "Debian GNU/Linux 12 (bookworm)";
  host.kernel = "6.12.0-1-amd64";
  host.cpu_model = "a CPU";
  host.online_cpus = host.usable_cpus = 4;
  host.memory_bytes = uint64_t{16} << 30;
  host.available_bytes = uint64_t{8} << 30;
  host.shm_bytes = uint64_t{8} << 30;
  host.huge_pages = 64;
  host.locked_bytes = kUnlimited;
  host.descriptors = 1024;
  host.processes = 1000;
  host.capabilities = {"CAP_NET_ADMIN"};
  host.own_addresses = {"198.18.0.1"};
  host.socket_buffer_bytes = kWantedBufferBytes;
  host.directory = "/run/user/1000/faultline";
  host.library = "/usr/lib/faultline/libibverbs.so.1";
  host.switch_program = "/usr/bin/faultline-switch";
  facts.devices = "a wire of its own";
  ProbeReport& program = facts.program;
  program.has_library = true;
  for (const char* name : {"memory hooks", "signal hooks", "userfaultfd", "pins", "process map",
                           "descriptors", "memlock", "restartable copies"})
    program.guards.push_back({name, FAULTLINE_GUARD_WORKS, 0, "it works"});
  program.devices.push_back({.name = "faultline0",
                             .error = {},
                             .port_state = kActivePort,
                             .path_mtu_bytes = 4096,
                             .gids = {"198.18.0.1"}});
  program.transfer.is_complete = true;
  return facts;
}

/// The machine of whole_machine(), with one guard as given.
inline Facts with_guard(const std::string& name, int state, int error, const std::string& text = {}) {
  Facts facts = whole_machine();
  for (GuardReport& guard : facts.program.guards)
    if (guard.name == name) guard = {name, state, error, text};
  return facts;
}

}  // namespace faultline::cli
