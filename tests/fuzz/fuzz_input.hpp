// SPDX-License-Identifier: BSD-3-Clause
// A fuzzer's input, read as numbers. Beyond its end everything is zero.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

namespace faultline::fuzz {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t bytes) : data_(data), left_(bytes) {}

  [[nodiscard]] bool empty() const { return left_ == 0; }
  template <typename Number>
  Number take() {
    Number value{};
    const size_t bytes = std::min(sizeof value, left_);
    if (bytes != 0) std::memcpy(&value, data_, bytes);
    data_ += bytes;
    left_ -= bytes;
    return value;
  }
  uint8_t byte() { return take<uint8_t>(); }
  uint32_t below(uint32_t bound) { return take<uint16_t>() % bound; }
  /// The next bytes as they are, at most `most`.
  std::span<const uint8_t> bytes(size_t most) {
    const size_t taken = std::min(most, left_);
    const std::span<const uint8_t> result(data_, taken);
    data_ += taken;
    left_ -= taken;
    return result;
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

}  // namespace faultline::fuzz
