// SPDX-License-Identifier: BSD-3-Clause
// The plain model of one direction of a connection: what was asked for, what must come of it, in what order.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/world/endpoint.hpp"

namespace faultline::sim {

/// What the memory of both hosts must hold in the end: the whole of every region, gaps included.
class MemoryImage {
 public:
  /// Takes the regions as they stand before any packet.
  void take(SimHost& host);
  void put(const Region& region, uint64_t va, std::span<const uint8_t> bytes);
  /// A failed request may or may not have written there.
  void forget(const Region& region, uint64_t va, uint64_t length);
  void zero(const Region& region, uint64_t va);
  /// What the program zeroed while packets were on their way, before any of them is put.
  void zero_what_the_program_did();
  /// An empty string, or where a byte is wrong.
  [[nodiscard]] std::string compare() const;

 private:
  struct Image {
    std::vector<uint8_t> bytes;
    std::vector<bool> unknown;  ///< empty: all known
  };
  std::map<const Region*, Image> images_;
};

struct PlannedSend {
  SendRequest request;
  std::vector<uint8_t> payload;       ///< the message's bytes, a READ's answer included
  std::vector<uint8_t> remote_after;  ///< of an atomic or ATOMIC WRITE: what is at remote_va then
  TimeNs post_ns = 0;
  std::optional<size_t> reads_back;  ///< the WRITE whose bytes a READ asks for
  TimeNs done_ns = kNever;           ///< known to have succeeded by then
  bool zero_when_done = false;       ///< where its bytes went, as far as the program may zero that
};

struct PlannedReceive {
  std::vector<transport::Sge> sges;
  TimeNs post_ns = 0;
};

/// How a flow is meant to break, if it is.
struct PlannedFailure {
  std::optional<size_t> at;  ///< index of the send that cannot succeed; none: any from the break on
  std::vector<transport::CompletionStatus> allowed;           ///< of the first send that fails
  std::optional<transport::CompletionStatus> receive_status;  ///< of the receive that fails with it
  bool by_program = false;  ///< it takes memory away: what fails must have needed some that was gone
};

class Flow {
 public:
  Flow(uint32_t number, Endpoint& from, Endpoint& to) : number_(number), from_(from), to_(to) {}

  /// Posts what is due and has room.
  void pump(TimeNs now);
  /// Completions of this flow, in order. A violation of the model is kept in `error`.
  void on_send_completion(const transport::Completion& completion, TimeNs now);
  void on_receive_completion(const transport::Completion& completion);

  [[nodiscard]] bool done() const;
  /// Applies what succeeded to the image.
  void apply(MemoryImage& image) const;
  /// After everything is quiet.
  void check_end();

  /// The QP at that end is gone, and what was posted to it: no word of it comes, or means anything.
  void abandon(const Endpoint& end);
  /// From here on nothing of this flow may change a byte: the connection that it was on is no more.
  void freeze();

  [[nodiscard]] bool owns(uint64_t wr_id) const { return static_cast<uint32_t>(wr_id >> 32) == number_; }
  [[nodiscard]] static bool is_receive(uint64_t wr_id) { return (wr_id & kReceiveBit) != 0; }
  [[nodiscard]] Endpoint& from() { return from_; }
  [[nodiscard]] Endpoint& to() { return to_; }
  [[nodiscard]] std::string summary() const;

  std::vector<PlannedSend> sends;
  std::vector<PlannedReceive> receives;
  std::optional<PlannedFailure> failure;
  bool signal_all = false;
  std::string error;

 private:
  static constexpr uint64_t kReceiveBit = uint64_t{1} << 31;
  [[nodiscard]] bool takes_receive(size_t send) const;
  [[nodiscard]] bool signalled(size_t send) const;
  void fail(const std::string& what);
  void check_bytes(SimHost& host, const std::vector<transport::Sge>& sges, size_t send,
                   const std::string& whose);
  /// Where that byte of a message comes from; nullptr where from no region.
  [[nodiscard]] Region* source_of(size_t send, uint64_t offset, uint64_t& va) const;
  /// That byte may have been zeroed before it was sent, or must have been.
  [[nodiscard]] bool may_be_zero(size_t send, uint64_t offset) const;
  [[nodiscard]] bool must_be_zero(size_t send, uint64_t offset) const;
  void zero_pages_of(size_t send, TimeNs now);
  /// Bytes of a message that was put where the program zeroes pages.
  void settle(MemoryImage& image, Region& region, uint64_t va, uint64_t length, size_t send,
              uint64_t offset) const;
  // Memory that the program took away (odp_mix_flow.cpp).
  enum class Need : uint8_t { local, remote, receive };
  template <typename Gone>
  [[nodiscard]] bool any_gone(size_t send, Need need, Gone gone) const;
  [[nodiscard]] bool needed_what_was_gone(size_t send, Need need, TimeNs now) const;
  [[nodiscard]] bool is_explained(size_t send, transport::CompletionStatus status, TimeNs now) const;
  [[nodiscard]] bool cannot_have_succeeded(size_t send, TimeNs now) const;
  /// The send that the n-th used receive is for.
  [[nodiscard]] size_t message(size_t receive) const;

  const uint32_t number_;
  Endpoint& from_;
  Endpoint& to_;
  size_t sends_posted_ = 0;
  size_t receives_posted_ = 0;
  size_t next_send_ = 0;               ///< sends before it are accounted for
  std::optional<size_t> failed_send_;  ///< the first that failed
  struct Frozen {
    const Region* region;
    uint64_t offset;
    std::vector<uint8_t> bytes;
  };
  void freeze(const Region* region, uint64_t va, uint64_t length);
  bool sends_abandoned_ = false, receives_abandoned_ = false;
  std::vector<Frozen> frozen_;
  size_t received_ = 0;  ///< receive completions
  size_t received_well_ = 0;
};

}  // namespace faultline::sim
