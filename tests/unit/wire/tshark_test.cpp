// SPDX-License-Identifier: BSD-3-Clause
// An independent check of built packets: one packet of each opcode over IPv4 and IPv6, with and without VLAN,
// decoded by tshark. No packet may be malformed, tshark must confirm the checksums, and the fields must have
// the intended values.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/wire/capture.hpp"
#include "tests/unit/wire/expected_opcodes.hpp"
#include "tests/unit/wire/meaning.hpp"
#include "tests/unit/wire/reference_packet.hpp"

namespace faultline::wire::test {
namespace {

constexpr int kSkipped = 77;

/// Fields requested from tshark, in this order. Fields that a packet lacks are empty.
constexpr const char* kFields[] = {
    "frame.number",
    "_ws.malformed",
    "ip.checksum.status",
    "udp.checksum.status",
    "infiniband.bth.opcode",
    "infiniband.bth.destqp",
    "infiniband.bth.psn",
    "infiniband.bth.p_key",
    "infiniband.bth.padcnt",
    "infiniband.bth.se",
    "infiniband.bth.a",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.aeth.msn",
    "infiniband.deth.q_key",
    "infiniband.deth.srcqp",
    "infiniband.immdt",
    "infiniband.ieth",
    "infiniband.atomiceth.swapdt",
    "infiniband.atomiceth.cmpdt",
    "infiniband.atomicacketh.origremdt",
};

struct Sample {
  Opcode opcode;
  PathHeader path;
  uint32_t payload_bytes;
};

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream stream(line);
  for (std::string word; std::getline(stream, word, '\t');) words.push_back(word);
  words.resize(std::size(kFields));
  return words;
}

std::string run(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string output;
  std::array<char, 4096> buffer;
  while (pipe) {
    const size_t bytes = std::fread(buffer.data(), 1, buffer.size(), pipe.get());
    if (bytes == 0) break;
    output.append(buffer.data(), bytes);
  }
  return output;
}

/// Compares one field as a number. Base 0: tshark prints some in decimal and some in hex with 0x; 16: as
/// plain bytes.
bool same(const std::vector<std::string>& row, const char* field, bool present, uint64_t value, int base) {
  size_t column = 0;
  while (std::string_view(kFields[column]) != field) ++column;
  const std::string& text = row[column];
  if (text.empty() && !present) return true;
  if (present && !text.empty() && std::stoull(text, nullptr, base) == value) return true;
  std::cerr << "frame " << row[0] << ": " << field << " is \"" << text << "\", not "
            << (present ? std::to_string(value) : "absent") << '\n';
  return false;
}

bool check_row(const std::vector<std::string>& row, const Sample& sample) {
  const PacketFields fields = sample_fields(sample.opcode);
  const OpcodeInfo& info = opcode_info(sample.opcode);
  const bool ipv4 = sample.path.source_gid.is_ipv4();
  // tshark 4.0 knows neither FLUSH nor ATOMIC WRITE (IBA A19, 2021): their headers are opaque bytes to it.
  const bool old = info.operation != Operation::flush && info.operation != Operation::atomic_write;
  const bool reth = info.has(kReth) && old;
  bool good = row[1].empty();
  if (!good) std::cerr << "frame " << row[0] << ": malformed (" << info.name << ")\n";
  const auto check = [&](const char* field, bool present, uint64_t value, int base = 0) {
    good = same(row, field, present, value, base) && good;
  };
  constexpr uint64_t kGood = 1;
  check("ip.checksum.status", ipv4, kGood);
  check("udp.checksum.status", true, kGood);
  check("infiniband.bth.opcode", true, static_cast<uint8_t>(sample.opcode));
  check("infiniband.bth.destqp", true, fields.bth.destination_qpn);
  check("infiniband.bth.psn", true, fields.bth.psn.value());
  check("infiniband.bth.p_key", true, fields.bth.pkey);
  check("infiniband.bth.padcnt", true, (4 - sample.payload_bytes % 4) % 4);
  check("infiniband.bth.se", true, fields.bth.solicited);
  check("infiniband.bth.a", true, fields.bth.ack_request);
  check("infiniband.reth.va", reth || info.has(kAtomicEth), reth ? fields.reth.va : fields.atomic_eth.va);
  check("infiniband.reth.r_key", reth || info.has(kAtomicEth),
        reth ? fields.reth.rkey : fields.atomic_eth.rkey);
  check("infiniband.reth.dmalen", reth, fields.reth.length_bytes);
  check("infiniband.aeth.msn", info.has(kAeth), fields.aeth.msn);
  check("infiniband.deth.q_key", info.has(kDeth), fields.deth.qkey);
  check("infiniband.deth.srcqp", info.has(kDeth), fields.deth.source_qpn);
  check("infiniband.immdt", info.has(kImmDt), fields.immediate, 16);
  check("infiniband.ieth", info.has(kIeth), fields.invalidate_rkey, 16);
  check("infiniband.atomiceth.swapdt", info.has(kAtomicEth), fields.atomic_eth.swap_or_add);
  check("infiniband.atomiceth.cmpdt", info.has(kAtomicEth), fields.atomic_eth.compare);
  check("infiniband.atomicacketh.origremdt", info.has(kAtomicAckEth), fields.atomic_ack);
  return good;
}

int check_with_tshark(const std::filesystem::path& capture) {
  std::vector<Sample> samples;
  std::vector<Frame> frames;
  for (const PathHeader& path : {ipv4_path(), ipv6_path(), with_vlan(ipv4_path()), with_vlan(ipv6_path())}) {
    for (const ExpectedOpcode& row : expected_opcodes()) {
      // tshark decodes no extended headers of XRC, nor of opcodes that IBA leaves to manufacturers.
      const Service service = opcode_info(row.value).service;
      if (service == Service::xrc || service == Service::manufacturer) continue;
      const uint32_t payload_bytes = row.full_mtu ? 1024 : std::min(row.payload_max_bytes, 66U);
      const Sample sample{static_cast<Opcode>(row.value), path, payload_bytes};
      const auto checksums = unsigned{static_cast<uint8_t>(Checksums::ip_in_software)} |
                             static_cast<uint8_t>(Checksums::udp_in_software);
      samples.push_back(sample);
      frames.push_back(build(path, sample_fields(sample.opcode), sample_payload(payload_bytes),
                             static_cast<uint8_t>(checksums)));
    }
  }
  write_capture(capture, frames);

  std::string command = "tshark -n -r '" + capture.string() +
                        "' -o ip.check_checksum:TRUE -o udp.check_checksum:TRUE -T fields";
  for (const char* field : kFields) command += std::string(" -e ") + field;
  std::istringstream lines(run(command));
  size_t decoded = 0;
  bool good = true;
  for (std::string line; std::getline(lines, line) && decoded < samples.size(); ++decoded)
    good = check_row(split(line), samples[decoded]) && good;
  std::cout << "tshark decoded " << decoded << " of " << samples.size() << " frames\n";
  return good && decoded == samples.size() ? 0 : 1;
}

}  // namespace
}  // namespace faultline::wire::test

int main() {
  if (std::system("tshark --version > /dev/null 2>&1") != 0) {
    std::cout << "SKIPPED: tshark is not installed\n";
    return faultline::wire::test::kSkipped;
  }
  const auto capture =
      std::filesystem::temp_directory_path() / ("faultline-wire-" + std::to_string(getpid()) + ".pcap");
  const int status = faultline::wire::test::check_with_tshark(capture);
  std::filesystem::remove(capture);
  return status;
}
