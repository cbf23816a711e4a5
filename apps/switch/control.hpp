// SPDX-License-Identifier: BSD-3-Clause
// The wire's control socket: connections, their requests and their ends. A process has ended when its
// connection closes or its pidfd is readable (a child may keep the connection open). The number and the
// lifetime of connections without a request are bounded. Needs no DPDK.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/switch/seats.hpp"
#include "pmd_glue/wires/switch_protocol.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::switching {

class Control {
 public:
  /// Connections without a seat. When a further one connects, the one that has been silent for longest is
  /// closed.
  static constexpr size_t kMostStrangers = 64;
  /// Time within which a connection must request its seat.
  static constexpr TimeNs kSilentNs = 2'000'000'000;
  /// Pause of the listener while no descriptor is free to accept or refuse with.
  static constexpr TimeNs kNoDescriptorsNs = 100'000'000;

  struct Host {
    std::function<TimeNs()> now;
    std::function<void(const std::string&)> note;  ///< writes a line to the log
  };

  /// `seats` and `inbox`, the switch's, must outlive this object. `listener` is a listening SOCK_SEQPACKET
  /// socket. Until `recovered_ns` only processes that had a seat at a switch that died get one; others wait.
  Control(std::string wire, UniqueFd listener, Seats& seats, const glue::Inbox& inbox, TimeNs recovered_ns,
          Host host);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  /// Returns false with errno if the system has no free descriptors.
  [[nodiscard]] bool open();
  /// Calls `on_readable` in serve() while the descriptor is readable. At most one such descriptor.
  void watch_frames(int descriptor, std::function<void()> on_readable);
  /// Serves pending events, and waits at most `timeout_ms` for the first. Returns at once when a sender
  /// rings.
  void serve(int timeout_ms);
  /// Whether SIGTERM or SIGINT was received.
  [[nodiscard]] bool is_termination_requested() const { return told_to_end_; }
  [[nodiscard]] bool has_sessions() const { return !sessions_.empty(); }
  /// Whether a connection waits to be accepted.
  [[nodiscard]] bool has_pending_connection() const;

 private:
  struct Session {
    uint64_t id = 0;
    UniqueFd connection;
    UniqueFd process;  ///< pidfd
    int pid = 0;
    TimeNs since = 0;
    std::optional<PortIndex> port;
    glue::SwitchGrant grant;                     ///< valid with a port
    std::vector<UniqueFd> inbox;                 ///< kInboxDescriptors, checked; empty: it gets no links
    std::optional<glue::SwitchRequest> waiting;  ///< pending attach request
  };
  using Sessions = std::map<uint64_t, std::unique_ptr<Session>>;

  void watch(int fd, uint64_t tag, bool change = false);
  [[nodiscard]] int wait_ms(int timeout_ms) const;
  void serve_waiting();
  void end_silent();
  void on_event(uint64_t tag);
  void accept_all();
  /// Returns an empty descriptor if no connection waits to be accepted.
  [[nodiscard]] UniqueFd accept_one();
  void refuse_one();
  void pause_listening(bool pause);
  void begin(UniqueFd connection);
  /// Returns the oldest session without a port and without a pending attach request, or nullptr.
  [[nodiscard]] Session* longest_silent() const;
  void read_request(Session& session);
  // Direct links.
  void introduce_new_pairs();
  void introduce(const Session& one, const Session& other);
  void change_link(Session& session, const glue::SwitchRequest& request);
  /// Tells the peers of a seat that their links to it have ended.
  void end_links_to(PortIndex port);
  static void send_link_ended(const Session& to, PortIndex ended);
  /// Announces to the seats under the host's addresses that an uplink by sockets is up or down.
  void announce_uplink_change();
  [[nodiscard]] Session* session_of(PortIndex port) const;
  void handle(Session& session, const glue::SwitchRequest& request);
  void send_status(const Session& session, const glue::SwitchRequest& request);
  void attach(Session& session, const glue::SwitchRequest& request);
  [[nodiscard]] UniqueFd begin_ring(const Session& session, PortIndex port);
  /// Ends the session of `port` if its process has ended but the event was not handled yet.
  void end_if_gone(PortIndex port);
  /// Ends the seat that the session's process has by another connection, and asks for again.
  void end_predecessor(const Session& session, const glue::SwitchRequest& request);
  [[nodiscard]] static bool is_gone(const Session& session);
  void end(Session& session);

  const std::string wire_;
  const UniqueFd listener_;
  Seats& seats_;
  const glue::Inbox& inbox_;
  TimeNs recovered_ns_;  ///< 0: recovery is over
  const Host host_;
  UniqueFd epoll_;
  UniqueFd wake_event_;
  UniqueFd signals_;
  UniqueFd spare_;            ///< closed to obtain a descriptor for refusing a connection
  TimeNs listens_again_ = 0;  ///< 0: not paused
  // Keyed by a number that is never reused, unlike a descriptor: an event may be older than the session.
  Sessions sessions_;
  std::set<uint64_t> strangers_;  ///< sessions without a port
  std::vector<Session*> by_port_ = std::vector<Session*>(kMaxPorts);
  std::function<void()> on_frames_;
  uint64_t next_id_ = 1;
  bool told_to_end_ = false;
};

}  // namespace faultline::switching
