// SPDX-License-Identifier: BSD-3-Clause
// What the wire room costs per packet: parse, ICRC, headers and seal, over IPv4 and IPv6.
#include <cstring>
#include <vector>

#include <benchmark/benchmark.h>

#include "stack/wire/packet/frame.hpp"
#include "stack/wire/packet/icrc.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::wire {
namespace {

PathHeader path_of(bool ipv6) {
  PathHeader path;
  path.source_mac = {{0x02, 0x46, 0x4c, 0, 0, 1}};
  path.destination_mac = {{0x02, 0x46, 0x4c, 0, 0, 2}};
  path.source_gid = Gid::from_ipv4(0xc6120001);
  path.destination_gid = Gid::from_ipv4(0xc6120002);
  if (ipv6) path.source_gid.bytes[0] = path.destination_gid.bytes[0] = 0x20;
  return path;
}

PacketFields write_only_fields() {
  PacketFields fields;
  fields.bth.opcode = Opcode::rc_write_only;
  fields.bth.destination_qpn = 0x11;
  fields.reth = {.va = 0x7f0000000000, .rkey = 0x1234, .length_bytes = 64};
  return fields;
}

std::vector<uint8_t> frame_of(bool ipv6, uint32_t payload_bytes) {
  const FrameTemplate frame_template(path_of(ipv6));
  const PacketFields fields = write_only_fields();
  std::vector<uint8_t> frame(kMaxFrameBytes);
  std::memset(frame_template.write_headers(frame, fields, payload_bytes), 0x5a, payload_bytes);
  frame.resize(frame_template.seal(frame, fields.bth.opcode, payload_bytes));
  return frame;
}

void count_bytes(benchmark::State& state, size_t bytes) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes));
}

void parse_packet(benchmark::State& state) {
  const std::vector<uint8_t> frame = frame_of(state.range(0) == 6, static_cast<uint32_t>(state.range(1)));
  const auto rx_checks = static_cast<uint8_t>(state.range(2));
  for ([[maybe_unused]] auto _ : state) {
    Packet packet;
    benchmark::DoNotOptimize(parse(frame, packet, rx_checks));
    benchmark::DoNotOptimize(packet);
  }
}
BENCHMARK(parse_packet)
    ->ArgNames({"ip", "payload", "rx_checks"})
    ->Args({4, 64, kNothingVerified})
    ->Args({4, 64, kIpChecksumVerified})
    ->Args({6, 64, kNothingVerified});

void classify_frame(benchmark::State& state) {
  const std::vector<uint8_t> frame = frame_of(state.range(0) == 6, 64);
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(classify(frame));
}
BENCHMARK(classify_frame)->ArgNames({"ip"})->Arg(4)->Arg(6);

void verify_icrc(benchmark::State& state) {
  const std::vector<uint8_t> frame = frame_of(state.range(0) == 6, static_cast<uint32_t>(state.range(1)));
  Packet packet;
  if (parse(frame, packet) != ParseError::none) return state.SkipWithError("the frame does not parse");
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(icrc_matches(packet));
  count_bytes(state, frame.size());
}
BENCHMARK(verify_icrc)->ArgNames({"ip", "payload"})->ArgsProduct({{4, 6}, {0, 64, 256, 1024, 4096}});

void write_and_seal(benchmark::State& state) {
  const FrameTemplate frame_template(path_of(state.range(0) == 6));
  const auto payload_bytes = static_cast<uint32_t>(state.range(1));
  PacketFields fields = write_only_fields();
  std::vector<uint8_t> frame(kMaxFrameBytes);
  const std::vector<uint8_t> payload(payload_bytes, 0x5a);
  for ([[maybe_unused]] auto _ : state) {
    fields.bth.psn = fields.bth.psn.next();
    ++fields.ipv4_identification;
    uint8_t* to = frame_template.write_headers(frame, fields, payload_bytes);
    std::memcpy(to, payload.data(), payload_bytes);
    benchmark::DoNotOptimize(frame_template.seal(frame, fields.bth.opcode, payload_bytes));
  }
  count_bytes(state, payload_bytes);
}
BENCHMARK(write_and_seal)->ArgNames({"ip", "payload"})->ArgsProduct({{4, 6}, {0, 64, 1024, 4096}});

void write_headers_only(benchmark::State& state) {
  const FrameTemplate frame_template(path_of(state.range(0) == 6));
  PacketFields fields = write_only_fields();
  std::vector<uint8_t> frame(kMaxFrameBytes);
  for ([[maybe_unused]] auto _ : state) {
    fields.bth.psn = fields.bth.psn.next();
    benchmark::DoNotOptimize(frame_template.write_headers(frame, fields, 64));
    benchmark::ClobberMemory();
  }
}
BENCHMARK(write_headers_only)->ArgNames({"ip"})->Arg(4)->Arg(6);

void raw_crc(benchmark::State& state) {
  const std::vector<uint8_t> bytes(static_cast<size_t>(state.range(0)), 0x5a);
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(icrc_update(kIcrcStart, bytes));
  count_bytes(state, bytes.size());
}
BENCHMARK(raw_crc)
    ->ArgNames({"bytes"})
    ->Arg(16)
    ->Arg(48)
    ->Arg(64)
    ->Arg(80)
    ->Arg(128)
    ->Arg(160)
    ->Arg(256)
    ->Arg(1024)
    ->Arg(4096);

}  // namespace
}  // namespace faultline::wire

BENCHMARK_MAIN();
