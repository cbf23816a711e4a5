// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/wire/capture.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "stack/wire/packet/byte_order.hpp"

namespace faultline::wire::test {
namespace {

constexpr uint32_t kMagicMicroseconds = 0xa1b2c3d4;
constexpr uint32_t kMagicNanoseconds = 0xa1b23c4d;
constexpr uint32_t kFileHeaderBytes = 24;
constexpr uint32_t kRecordHeaderBytes = 16;
constexpr uint32_t kLinkTypeEthernet = 1;
constexpr uint32_t kSnapLengthBytes = 65535;

[[noreturn]] void reject(const std::filesystem::path& path, const char* why) {
  throw std::runtime_error(path.string() + ": " + why);
}

}  // namespace

std::vector<Frame> read_capture(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() < kFileHeaderBytes) reject(path, "no pcap header");
  const uint32_t magic = load_le32(bytes.data());
  if (magic != kMagicMicroseconds && magic != kMagicNanoseconds)
    reject(path, "not a little-endian pcap file");
  if (load_le32(bytes.data() + 20) != kLinkTypeEthernet) reject(path, "not Ethernet");
  std::vector<Frame> frames;
  size_t at = kFileHeaderBytes;
  while (at < bytes.size()) {
    if (bytes.size() - at < kRecordHeaderBytes) reject(path, "cut in a record header");
    const uint32_t kept_bytes = load_le32(bytes.data() + at + 8);
    if (kept_bytes != load_le32(bytes.data() + at + 12)) reject(path, "a truncated frame");
    at += kRecordHeaderBytes;
    if (bytes.size() - at < kept_bytes) reject(path, "cut in a frame");
    frames.emplace_back(bytes.begin() + static_cast<ptrdiff_t>(at),
                        bytes.begin() + static_cast<ptrdiff_t>(at + kept_bytes));
    at += kept_bytes;
  }
  return frames;
}

void write_capture(const std::filesystem::path& path, std::span<const Frame> frames) {
  std::vector<uint8_t> bytes(kFileHeaderBytes);
  store_le32(bytes.data(), kMagicMicroseconds);
  store_le32(bytes.data() + 4, 4U << 16 | 2U);  // version 2.4
  store_le32(bytes.data() + 16, kSnapLengthBytes);
  store_le32(bytes.data() + 20, kLinkTypeEthernet);
  for (const Frame& frame : frames) {
    const size_t at = bytes.size();
    bytes.resize(at + kRecordHeaderBytes);
    store_le32(bytes.data() + at + 8, static_cast<uint32_t>(frame.size()));
    store_le32(bytes.data() + at + 12, static_cast<uint32_t>(frame.size()));
    bytes.insert(bytes.end(), frame.begin(), frame.end());
  }
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) reject(path, "cannot be written");
}

std::filesystem::path golden_directory() {
  return std::filesystem::path(TEST_DATA_DIR) / "wire";
}

std::vector<std::filesystem::path> golden_captures() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(golden_directory()))
    if (entry.path().extension() == ".pcap") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace faultline::wire::test
