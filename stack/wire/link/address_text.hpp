// SPDX-License-Identifier: BSD-3-Clause
// Addresses as text, for messages.
#pragma once

#include <cstdint>
#include <string>

#include "stack/wire/packet/headers.hpp"

namespace faultline::wire {

/// "198.18.0.1" or "fe80::1".
[[nodiscard]] std::string text_of(const Gid& gid);
/// "198.18.0.1", of an address in host byte order.
[[nodiscard]] std::string text_of_ipv4(uint32_t ipv4);

}  // namespace faultline::wire
