// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/memif_gate.hpp"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>
#include <vector>

#include <rte_interrupts.h>
#include <sys/socket.h>

#include "odp/process_local.hpp"

struct rte_eth_dev;

namespace faultline::glue {

struct MemifGates {
  std::mutex mutex;
  std::vector<MemifGate*> gates;

  void close() {
    mutex.lock();
    for (MemifGate* gate : gates) gate->turns_.lock();
  }
  void open() {
    for (MemifGate* gate : gates) gate->turns_.unlock();
    mutex.unlock();
  }
  void take_all() {
    // More than the longest ring holds, in the smallest bursts.
    constexpr int kMostBursts = 1024;
    const std::lock_guard guard(mutex);
    for (MemifGate* gate : gates) {
      const std::lock_guard turn(gate->turns_);
      for (int bursts = 0; bursts < kMostBursts && gate->take_burst_(); ++bursts) continue;
    }
  }
};

namespace {

MemifGates& gates() {
  static constinit odp::ProcessLocal<MemifGates>
      instance;  // EAL's interrupt thread outlives static destructors
  return instance.get();
}

}  // namespace

MemifGate::MemifGate(TurnLock& turns, std::function<bool()> take_burst)
    : turns_(turns), take_burst_(std::move(take_burst)) {
  MemifGates& all = gates();
  const std::lock_guard guard(all.mutex);
  all.gates.push_back(this);
}

MemifGate::~MemifGate() {
  MemifGates& all = gates();
  const std::lock_guard guard(all.mutex);
  std::erase(all.gates, this);
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
  all.close();
  __real_memif_free_regions(device);
  all.open();
}

ssize_t __real_recvmsg(int fd, msghdr* message, int flags);
ssize_t __wrap_recvmsg(int fd, msghdr* message, int flags);

// On that thread only memif's control channel receives: a message of its peer's, or its end. Messages are
// few.
ssize_t __wrap_recvmsg(int fd, msghdr* message, int flags) {
  const ssize_t received = __real_recvmsg(fd, message, flags);
  const int error = errno;
  if (rte_thread_is_intr() != 0) faultline::glue::gates().take_all();
  errno = error;
  return received;
}
}
