// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/memif_gate.hpp"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <vector>

#include <sys/socket.h>

#include "odp/process_local.hpp"

struct rte_eth_dev;

namespace faultline::glue {
namespace {

struct Gates {
  std::mutex mutex;
  std::vector<TurnLock*> turns;
};
Gates& gates() {
  static constinit odp::ProcessLocal<Gates> instance;  // EAL's interrupt thread outlives static destructors
  return instance.get();
}

}  // namespace

MemifGate::MemifGate(TurnLock& turns) : turns_(turns) {
  Gates& all = gates();
  const std::lock_guard guard(all.mutex);
  all.turns.push_back(&turns);
}

MemifGate::~MemifGate() {
  Gates& all = gates();
  const std::lock_guard guard(all.mutex);
  std::erase(all.turns, &turns_);
}

}  // namespace faultline::glue

extern "C" {
ssize_t __real_sendmsg(int fd, const msghdr* message, int flags);
ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags);

// A client that is gone before its server greets it makes memif_listener_handler close a descriptor that EAL
// goes on to watch, and EAL panics. A greeting to nobody counts as sent: the end of file that follows is
// handled well.
ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags) {
  const ssize_t sent = __real_sendmsg(fd, message, flags | MSG_NOSIGNAL);
  if (sent >= 0 || (errno != EPIPE && errno != ECONNRESET)) return sent;
  size_t length_bytes = 0;
  for (size_t i = 0; i < message->msg_iovlen; ++i) length_bytes += message->msg_iov[i].iov_len;
  return static_cast<ssize_t>(length_bytes);
}

void __real_memif_free_regions(rte_eth_dev* device);
void __wrap_memif_free_regions(rte_eth_dev* device);

void __wrap_memif_free_regions(rte_eth_dev* device) {
  auto& all = faultline::glue::gates();
  const std::lock_guard guard(all.mutex);
  for (auto* turns : all.turns) turns->lock();
  __real_memif_free_regions(device);
  for (auto* turns : all.turns) turns->unlock();
}
}
