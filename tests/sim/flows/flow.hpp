// SPDX-License-Identifier: BSD-3-Clause
// Reference model of one direction of a connection: the posted requests, the expected results and their
// order.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/world/endpoint.hpp"

namespace faultline::sim {

/// The expected final memory of both hosts: every byte of every region, including gaps.
class MemoryImage {
 public:
  /// Copies the regions before any packet is sent.
  void take(SimHost& host);
  void put(const Region& region, uint64_t va, std::span<const uint8_t> bytes);
  /// Marks a range as unknown: a failed request may or may not have written it.
  void forget(const Region& region, uint64_t va, uint64_t length);
  void zero(const Region& region, uint64_t va);
  /// Applies the zeroing done by the program during the run; call before any put().
  void zero_what_the_program_did();
  /// Returns an empty string, or the location of a wrong byte.
  [[nodiscard]] std::string compare() const;

 private:
  struct Image {
    std::vector<uint8_t> bytes;
    std::vector<bool> unknown;  ///< empty: every byte is known
  };
  std::map<const Region*, Image> images_;
};

struct PlannedSend {
  SendRequest request;
  std::vector<uint8_t> payload;       ///< the message's bytes, including a READ's response
  std::vector<uint8_t> remote_after;  ///< atomic or ATOMIC WRITE: contents of remote_va afterwards
  TimeNs post_ns = 0;
  std::optional<size_t> reads_back;  ///< the WRITE whose bytes a READ reads
  TimeNs done_ns = kNever;           ///< when its success became known
  bool zero_when_done = false;       ///< zero the destination on completion, as far as the program may
};

struct PlannedReceive {
  std::vector<transport::Sge> sges;
  TimeNs post_ns = 0;
};

/// The planned failure of a flow, if any.
struct PlannedFailure {
  std::optional<size_t> at;  ///< index of the send that cannot succeed; none: any send after the failure
  std::vector<transport::CompletionStatus> allowed;           ///< statuses of the first send that fails
  std::optional<transport::CompletionStatus> receive_status;  ///< status of the receive that fails with it
  bool by_program = false;  ///< it takes memory away: a failed request must have needed some of that memory
};

class Flow {
 public:
  Flow(uint32_t number, Endpoint& from, Endpoint& to) : number_(number), from_(from), to_(to) {}

  /// Posts what is due and fits.
  void pump(TimeNs now);
  /// Check completions of this flow, in order. `error` records a violation of the model.
  void on_send_completion(const transport::Completion& completion, TimeNs now);
  void on_receive_completion(const transport::Completion& completion);
  /// Checks a completion of a receive that the flow shares with others. With `pooled`.
  void on_pooled_receive(transport::Completion completion, const std::vector<transport::Sge>& sges);

  [[nodiscard]] bool done() const;
  /// Applies successful requests to the image.
  void apply(MemoryImage& image) const;
  /// Checks the final state; call when the simulation is idle.
  void check_end();

  /// The QP at `end` was destroyed, with its posted work requests. Their completions are not expected and are
  /// ignored.
  void abandon(const Endpoint& end);
  /// The flow's connection no longer exists: no byte may change because of this flow from now on.
  void freeze();
  /// As freeze(), of what the QP at `end` may write: the other end still has the connection.
  void freeze(const Endpoint& end);

  [[nodiscard]] bool owns(uint64_t wr_id) const { return static_cast<uint32_t>(wr_id >> 32) == number_; }
  [[nodiscard]] static bool is_receive(uint64_t wr_id) { return (wr_id & kReceiveBit) != 0; }
  [[nodiscard]] Endpoint& from() { return from_; }
  [[nodiscard]] Endpoint& to() { return to_; }
  [[nodiscard]] std::string summary() const;
  /// Returns how many sends take a receive.
  [[nodiscard]] size_t consuming() const;

  std::vector<PlannedSend> sends;
  std::vector<PlannedReceive> receives;
  std::optional<PlannedFailure> failure;
  bool signal_all = false;
  bool pooled = false;  ///< a ReceivePool posts the receives; those that were used become `receives`
  std::string error;

 private:
  static constexpr uint64_t kReceiveBit = uint64_t{1} << 31;
  [[nodiscard]] bool takes_receive(size_t send) const;
  [[nodiscard]] bool signalled(size_t send) const;
  void fail(const std::string& what);
  void check_bytes(SimHost& host, const std::vector<transport::Sge>& sges, size_t send,
                   const std::string& whose);
  /// Returns the region and address that the byte of a message is read from; nullptr if from no region.
  [[nodiscard]] Region* source_of(size_t send, uint64_t offset, uint64_t& va) const;
  /// Returns whether the byte may have been zeroed before it was sent, or must have been.
  [[nodiscard]] bool may_be_zero(size_t send, uint64_t offset) const;
  [[nodiscard]] bool must_be_zero(size_t send, uint64_t offset) const;
  void zero_pages_of(size_t send, TimeNs now);
  /// Resolves bytes of a message that was written to pages which the program zeroes.
  void settle(MemoryImage& image, Region& region, uint64_t va, uint64_t length, size_t send,
              uint64_t offset) const;
  // Memory that the program took away (odp_mix_flow.cpp).
  enum class Need : uint8_t { local, remote, receive };
  template <typename Gone>
  [[nodiscard]] bool any_gone(size_t send, Need need, Gone gone) const;
  [[nodiscard]] bool needed_what_was_gone(size_t send, Need need, TimeNs now) const;
  [[nodiscard]] bool is_explained(size_t send, transport::CompletionStatus status, TimeNs now) const;
  [[nodiscard]] bool cannot_have_succeeded(size_t send, TimeNs now) const;
  /// Returns the index of the send that the n-th consumed receive belongs to.
  [[nodiscard]] size_t message(size_t receive) const;

  const uint32_t number_;
  Endpoint& from_;
  Endpoint& to_;
  size_t sends_posted_ = 0;
  size_t receives_posted_ = 0;
  size_t next_send_ = 0;               ///< all sends before it have completed
  std::optional<size_t> failed_send_;  ///< first failed send
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
