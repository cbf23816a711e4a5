// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/prompt/background_run.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <exception>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace faultline::perf {

namespace {

constexpr double kNoLimitSeconds = 1e9;

}  // namespace

BackgroundRun::BackgroundRun(ClientSession& session)
    : session_(session), end_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (end_event_ < 0) throw VerbsError(std::string("eventfd: ") + std::strerror(errno));
}

BackgroundRun::~BackgroundRun() {
  end_thread();
  close(end_event_);
}

void BackgroundRun::start(const Plan& plan, const RunLength& length) {
  run_ = std::make_unique<ClientRun>(session_.exchange(), session_.device(), plan);
  stop_ = false;
  ended_ = false;
  messages_ = 0;
  failure_ = nullptr;
  uint64_t ends = 0;
  static_cast<void>(read(end_event_, &ends, sizeof ends));
  began_s_ = monotonic_s();
  thread_ = std::thread([this, length] { work(length); });
}

void BackgroundRun::work(const RunLength& length) {
  RunControl control;
  control.seconds = length.seconds > 0 ? length.seconds : kNoLimitSeconds;
  control.iterations = length.iterations;
  control.stop = &stop_;
  control.messages = &messages_;
  control.progress_lines = false;
  try {
    result_ = run_->run(control);
  } catch (...) {
    failure_ = std::current_exception();
  }
  ended_.store(true, std::memory_order_release);
  const uint64_t one = 1;
  static_cast<void>(write(end_event_, &one, sizeof one));
}

void BackgroundRun::end_thread() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

Result BackgroundRun::finish() {
  end_thread();
  const std::unique_ptr<ClientRun> run = std::move(run_);
  if (!failure_) return result_;
  try {
    Result ignored;
    run->finish(ignored);  // the server then takes the next run
  } catch (const ExchangeError&) {
    // The connection had failed, and so will the next run. The run's own failure is the cause.
  }
  std::rethrow_exception(failure_);
}

Woken BackgroundRun::wait(double seconds, bool enter) const {
  std::array<pollfd, 2> fds{{{end_event_, POLLIN, 0}, {enter ? STDIN_FILENO : -1, POLLIN, 0}}};
  const double until_s = monotonic_s() + seconds;
  for (;;) {
    const double left_ms = std::ceil((until_s - monotonic_s()) * 1e3);
    const int timeout_ms = seconds < 0 ? -1 : static_cast<int>(std::clamp(left_ms, 0.0, 1e9));
    const int ready = poll(fds.data(), fds.size(), timeout_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) throw VerbsError(std::string("poll: ") + std::strerror(errno));
    if (ready == 0) return Woken::time;
    if (fds[0].revents != 0) return Woken::run_ended;
    std::array<char, 256> line;
    static_cast<void>(read(STDIN_FILENO, line.data(), line.size()));
    return Woken::enter;
  }
}

}  // namespace faultline::perf
