// SPDX-License-Identifier: BSD-3-Clause
// The wire's control socket: who comes, what they ask for, and that they are gone. A process is gone when its
// connection ends, or when the process does (a child of its may keep the connection open). Whoever connects
// and asks for nothing costs the wire little, and not for long. It needs no DPDK.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "apps/switch/seats.hpp"
#include "pmd_glue/wires/switch_protocol.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::switching {

class Control {
 public:
  /// Connections without a seat; the one that has been silent for longest makes room for the next.
  static constexpr size_t kMostStrangers = 64;
  /// What a connection has to ask for its seat.
  static constexpr TimeNs kSilentNs = 2'000'000'000;
  /// Without a descriptor to accept with, or to refuse with.
  static constexpr TimeNs kNoDescriptorsNs = 100'000'000;

  struct Host {
    std::function<TimeNs()> now;
    std::function<void(const std::string&)> note;  ///< a line for the log
  };

  /// `seats` outlives it. `listener` is a listening SOCK_SEQPACKET socket. Until `recovered_ns` only those
  /// get a seat who had one at a switch that died; others wait.
  Control(std::string wire, UniqueFd listener, Seats& seats, TimeNs recovered_ns, Host host);
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
    uint64_t id = 0;
    UniqueFd connection;
    UniqueFd process;  ///< a pidfd
    int pid = 0;
    TimeNs since = 0;
    std::unique_ptr<glue::SwitchBell> bell;
    std::optional<PortIndex> port;
    std::optional<glue::SwitchRequest> waiting;  ///< to attach
  };
  using Sessions = std::map<uint64_t, std::unique_ptr<Session>>;

  void watch(int fd, uint64_t tag, bool change = false);
  [[nodiscard]] int wait_ms(int timeout_ms) const;
  void serve_waiting();
  void end_silent();
  void on_event(uint64_t tag);
  void accept_all();
  /// Nothing where nobody waits to be accepted.
  [[nodiscard]] UniqueFd accept_one();
  void refuse_one();
  void pause_listening(bool pause);
  void begin(UniqueFd connection);
  [[nodiscard]] size_t strangers() const;
  /// The one that has said nothing for longest.
  [[nodiscard]] Session* longest_silent() const;
  void read_request(Session& session);
  void handle(Session& session, const glue::SwitchRequest& request);
  void attach(Session& session, const glue::SwitchRequest& request);
  /// Who has what is asked for may be gone without that it was looked at yet.
  void end_if_gone(PortIndex port);
  [[nodiscard]] static bool is_gone(const Session& session);
  void end(Session& session);

  const std::string wire_;
  const UniqueFd listener_;
  Seats& seats_;
  TimeNs recovered_ns_;  ///< 0: all is as it was
  const Host host_;
  UniqueFd epoll_;
  UniqueFd bell_event_;
  UniqueFd signals_;
  UniqueFd spare_;            ///< given up to refuse somebody where no descriptor is left
  TimeNs listens_again_ = 0;  ///< 0: it listens
  // By a number that never comes again, as descriptors do: an event may be older than the session.
  Sessions sessions_;
  uint64_t next_id_ = 1;
  bool told_to_end_ = false;
};

}  // namespace faultline::switching
