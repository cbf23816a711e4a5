// SPDX-License-Identifier: BSD-3-Clause
// A port that swallows what is sent, after a look at it, and lends received frames in blocks of exactly their
// length, so that AddressSanitizer sees a byte too far.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "stack/transport/shared/port.hpp"
#include "stack/wire/packet/packet.hpp"

namespace faultline::fuzz {

/// What must hold whatever the input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

class FuzzPort final : public transport::Port {
 public:
  size_t allocate(std::span<transport::TxFrame> out) override {
    size_t given = 0;
    for (; given < out.size() && !free_.empty() && !starved; ++given) {
      const size_t index = free_.back();
      free_.pop_back();
      out[given] = {buffers_[index].data(), static_cast<uint32_t>(buffers_[index].size()), 0, false,
                    buffers_[index].data()};
    }
    return given;
  }
  size_t transmit(std::span<transport::TxFrame> frames) override {
    const size_t taken = full ? frames.size() / 2 : frames.size();
    for (transport::TxFrame& frame : frames.first(taken)) {
      wire::Packet packet;
      require(wire::parse({frame.data, frame.length_bytes}, packet) == wire::ParseError::none,
              "what is sent parses");
      const bool as_rxe = rxe_flush_icrc && packet.info->operation == wire::Operation::flush;
      require(as_rxe ? wire::has_rxe_flush_icrc(packet) : wire::icrc_matches(packet),
              "what is sent has its ICRC");
      ++sent;
      give_back(frame);
    }
    return taken;
  }
  void free_unsent(std::span<transport::TxFrame> frames) override {
    for (transport::TxFrame& frame : frames) give_back(frame);
  }
  void release(std::span<transport::RxFrame> frames) override {
    for (transport::RxFrame& frame : frames) {
      delete[] static_cast<uint8_t*>(frame.handle);
      --lent;
    }
  }
  transport::RxFrame lend(std::span<const uint8_t> frame) {
    auto* const copy = new uint8_t[frame.size() + (frame.empty() ? 1 : 0)];
    std::copy(frame.begin(), frame.end(), copy);
    ++lent;
    return {copy, static_cast<uint32_t>(frame.size()), wire::kNothingVerified, copy};
  }

  bool starved = false;         ///< no buffers
  bool full = false;            ///< takes half of what it is offered
  bool rxe_flush_icrc = false;  ///< expects CoreConfig::rxe_flush_icrc
  uint64_t sent = 0;
  int64_t lent = 0;

 private:
  void give_back(const transport::TxFrame& frame) {
    for (size_t i = 0; i < buffers_.size(); ++i)
      if (buffers_[i].data() == frame.handle) return free_.push_back(i);
    require(false, "a buffer of the port's comes back");
  }
  static constexpr size_t kBuffers = 64;
  // The same for all ports of a run, one after the other: to make them anew would be most of the work.
  static inline std::vector<std::array<uint8_t, wire::kMaxFrameBytes>> buffers_{kBuffers};
  std::vector<size_t> free_ = [] {
    std::vector<size_t> all;
    for (size_t i = 0; i < kBuffers; ++i) all.push_back(i);
    return all;
  }();
};

}  // namespace faultline::fuzz
