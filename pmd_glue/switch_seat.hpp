// SPDX-License-Identifier: BSD-3-Clause
// A process's seat on a wire: asked for at the wire's switch, which is started where there is none, and kept
// while the object lives. It needs no DPDK.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "pmd_glue/switch_bell.hpp"
#include "pmd_glue/switch_protocol.hpp"
#include "pmd_glue/unique_fd.hpp"
#include "stack/wire/headers.hpp"

namespace faultline::glue {

/// What a program was started with: "NAME", "NAME,side=a", "NAME,ip=198.18.0.7", each perhaps with ",share".
struct WireRequest {
  std::string wire;
  uint32_t ipv4 = 0;  ///< host order; 0: any
  bool shared = false;
};
/// Nothing, and one line in `error`, where the text is not of that form.
[[nodiscard]] std::optional<WireRequest> parse_wire_request(const std::string& text, std::string& error);

class SwitchSeat {
 public:
  /// nullptr with one line in `error`.
  [[nodiscard]] static std::shared_ptr<SwitchSeat> take(const WireRequest& request, std::string& error);
  ~SwitchSeat();
  SwitchSeat(const SwitchSeat&) = delete;
  SwitchSeat& operator=(const SwitchSeat&) = delete;

  [[nodiscard]] const SwitchGrant& grant() const { return grant_; }
  [[nodiscard]] SwitchBell& bell() { return *bell_; }

  // Any thread. An errno value; 0: done.
  /// Connection requests for that service come here; EADDRINUSE where another process that shares the address
  /// has it.
  [[nodiscard]] int claim_service(uint64_t service_id);
  void release_service(uint64_t service_id);
  [[nodiscard]] int join_group(const wire::Gid& group);
  void leave_group(const wire::Gid& group);

 private:
  SwitchSeat() = default;
  [[nodiscard]] int ask(const SwitchRequest& request);

  std::mutex mutex_;
  UniqueFd connection_;
  SwitchGrant grant_;
  std::unique_ptr<SwitchBell> bell_;
};

}  // namespace faultline::glue
