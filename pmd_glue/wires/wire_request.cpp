// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/wires/wire_request.hpp"

#include <algorithm>
#include <cctype>

#include <spdlog/fmt/fmt.h>

#include "pmd_glue/link/address_table.hpp"

namespace faultline::glue {
namespace {

/// "a" to "z": the network's first addresses.
constexpr uint32_t kFirstSide = 0xc6120001;  // 198.18.0.1

}  // namespace

bool is_wire_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxWireNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
         });
}

std::optional<uint32_t> ipv4_of_side(std::string_view side) {
  if (side.size() != 1 || side[0] < 'a' || side[0] > 'z') return std::nullopt;
  return kFirstSide + static_cast<uint32_t>(side[0] - 'a');
}

uint32_t first_given_out(std::string_view wire, uint32_t user) {
  constexpr uint32_t kFirst = 0xc6120101;  // 198.18.1.1: after the sides and the common address
  constexpr uint32_t kWires = 0x1fe00 / kAddressesOfWire;
  // FNV-1a: the same value in each process and each version.
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (unsigned shift = 0; shift < 32; shift += 8) add(static_cast<uint8_t>(user >> shift));
  for (const char c : wire) add(static_cast<uint8_t>(c));
  hash ^= hash >> 32;
  return kFirst + static_cast<uint32_t>(hash % kWires) * kAddressesOfWire;
}

std::optional<uint32_t> ipv4_of_seat(const std::string& text) {
  const auto address = parse_address(text);
  if (!address || !address->gid.is_ipv4() || text.find('/') != std::string::npos) return std::nullopt;
  return address->gid.ipv4();
}

std::optional<WireRequest> parse_wire_request(const std::string& text, std::string& error) {
  WireRequest request;
  size_t at = text.find(',');
  request.wire = text.substr(0, at);
  const auto refuse = [&](const std::string& message) {
    error = fmt::format("faultline: wire \"{}\": {}", text, message);
    return std::nullopt;
  };
  while (at != std::string::npos) {
    const size_t end = text.find(',', at + 1);
    const std::string option = text.substr(at + 1, end == std::string::npos ? end : end - at - 1);
    at = end;
    if (option == "share") {
      request.shared = true;
    } else if (option.starts_with("side=")) {
      const auto side = ipv4_of_side(std::string_view(option).substr(5));
      if (!side) return refuse("a side is one letter, a to z");
      request.ipv4 = *side;
    } else if (option.starts_with("ip=")) {
      const auto address = ipv4_of_seat(option.substr(3));
      if (!address) return refuse("an ip is an IPv4 address of 198.18.0.0/15");
      request.ipv4 = *address;
    } else {
      return refuse(fmt::format("\"{}\" is none of side=, ip= and share", option));
    }
  }
  return request;
}

}  // namespace faultline::glue
