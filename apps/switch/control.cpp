// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/control.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include <poll.h>
#include <spdlog/fmt/fmt.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "pmd_glue/eal.hpp"
#include "pmd_glue/engine.hpp"

namespace faultline::switching {
namespace {

using glue::SwitchAnswer;
using glue::SwitchBell;
using glue::SwitchRequest;
using glue::SwitchVerb;
using glue::UniqueFd;

void send_answer(int connection, const SwitchAnswer& answer, const SwitchBell* bell) {
  iovec part{const_cast<SwitchAnswer*>(&answer), sizeof answer};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(SwitchBell::kDescriptors * sizeof(int))> control{};
  if (bell != nullptr) {
    const auto descriptors = bell->descriptors();
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptors);
    std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof descriptors);
  }
  // Who does not take its answer is gone, or will time out.
  static_cast<void>(sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

SwitchAnswer refusal(int error, const std::string& line) {
  SwitchAnswer answer;
  answer.error = error;
  line.copy(answer.line.data(), answer.line.size() - 1);
  return answer;
}

int change(StationTable& stations, PortIndex port, const SwitchRequest& request) {
  const wire::Gid group{request.group};
  switch (request.verb) {
    case SwitchVerb::claim_service:
      return stations.claim_service(port, request.service_id);
    case SwitchVerb::release_service:
      stations.release_service(port, request.service_id);
      return 0;
    case SwitchVerb::join_group:
      return stations.join(port, group);
    case SwitchVerb::leave_group:
      stations.leave(port, group);
      return 0;
    default:
      return EOPNOTSUPP;
  }
}

bool is_readable(int fd) {
  pollfd wanted{fd, POLLIN, 0};
  return poll(&wanted, 1, 0) == 1;
}

}  // namespace

Control::Control(std::string wire, UniqueFd listener, FrameSwitch& frames, transport::TimeNs recovered_ns)
    : wire_(std::move(wire)), listener_(std::move(listener)), frames_(frames), recovered_ns_(recovered_ns) {}

Control::~Control() = default;

bool Control::open() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  bell_event_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  signals_ = UniqueFd(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!epoll_ || !bell_event_ || !signals_) return false;
  for (const int fd : {listener_.get(), bell_event_.get(), signals_.get()}) watch(fd);
  return true;
}

void Control::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

bool Control::somebody_comes() const {
  return is_readable(listener_.get());
}

void Control::serve_waiting() {
  if (recovered_ns_ == 0 || glue::monotonic_ns() < recovered_ns_) return;
  recovered_ns_ = 0;
  // Whoever is found to be gone meanwhile leaves the list.
  std::vector<int> waiting;
  for (const auto& [fd, session] : sessions_)
    if (session->waiting) waiting.push_back(fd);
  for (const int fd : waiting)
    if (const auto session = sessions_.find(fd); session != sessions_.end())
      attach(*session->second, *session->second->waiting);
}

void Control::serve(int timeout_ms) {
  constexpr int kRecoverMs = 20;
  if (recovered_ns_ != 0) timeout_ms = std::min(timeout_ms, kRecoverMs);
  serve_waiting();
  std::array<epoll_event, 32> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  for (int i = 0; i < count; ++i) on_event(events[static_cast<size_t>(i)].data.fd);
}

void Control::on_event(int fd) {
  if (fd == bell_event_.get()) {
    uint64_t rings = 0;
    static_cast<void>(!read(fd, &rings, sizeof rings));
  } else if (fd == listener_.get()) {
    accept_one();
  } else if (fd == signals_.get()) {
    told_to_end_ = true;
  } else if (const auto process = connection_of_process_.find(fd); process != connection_of_process_.end()) {
    end(*sessions_.at(process->second));
  } else if (const auto session = sessions_.find(fd); session != sessions_.end()) {
    // An event of this round may have ended it already.
    read_request(*session->second);
  }
}

void Control::accept_one() {
  UniqueFd connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection) return;
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != geteuid())
    return send_answer(
        connection.get(),
        refusal(EPERM, fmt::format("it is of user {}, and this process of another, {}", geteuid(), peer.uid)),
        nullptr);
  auto session = std::make_unique<Session>();
  session->pid = peer.pid;
  session->process = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  const int fd = connection.get();
  session->connection = std::move(connection);
  watch(fd);
  if (session->process) {
    watch(session->process.get());
    connection_of_process_[session->process.get()] = fd;
  }
  sessions_[fd] = std::move(session);
}

void Control::read_request(Session& session) {
  SwitchRequest request;
  const ssize_t received = recv(session.connection.get(), &request, sizeof request, MSG_DONTWAIT | MSG_TRUNC);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (received <= 0) return end(session);
  if (received < static_cast<ssize_t>(sizeof request.header) || request.header.magic != glue::kSwitchMagic) {
    answer(session, EPROTO, "it does not understand what this process says");
    return end(session);
  }
  if (request.header.version != glue::kSwitchVersion || received != sizeof request) {
    answer(
        session, EPROTO,
        fmt::format(
            "it is of another build (version {}, and this process's library has {}): end the programs on the "
            "wire and start them anew",
            glue::kSwitchVersion, request.header.version));
    return end(session);
  }
  handle(session, request);
}

void Control::handle(Session& session, const SwitchRequest& request) {
  if (request.verb == SwitchVerb::attach) return attach(session, request);
  if (!session.port) return answer(session, EINVAL, "attach comes first");
  const int error =
      frames_.with_stations([&](StationTable& stations) { return change(stations, *session.port, request); });
  answer(session, error, error != 0 ? std::strerror(error) : "");
}

void Control::attach(Session& session, const SwitchRequest& request) {
  if (session.port) return answer(session, EBUSY, "this connection has a seat already");
  const bool had_seat = request.range != 0;
  if (recovered_ns_ != 0 && !had_seat) {
    session.waiting = request;
    return;
  }
  const auto holder =
      frames_.with_stations([&](const StationTable& stations) { return stations.holder_of(request); });
  if (holder) end_if_gone(*holder);
  std::string line;
  session.bell = SwitchBell::create(bell_event_);
  if (session.bell == nullptr) return answer(session, errno, "no memory or descriptors for one more seat");
  const auto wanted = had_seat
                          ? std::optional(static_cast<PortIndex>(std::min<uint32_t>(request.port, kMaxPorts)))
                          : std::nullopt;
  const auto port = frames_.take_port(wanted, *session.bell, line);
  if (!port) return answer(session, ENOSPC, line);
  SwitchAnswer granted;
  const int error = frames_.with_stations([&](StationTable& stations) {
    return stations.attach(*port, request, session.pid, granted.grant, line);
  });
  if (error != 0) {
    frames_.give_back(*port);
    return answer(session, error, line);
  }
  session.port = port;
  granted.grant.port = *port;
  granted.grant.mtu_bytes = frames_.mtu_bytes();
  frames_.socket_of(*port).copy(granted.grant.memif_socket.data(), granted.grant.memif_socket.size() - 1);
  send_answer(session.connection.get(), granted, session.bell.get());
  glue::log().info("{}: process {} has port {}", wire_, session.pid, *port);
}

void Control::end_if_gone(PortIndex port) {
  const auto holder = std::find_if(sessions_.begin(), sessions_.end(),
                                   [&](const auto& session) { return session.second->port == port; });
  if (holder != sessions_.end() && is_gone(*holder->second)) end(*holder->second);
}

bool Control::is_gone(const Session& session) {
  if (session.process && is_readable(session.process.get())) return true;
  char first = 0;
  return recv(session.connection.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

void Control::end(Session& session) {
  if (session.port) {
    frames_.leave(*session.port);
    glue::log().info("{}: process {} has left port {}", wire_, session.pid, *session.port);
  }
  if (session.process) connection_of_process_.erase(session.process.get());
  sessions_.erase(session.connection.get());
}

void Control::answer(const Session& session, int error, const std::string& line) {
  send_answer(session.connection.get(), refusal(error, line), nullptr);
}

}  // namespace faultline::switching
