// SPDX-License-Identifier: BSD-3-Clause
// A mutex with priority inheritance. The pager may run under SCHED_FIFO; without inheritance it could wait
// for a program thread that the scheduler keeps off the CPU. A holder must not allocate, free or unmap
// memory. The invalidation monitor takes these mutexes too, and a thread inside free() may itself be waiting
// for the monitor.
#pragma once

#include <pthread.h>

namespace faultline {

class PiMutex {
 public:
  PiMutex() {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&mutex_, &attributes);
    pthread_mutexattr_destroy(&attributes);
  }
  PiMutex(const PiMutex&) = delete;
  PiMutex& operator=(const PiMutex&) = delete;
  ~PiMutex() { pthread_mutex_destroy(&mutex_); }

  [[nodiscard]] bool try_lock() { return pthread_mutex_trylock(&mutex_) == 0; }
  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_;
};

}  // namespace faultline
