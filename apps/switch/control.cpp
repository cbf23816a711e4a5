// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/control.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <spdlog/fmt/fmt.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>

namespace faultline::switching {
namespace {

using glue::SwitchAnswer;
using glue::SwitchRequest;
using glue::SwitchVerb;
using glue::WakeFlag;

// Tags of epoll events: one of these, or kSessionTag plus a session's number shifted left by one; odd for its
// pidfd.
constexpr uint64_t kListener = 0;
constexpr uint64_t kWakeEvent = 1;
constexpr uint64_t kSignals = 2;
constexpr uint64_t kSessionTag = 4;
constexpr uint64_t tag_of(uint64_t id, bool of_process) {
  return kSessionTag + (id << 1) + (of_process ? 1 : 0);
}
// Connections accepted per round, so that frames are served in between.
constexpr int kMostAccepted = 16;

void send_answer(int connection, const SwitchAnswer& answer, const WakeFlag* wake_flag) {
  iovec part{const_cast<SwitchAnswer*>(&answer), sizeof answer};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(WakeFlag::kDescriptors * sizeof(int))> control{};
  if (wake_flag != nullptr) {
    const auto descriptors = wake_flag->descriptors();
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptors);
    std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof descriptors);
  }
  // A peer that does not read its answer has ended, or will time out.
  static_cast<void>(sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

SwitchAnswer reply(uint64_t number, int error, const std::string& line) {
  SwitchAnswer answer;
  answer.number = number;
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

Control::Control(std::string wire, UniqueFd listener, Seats& seats, TimeNs recovered_ns, Host host)
    : wire_(std::move(wire)),
      listener_(std::move(listener)),
      seats_(seats),
      recovered_ns_(recovered_ns),
      host_(std::move(host)) {}

Control::~Control() = default;

bool Control::open() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  wake_event_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  signals_ = UniqueFd(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  spare_ = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!epoll_ || !wake_event_ || !signals_ || !spare_) return false;
  watch(listener_.get(), kListener);
  watch(wake_event_.get(), kWakeEvent);
  watch(signals_.get(), kSignals);
  return true;
}

void Control::watch(int fd, uint64_t tag, bool change) {
  epoll_event event{};
  event.events = tag == kListener && listens_again_ != 0 ? 0U : EPOLLIN;
  event.data.u64 = tag;
  epoll_ctl(epoll_.get(), change ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
}

bool Control::has_pending_connection() const {
  return is_readable(listener_.get());
}

// ---- by the clock ----

int Control::wait_ms(int timeout_ms) const {
  constexpr int kLookMs = 20;
  const bool looks = recovered_ns_ != 0 || listens_again_ != 0 || longest_silent() != nullptr;
  return looks ? std::min(timeout_ms, kLookMs) : timeout_ms;
}

void Control::serve_waiting() {
  if (recovered_ns_ == 0 || host_.now() < recovered_ns_) return;
  recovered_ns_ = 0;
  // attach() may end sessions, so it looks each up again.
  std::vector<uint64_t> waiting;
  for (const auto& [id, session] : sessions_)
    if (session->waiting) waiting.push_back(id);
  for (const uint64_t id : waiting)
    if (const auto session = sessions_.find(id); session != sessions_.end())
      attach(*session->second, *session->second->waiting);
}

void Control::end_silent() {
  for (Session* silent = longest_silent(); silent != nullptr; silent = longest_silent()) {
    if (host_.now() - silent->since < kSilentNs) return;
    end(*silent);
  }
}

void Control::serve(int timeout_ms) {
  serve_waiting();
  end_silent();
  if (listens_again_ != 0 && host_.now() >= listens_again_) pause_listening(false);
  std::array<epoll_event, 32> events;
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms(timeout_ms));
  for (int i = 0; i < count; ++i) on_event(events[static_cast<size_t>(i)].data.u64);
}

void Control::on_event(uint64_t tag) {
  if (tag == kWakeEvent) {
    uint64_t rings = 0;
    static_cast<void>(!read(wake_event_.get(), &rings, sizeof rings));
  } else if (tag == kListener) {
    accept_all();
  } else if (tag == kSignals) {
    told_to_end_ = true;
  } else if (const auto session = sessions_.find((tag - kSessionTag) >> 1); session != sessions_.end()) {
    // A previous event of this round may have ended the session.
    if ((tag & 1U) != 0)
      end(*session->second);
    else
      read_request(*session->second);
  }
}

// ---- new connections ----

void Control::accept_all() {
  for (int accepted = 0; accepted < kMostAccepted; ++accepted) {
    UniqueFd connection = accept_one();
    if (!connection) return;
    begin(std::move(connection));
  }
}

UniqueFd Control::accept_one() {
  UniqueFd connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  // Without a refusal the listener stays readable and the switch would spin (accept(2), EMFILE).
  if (!connection && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
    refuse_one();
  return connection;
}

void Control::refuse_one() {
  spare_.reset();
  UniqueFd refused(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (refused)
    send_answer(refused.get(), reply(0, EMFILE, "the switch has no descriptors left: raise its ulimit -n"),
                nullptr);
  else
    pause_listening(true);
  refused.reset();
  spare_ = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void Control::pause_listening(bool pause) {
  listens_again_ = pause ? host_.now() + kNoDescriptorsNs : 0;
  watch(listener_.get(), kListener, true);
}

size_t Control::strangers() const {
  return static_cast<size_t>(std::count_if(sessions_.begin(), sessions_.end(),
                                           [](const auto& session) { return !session.second->port; }));
}

Control::Session* Control::longest_silent() const {
  // Sessions are in order of their arrival.
  for (const auto& [id, session] : sessions_)
    if (!session->port && !session->waiting) return session.get();
  return nullptr;
}

void Control::begin(UniqueFd connection) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != geteuid())
    return send_answer(
        connection.get(),
        reply(0, EPERM,
              fmt::format("it is of user {}, and this process of another, {}", geteuid(), peer.uid)),
        nullptr);
  if (strangers() >= kMostStrangers) {
    Session* const silent = longest_silent();
    if (silent == nullptr)
      return send_answer(connection.get(), reply(0, EAGAIN, "too many processes wait for a seat"), nullptr);
    end(*silent);
  }
  auto session = std::make_unique<Session>();
  session->id = next_id_++;
  session->pid = peer.pid;
  session->since = host_.now();
  session->process = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  session->connection = std::move(connection);
  watch(session->connection.get(), tag_of(session->id, false));
  if (session->process) watch(session->process.get(), tag_of(session->id, true));
  Session& begun = *session;
  sessions_[begun.id] = std::move(session);
  // The request has usually arrived already. Reading it now prevents the eviction of this connection as a
  // silent one.
  read_request(begun);
}

// ---- requests ----

void Control::read_request(Session& session) {
  SwitchRequest request;
  const int connection = session.connection.get();
  const ssize_t received = recv(connection, &request, sizeof request, MSG_DONTWAIT | MSG_TRUNC);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (received <= 0) return end(session);
  if (received < static_cast<ssize_t>(sizeof request.header) || request.header.magic != glue::kSwitchMagic) {
    send_answer(connection, reply(0, EPROTO, "it does not understand what this process says"), nullptr);
    return end(session);
  }
  if (request.header.version != glue::kSwitchVersion || received != sizeof request) {
    const std::string line = fmt::format(
        "it is of another build (version {}, and this process's library has {}): end the programs on the "
        "wire and start them anew",
        glue::kSwitchVersion, request.header.version);
    send_answer(connection, reply(0, EPROTO, line), nullptr);
    return end(session);
  }
  handle(session, request);
}

void Control::handle(Session& session, const SwitchRequest& request) {
  if (request.verb == SwitchVerb::attach) return attach(session, request);
  int error = EINVAL;
  if (session.port)
    seats_.with_stations([&](StationTable& stations) { error = change(stations, *session.port, request); });
  const std::string line = !session.port ? "attach comes first" : error != 0 ? std::strerror(error) : "";
  send_answer(session.connection.get(), reply(request.number, error, line), nullptr);
}

void Control::attach(Session& session, const SwitchRequest& request) {
  const uint64_t number = request.number;
  const auto refuse = [&, number](int error, const std::string& line) {
    session.waiting.reset();
    session.wake_flag.reset();
    send_answer(session.connection.get(), reply(number, error, line), nullptr);
  };
  if (session.port)
    return send_answer(session.connection.get(), reply(number, EBUSY, "this connection has a seat already"),
                       nullptr);
  const bool had_seat = request.range != 0;
  if (recovered_ns_ != 0 && !had_seat) {
    session.waiting = request;
    return;
  }
  std::optional<PortIndex> holder;
  seats_.with_stations([&](const StationTable& stations) { holder = stations.holder_of(request); });
  if (holder) end_if_gone(*holder);
  std::string line;
  session.wake_flag = WakeFlag::create(wake_event_);
  if (session.wake_flag == nullptr) return refuse(errno, "no memory or descriptors for one more seat");
  const auto wanted = had_seat
                          ? std::optional(static_cast<PortIndex>(std::min<uint32_t>(request.port, kMaxPorts)))
                          : std::nullopt;
  const auto port = seats_.take_port(wanted, *session.wake_flag, line);
  if (!port) return refuse(ENOSPC, line);
  SwitchAnswer granted;
  granted.number = number;
  int error = 0;
  seats_.with_stations([&](StationTable& stations) {
    error = stations.attach(*port, request, session.pid, granted.grant, line);
  });
  if (error != 0) {
    seats_.give_back(*port);
    return refuse(error, line);
  }
  session.port = port;
  session.waiting.reset();
  granted.grant.port = *port;
  granted.grant.mtu_bytes = seats_.mtu_bytes();
  seats_.socket_of(*port).copy(granted.grant.memif_socket.data(), granted.grant.memif_socket.size() - 1);
  send_answer(session.connection.get(), granted, session.wake_flag.get());
  host_.note(fmt::format("{}: process {} has port {}", wire_, session.pid, *port));
}

// ---- ends of connections ----

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
    seats_.leave(*session.port);
    host_.note(fmt::format("{}: process {} has left port {}", wire_, session.pid, *session.port));
  }
  sessions_.erase(session.id);
}

}  // namespace faultline::switching
