// SPDX-License-Identifier: BSD-3-Clause
#include "stack/wire/packet/opcode.hpp"

#include "stack/wire/packet/headers.hpp"

namespace faultline::wire {
namespace {

/// Extended headers in the order in which they follow the BTH (IBA table 38; A19 puts the FETH before the
/// RETH).
struct HeaderBytes {
  ExtendedHeader header;
  uint8_t bytes;
};
constexpr HeaderBytes kHeaderOrder[] = {{kXrcEth, 4},     {kDeth, 8},         {kFeth, 4},         {kReth, 16},
                                        {kAtomicEth, 28}, {kAeth, 4},         {kAtomicAckEth, 8}, {kImmDt, 4},
                                        {kIeth, 4},       {kCnpReserved, 16}, {kSackEth, 32}};

constexpr void set_payload_rule(OpcodeInfo& row, PayloadRule rule) {
  row.payload = rule;
  switch (rule) {
    case PayloadRule::none:
      break;
    case PayloadRule::full_mtu:
      row.payload_min_bytes = kMinPathMtuBytes;
      row.payload_max_bytes = kMaxPathMtuBytes;
      break;
    case PayloadRule::one_to_mtu:
      row.payload_min_bytes = 1;
      row.payload_max_bytes = kMaxPathMtuBytes;
      row.pad_mask = 3;
      break;
    case PayloadRule::zero_to_mtu:
      row.payload_max_bytes = kMaxPathMtuBytes;
      row.pad_mask = 3;
      break;
    case PayloadRule::eight_bytes:
      row.payload_min_bytes = row.payload_max_bytes = 8;
      break;
  }
}

constexpr OpcodeInfo make_row(Opcode opcode, Operation operation, Place place, bool request, uint16_t headers,
                              PayloadRule rule, std::string_view name) {
  OpcodeInfo row;
  row.known = true;
  row.service = static_cast<Service>(static_cast<uint8_t>(opcode) >> 5);
  row.operation = operation;
  row.place = place;
  row.request = request;
  row.extended_headers = headers;
  for (const auto& [header, bytes] : kHeaderOrder) {
    if ((headers & header) == 0) continue;
    row.header_offsets[static_cast<size_t>(std::countr_zero(static_cast<uint16_t>(header)))] =
        row.extended_bytes;
    row.extended_bytes = static_cast<uint8_t>(row.extended_bytes + bytes);
  }
  set_payload_rule(row, rule);
  row.name = name;
  return row;
}

constexpr OpcodeTable make_table() {
  using enum Opcode;
  using enum Place;
  using O = Operation;
  using P = PayloadRule;
  OpcodeTable table{};
  const auto request = [&table](Opcode opcode, O operation, Place place, unsigned headers, P rule,
                                std::string_view name) {
    table[static_cast<uint8_t>(opcode)] =
        make_row(opcode, operation, place, true, static_cast<uint16_t>(headers), rule, name);
  };
  const auto response = [&table](Opcode opcode, O operation, Place place, unsigned headers, P rule,
                                 std::string_view name) {
    table[static_cast<uint8_t>(opcode)] =
        make_row(opcode, operation, place, false, static_cast<uint16_t>(headers), rule, name);
  };

  request(rc_send_first, O::send, first, 0, P::full_mtu, "RC.SEND_FIRST");
  request(rc_send_middle, O::send, middle, 0, P::full_mtu, "RC.SEND_MIDDLE");
  request(rc_send_last, O::send, last, 0, P::one_to_mtu, "RC.SEND_LAST");
  request(rc_send_last_imm, O::send, last, kImmDt, P::one_to_mtu, "RC.SEND_LAST_IMM");
  request(rc_send_only, O::send, only, 0, P::zero_to_mtu, "RC.SEND_ONLY");
  request(rc_send_only_imm, O::send, only, kImmDt, P::zero_to_mtu, "RC.SEND_ONLY_IMM");
  request(rc_send_last_invalidate, O::send, last, kIeth, P::one_to_mtu, "RC.SEND_LAST_INV");
  request(rc_send_only_invalidate, O::send, only, kIeth, P::zero_to_mtu, "RC.SEND_ONLY_INV");
  request(rc_write_first, O::write, first, kReth, P::full_mtu, "RC.WRITE_FIRST");
  request(rc_write_middle, O::write, middle, 0, P::full_mtu, "RC.WRITE_MIDDLE");
  request(rc_write_last, O::write, last, 0, P::one_to_mtu, "RC.WRITE_LAST");
  request(rc_write_last_imm, O::write, last, kImmDt, P::one_to_mtu, "RC.WRITE_LAST_IMM");
  request(rc_write_only, O::write, only, kReth, P::zero_to_mtu, "RC.WRITE_ONLY");
  request(rc_write_only_imm, O::write, only, kReth | kImmDt, P::zero_to_mtu, "RC.WRITE_ONLY_IMM");
  request(rc_read_request, O::read_request, only, kReth, P::none, "RC.READ_REQ");
  response(rc_read_response_first, O::read_response, first, kAeth, P::full_mtu, "RC.READ_RESP_FIRST");
  response(rc_read_response_middle, O::read_response, middle, 0, P::full_mtu, "RC.READ_RESP_MIDDLE");
  response(rc_read_response_last, O::read_response, last, kAeth, P::one_to_mtu, "RC.READ_RESP_LAST");
  response(rc_read_response_only, O::read_response, only, kAeth, P::zero_to_mtu, "RC.READ_RESP_ONLY");
  response(rc_acknowledge, O::acknowledge, only, kAeth, P::none, "RC.ACK");
  response(rc_atomic_acknowledge, O::atomic_acknowledge, only, kAeth | kAtomicAckEth, P::none,
           "RC.ATOMIC_ACK");
  request(rc_compare_swap, O::compare_swap, only, kAtomicEth, P::none, "RC.CMP_SWAP");
  request(rc_fetch_add, O::fetch_add, only, kAtomicEth, P::none, "RC.FETCH_ADD");
  request(rc_flush, O::flush, only, kFeth | kReth, P::none, "RC.FLUSH");
  request(rc_atomic_write, O::atomic_write, only, kReth, P::eight_bytes, "RC.ATOMIC_WRITE");

  request(uc_send_first, O::send, first, 0, P::full_mtu, "UC.SEND_FIRST");
  request(uc_send_middle, O::send, middle, 0, P::full_mtu, "UC.SEND_MIDDLE");
  request(uc_send_last, O::send, last, 0, P::one_to_mtu, "UC.SEND_LAST");
  request(uc_send_last_imm, O::send, last, kImmDt, P::one_to_mtu, "UC.SEND_LAST_IMM");
  request(uc_send_only, O::send, only, 0, P::zero_to_mtu, "UC.SEND_ONLY");
  request(uc_send_only_imm, O::send, only, kImmDt, P::zero_to_mtu, "UC.SEND_ONLY_IMM");
  request(uc_write_first, O::write, first, kReth, P::full_mtu, "UC.WRITE_FIRST");
  request(uc_write_middle, O::write, middle, 0, P::full_mtu, "UC.WRITE_MIDDLE");
  request(uc_write_last, O::write, last, 0, P::one_to_mtu, "UC.WRITE_LAST");
  request(uc_write_last_imm, O::write, last, kImmDt, P::one_to_mtu, "UC.WRITE_LAST_IMM");
  request(uc_write_only, O::write, only, kReth, P::zero_to_mtu, "UC.WRITE_ONLY");
  request(uc_write_only_imm, O::write, only, kReth | kImmDt, P::zero_to_mtu, "UC.WRITE_ONLY_IMM");

  request(ud_send_only, O::send, only, kDeth, P::zero_to_mtu, "UD.SEND_ONLY");
  request(ud_send_only_imm, O::send, only, kDeth | kImmDt, P::zero_to_mtu, "UD.SEND_ONLY_IMM");

  request(in_service(rc_send_first, Service::xrc), O::send, first, kXrcEth, P::full_mtu, "XRC.SEND_FIRST");
  request(in_service(rc_send_middle, Service::xrc), O::send, middle, kXrcEth, P::full_mtu, "XRC.SEND_MIDDLE");
  request(in_service(rc_send_last, Service::xrc), O::send, last, kXrcEth, P::one_to_mtu, "XRC.SEND_LAST");
  request(in_service(rc_send_last_imm, Service::xrc), O::send, last, kXrcEth | kImmDt, P::one_to_mtu,
          "XRC.SEND_LAST_IMM");
  request(in_service(rc_send_only, Service::xrc), O::send, only, kXrcEth, P::zero_to_mtu, "XRC.SEND_ONLY");
  request(in_service(rc_send_only_imm, Service::xrc), O::send, only, kXrcEth | kImmDt, P::zero_to_mtu,
          "XRC.SEND_ONLY_IMM");
  request(in_service(rc_send_last_invalidate, Service::xrc), O::send, last, kXrcEth | kIeth, P::one_to_mtu,
          "XRC.SEND_LAST_INV");
  request(in_service(rc_send_only_invalidate, Service::xrc), O::send, only, kXrcEth | kIeth, P::zero_to_mtu,
          "XRC.SEND_ONLY_INV");
  request(in_service(rc_write_first, Service::xrc), O::write, first, kXrcEth | kReth, P::full_mtu,
          "XRC.WRITE_FIRST");
  request(in_service(rc_write_middle, Service::xrc), O::write, middle, kXrcEth, P::full_mtu,
          "XRC.WRITE_MIDDLE");
  request(in_service(rc_write_last, Service::xrc), O::write, last, kXrcEth, P::one_to_mtu, "XRC.WRITE_LAST");
  request(in_service(rc_write_last_imm, Service::xrc), O::write, last, kXrcEth | kImmDt, P::one_to_mtu,
          "XRC.WRITE_LAST_IMM");
  request(in_service(rc_write_only, Service::xrc), O::write, only, kXrcEth | kReth, P::zero_to_mtu,
          "XRC.WRITE_ONLY");
  request(in_service(rc_write_only_imm, Service::xrc), O::write, only, kXrcEth | kReth | kImmDt,
          P::zero_to_mtu, "XRC.WRITE_ONLY_IMM");
  request(in_service(rc_read_request, Service::xrc), O::read_request, only, kXrcEth | kReth, P::none,
          "XRC.READ_REQ");
  response(in_service(rc_read_response_first, Service::xrc), O::read_response, first, kAeth, P::full_mtu,
           "XRC.READ_RESP_FIRST");
  response(in_service(rc_read_response_middle, Service::xrc), O::read_response, middle, 0, P::full_mtu,
           "XRC.READ_RESP_MIDDLE");
  response(in_service(rc_read_response_last, Service::xrc), O::read_response, last, kAeth, P::one_to_mtu,
           "XRC.READ_RESP_LAST");
  response(in_service(rc_read_response_only, Service::xrc), O::read_response, only, kAeth, P::zero_to_mtu,
           "XRC.READ_RESP_ONLY");
  response(in_service(rc_acknowledge, Service::xrc), O::acknowledge, only, kAeth, P::none, "XRC.ACK");
  response(in_service(rc_atomic_acknowledge, Service::xrc), O::atomic_acknowledge, only,
           kAeth | kAtomicAckEth, P::none, "XRC.ATOMIC_ACK");
  request(in_service(rc_compare_swap, Service::xrc), O::compare_swap, only, kXrcEth | kAtomicEth, P::none,
          "XRC.CMP_SWAP");
  request(in_service(rc_fetch_add, Service::xrc), O::fetch_add, only, kXrcEth | kAtomicEth, P::none,
          "XRC.FETCH_ADD");
  request(in_service(rc_flush, Service::xrc), O::flush, only, kXrcEth | kFeth | kReth, P::none, "XRC.FLUSH");
  request(in_service(rc_atomic_write, Service::xrc), O::atomic_write, only, kXrcEth | kReth, P::eight_bytes,
          "XRC.ATOMIC_WRITE");

  response(rc_selective_ack, O::selective_acknowledge, only, kAeth | kSackEth, P::none, "RC.SELECTIVE_ACK");
  response(cnp, O::congestion_notification, only, kCnpReserved, P::none, "CNP");
  return table;
}

}  // namespace

constinit const OpcodeTable kOpcodeTable = make_table();

}  // namespace faultline::wire
