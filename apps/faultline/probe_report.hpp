// SPDX-License-Identifier: BSD-3-Clause
// What a program on the library finds on this machine: the answer of a probe (probe.hpp) to the process that
// started it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace faultline::cli {

/// One row of faultline_query_guards().
struct GuardReport {
  std::string name = {};
  int state = 0;  ///< faultline_guard_state
  int error = 0;  ///< errno, or 0
  std::string text = {};
};

struct DeviceReport {
  std::string name = {};
  std::string error = {};  ///< one line if the device could not be opened; then nothing below is set
  std::string port_state = {};
  uint32_t path_mtu_bytes = 0;
  std::vector<std::string> gids = {};
  int max_qp = 0;
  int max_qp_wr = 0;
  int max_sge = 0;
  int max_cq = 0;
  int max_cqe = 0;
  int max_mr = 0;
  int max_srq = 0;
};

/// A WRITE from classic memory of the first device to on-demand memory of the same device.
struct TransferReport {
  bool is_complete = false;          ///< every byte arrived
  std::string error = {};            ///< the call that failed, if it did
  std::string on_demand_error = {};  ///< why the memory is not on-demand memory
};

struct ProbeReport {
  bool has_library = false;  ///< the library is in the program
  std::string error = {};    ///< one line; why there are no devices, or no answer
  std::vector<GuardReport> guards = {};
  std::vector<DeviceReport> devices = {};
  TransferReport transfer;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GuardReport, name, state, error, text)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceReport, name, error, port_state, path_mtu_bytes, gids, max_qp,
                                   max_qp_wr, max_sge, max_cq, max_cqe, max_mr, max_srq)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TransferReport, is_complete, error, on_demand_error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProbeReport, has_library, error, guards, devices, transfer)

/// ibv_port_state_str() of a port that carries data.
inline constexpr const char* kActivePort = "active";

}  // namespace faultline::cli
