// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/story/capture_file.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include <spdlog/fmt/fmt.h>

namespace faultline::story {
namespace {

constexpr uint32_t kSectionHeader = 0x0a0d0d0a;
constexpr uint32_t kInterfaceDescription = 1;
constexpr uint32_t kSimplePacket = 3;
constexpr uint32_t kEnhancedPacket = 6;
constexpr uint32_t kByteOrderMagic = 0x1a2b3c4d;
constexpr uint32_t kPcapMicroseconds = 0xa1b2c3d4;
constexpr uint32_t kPcapNanoseconds = 0xa1b23c4d;
constexpr uint16_t kOptionEnd = 0;
constexpr uint16_t kOptionResolution = 9;
constexpr uint16_t kOptionOffset = 14;
constexpr size_t kBlockOverhead = 12;  // type, length, length again
constexpr uint64_t kNsPerSecond = 1'000'000'000;
constexpr size_t kMostInterfaces = 65536;

template <typename Number>
Number load(std::span<const uint8_t> bytes, size_t at, bool swap) {
  Number value{};
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  if (!swap) return value;
  auto reversed = std::bit_cast<std::array<uint8_t, sizeof(Number)>>(value);
  std::ranges::reverse(reversed);
  return std::bit_cast<Number>(reversed);
}

size_t padded(size_t length) {
  return (length + 3) & ~size_t{3};
}

/// Calls `take(code, value)` for each option; stops at the first that does not fit.
template <typename Take>
void for_options(std::span<const uint8_t> options, bool swap, Take take) {
  while (options.size() >= 4) {
    const auto code = load<uint16_t>(options, 0, swap);
    const size_t length = load<uint16_t>(options, 2, swap);
    if (code == kOptionEnd || options.size() - 4 < length) return;
    take(code, options.subspan(4, length));
    options = options.subspan(std::min(options.size(), 4 + padded(length)));
  }
}

struct Interface {
  LinkType link = LinkType::ethernet;
  uint32_t snap_bytes = 0;
  uint64_t units_per_second = 1'000'000;
  int64_t offset_s = 0;
};

uint64_t to_ns(const Interface& interface, uint64_t units) {
  const uint64_t seconds = units / interface.units_per_second;
  const uint64_t rest = units % interface.units_per_second;
  // Both factors may be above 2^32.
  const auto rest_ns =
      static_cast<uint64_t>(static_cast<unsigned __int128>(rest) * kNsPerSecond / interface.units_per_second);
  return (seconds + static_cast<uint64_t>(interface.offset_s)) * kNsPerSecond + rest_ns;
}

/// The units of if_tsresol: a negative power of 10, or of 2 if the top bit is set. 0: not supported.
uint64_t units_of(uint8_t resolution) {
  const unsigned power = resolution & 0x7fU;
  if ((resolution & 0x80U) != 0) return power < 63 ? uint64_t{1} << power : 0;
  if (power > 18) return 0;
  uint64_t units = 1;
  for (unsigned i = 0; i < power; ++i) units *= 10;
  return units;
}

class PcapngReader {
 public:
  PcapngReader(std::span<const uint8_t> file, const std::function<void(const CapturedFrame&)>& take)
      : file_(file), take_(take) {}

  CaptureEnd read() {
    while (at_ < file_.size()) {
      const std::span<const uint8_t> rest = file_.subspan(at_);
      if (rest.size() < kBlockOverhead) return cut();
      const auto raw_type = load<uint32_t>(rest, 0, false);
      if (raw_type == kSectionHeader) {
        const auto magic = load<uint32_t>(rest, 8, false);
        if (magic != kByteOrderMagic && magic != __builtin_bswap32(kByteOrderMagic))
          return fault("a section header without the byte-order magic");
        swap_ = magic != kByteOrderMagic;
        interfaces_.clear();
      }
      const size_t length = load<uint32_t>(rest, 4, swap_);
      if (length < kBlockOverhead || length % 4 != 0)
        return fault(fmt::format("a block of {} bytes", length));
      if (length > rest.size()) return cut();
      if (load<uint32_t>(rest, length - 4, swap_) != length) return fault("a block whose two lengths differ");
      const char* const wrong =
          on_block(load<uint32_t>(rest, 0, swap_), rest.subspan(8, length - kBlockOverhead));
      if (wrong != nullptr) return fault(wrong);
      at_ += length;
    }
    return {};
  }

 private:
  CaptureEnd fault(const std::string& what) const {
    return {fmt::format("at byte {}: {}", at_, what), false};
  }
  CaptureEnd cut() const { return {fmt::format("at byte {}: the file ends within a block", at_), true}; }

  /// Returns what is wrong, or nullptr.
  const char* on_block(uint32_t type, std::span<const uint8_t> body) {
    switch (type) {
      case kInterfaceDescription:
        return on_interface(body);
      case kEnhancedPacket:
        return on_enhanced(body);
      case kSimplePacket:
        return on_simple(body);
      default:
        return nullptr;  // names, statistics, keys
    }
  }

  const char* on_interface(std::span<const uint8_t> body) {
    if (body.size() < 8 || interfaces_.size() == kMostInterfaces) return "an invalid interface description";
    Interface one;
    one.link = static_cast<LinkType>(load<uint16_t>(body, 0, swap_));
    one.snap_bytes = load<uint32_t>(body, 4, swap_);
    for_options(body.subspan(8), swap_, [&](uint16_t code, std::span<const uint8_t> value) {
      if (code == kOptionResolution && !value.empty()) one.units_per_second = units_of(value[0]);
      if (code == kOptionOffset && value.size() == 8) one.offset_s = load<int64_t>(value, 0, swap_);
    });
    if (one.units_per_second == 0) return "an unknown resolution of time";
    interfaces_.push_back(one);
    return nullptr;
  }

  const char* on_enhanced(std::span<const uint8_t> body) {
    constexpr size_t kFixed = 20;
    if (body.size() < kFixed) return "a packet block shorter than its header";
    const size_t index = load<uint32_t>(body, 0, swap_);
    if (index >= interfaces_.size()) return "a packet of an interface that is not described";
    const size_t captured = load<uint32_t>(body, 12, swap_);
    if (captured > body.size() - kFixed) return "a packet longer than its block";
    const uint64_t units = uint64_t{load<uint32_t>(body, 4, swap_)} << 32 | load<uint32_t>(body, 8, swap_);
    CapturedFrame frame;
    frame.time_ns = last_ns_ = to_ns(interfaces_[index], units);
    frame.link = interfaces_[index].link;
    frame.bytes = body.subspan(kFixed, captured);
    frame.original_bytes = load<uint32_t>(body, 16, swap_);
    take_(frame);
    return nullptr;
  }

  // The block has no time: the packet before it has the nearest.
  const char* on_simple(std::span<const uint8_t> body) {
    if (body.size() < 4) return "a packet block shorter than its header";
    if (interfaces_.empty()) return "a packet of an interface that is not described";
    CapturedFrame frame;
    frame.time_ns = last_ns_;
    frame.link = interfaces_[0].link;
    frame.original_bytes = load<uint32_t>(body, 0, swap_);
    size_t captured = std::min<size_t>(frame.original_bytes, body.size() - 4);
    if (interfaces_[0].snap_bytes != 0) captured = std::min<size_t>(captured, interfaces_[0].snap_bytes);
    frame.bytes = body.subspan(4, captured);
    take_(frame);
    return nullptr;
  }

  std::span<const uint8_t> file_;
  const std::function<void(const CapturedFrame&)>& take_;
  size_t at_ = 0;
  bool swap_ = false;
  uint64_t last_ns_ = 0;
  std::vector<Interface> interfaces_;
};

struct PcapForm {
  bool known = false;
  bool swap = false;
  bool nanoseconds = false;
};

PcapForm form_of(std::span<const uint8_t> file) {
  const auto magic = load<uint32_t>(file, 0, false);
  for (const bool swap : {false, true}) {
    const uint32_t value = swap ? __builtin_bswap32(magic) : magic;
    if (value == kPcapMicroseconds) return {true, swap, false};
    if (value == kPcapNanoseconds) return {true, swap, true};
  }
  return {};
}

CaptureEnd read_pcap(std::span<const uint8_t> file, PcapForm form,
                     const std::function<void(const CapturedFrame&)>& take) {
  constexpr size_t kFileHeader = 24;
  constexpr size_t kPacketHeader = 16;
  if (file.size() < kFileHeader) return {"the file ends within its header", false};
  // The upper bits describe the frame check sequence.
  const auto link = static_cast<LinkType>(load<uint32_t>(file, 20, form.swap) & 0xffffU);
  size_t at = kFileHeader;
  while (at < file.size()) {
    const std::span<const uint8_t> rest = file.subspan(at);
    const size_t captured = rest.size() < kPacketHeader ? 0 : load<uint32_t>(rest, 8, form.swap);
    if (rest.size() < kPacketHeader || captured > rest.size() - kPacketHeader)
      return {fmt::format("at byte {}: the file ends within a packet", at), true};
    const uint64_t fraction = load<uint32_t>(rest, 4, form.swap);
    CapturedFrame frame;
    frame.time_ns =
        load<uint32_t>(rest, 0, form.swap) * kNsPerSecond + (form.nanoseconds ? fraction : fraction * 1000);
    frame.link = link;
    frame.bytes = rest.subspan(kPacketHeader, captured);
    frame.original_bytes = load<uint32_t>(rest, 12, form.swap);
    take(frame);
    at += kPacketHeader + captured;
  }
  return {};
}

}  // namespace

bool is_capture(std::span<const uint8_t> file) {
  if (file.size() < 4) return false;
  return load<uint32_t>(file, 0, false) == kSectionHeader || form_of(file).known;
}

CaptureEnd read_capture(std::span<const uint8_t> file,
                        const std::function<void(const CapturedFrame&)>& take) {
  if (!is_capture(file)) return {"neither a pcapng nor a pcap file", false};
  if (const PcapForm form = form_of(file); form.known) return read_pcap(file, form, take);
  return PcapngReader(file, take).read();
}

}  // namespace faultline::story
