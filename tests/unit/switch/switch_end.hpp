// SPDX-License-Identifier: BSD-3-Clause
// The switch's end of the control socket, held by a test: requests in, answers and messages out.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "pmd_glue/wires/inbox.hpp"
#include "pmd_glue/wires/passed_descriptors.hpp"
#include "pmd_glue/wires/sealed_memory.hpp"
#include "pmd_glue/wires/switch_protocol.hpp"
#include "stack/base/unique_fd.hpp"
#include "tests/hang_limit.hpp"

namespace faultline::glue {

struct Asker {
  UniqueFd connection;
  SwitchRequest request;
  std::vector<UniqueFd> inbox;
};

inline Asker accept_request(const UniqueFd& listener) {
  Asker asker;
  while (!asker.connection)
    asker.connection = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  pollfd request{.fd = asker.connection.get(), .events = POLLIN, .revents = 0};
  poll(&request, 1, -1);
  if (receive_with_descriptors(asker.connection.get(), &asker.request, sizeof asker.request, asker.inbox) !=
      ssize_t{sizeof asker.request})
    asker.connection.reset();
  return asker;
}

inline SwitchRequest next_request(const UniqueFd& connection) {
  SwitchRequest request;
  pollfd next{.fd = connection.get(), .events = POLLIN, .revents = 0};
  poll(&next, 1, faultline::test::hang_ms());  // a process that asks nothing fails the test
  EXPECT_EQ(recv(connection.get(), &request, sizeof request, MSG_DONTWAIT), ssize_t{sizeof request});
  return request;
}

inline void answer(const UniqueFd& connection, uint64_t number, int error = 0) {
  SwitchAnswer reply;
  reply.number = number;
  reply.error = error;
  send(connection.get(), &reply, sizeof reply, MSG_NOSIGNAL);
}

/// The inbox and the event of the switch.
struct Doorbells {
  std::unique_ptr<Inbox> inbox = Inbox::create();
  UniqueFd event{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

inline void send_message(const UniqueFd& connection, const SwitchAnswer& message,
                         std::span<const int> descriptors) {
  EXPECT_GT(send_with_descriptors(connection.get(), &message, sizeof message, descriptors), 0);
}

inline void grant(const Asker& asker, const Doorbells& doorbells, SwitchAnswer reply = {}) {
  reply.number = asker.request.number;
  reply.grant.ipv4 = 0xc6120001;
  reply.grant.range = 3;
  reply.grant.port = 4;
  reply.grant.mtu_bytes = 4200;
  const UniqueFd memory = create_sealed_memory("seat", kSeatBytes);
  send_message(asker.connection, reply,
               std::array{memory.get(), doorbells.inbox->memory(), doorbells.event.get()});
}

}  // namespace faultline::glue
