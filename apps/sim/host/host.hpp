// SPDX-License-Identifier: BSD-3-Clause
// A simulated host: the transport core that runs on real wires, with a port and memory of the simulation, and
// an engine whose turns happen in virtual time.
#pragma once

#include <cstdint>
#include <memory_resource>

#include "apps/sim/description/description.hpp"
#include "apps/sim/fabric/fabric.hpp"
#include "apps/sim/host/nic.hpp"
#include "apps/sim/host/scratch_memory.hpp"
#include "stack/transport/core/core.hpp"
#include "stack/transport/qp/completion_queue.hpp"

namespace faultline::fabric {

/// The program of a host.
class Program {
 public:
  virtual ~Program() = default;
  /// A work request of the host has completed, at `now` in virtual time.
  virtual void on_completion(uint32_t host, const transport::Completion& completion, TimePs now_ps) = 0;
};

struct HostSize {
  uint32_t qps = 0;                        ///< that the host will have
  uint32_t completions = 0;                ///< sum of their work requests
  record::RingWriter* recorder = nullptr;  ///< outlives the host; nullptr: nothing is recorded
  std::pmr::memory_resource* memory = std::pmr::new_delete_resource();  ///< of QPs, rings and completions
};

/// One end of a connection.
struct EndInit {
  uint32_t send_requests = 1;
  uint32_t receive_requests = 1;
};

/// A message to send.
struct Message {
  uint64_t wr_id = 0;
  Operation operation = Operation::write;
  uint32_t bytes = 0;
  uint32_t immediate = 0;
};

class Host {
 public:
  Host(uint32_t index, const Description& description, const HostSize& size, Fabric& fabric,
       BufferPool& buffers, EventQueue& events, Program& program);

  /// Creates one end of a connection, in RESET. Throws std::bad_alloc.
  [[nodiscard]] transport::QueuePair* create_end(const EndInit& init);
  /// Moves an end to RTS. Returns 0 or an errno.
  [[nodiscard]] int connect(transport::QueuePair* qp, const transport::AddressVector& path, uint32_t peer_qpn,
                            const HostParameters& parameters, uint8_t reads);
  /// Posts and wakes the engine. The send ring must have room.
  void post_send(transport::QueuePair* qp, const Message& message, TimePs now_ps);
  void post_receive(transport::QueuePair* qp, uint64_t wr_id);

  /// Receives a frame from the fabric.
  void on_frame(Frame& frame, TimePs now_ps);
  /// The transmit ring has one frame less.
  void on_frame_sent(TimePs now_ps);
  /// Runs the engine, unless the event is of a turn that another one has replaced.
  void on_turn(TimePs now_ps);

  [[nodiscard]] const transport::Core& core() const { return core_; }
  /// Payload that the host has accepted, each byte once.
  [[nodiscard]] uint64_t received_bytes() const { return memory_.written_bytes(); }
  [[nodiscard]] uint64_t turns() const { return turns_; }

 private:
  void wake(TimePs at_ps);
  void receive(TimeNs now);
  void take_completions(TimePs now_ps);
  void plan_turn(TimePs now_ps);

  const uint32_t index_;
  const TimePs turn_ps_;
  const uint32_t ring_frames_;
  Fabric& fabric_;
  EventQueue& events_;
  Program& program_;
  ScratchMemory memory_;
  Nic nic_;
  transport::CompletionQueue cq_;
  transport::Core core_;
  FrameList inbox_;
  TimePs last_turn_ps_ = 0;
  TimePs due_ps_ = kNeverPs;  // the next turn
  bool is_in_turn_ = false;
  bool waits_for_ring_ = false;
  uint64_t turns_ = 0;
};

}  // namespace faultline::fabric
