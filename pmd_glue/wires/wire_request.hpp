// SPDX-License-Identifier: BSD-3-Clause
// A request for a seat: the wire's name and the seat's address.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace faultline::glue {

struct WireRequest {
  std::string wire;
  uint32_t ipv4 = 0;  ///< host order; 0: any
  bool shared = false;
};

/// True for 1 to 32 letters, digits, _ or -.
[[nodiscard]] bool is_wire_name(std::string_view name);
inline constexpr size_t kMaxWireNameBytes = 32;
/// Returns the address of side "a" to "z"; nullopt for any other text.
[[nodiscard]] std::optional<uint32_t> ipv4_of_side(std::string_view side);
/// Parses an IPv4 address without a prefix length; nullopt for any other text.
[[nodiscard]] std::optional<uint32_t> ipv4_of_seat(const std::string& text);

/// Returns the first address that a wire gives out: a hash of the user and the name, so that two wires rarely
/// share addresses. Each wire has 32 addresses of 198.18.1.1 to 198.19.255.0.
[[nodiscard]] uint32_t first_given_out(std::string_view wire, uint32_t user);
inline constexpr uint32_t kAddressesOfWire = 32;  ///< one for each seat

/// Parses $FAULTLINE_WIRE: "NAME", "NAME,side=a" or "NAME,ip=198.18.0.7", each optionally with ",share".
/// Returns nullopt with one line in `error` for any other form.
[[nodiscard]] std::optional<WireRequest> parse_wire_request(const std::string& text, std::string& error);

}  // namespace faultline::glue
