// SPDX-License-Identifier: BSD-3-Clause
// A station: a poll engine on a fake port, with memory. Two stations exchange frames only when a test carries
// them, and run turns only when a test asks for one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pmd_glue/config/config.hpp"
#include "pmd_glue/engine/poll_engine.hpp"
#include "tests/unit/engine/eal_pool.hpp"
#include "tests/unit/engine/fake_port.hpp"
#include "tests/unit/engine/plain_memory.hpp"
#include "tests/unit/engine/virtual_clock.hpp"

namespace faultline::glue::test {

/// What a test changes of a station.
struct StationSetup {
  std::vector<std::string> addresses{"198.18.0.1/24"};
  std::optional<uint16_t> vlan_id = {};
  ChaosConfig chaos = {};
  Capture* capture = nullptr;
  FakePort::Offloads offloads = {};
  bool udp_checksum = false;
  TimeNs min_ack_timeout_ns = 0;
};

class Station {
 public:
  using Setup = StationSetup;
  explicit Station(const Setup& setup);
  explicit Station(const std::string& address) : Station(Setup{.addresses = {address}}) {}

  /// Runs a turn as the device does: the engine is offline after it.
  bool turn(PollEngine::Turn whose = PollEngine::Turn::of_ours);
  bool turn_of_program() { return turn(PollEngine::Turn::of_program); }

  [[nodiscard]] const wire::MacAddress& mac() const { return addresses.mac(); }
  [[nodiscard]] const wire::Gid& gid(size_t index = 0) const { return addresses.gids()[index]; }
  [[nodiscard]] uint64_t count(Count verbs::BasicPortCounters<Count>::*counter) const {
    return (engine.counts().*counter).get();
  }
  [[nodiscard]] transport::CoreCounters transport() { return engine.core().counters(); }
  /// The path of frames from this station to `peer`.
  [[nodiscard]] transport::AddressVector path_to(const Station& peer) const;

  static constexpr size_t kMemoryBytes = 65'536;

  const Config config;
  const DeviceConfig device;
  const AddressTable addresses;
  PlainMemory memory{kMemoryBytes};
  FakePort port;
  PollEngine engine;
};

/// Decides whether the wire loses a frame.
using Loss = std::function<bool(const Frame&)>;

/// Moves the frames that one station has transmitted to the other; returns their number, lost ones included.
size_t carry(Station& from, Station& to, const Loss& loses = nullptr);

/// Runs turns and carries frames until none moves. The time stands still.
void settle(Station& a, Station& b, const Loss& loses = nullptr);

/// A QP with its completion queues.
class TestQp {
 public:
  explicit TestQp(Station& station, transport::QpType type = transport::QpType::rc);
  ~TestQp();
  TestQp(const TestQp&) = delete;
  TestQp& operator=(const TestQp&) = delete;

  /// 4.096 us * 2^10.
  static constexpr uint8_t kTimeout = 10;
  static constexpr TimeNs kTimeoutNs = 4'194'304;
  static constexpr uint32_t kQkey = 0x11111111;

  /// Connects an RC QP to `peer` of the station `to`, which may be this QP itself.
  void connect(const TestQp& peer, const Station& to, uint8_t timeout = kTimeout);
  /// Makes a UD QP ready to send.
  void activate();

  /// Posts a receive of a datagram without payload: its memory holds the GRH (IBA A17.4.5.1).
  void post_receive();
  /// Posts a SEND without payload and rings the doorbell.
  void send();
  /// Posts a WRITE from the start of the station's memory to the start of the peer's.
  void write(uint32_t length_bytes);
  /// Posts a datagram without payload to QPN `qpn` of the path `to`.
  void send_datagram(const transport::AddressVector& to, uint32_t qpn);

  /// Statuses of the new completions.
  [[nodiscard]] std::vector<transport::CompletionStatus> sent() { return poll(sends_); }
  [[nodiscard]] std::vector<transport::CompletionStatus> received() { return poll(receives_); }
  [[nodiscard]] transport::QueuePair* get() const { return qp_; }
  [[nodiscard]] uint32_t qpn() const { return qpn_of(qp_); }

 private:
  static std::vector<transport::CompletionStatus> poll(transport::CompletionQueue& queue);
  void take_to_rts(const transport::QpAttributes& attributes);
  /// Returns the next WQE, cleared; publish() passes it to the engine.
  transport::SendWqe& prepare(transport::SendOpcode opcode);
  void publish();

  Station& station_;
  transport::CompletionQueue sends_{1024};
  transport::CompletionQueue receives_{1024};
  transport::QueuePair* qp_;
};

using Statuses = std::vector<transport::CompletionStatus>;
[[nodiscard]] inline Statuses succeeded(size_t count) {
  return Statuses(count, transport::CompletionStatus::success);
}

}  // namespace faultline::glue::test
