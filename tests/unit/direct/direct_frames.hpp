// SPDX-License-Identifier: BSD-3-Clause
// Frames between the processes of a wire, and the shared memory between two of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rte_mbuf.h>
#include <sys/eventfd.h>

#include "pmd_glue/eal/mbuf_view.hpp"
#include "pmd_glue/link/address_table.hpp"
#include "pmd_glue/wires/inbox.hpp"
#include "pmd_glue/wires/sealed_memory.hpp"
#include "pmd_glue/wires/switch_protocol.hpp"
#include "stack/wire/link/link.hpp"
#include "stack/wire/mad/mad.hpp"
#include "stack/wire/packet/frame.hpp"

namespace faultline::glue::test {

using Bytes = std::vector<uint8_t>;

/// The grant of a process with that seat, at 198.18.2.SEAT.
inline SwitchGrant grant_of(uint32_t seat) {
  SwitchGrant grant;
  grant.ipv4 = 0xc6120200 + seat;
  grant.prefix_bits = 15;
  grant.range = kFirstRange;
  grant.port = seat;
  grant.mac = mac_of(wire::Gid::from_ipv4(grant.ipv4)).bytes;
  return grant;
}

/// A datagram with `number` as its payload. `change` may falsify its addresses.
template <typename Change>
Bytes roce_frame(const SwitchGrant& from, const SwitchGrant& to, uint32_t number, uint32_t qpn,
                 Change change) {
  wire::PathHeader path;
  path.source_mac.bytes = from.mac;
  path.destination_mac.bytes = to.mac;
  path.source_gid = wire::Gid::from_ipv4(from.ipv4);
  path.destination_gid = wire::Gid::from_ipv4(to.ipv4);
  change(path);
  const wire::FrameTemplate made(path);
  wire::PacketFields fields;
  fields.bth.opcode = wire::Opcode::ud_send_only;
  fields.bth.destination_qpn = qpn;
  Bytes frame(made.frame_bytes(fields.bth.opcode, sizeof number));
  std::memcpy(made.write_headers(frame, fields, sizeof number), &number, sizeof number);
  made.seal(frame, fields.bth.opcode, sizeof number);
  return frame;
}
inline Bytes roce_frame(const SwitchGrant& from, const SwitchGrant& to, uint32_t number, uint32_t qpn = 77) {
  return roce_frame(from, to, number, qpn, [](wire::PathHeader&) {});
}
inline uint32_t number_of(std::span<const uint8_t> frame) {
  uint32_t number = 0;
  std::memcpy(&number, frame.data() + frame.size() - wire::kIcrcBytes - sizeof number, sizeof number);
  return number;
}

inline rte_mbuf* mbuf_of(rte_mempool* pool, const Bytes& bytes) {
  rte_mbuf* const frame = rte_pktmbuf_alloc(pool);
  if (frame == nullptr) return nullptr;
  std::copy(bytes.begin(), bytes.end(), rte_pktmbuf_mtod(frame, uint8_t*));
  set_length(frame, bytes.size());
  return frame;
}
inline Bytes take_bytes(rte_mbuf* frame) {
  const auto bytes = bytes_of(frame);
  Bytes copy(bytes.begin(), bytes.end());
  rte_pktmbuf_free(frame);
  return copy;
}

/// The inbox of a process, and its event.
struct OwnInbox {
  std::unique_ptr<Inbox> inbox = Inbox::create();
  UniqueFd event{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  /// As a peer has it.
  [[nodiscard]] std::unique_ptr<Inbox> for_peer() const {
    return Inbox::adopt(UniqueFd(fcntl(inbox->memory(), F_DUPFD_CLOEXEC, 0)),
                        UniqueFd(fcntl(event.get(), F_DUPFD_CLOEXEC, 0)));
  }
  /// Returns how often it was woken since the last call.
  [[nodiscard]] uint64_t take_wakes() const {
    uint64_t wakes = 0;
    return read(event.get(), &wakes, sizeof wakes) == ssize_t{sizeof wakes} ? wakes : 0;
  }
};

}  // namespace faultline::glue::test
