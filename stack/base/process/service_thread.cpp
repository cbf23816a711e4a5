// SPDX-License-Identifier: BSD-3-Clause
#include "stack/base/process/service_thread.hpp"

#include <csignal>
#include <initializer_list>

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

namespace faultline {

bool prepare_service_thread(const char* name, bool realtime) {
  pthread_setname_np(pthread_self(), name);
  sigset_t signals;
  sigfillset(&signals);
  for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) sigdelset(&signals, fault);
  pthread_sigmask(SIG_SETMASK, &signals, nullptr);
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  if (!realtime) return false;
  sched_param parameters{};
  parameters.sched_priority = 1;
  return pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameters) == 0;
}

}  // namespace faultline
