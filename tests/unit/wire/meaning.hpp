// SPDX-License-Identifier: BSD-3-Clause
// From a parsed packet to its meaning and back to a frame; and the property that every input of `parse` must
// have.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "stack/wire/packet/frame.hpp"
#include "stack/wire/packet/packet.hpp"
#include "tests/unit/wire/capture.hpp"

namespace faultline::wire::test {

[[nodiscard]] PathHeader path_of(const Packet& packet);
[[nodiscard]] PacketFields fields_of(const Packet& packet);

/// A frame built by FrameTemplate; empty where it refuses.
[[nodiscard]] Frame build(const PathHeader& path, const PacketFields& fields,
                          std::span<const uint8_t> payload,
                          uint8_t checksums = static_cast<uint8_t>(Checksums::ip_in_software));

[[nodiscard]] inline Frame rebuild(const Packet& packet) {
  return build(path_of(packet), fields_of(packet), packet.payload());
}

/// Ones over the bytes of the frame that its meaning does not fix: reserved bits, pad, checksums, IPv4 flags,
/// ICRC and what trails the packet.
void mask_free_bytes(const Packet& packet, std::span<uint8_t> frame);

/// The oracle of the fuzzer and of its replay. Parses `frame` (as given and with the checksums taken as
/// verified). Where that succeeds, every accessor is called and must be in bounds, and the rebuilt frame must
/// agree in all bytes that the meaning fixes. Returns what is wrong, or an empty string. Sets `parsed` where
/// the frame was accepted.
[[nodiscard]] std::string check_parse(std::span<const uint8_t> frame, bool* parsed = nullptr);

}  // namespace faultline::wire::test
