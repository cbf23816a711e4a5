// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/switch_seat.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <spdlog/fmt/fmt.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "pmd_glue/switch_place.hpp"
#include "pmd_glue/switch_start.hpp"

namespace faultline::glue {
namespace {

// A switch that starts has to start EAL first.
constexpr timeval kPatience{.tv_sec = 20, .tv_usec = 0};

constexpr int kAttempts = 100;
constexpr auto kPause = std::chrono::milliseconds(10);

/// One answer and the descriptors that came with it; false with errno, 0 where the switch has gone.
bool receive_answer(int connection, SwitchAnswer& answer, std::vector<UniqueFd>& descriptors) {
  iovec part{&answer, sizeof answer};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(SwitchBell::kDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t received = 0;
  do {
    received = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); received > 0 && header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    std::vector<int> fds((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(fds.data(), CMSG_DATA(header), fds.size() * sizeof(int));
    for (const int fd : fds) descriptors.emplace_back(fd);
  }
  if (received == 0) errno = 0;
  if (received > 0 &&
      (received < static_cast<ssize_t>(sizeof answer.header) || answer.header.magic != kSwitchMagic)) {
    errno = EPROTO;
    return false;
  }
  if (received > 0 && answer.header.version == kSwitchVersion && received != sizeof answer) {
    errno = EPROTO;
    return false;
  }
  return received > 0;
}

bool send_request(int connection, const SwitchRequest& request) {
  ssize_t sent = 0;
  do {
    sent = send(connection, &request, sizeof request, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == sizeof request;
}

}  // namespace

std::shared_ptr<SwitchSeat> SwitchSeat::take(const WireRequest& wanted, std::string& error) {
  std::shared_ptr<SwitchSeat> seat(new SwitchSeat);
  seat->wire_ = wanted.wire;
  SwitchRequest request;
  request.ipv4 = wanted.ipv4;
  request.shared = wanted.shared ? 1 : 0;
  return seat->attach(request, seat->grant_, error) ? seat : nullptr;
}

SwitchSeat::~SwitchSeat() = default;

bool SwitchSeat::attach(const SwitchRequest& request, SwitchGrant& grant, std::string& error) {
  const auto refuse = [&](const std::string& message) {
    error = fmt::format("faultline: wire {}: {}", wire_, message);
    return false;
  };
  const auto place = place_of_wire(wire_, error);
  if (!place) return false;
  SwitchAnswer answer;
  std::vector<UniqueFd> descriptors;
  for (int attempts = 1;; ++attempts) {
    bool started = false;
    connection_ = reach_switch(wire_, *place, started, error);
    if (!connection_) return false;
    setsockopt(connection_.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    // It may have answered without asking anything: then it is the answer that counts.
    static_cast<void>(send_request(connection_.get(), request));
    if (receive_answer(connection_.get(), answer, descriptors)) break;
    const bool ended = errno == 0 || errno == ECONNRESET;
    if (!ended) return refuse(fmt::format("the switch does not answer: {}", std::strerror(errno)));
    if (started || attempts == kAttempts)
      return refuse(fmt::format("the switch has ended: {}", last_log_line(*place)));
    // One that is just dying still listened.
    std::this_thread::sleep_for(kPause);
  }
  if (answer.header.version != kSwitchVersion)
    return refuse(fmt::format(
        "its switch is of another build (version {}, and this library has {}): end the programs on "
        "the wire and start them anew",
        answer.header.version, kSwitchVersion));
  answer.line.back() = '\0';
  if (answer.error != 0) return refuse(answer.line.data());
  if (descriptors.size() != SwitchBell::kDescriptors) return refuse("the switch gave no bell");
  std::array<UniqueFd, SwitchBell::kDescriptors> of_bell;
  std::move(descriptors.begin(), descriptors.end(), of_bell.begin());
  auto bell = SwitchBell::adopt(std::move(of_bell));
  if (bell == nullptr) return refuse(fmt::format("no memory: {}", std::strerror(errno)));
  bell_.store(bell.get(), std::memory_order_release);
  bells_.push_back(std::move(bell));
  answer.grant.memif_socket.back() = '\0';
  grant = answer.grant;
  return true;
}

bool SwitchSeat::keep(std::string& error) {
  const std::unique_lock guard(mutex_, std::try_to_lock);
  if (!guard || lost_) return true;
  char first = 0;
  const ssize_t peeked = recv(connection_.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (peeked > 0 || (peeked < 0 && (errno == EAGAIN || errno == EINTR))) return true;
  lost_ = !take_again(error);
  return !lost_;
}

bool SwitchSeat::take_again(std::string& error) {
  SwitchRequest request;
  request.ipv4 = grant_.ipv4;
  request.shared = grant_.shared;
  request.range = grant_.range;
  request.port = grant_.port;
  SwitchGrant again;
  if (!attach(request, again, error)) return false;
  if (again.range != grant_.range || again.port != grant_.port) {
    error =
        fmt::format("faultline: wire {}: its switch died, and others have taken this process's place", wire_);
    connection_.reset();
    return false;
  }
  SwitchRequest claim;
  claim.verb = SwitchVerb::claim_service;
  for (const uint64_t service_id : services_) {
    claim.service_id = service_id;
    static_cast<void>(ask(claim));
  }
  SwitchRequest join;
  join.verb = SwitchVerb::join_group;
  for (const auto& group : groups_) {
    join.group = group;
    static_cast<void>(ask(join));
  }
  return true;
}

// With the mutex.
int SwitchSeat::ask(const SwitchRequest& request) {
  SwitchAnswer answer;
  std::vector<UniqueFd> none;
  if (!send_request(connection_.get(), request)) return errno;
  if (!receive_answer(connection_.get(), answer, none)) return errno != 0 ? errno : EPIPE;
  return answer.error;
}

int SwitchSeat::claim_service(uint64_t service_id) {
  const std::lock_guard guard(mutex_);
  SwitchRequest request;
  request.verb = SwitchVerb::claim_service;
  request.service_id = service_id;
  const int error = ask(request);
  if (error == 0) services_.insert(service_id);
  return error;
}

void SwitchSeat::release_service(uint64_t service_id) {
  const std::lock_guard guard(mutex_);
  SwitchRequest request;
  request.verb = SwitchVerb::release_service;
  request.service_id = service_id;
  static_cast<void>(ask(request));  // without a switch there is nothing to release
  services_.erase(service_id);
}

int SwitchSeat::join_group(const wire::Gid& group) {
  const std::lock_guard guard(mutex_);
  SwitchRequest request;
  request.verb = SwitchVerb::join_group;
  request.group = group.bytes;
  const int error = ask(request);
  if (error == 0) groups_.insert(group.bytes);
  return error;
}

void SwitchSeat::leave_group(const wire::Gid& group) {
  const std::lock_guard guard(mutex_);
  SwitchRequest request;
  request.verb = SwitchVerb::leave_group;
  request.group = group.bytes;
  static_cast<void>(ask(request));
  groups_.erase(group.bytes);
}

}  // namespace faultline::glue
