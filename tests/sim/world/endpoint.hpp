// SPDX-License-Identifier: BSD-3-Clause
// A queue pair of a simulated host from the program's side: posting, polling, and the transitions to RTS.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tests/sim/world/world.hpp"

namespace faultline::sim {

struct SendRequest {
  uint64_t wr_id = 0;
  transport::SendOpcode opcode = transport::SendOpcode::send;
  uint8_t flags = transport::kSignaled;
  std::vector<transport::Sge> sges;
  std::vector<uint8_t> inline_data;  ///< used with kInline
  uint64_t remote_va = 0;
  uint32_t rkey = 0;
  uint32_t immediate = 0;
  uint32_t srq_number = 0;  ///< XRC
  uint32_t ud_qpn = 0;
  uint32_t ud_qkey = 0;
  transport::AddressVector av;  ///< UD only
  /// Sets the fields specific to atomics, binds and flushes.
  std::function<void(transport::SendWqe&)> fill;

  [[nodiscard]] uint32_t length_bytes() const;
};

struct EndpointScript {
  transport::QpType type = transport::QpType::rc;
  uint32_t max_send_wr = 64;
  uint32_t max_receive_wr = 64;
  uint32_t max_inline_bytes = 128;
  bool signal_all = false;
  odp::ProtectionDomain domain = 1;
  transport::SharedReceiveQueue* srq = nullptr;  ///< outlives the endpoint
  uint32_t xrc_domain = 0;
  bool own_srq = false;  ///< receives are posted to an SRQ created for this endpoint
};

/// Attributes of one end, with suitable defaults.
struct ConnectionScript {
  transport::PathMtu path_mtu = transport::PathMtu::mtu1024;
  uint32_t psn_a = 100, psn_b = 500;  ///< first PSN sent by each end
  uint8_t timeout = 14;
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 12;
  uint8_t max_rd_atomic = 4;
  uint32_t access_flags =
      odp::kRemoteRead | odp::kRemoteWrite | odp::kRemoteAtomic | odp::kFlushGlobal | odp::kFlushPersistent;
};

class Endpoint {
 public:
  /// With `shared`, the send and receive CQ are both `shared`, owned by the caller.
  Endpoint(World& world, SimHost& host, const EndpointScript& script,
           transport::CompletionQueue* shared = nullptr);

  /// From now on the core's owner thread posts to the send queue (Core::send_posted).
  void post_as_owner() { posts_as_owner_ = true; }
  /// Returns false if the ring is full.
  [[nodiscard]] bool post_send(const SendRequest& request);
  [[nodiscard]] bool post_receive(uint64_t wr_id, const std::vector<transport::Sge>& sges);
  /// Returns the completions since the last call.
  std::vector<transport::Completion> poll_sends() { return drain(*send_cq_); }
  std::vector<transport::Completion> poll_receives() { return drain(*receive_cq_); }

  [[nodiscard]] bool all_sends_retired() const;
  [[nodiscard]] uint32_t qpn() const { return transport::qpn_of(qp_); }
  [[nodiscard]] transport::QpState state() const { return transport::state_of(qp_); }
  [[nodiscard]] transport::QueuePair* qp() const { return qp_; }
  [[nodiscard]] transport::SharedReceiveQueue* srq() const { return srq_; }
  [[nodiscard]] SimHost& host() const { return host_; }
  /// Returns 0 or the errno of modify_qp.
  [[nodiscard]] int modify(const transport::QpAttributes& attributes, uint32_t mask);
  /// The same, for the whole way from RESET to RTS.
  [[nodiscard]] int take_to_rts(const transport::QpAttributes& attributes);
  void destroy();
  /// Moves the QP to RESET: posted work requests are discarded without completions.
  [[nodiscard]] bool reset();
  /// Replaces the QP with a new one that has another number.
  void renew();

  static std::vector<transport::Completion> drain(transport::CompletionQueue& cq);

 private:
  World& world_;
  SimHost& host_;
  std::unique_ptr<transport::CompletionQueue> own_send_cq_, own_receive_cq_;
  transport::CompletionQueue* send_cq_;
  transport::CompletionQueue* receive_cq_;
  transport::QpInit init_;
  transport::SharedReceiveQueue* srq_ = nullptr;
  bool owns_srq_ = false;
  transport::QueuePair* qp_ = nullptr;
  bool posts_as_owner_ = false;
};

/// Moves one end from RESET to RTS; `own_psn` is its first PSN. Returns false if a transition is refused.
[[nodiscard]] bool connect_end(World& world, Endpoint& end, const Endpoint& peer,
                               const ConnectionScript& script, uint32_t own_psn, uint32_t peer_psn);
/// Moves both ends of a connection from RESET to RTS. Returns false if a transition is refused.
[[nodiscard]] bool connect(World& world, Endpoint& a, Endpoint& b, const ConnectionScript& script);
/// Moves a UD QP to RTS.
[[nodiscard]] bool activate_datagram(Endpoint& end, uint32_t qkey, uint32_t psn);

}  // namespace faultline::sim
