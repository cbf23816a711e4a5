// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/world/trace.hpp"

#include <array>
#include <cstdio>
#include <fstream>

namespace faultline::sim {

namespace {

const char* suffix_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::delivered:
      return "";
    case Verdict::lost:
      return " lost";
    case Verdict::corrupted:
      return " corrupted";
    case Verdict::duplicated:
      return " twice";
    case Verdict::delayed:
      return " late";
    case Verdict::no_buffer:
      return " no buffer";
    case Verdict::injected:
      return " injected";
  }
  return "";
}

std::string syndrome_text(uint8_t syndrome) {
  const unsigned value = syndrome & wire::kAethValueMask;
  switch (syndrome & wire::kAethKindMask) {
    case wire::kAethAck:
      return "";
    case wire::kAethRnrNak:
      return " RNR" + std::to_string(value);
    case wire::kAethNak:
      return " NAK" + std::to_string(value);
    default:
      return " reserved";
  }
}

}  // namespace

std::string Trace::line_of(const TraceEntry& entry) const {
  std::string line = names[entry.link] + ' ';
  wire::Packet packet;
  // The trace holds a corrupted frame as it was sent, before the damage.
  const wire::ParseError error = wire::parse(entry.frame, packet);
  if (error != wire::ParseError::none) {
    line += wire::name_of(error);
  } else {
    line += packet.info->name.substr(packet.info->name.find('.') + 1);
    line += ' ' + std::to_string(packet.bth.psn.value());
    if (packet.bth.ack_request) line += '!';
    if (packet.info->operation == wire::Operation::acknowledge) line += syndrome_text(packet.aeth().syndrome);
  }
  return line + suffix_of(entry.verdict);
}

std::vector<std::string> Trace::lines() const {
  std::vector<std::string> lines;
  lines.reserve(entries_.size());
  for (const TraceEntry& entry : entries_) lines.push_back(line_of(entry));
  return lines;
}

std::string Trace::text(size_t limit) const {
  std::string text;
  const size_t first = entries_.size() > limit ? entries_.size() - limit : 0;
  if (first != 0) text += "  (" + std::to_string(first) + " packets before)\n";
  for (size_t i = first; i < entries_.size(); ++i) {
    const TraceEntry& entry = entries_[i];
    std::array<char, 160> head{};
    std::snprintf(head.data(), head.size(), "%12.3f us #%-4u ", static_cast<double>(entry.sent_ns) / 1000.0,
                  entry.number);
    text += head.data() + line_of(entry);
    wire::Packet packet;
    if (wire::parse(entry.frame, packet) == wire::ParseError::none) {
      std::snprintf(head.data(), head.size(), "  qp 0x%06x len %u", packet.bth.destination_qpn,
                    packet.payload_bytes);
      text += head.data();
      if (packet.info->has(wire::kReth)) {
        const wire::Reth reth = packet.reth();
        std::snprintf(head.data(), head.size(), " va 0x%llx rkey 0x%x dma %u",
                      static_cast<unsigned long long>(reth.va), reth.rkey, reth.length_bytes);
        text += head.data();
      }
      if (packet.info->has(wire::kAeth)) text += " msn " + std::to_string(packet.aeth().msn);
    }
    if (entry.looped) text += " (loopback)";
    text += '\n';
  }
  return text;
}

void Trace::write_pcap(const std::string& path) const {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  const auto put32 = [&out](uint32_t value) { out.write(reinterpret_cast<const char*>(&value), 4); };
  // Nanosecond pcap, Ethernet.
  for (const uint32_t word : {0xa1b23c4dU, 4U << 16 | 2U, 0U, 0U, 0x40000U, 1U}) put32(word);
  for (const TraceEntry& entry : entries_) {
    put32(static_cast<uint32_t>(entry.sent_ns / 1'000'000'000));
    put32(static_cast<uint32_t>(entry.sent_ns % 1'000'000'000));
    put32(static_cast<uint32_t>(entry.frame.size()));
    put32(static_cast<uint32_t>(entry.frame.size()));
    out.write(reinterpret_cast<const char*>(entry.frame.data()),
              static_cast<std::streamsize>(entry.frame.size()));
  }
}

uint64_t digest_of(std::span<const uint8_t> bytes, uint64_t digest) {
  constexpr uint64_t kPrime = 0x100000001b3;
  for (const uint8_t byte : bytes) digest = (digest ^ byte) * kPrime;
  return digest;
}

uint64_t Trace::digest() const {
  uint64_t digest = kEmptyDigest;
  for (const TraceEntry& entry : entries_) {
    const uint64_t head[] = {entry.sent_ns, entry.link, entry.number, static_cast<uint64_t>(entry.verdict)};
    digest = digest_of({reinterpret_cast<const uint8_t*>(head), sizeof head}, digest);
    digest = digest_of(entry.frame, digest);
  }
  return digest;
}

}  // namespace faultline::sim
