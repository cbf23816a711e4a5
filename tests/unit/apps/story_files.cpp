// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/apps/story_files.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "apps/faultline/story/capture_file.hpp"

namespace faultline::story::test {

Bytes golden(const std::string& name) {
  std::ifstream file(std::string(TEST_DATA_DIR) + "/wire/" + name, std::ios::binary);
  if (!file) throw std::runtime_error(name);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Bytes> frames_of_golden(const std::string& name) {
  std::vector<Bytes> frames;
  const Bytes file = golden(name);
  const CaptureEnd end = read_capture(
      file, [&](const CapturedFrame& frame) { frames.emplace_back(frame.bytes.begin(), frame.bytes.end()); });
  if (!end.error.empty()) throw std::runtime_error(end.error);
  return frames;
}

template <typename Number>
void CaptureWriter::put(Bytes& to, Number value) const {
  Bytes bytes(sizeof(value));
  std::memcpy(bytes.data(), &value, sizeof(value));
  if (swap_) std::ranges::reverse(bytes);
  to.insert(to.end(), bytes.begin(), bytes.end());
}

void CaptureWriter::block(uint32_t type, const Bytes& body) {
  const auto length = static_cast<uint32_t>(12 + (body.size() + 3) / 4 * 4);
  put(bytes_, type);
  put(bytes_, length);
  bytes_.insert(bytes_.end(), body.begin(), body.end());
  bytes_.resize((bytes_.size() + 3) / 4 * 4);
  put(bytes_, length);
}

void CaptureWriter::section() {
  Bytes body;
  put(body, uint32_t{0x1a2b3c4d});
  put(body, uint16_t{1});
  put(body, uint16_t{0});
  put(body, ~uint64_t{0});
  block(0x0a0d0d0a, body);
}

void CaptureWriter::interface(uint16_t link, uint32_t snap_bytes, InterfaceOptions options) {
  Bytes body;
  put(body, link);
  put(body, uint16_t{0});
  put(body, snap_bytes);
  if (options.resolution >= 0) {
    put(body, uint16_t{9});
    put(body, uint16_t{1});
    body.insert(body.end(), {static_cast<uint8_t>(options.resolution), 0, 0, 0});
  }
  if (options.offset_s != 0) {
    put(body, uint16_t{14});
    put(body, uint16_t{8});
    put(body, options.offset_s);
  }
  block(1, body);
}

void CaptureWriter::enhanced(uint32_t interface, uint64_t units, const Bytes& frame, uint32_t original_bytes,
                             std::string_view comment) {
  Bytes body;
  put(body, interface);
  put(body, static_cast<uint32_t>(units >> 32));
  put(body, static_cast<uint32_t>(units));
  put(body, static_cast<uint32_t>(frame.size()));
  put(body, original_bytes);
  body.insert(body.end(), frame.begin(), frame.end());
  body.resize((body.size() + 3) / 4 * 4);
  if (!comment.empty()) {
    put(body, uint16_t{1});
    put(body, static_cast<uint16_t>(comment.size()));
    body.insert(body.end(), comment.begin(), comment.end());
    body.resize((body.size() + 3) / 4 * 4);
    put(body, uint32_t{0});
  }
  block(6, body);
}

void CaptureWriter::simple(const Bytes& frame, uint32_t original_bytes) {
  Bytes body;
  put(body, original_bytes);
  body.insert(body.end(), frame.begin(), frame.end());
  block(3, body);
}

void CaptureWriter::pcap_header(bool nanoseconds, uint32_t link) {
  put(bytes_, nanoseconds ? uint32_t{0xa1b23c4d} : uint32_t{0xa1b2c3d4});
  put(bytes_, uint16_t{2});
  put(bytes_, uint16_t{4});
  for (const uint32_t value : {0U, 0U, 262144U, link}) put(bytes_, value);
}

void CaptureWriter::pcap_packet(uint32_t seconds, uint32_t fraction, const Bytes& frame,
                                uint32_t original_bytes) {
  put(bytes_, seconds);
  put(bytes_, fraction);
  put(bytes_, static_cast<uint32_t>(frame.size()));
  put(bytes_, original_bytes);
  bytes_.insert(bytes_.end(), frame.begin(), frame.end());
}

}  // namespace faultline::story::test
