// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/wires/switch_channel.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pmd_glue/wires/passed_descriptors.hpp"

namespace faultline::glue {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// Returns the inode of a socket; 0 if `fd` is not a socket.
ino_t inode_of(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

/// Waits for `events`. Returns false at the deadline.
bool await(int fd, short events, SteadyTime deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
  pollfd wanted{.fd = fd, .events = events, .revents = 0};
  const int ready = poll(&wanted, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000)));
  // After a signal the caller retries.
  return ready > 0 || (ready < 0 && errno == EINTR && steady_clock::now() < deadline);
}

}  // namespace

SwitchChannel::SwitchChannel(UniqueFd connection)
    : connection_(std::move(connection)), inode_(inode_of(connection_.get())) {}

SwitchChannel& SwitchChannel::operator=(SwitchChannel&& other) noexcept {
  if (this == &other) return *this;
  close();
  connection_ = std::move(other.connection_);
  inode_ = other.inode_;
  uplink_state_ = other.uplink_state_;
  latest_request_ = other.latest_request_;
  latest_answer_ = other.latest_answer_;
  return *this;
}

bool SwitchChannel::is_ours() const {
  return connection_ && inode_of(connection_.get()) == inode_;
}

void SwitchChannel::close() {
  if (!is_ours()) static_cast<void>(connection_.release());
  connection_.reset();
}

void SwitchChannel::take_number_of(SwitchChannel& previous) {
  if (!is_ours() || !previous.is_ours()) return;
  if (dup3(connection_.get(), previous.connection_.get(), O_CLOEXEC) < 0) return;
  connection_ = std::move(previous.connection_);
}

uint64_t SwitchChannel::send(SwitchRequest request, SteadyTime deadline, std::span<const int> descriptors) {
  request.number = latest_request_ + 1;
  while (send_with_descriptors(connection_.get(), &request, sizeof request, descriptors) != sizeof request) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return 0;
    if (!await(connection_.get(), POLLOUT, deadline)) {
      errno = ETIMEDOUT;
      return 0;
    }
  }
  return ++latest_request_;
}

// Messages on links and of the uplink come at any time, also between a request and its answer.
SwitchChannel::Received SwitchChannel::receive_next(SwitchAnswer& answer,
                                                    std::vector<UniqueFd>& descriptors) {
  for (;;) {
    const size_t before = descriptors.size();
    const Received received = receive_one(answer, descriptors);
    if (received != Received::answer || answer.header.version != kSwitchVersion ||
        answer.message == SwitchMessage::answer)
      return received;
    if (answer.message == SwitchMessage::uplink) {
      uplink_state_ = answer.grant.uplink_up != 0;
      continue;
    }
    LinkNews news{.message = answer, .descriptors = {}};
    std::move(descriptors.begin() + static_cast<ptrdiff_t>(before), descriptors.end(),
              std::back_inserter(news.descriptors));
    descriptors.resize(before);
    if (link_news_.size() < kMostNews) link_news_.push_back(std::move(news));
  }
}

SwitchChannel::Received SwitchChannel::receive_one(SwitchAnswer& answer, std::vector<UniqueFd>& descriptors) {
  ssize_t received = 0;
  do {
    received = receive_with_descriptors(connection_.get(), &answer, sizeof answer, descriptors);
  } while (received < 0 && errno == EINTR);
  if (received < 0 && errno == EAGAIN) return Received::nothing;
  if (received <= 0) return received == 0 || errno == ECONNRESET ? Received::ended : Received::broken;
  const auto length_bytes = static_cast<size_t>(received);
  const bool is_whole = length_bytes >= sizeof answer.header && answer.header.magic == kSwitchMagic &&
                        (answer.header.version != kSwitchVersion || length_bytes == sizeof answer);
  return is_whole ? Received::answer : Received::broken;
}

SwitchChannel::Received SwitchChannel::receive(uint64_t number, SteadyTime deadline, SwitchAnswer& answer,
                                               std::vector<UniqueFd>& descriptors) {
  for (;;) {
    const Received received = receive_next(answer, descriptors);
    if (received == Received::nothing) {
      if (!await(connection_.get(), POLLIN, deadline)) return received;
      continue;
    }
    if (received != Received::answer || answer.header.version != kSwitchVersion) return received;
    if (answer.number != 0) latest_answer_ = answer.number;
    if (answer.number == number || answer.number == 0) return received;
    descriptors.clear();
  }
}

bool SwitchChannel::drain() {
  SwitchAnswer answer;
  std::vector<UniqueFd> descriptors;
  for (;;) {
    const Received received = receive_next(answer, descriptors);
    if (received == Received::nothing) return true;
    if (received != Received::answer) return false;
    if (answer.header.version == kSwitchVersion) latest_answer_ = std::max(latest_answer_, answer.number);
  }
}

}  // namespace faultline::glue
