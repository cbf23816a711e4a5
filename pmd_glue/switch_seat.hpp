// SPDX-License-Identifier: BSD-3-Clause
// A process's seat on a wire: asked for at the wire's switch, which is started where there is none, and kept
// while the object lives. It needs no DPDK.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "pmd_glue/switch_bell.hpp"
#include "pmd_glue/switch_protocol.hpp"
#include "pmd_glue/unique_fd.hpp"
#include "pmd_glue/wire_request.hpp"
#include "stack/wire/headers.hpp"

namespace faultline::glue {

class SwitchSeat {
 public:
  /// nullptr with one line in `error`.
  [[nodiscard]] static std::shared_ptr<SwitchSeat> take(const WireRequest& request, std::string& error);
  ~SwitchSeat();
  SwitchSeat(const SwitchSeat&) = delete;
  SwitchSeat& operator=(const SwitchSeat&) = delete;

  [[nodiscard]] const SwitchGrant& grant() const { return grant_; }
  /// Lives as long as the seat, also when a new one has taken its place.
  [[nodiscard]] SwitchBell& bell() { return *bell_.load(std::memory_order_acquire); }

  /// Looks whether the switch is still there. Where it has died, takes the same seat at a new one, with what
  /// was claimed and joined; false with one line in `error`, once, where that cannot be had.
  [[nodiscard]] bool keep(std::string& error);
  /// Hangs up when the switch has died and keep() has something to do; -1 where it never will. For who calls
  /// keep().
  [[nodiscard]] int switch_descriptor() const { return lost_ ? -1 : connection_.get(); }

  // Any thread. An errno value; 0: done.
  /// Connection requests for that service come here; EADDRINUSE where another process that shares the address
  /// has it.
  [[nodiscard]] int claim_service(uint64_t service_id);
  void release_service(uint64_t service_id);
  [[nodiscard]] int join_group(const wire::Gid& group);
  void leave_group(const wire::Gid& group);

 private:
  SwitchSeat() = default;
  /// Asks a switch for what `request` says, and has it answer in `grant`.
  [[nodiscard]] bool attach(const SwitchRequest& request, SwitchGrant& grant, std::string& error);
  [[nodiscard]] int ask(const SwitchRequest& request);
  [[nodiscard]] bool take_again(std::string& error);

  std::mutex mutex_;
  std::string wire_;
  UniqueFd connection_;
  SwitchGrant grant_;
  std::vector<std::unique_ptr<SwitchBell>> bells_;  ///< an engine may be ringing an older one just now
  std::atomic<SwitchBell*> bell_{nullptr};
  std::set<uint64_t> services_;
  std::set<std::array<uint8_t, 16>> groups_;
  bool lost_ = false;
};

}  // namespace faultline::glue
