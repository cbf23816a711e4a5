// SPDX-License-Identifier: BSD-3-Clause
// What is asked of a wire: which one, and which seat there.
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

/// 1 to 32 letters, digits, _ or -.
[[nodiscard]] bool is_wire_name(std::string_view name);
inline constexpr size_t kMaxWireNameBytes = 32;
/// The address of a side, "a" to "z"; of no other text.
[[nodiscard]] std::optional<uint32_t> ipv4_of_side(std::string_view side);
/// An IPv4 address without a prefix; of no other text.
[[nodiscard]] std::optional<uint32_t> ipv4_of_seat(const std::string& text);

/// Where a wire begins to give out addresses: its user and name decide, so that two wires have different
/// ones. 32 addresses of 198.18.1.0 to 198.19.254.255.
[[nodiscard]] uint32_t first_given_out(std::string_view wire, uint32_t user);
inline constexpr uint32_t kAddressesOfWire = 32;  ///< as many as it has seats

/// $FAULTLINE_WIRE's text: "NAME", "NAME,side=a", "NAME,ip=198.18.0.7", each perhaps with ",share". Nothing,
/// and one line in `error`, where the text is not of that form.
[[nodiscard]] std::optional<WireRequest> parse_wire_request(const std::string& text, std::string& error);

}  // namespace faultline::glue
