// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/top/names.hpp"

#include <array>
#include <string_view>

#include <spdlog/fmt/fmt.h>

#include "stack/wire/link/address_text.hpp"

namespace faultline::cli {
namespace {

std::string with_prefix(double value, double step, std::string_view unit) {
  constexpr std::string_view kPrefixes = " kMGTP";
  size_t prefix = 0;
  while (value >= step && prefix + 1 < kPrefixes.size()) {
    value /= step;
    ++prefix;
  }
  if (prefix == 0)
    return value == static_cast<double>(static_cast<uint64_t>(value)) ? fmt::format("{:.0f}{}", value, unit)
                                                                      : fmt::format("{:.1f}{}", value, unit);
  constexpr double kTwoDigits = 100;
  return fmt::format(fmt::runtime(value < kTwoDigits ? "{:.1f}{}{}" : "{:.0f}{}{}"), value, kPrefixes[prefix],
                     unit);
}

}  // namespace

std::string qp_type_name(uint8_t type) {
  switch (type) {
    case 2:
      return "RC";
    case 3:
      return "UC";
    case 4:
      return "UD";
    case 9:
      return "XRC_SEND";
    case 10:
      return "XRC_RECV";
    default:
      return fmt::format("{}", type);
  }
}

std::string qp_state_name(uint8_t state) {
  constexpr std::array<std::string_view, 7> kNames{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state < kNames.size() ? std::string(kNames[state]) : fmt::format("{}", state);
}

std::string peer_text(const status::QpLive& live) {
  const wire::Gid gid{live.peer_gid};
  return gid.is_zero() ? "-" : fmt::format("{} 0x{:06x}", wire::text_of(gid), live.peer_qpn);
}

std::string short_number(double value) {
  constexpr double kStep = 1000;
  return with_prefix(value, kStep, "");
}

std::string short_bytes(uint64_t bytes) {
  constexpr double kStep = 1024;
  return with_prefix(static_cast<double>(bytes), kStep, "");
}

std::string duration_text(uint64_t ns) {
  if (ns == 0) return "-";
  constexpr std::array<std::string_view, 4> kUnits{"ns", "us", "ms", "s"};
  constexpr double kStep = 1000;
  auto value = static_cast<double>(ns);
  size_t unit = 0;
  while (value >= kStep && unit + 1 < kUnits.size()) {
    value /= kStep;
    ++unit;
  }
  return fmt::format("{:.3g} {}", value, kUnits[unit]);
}

std::string bound_text(uint64_t bound_us) {
  constexpr uint64_t kLastBoundUs = 16384;
  constexpr uint64_t kNsPerUs = 1000;
  if (bound_us == 0) return "-";
  if (bound_us == UINT64_MAX) return ">" + duration_text(kLastBoundUs * kNsPerUs);
  return "<" + duration_text(bound_us * kNsPerUs);
}

}  // namespace faultline::cli
