// SPDX-License-Identifier: BSD-3-Clause
// Data between two devices of one process, every byte of which is compared: what goes on while others do
// their worst on the same link.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/interop/e2e/side.hpp"

namespace faultline::hostile {

using e2e::Side;

[[noreturn]] void wrong(const char* flow, const char* what);
/// A whole 64-bit word from the system: as programs should draw PSNs and Q_Keys.
[[nodiscard]] uint64_t draw();
/// The bytes of message `number`.
void fill(std::vector<uint8_t>& bytes, uint64_t number);

/// Memory of the program's with its region.
struct Memory {
  Memory(Side& side, size_t length, int rights);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] ibv_sge piece(size_t offset, uint32_t length) const {
    return {reinterpret_cast<uint64_t>(bytes.data()) + offset, length, region->lkey};
  }

  std::vector<uint8_t> bytes;
  ibv_mr* region = nullptr;
};

/// One side's QP, with a completion queue of its own.
struct End {
  End(Side& its_side, ibv_qp_type qp_type, uint32_t depth);
  ~End();
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  void connect(const End& to);
  void activate_datagrams(uint32_t qkey);
  [[nodiscard]] ibv_qp_state state() const;

  Side& side;
  ibv_qp_type type;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  uint32_t psn = 0;  ///< its own requests begin with
};

/// Reliable: each round writes, sends, adds and reads back, and compares all of it.
class ReliableFlow {
 public:
  static constexpr uint32_t kBlockBytes = 64 * 1024;
  static constexpr uint32_t kMessageBytes = 5000;

  ReliableFlow(const char* name, Side& from, Side& to);
  /// Ends the process where a byte is wrong, a completion is none of success, or nothing comes for long.
  void round();

  End requester, responder;
  Memory source, target;

 private:
  void post(uint64_t number);
  void check(uint64_t number);

  const char* name_;
  uint64_t rounds_ = 0;
};

/// Unreliable: what comes has to be right.
class UnreliableFlow {
 public:
  UnreliableFlow(const char* name, Side& from, Side& to, ibv_qp_type type);
  ~UnreliableFlow();
  UnreliableFlow(const UnreliableFlow&) = delete;
  UnreliableFlow& operator=(const UnreliableFlow&) = delete;
  void round();
  [[nodiscard]] uint32_t qkey() const { return qkey_; }

  End sender, receiver;
  uint64_t sent = 0, received = 0;

 private:
  static constexpr uint32_t kDepth = 64;
  static constexpr uint32_t kGrhBytes = 40;
  [[nodiscard]] uint32_t offset() const { return sender.type == IBV_QPT_UD ? kGrhBytes : 0; }
  void post_receive(uint64_t slot);
  void take_received();

  const char* name_;
  uint32_t qkey_;
  uint32_t message_bytes_;
  Memory source_, target_;
  ibv_ah* ah_ = nullptr;
  bool under_way_ = false;
};

}  // namespace faultline::hostile
