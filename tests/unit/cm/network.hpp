// SPDX-License-Identifier: BSD-3-Clause
// Managers joined by a wire in virtual time: datagrams are delayed, lost, duplicated or late, by script or at
// random.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "stack/cm/manager.hpp"

namespace faultline::cm::test {

inline constexpr uint64_t kMs = 1'000'000;
inline constexpr uint64_t kSecond = 1'000 * kMs;

[[nodiscard]] std::vector<uint8_t> pattern(size_t bytes, uint8_t first);
[[nodiscard]] wire::CmMad parsed(const wire::MadBytes& bytes);

class Network;

/// A device with its manager.
class Node final : private MadSender {
 public:
  Node(Network& network, uint8_t host, ManagerConfig config);

  Manager& manager() { return *manager_; }
  [[nodiscard]] const wire::Gid& gid() const { return gid_; }
  [[nodiscard]] Path path_to(const Node& peer) const;
  /// Returns a complete REQ for `service_id` from `qpn`.
  [[nodiscard]] ConnectParams request_to(const Node& peer, uint64_t service_id, uint32_t qpn) const;
  [[nodiscard]] std::optional<wire::IpAddressing> addressing_to(const Node& peer) const;
  /// Returns the next event; fails the test if there is none.
  [[nodiscard]] Event next_event();
  [[nodiscard]] bool has_event() const { return manager_->has_events(); }
  void receive(const wire::MadBytes& mad, const MadSource& source, TimeNs now) {
    manager_->on_mad(mad, source, now);
  }

  std::vector<wire::MadBytes> sent;  ///< all messages, in order
  std::multiset<uint64_t> services;  ///< claimed and not yet released
  int claim_answer = 0;              ///< result of a claim
  [[nodiscard]] std::vector<wire::CmAttribute> sent_attributes() const;

 private:
  void send_mad(const wire::MadBytes& mad, const transport::AddressVector& to, uint16_t pkey) override;
  [[nodiscard]] int claim_service(uint64_t service_id) override {
    if (claim_answer == 0) services.insert(service_id);
    return claim_answer;
  }
  void release_service(uint64_t service_id) override { services.erase(service_id); }

  Network& network_;
  const wire::Gid gid_;
  const wire::MacAddress mac_;
  std::unique_ptr<Manager> manager_;
};

struct WireScript {
  uint64_t delay_ns = 10'000;
  uint64_t jitter_ns = 0;
  uint32_t loss_permille = 0, duplicate_permille = 0;
};

class Network {
 public:
  explicit Network(uint64_t seed = 1) : random_(seed) {}

  Node& add(ManagerConfig config = {});
  [[nodiscard]] TimeNs now() const { return now_; }
  /// Runs until nothing is due before `until`, and sets the time to it.
  void run_until(TimeNs until);
  void run_for(uint64_t duration_ns) { run_until(now_ + duration_ns); }
  /// Delivers the datagrams in flight, without any time-out.
  void settle() { run_for(1 * kMs); }
  [[nodiscard]] uint32_t chance(uint32_t below) {
    return std::uniform_int_distribution<uint32_t>(0, below - 1)(random_);
  }

  WireScript script;
  /// Returns true for a datagram that is to be lost.
  std::function<bool(const wire::CmMad&)> loses;

 private:
  friend class Node;
  struct Datagram {
    Node* to;
    wire::MadBytes mad;
    MadSource source;
  };
  void carry(const Node& from, const wire::MadBytes& mad, const transport::AddressVector& to, uint16_t pkey);

  TimeNs now_ = kSecond;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::multimap<TimeNs, Datagram> under_way_;
};

/// Loses the first `count` datagrams of an attribute.
[[nodiscard]] std::function<bool(const wire::CmMad&)> losing(wire::CmAttribute attribute, int count);

}  // namespace faultline::cm::test
