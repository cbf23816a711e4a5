// SPDX-License-Identifier: BSD-3-Clause
// Names of verbs' enum values, identical to rdma-core's, because programs print and compare them.
#include <array>

#include "stack/verbs/objects/objects.hpp"

namespace faultline::verbs {

namespace {

template <size_t N>
const char* name_at(const std::array<const char*, N>& names, int value) {
  return value >= 0 && static_cast<size_t>(value) < N && names[static_cast<size_t>(value)] != nullptr
             ? names[static_cast<size_t>(value)]
             : "unknown";
}

}  // namespace

FAULTLINE_VERB const char* ibv_node_type_str(ibv_node_type type) {
  static constexpr std::array<const char*, 8> names{nullptr,
                                                    "InfiniBand channel adapter",
                                                    "InfiniBand switch",
                                                    "InfiniBand router",
                                                    "iWARP NIC",
                                                    "usNIC",
                                                    "usNIC UDP",
                                                    "unspecified"};
  return name_at(names, type);
}

FAULTLINE_VERB const char* ibv_port_state_str(ibv_port_state state) {
  static constexpr std::array<const char*, 6> names{
      "no state change (NOP)", "down", "init", "armed", "active", "active defer"};
  return name_at(names, state);
}

FAULTLINE_VERB const char* ibv_event_type_str(ibv_event_type event) {
  static constexpr std::array<const char*, 20> names{"CQ error",
                                                     "local work queue catastrophic error",
                                                     "invalid request local work queue error",
                                                     "local access violation work queue error",
                                                     "communication established",
                                                     "send queue drained",
                                                     "path migrated",
                                                     "path migration request error",
                                                     "local catastrophic error",
                                                     "port active",
                                                     "port error",
                                                     "LID change",
                                                     "P_Key change",
                                                     "SM change",
                                                     "SRQ catastrophic error",
                                                     "SRQ limit reached",
                                                     "last WQE reached",
                                                     "client reregistration",
                                                     "GID table change",
                                                     "WQ fatal"};
  return name_at(names, event);
}

FAULTLINE_VERB const char* ibv_wc_status_str(ibv_wc_status status) {
  static constexpr std::array<const char*, 24> names{"success",
                                                     "local length error",
                                                     "local QP operation error",
                                                     "local EE context operation error",
                                                     "local protection error",
                                                     "Work Request Flushed Error",
                                                     "memory management operation error",
                                                     "bad response error",
                                                     "local access error",
                                                     "remote invalid request error",
                                                     "remote access error",
                                                     "remote operation error",
                                                     "transport retry counter exceeded",
                                                     "RNR retry counter exceeded",
                                                     "local RDD violation error",
                                                     "remote invalid RD request",
                                                     "aborted error",
                                                     "invalid EE context number",
                                                     "invalid EE context state",
                                                     "fatal error",
                                                     "response timeout error",
                                                     "general error",
                                                     "TM error",
                                                     "TM software rendezvous"};
  return name_at(names, status);
}

namespace {

struct Rate {
  ibv_rate rate;
  int mult;  ///< multiple of 2.5 Gb/s; 0 if not a whole one
  int mbps;
};
// ibv_rate_to_mult(3), ibv_rate_to_mbps(3); IBA table 224. FDR and EDR lanes have no whole multiple.
constexpr std::array<Rate, 23> kRates{{
    {IBV_RATE_2_5_GBPS, 1, 2500},     {IBV_RATE_5_GBPS, 2, 5000},         {IBV_RATE_10_GBPS, 4, 10000},
    {IBV_RATE_20_GBPS, 8, 20000},     {IBV_RATE_30_GBPS, 12, 30000},      {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},    {IBV_RATE_80_GBPS, 32, 80000},      {IBV_RATE_120_GBPS, 48, 120000},
    {IBV_RATE_14_GBPS, 0, 14062},     {IBV_RATE_56_GBPS, 0, 56250},       {IBV_RATE_112_GBPS, 0, 112500},
    {IBV_RATE_168_GBPS, 0, 168750},   {IBV_RATE_25_GBPS, 0, 25781},       {IBV_RATE_100_GBPS, 0, 103125},
    {IBV_RATE_200_GBPS, 0, 206250},   {IBV_RATE_300_GBPS, 0, 309375},     {IBV_RATE_28_GBPS, 11, 28125},
    {IBV_RATE_50_GBPS, 20, 53125},    {IBV_RATE_400_GBPS, 160, 425000},   {IBV_RATE_600_GBPS, 240, 637500},
    {IBV_RATE_800_GBPS, 320, 850000}, {IBV_RATE_1200_GBPS, 480, 1275000},
}};

int find_rate(ibv_rate rate, int Rate::*field) {
  for (const Rate& known : kRates)
    if (known.rate == rate && known.*field != 0) return known.*field;
  return -1;
}

ibv_rate find_value(int value, int Rate::*field) {
  for (const Rate& known : kRates)
    if (known.*field == value && value != 0) return known.rate;
  return IBV_RATE_MAX;
}

}  // namespace

FAULTLINE_VERB int ibv_rate_to_mult(ibv_rate rate) {
  return find_rate(rate, &Rate::mult);
}
FAULTLINE_VERB ibv_rate mult_to_ibv_rate(int mult) {
  return find_value(mult, &Rate::mult);
}
FAULTLINE_VERB int ibv_rate_to_mbps(ibv_rate rate) {
  return find_rate(rate, &Rate::mbps);
}
FAULTLINE_VERB ibv_rate mbps_to_ibv_rate(int mbps) {
  return find_value(mbps, &Rate::mbps);
}

}  // namespace faultline::verbs
