// SPDX-License-Identifier: BSD-3-Clause
// The wire's control socket: who comes, what they ask for, and that they are gone. A process is gone when its
// connection ends, or when the process does (a child of its may keep the connection open).
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "apps/switch/frame_switch.hpp"
#include "pmd_glue/switch_protocol.hpp"
#include "pmd_glue/unique_fd.hpp"

namespace faultline::switching {

class Control {
 public:
  /// `frames` outlives it. `listener` is a listening SOCK_SEQPACKET socket. Until `recovered_ns` only those
  /// get a seat who had one at a switch that died; others wait.
  Control(std::string wire, glue::UniqueFd listener, FrameSwitch& frames, transport::TimeNs recovered_ns);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  /// False with errno where the system gives no descriptors.
  [[nodiscard]] bool open();
  /// Serves what has come, waiting for so long at most. Returns at once when a sender rings.
  void serve(int timeout_ms);
  /// SIGTERM or SIGINT came.
  [[nodiscard]] bool told_to_end() const { return told_to_end_; }
  [[nodiscard]] bool has_sessions() const { return !sessions_.empty(); }
  /// Somebody is at the door.
  [[nodiscard]] bool somebody_comes() const;

 private:
  struct Session {
    glue::UniqueFd connection;
    glue::UniqueFd process;  ///< a pidfd
    int pid = 0;
    std::unique_ptr<glue::SwitchBell> bell;
    std::optional<PortIndex> port;
    std::optional<glue::SwitchRequest> waiting;  ///< to attach
  };

  void watch(int fd);
  void serve_waiting();
  void accept_one();
  void on_event(int fd);
  void read_request(Session& session);
  void handle(Session& session, const glue::SwitchRequest& request);
  void attach(Session& session, const glue::SwitchRequest& request);
  /// Who has what is asked for may be gone without that it was looked at yet.
  void end_if_gone(PortIndex port);
  [[nodiscard]] static bool is_gone(const Session& session);
  void end(Session& session);
  void answer(const Session& session, int error, const std::string& line);

  const std::string wire_;
  const glue::UniqueFd listener_;
  FrameSwitch& frames_;
  transport::TimeNs recovered_ns_;  ///< 0: all is as it was
  glue::UniqueFd epoll_;
  glue::UniqueFd bell_event_;
  glue::UniqueFd signals_;
  std::map<int, std::unique_ptr<Session>> sessions_;  ///< by connection
  std::map<int, int> connection_of_process_;          ///< by pidfd
  bool told_to_end_ = false;
};

}  // namespace faultline::switching
