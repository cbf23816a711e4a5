// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/control.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <spdlog/fmt/fmt.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "pmd_glue/wires/inbox.hpp"
#include "pmd_glue/wires/passed_descriptors.hpp"
#include "pmd_glue/wires/sealed_memory.hpp"

namespace faultline::switching {
namespace {

using glue::SwitchAnswer;
using glue::SwitchRequest;
using glue::SwitchVerb;

// Tags of epoll events: one of these, or kSessionTag plus a session's number shifted left by one; odd for its
// pidfd.
constexpr uint64_t kListener = 0;
constexpr uint64_t kWakeEvent = 1;
constexpr uint64_t kSignals = 2;
constexpr uint64_t kFrames = 3;
constexpr uint64_t kSessionTag = 4;
constexpr uint64_t tag_of(uint64_t id, bool of_process) {
  return kSessionTag + (id << 1) + (of_process ? 1 : 0);
}
// Connections accepted per round, so that frames are served in between.
constexpr int kMostAccepted = 16;

void send_answer(int connection, const SwitchAnswer& answer, std::span<const int> descriptors = {}) {
  // A peer that does not read its answer has ended, or will time out.
  static_cast<void>(glue::send_with_descriptors(connection, &answer, sizeof answer, descriptors));
}

/// Returns what the process gave with its request: the page and the event of its inbox. Empty if it gave
/// neither, or anything else.
std::vector<UniqueFd> inbox_of(std::vector<UniqueFd> descriptors) {
  if (descriptors.size() != glue::kInboxDescriptors ||
      !glue::is_sealed_memory(descriptors[0].get(), glue::Inbox::kBytes) ||
      !glue::is_event(descriptors[1].get()))
    return {};
  return descriptors;
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

Control::Control(std::string wire, UniqueFd listener, Seats& seats, const glue::Inbox& inbox,
                 TimeNs recovered_ns, Host host)
    : wire_(std::move(wire)),
      listener_(std::move(listener)),
      seats_(seats),
      inbox_(inbox),
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

void Control::watch_frames(int descriptor, std::function<void()> on_readable) {
  on_frames_ = std::move(on_readable);
  watch(descriptor, kFrames);
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
  for (const PortIndex offender : seats_.take_offenders())
    if (Session* const session = session_of(offender)) end(*session);
  introduce_new_pairs();
  announce_uplink_change();
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
  } else if (tag == kFrames) {
    on_frames_();
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
    send_answer(refused.get(), reply(0, EMFILE, "the switch has no descriptors left: raise its ulimit -n"));
  else
    pause_listening(true);
  refused.reset();
  spare_ = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void Control::pause_listening(bool pause) {
  listens_again_ = pause ? host_.now() + kNoDescriptorsNs : 0;
  watch(listener_.get(), kListener, true);
}

Control::Session* Control::longest_silent() const {
  // Sessions are in order of their arrival.
  for (const uint64_t id : strangers_) {
    Session& session = *sessions_.at(id);
    if (!session.waiting) return &session;
  }
  return nullptr;
}

void Control::begin(UniqueFd connection) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != geteuid())
    return send_answer(
        connection.get(),
        reply(0, EPERM,
              fmt::format("it is of user {}, and this process of another, {}", geteuid(), peer.uid)));
  if (strangers_.size() >= kMostStrangers) {
    Session* const silent = longest_silent();
    if (silent == nullptr)
      return send_answer(connection.get(), reply(0, EAGAIN, "too many processes wait for a seat"));
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
  strangers_.insert(begun.id);
  sessions_[begun.id] = std::move(session);
  // The request has usually arrived already. Reading it now prevents the eviction of this connection as a
  // silent one.
  read_request(begun);
}

// ---- requests ----

void Control::read_request(Session& session) {
  SwitchRequest request;
  const int connection = session.connection.get();
  std::vector<UniqueFd> descriptors;
  const ssize_t received = glue::receive_with_descriptors(connection, &request, sizeof request, descriptors);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (received <= 0) return end(session);
  if (received < static_cast<ssize_t>(sizeof request.header) || request.header.magic != glue::kSwitchMagic) {
    send_answer(connection, reply(0, EPROTO, "it does not understand what this process says"));
    return end(session);
  }
  if (request.header.version != glue::kSwitchVersion || received != sizeof request) {
    const std::string line = fmt::format(
        "it is of another build (version {}, and this process's library has {}): end the programs on the "
        "wire and start them anew",
        glue::kSwitchVersion, request.header.version);
    send_answer(connection, reply(0, EPROTO, line));
    return end(session);
  }
  if (request.verb == SwitchVerb::attach && !session.port) session.inbox = inbox_of(std::move(descriptors));
  handle(session, request);
}

void Control::handle(Session& session, const SwitchRequest& request) {
  if (request.verb == SwitchVerb::attach) return attach(session, request);
  if (request.verb == SwitchVerb::status) return send_status(session, request);
  if (request.verb == SwitchVerb::keep_link || request.verb == SwitchVerb::end_link ||
      request.verb == SwitchVerb::bar_link)
    return change_link(session, request);
  int error = EINVAL;
  if (session.port)
    seats_.with_stations([&](StationTable& stations) { error = change(stations, *session.port, request); });
  const std::string line = !session.port ? "attach comes first" : error != 0 ? std::strerror(error) : "";
  send_answer(session.connection.get(), reply(request.number, error, line));
}

void Control::attach(Session& session, const SwitchRequest& request) {
  const uint64_t number = request.number;
  const auto refuse = [&, number](int error, const std::string& line, const glue::SwitchGrant& holders = {}) {
    session.waiting.reset();
    SwitchAnswer refusal = reply(number, error, line);
    refusal.grant = holders;
    send_answer(session.connection.get(), refusal);
  };
  if (session.port)
    return send_answer(session.connection.get(), reply(number, EBUSY, "this connection has a seat already"));
  const bool had_seat = request.range != 0;
  if (recovered_ns_ != 0 && !had_seat) {
    session.waiting = request;
    return;
  }
  if (had_seat) end_predecessor(session, request);
  std::optional<PortIndex> holder;
  seats_.with_stations([&](const StationTable& stations) { holder = stations.holder_of(request); });
  if (holder) end_if_gone(*holder);
  if (session.inbox.empty())
    return refuse(EPROTO,
                  "this process gives no inbox to ring in, for lack of descriptors; raise its ulimit -n");
  std::string line;
  const auto wanted =
      had_seat ? std::optional(static_cast<PortIndex>(std::min<uint32_t>(request.port, glue::kMostSeats)))
               : std::nullopt;
  const auto port = seats_.take_port(wanted, line);
  if (!port) return refuse(ENOSPC, line);
  const UniqueFd memory = begin_ring(session, *port);
  SwitchAnswer granted;
  granted.number = number;
  int error = 0;
  if (!memory) {
    line =
        fmt::format("no memory or descriptors for one more seat: {}; raise ulimit -n", std::strerror(errno));
    error = ENOMEM;
  } else {
    seats_.with_stations([&](StationTable& stations) {
      error = stations.attach(*port, request, session.pid, granted.grant, line);
    });
  }
  if (error != 0) {
    seats_.give_back(*port);
    if (granted.grant.ipv4 != 0) granted.grant.mtu_bytes = seats_.mtu_bytes();
    return refuse(error, line, granted.grant);
  }
  session.port = port;
  session.waiting.reset();
  by_port_[*port] = &session;
  strangers_.erase(session.id);
  granted.grant.port = *port;
  granted.grant.mtu_bytes = seats_.mtu_bytes();
  session.grant = granted.grant;
  // A peer that kept a link to this seat over the death of a switch does not know yet that another process
  // has it.
  if (!had_seat) end_links_to(*port);
  send_answer(session.connection.get(), granted,
              std::array{memory.get(), inbox_.memory(), wake_event_.get()});
  host_.note(fmt::format("{}: process {} has port {}", wire_, session.pid, *port));
}

// A file, because a status is longer than a message of the socket.
void Control::send_status(const Session& session, const SwitchRequest& request) {
  SwitchStatus status;
  status.wire = wire_;
  status.pid = getpid();
  for (PortIndex port = 0; port < glue::kMostSeats; ++port)
    if (const Session* const seat = session_of(port))
      status.seats.push_back({.port = port,
                              .pid = seat->pid,
                              .grant = seat->grant,
                              .direct_links = seats_.linked_to(port).count(),
                              .counters = {}});
  seats_.describe(status);
  const std::string text = request.json != 0 ? json_of(status) : text_of(status);
  const UniqueFd file(memfd_create("faultline-status", MFD_CLOEXEC));
  if (!file || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return send_answer(session.connection.get(), reply(request.number, errno, std::strerror(errno)));
  send_answer(session.connection.get(), reply(request.number, 0, ""), std::array{file.get()});
}

/// Returns the memory of the ring between the switch and the session's process; an invalid descriptor with
/// errno on failure.
UniqueFd Control::begin_ring(const Session& session, PortIndex port) {
  UniqueFd memory = glue::create_sealed_memory("faultline-seat", glue::kSeatBytes);
  if (!memory) return {};
  auto inbox = glue::Inbox::adopt(UniqueFd(fcntl(session.inbox[0].get(), F_DUPFD_CLOEXEC, 0)),
                                  UniqueFd(fcntl(session.inbox[1].get(), F_DUPFD_CLOEXEC, 0)));
  if (inbox == nullptr || !seats_.begin_ring(port, memory.get(), std::move(inbox))) return {};
  return memory;
}

// ---- direct links ----

Control::Session* Control::session_of(PortIndex port) const {
  return by_port_[port];
}

void Control::introduce_new_pairs() {
  for (const auto& [one, other] : seats_.take_new_pairs()) {
    const Session* const first = session_of(one);
    const Session* const second = session_of(other);
    if (first != nullptr && second != nullptr) introduce(*first, *second);
  }
}

// Without memory or descriptors the pair keeps to the way over the switch.
void Control::introduce(const Session& one, const Session& other) {
  const UniqueFd memory = glue::create_sealed_memory("faultline-link", glue::kLinkBytes);
  if (!memory) return;
  uint32_t side = 0;
  for (const auto& [to, peer] : {std::pair{&one, &other}, std::pair{&other, &one}}) {
    SwitchAnswer link;
    link.message = glue::SwitchMessage::link;
    link.link_side = side++;
    link.grant = peer->grant;
    const std::array<int, glue::kLinkDescriptors> descriptors{memory.get(), peer->inbox[0].get(),
                                                              peer->inbox[1].get()};
    // An end that does not receive it never attaches, so the other end sends nothing over the link.
    send_answer(to->connection.get(), link, descriptors);
  }
}

void Control::change_link(Session& session, const SwitchRequest& request) {
  using LinkState = Seats::LinkState;
  if (!session.port || request.port >= kMaxPorts)
    return send_answer(session.connection.get(), reply(request.number, EINVAL, "there is no such seat"));
  const auto peer = static_cast<PortIndex>(request.port);
  const LinkState state = request.verb == SwitchVerb::keep_link  ? LinkState::kept
                          : request.verb == SwitchVerb::bar_link ? LinkState::barred
                                                                 : LinkState::none;
  // Otherwise a process could fill the connection of another one, whose answers would be lost.
  const bool ends_link = state == LinkState::barred && seats_.linked_to(*session.port).test(peer);
  seats_.note_link({*session.port, peer}, state);
  if (const Session* const other = session_of(peer); ends_link && other != nullptr)
    send_link_ended(*other, *session.port);
  send_answer(session.connection.get(), reply(request.number, 0, ""));
}

void Control::end_links_to(PortIndex port) {
  const PortSet peers = seats_.linked_to(port);
  for_each_port(peers, [&](PortIndex peer) {
    seats_.note_link({port, peer}, Seats::LinkState::none);
    if (const Session* const session = session_of(peer)) send_link_ended(*session, port);
  });
}

void Control::send_link_ended(const Session& to, PortIndex ended) {
  SwitchAnswer message;
  message.message = glue::SwitchMessage::link_ended;
  message.grant.port = ended;
  send_answer(to.connection.get(), message);
}

// ---- the uplink ----

void Control::announce_uplink_change() {
  const std::optional<bool> is_up = seats_.take_uplink_change();
  if (!is_up) return;
  SwitchAnswer message;
  message.message = glue::SwitchMessage::uplink;
  message.grant.uplink_up = *is_up ? 1 : 0;
  for (const auto& [id, session] : sessions_)
    if (session->port && session->grant.by_sockets != 0) send_answer(session->connection.get(), message);
}

// ---- ends of connections ----

// So no other process gets the address in between.
void Control::end_predecessor(const Session& session, const SwitchRequest& request) {
  Session* const holder =
      request.port < glue::kMostSeats ? session_of(static_cast<PortIndex>(request.port)) : nullptr;
  // The pid is 0 if the process is in another PID namespace.
  if (holder != nullptr && session.pid != 0 && holder->pid == session.pid &&
      holder->grant.ipv4 == request.ipv4)
    end(*holder);
}

void Control::end_if_gone(PortIndex port) {
  Session* const holder = session_of(port);
  if (holder != nullptr && is_gone(*holder)) end(*holder);
}

bool Control::is_gone(const Session& session) {
  if (session.process && is_readable(session.process.get())) return true;
  // Requests of the process may still wait to be read.
  pollfd ended{.fd = session.connection.get(), .events = POLLRDHUP, .revents = 0};
  return poll(&ended, 1, 0) == 1 && (ended.revents & (POLLHUP | POLLRDHUP)) != 0;
}

void Control::end(Session& session) {
  if (session.port) {
    const PortSet peers = seats_.linked_to(*session.port);
    seats_.leave(*session.port);
    by_port_[*session.port] = nullptr;
    for_each_port(peers, [&](PortIndex peer) {
      if (const Session* const other = session_of(peer)) send_link_ended(*other, *session.port);
    });
    host_.note(fmt::format("{}: process {} has left port {}", wire_, session.pid, *session.port));
  }
  strangers_.erase(session.id);
  sessions_.erase(session.id);
}

}  // namespace faultline::switching
