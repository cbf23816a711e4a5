// SPDX-License-Identifier: BSD-3-Clause
// Builds one frame in a transmit buffer and commits it: headers, payload, seal. Every frame of the transport
// is built here.
#pragma once

#include <cassert>
#include <cstdint>
#include <span>

#include "stack/base/probes.hpp"
#include "stack/transport/context/context.hpp"
#include "stack/transport/context/recorder.hpp"
#include "stack/wire/packet/frame.hpp"

namespace faultline::transport {

/// Returns a transmit buffer, or nullptr while the port is full; then the QP becomes ready, to try again.
[[nodiscard]] [[gnu::always_inline]] inline TxFrame* next_frame(CoreContext& context, QueuePair& qp) {
  TxFrame* const frame = context.tx.next();
  if (frame == nullptr) [[unlikely]]
    context.make_ready(qp);
  return frame;
}

/// How the bytes of a frame are completed.
struct FrameForm {
  bool loopback = false;
  /// The payload is copied by a function that can compute its CRC in the same pass.
  bool crc_in_copy = false;
  wire::IcrcForm icrc = wire::IcrcForm::specified;
};

/// Builds and commits a frame in `frame`, from next_frame() or TxBatch::next(). `fill(to, crc)` writes the
/// payload to `to`, updates `crc` over it unless that is null, and returns false if it cannot. Returns the
/// frame's length, or 0 if `fill` failed: then nothing is committed, and the buffer is free for another
/// frame.
template <typename Fill>
[[nodiscard]] [[gnu::always_inline]] inline uint32_t emit(CoreContext& context, TxFrame& frame,
                                                          const wire::FrameTemplate& header,
                                                          const wire::PacketFields& fields,
                                                          uint32_t payload_bytes, const FrameForm& form,
                                                          Fill fill) {
  const std::span<uint8_t> bytes(frame.data, frame.capacity_bytes);
  uint8_t* const payload = header.write_headers(bytes, fields, payload_bytes);
  assert(payload != nullptr && "a transmit buffer holds a frame of the path MTU");
  const bool crc_in_copy = header.wants_crc_in_copy(payload_bytes) && form.crc_in_copy;
  uint32_t crc = crc_in_copy ? header.icrc_of_headers(bytes.data(), payload) : 0;
  if (!fill(std::span<uint8_t>(payload, payload_bytes), crc_in_copy ? &crc : nullptr)) return 0;
  const uint32_t frame_bytes = crc_in_copy ? header.seal_with_crc(bytes, payload, payload_bytes, crc)
                                           : header.seal(bytes, payload, payload_bytes, form.icrc);
  probes::send(fields.bth.destination_qpn, fields.bth.psn.value(), static_cast<uint8_t>(fields.bth.opcode),
               payload_bytes);
  context.tx.commit(frame_bytes, form.loopback);
  return frame_bytes;
}

/// Sends a packet of a connected QP that has headers only. Sets its destination. Returns false while the port
/// is full.
[[nodiscard]] inline bool emit_headers(CoreContext& context, QueuePair& qp, wire::PacketFields& fields) {
  TxFrame* const frame = next_frame(context, qp);
  if (frame == nullptr) return false;
  fields.bth.destination_qpn = qp.attributes.destination_qpn;
  fields.ipv4_identification = static_cast<uint16_t>(qp.tx_packets++);
  static_cast<void>(emit(context, *frame, qp.frame, fields, 0, {.loopback = qp.loopback},
                         [](std::span<uint8_t>, uint32_t*) { return true; }));
  note_recorded(context, qp, fields, 0);
  return true;
}

}  // namespace faultline::transport
