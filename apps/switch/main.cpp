// SPDX-License-Identifier: BSD-3-Clause
// faultline-switch: the wire that connects programs of one host. Usually the first of them starts it; it
// exits some seconds after the last one has left.
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include <poll.h>
#include <sched.h>
#include <spdlog/fmt/fmt.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "apps/switch/ask_status.hpp"
#include "apps/switch/control.hpp"
#include "apps/switch/frame_switch.hpp"
#include "apps/switch/options.hpp"
#include "apps/switch/pmd_modules.hpp"
#include "apps/switch/uplink/udp_ports.hpp"
#include "apps/switch/uplink/vfio_group.hpp"
#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/engine/poll_engine.hpp"
#include "pmd_glue/wires/inbox.hpp"
#include "pmd_glue/wires/switch_place.hpp"
#include "pmd_glue/wires/wire_request.hpp"
#include "stack/base/clock.hpp"
#include "stack/base/log.hpp"

namespace {

using namespace faultline;
using switching::Options;

constexpr int kBadOption = 2;

// Frames arrive in bursts, so the switch spins briefly before it sleeps. With fewer than kCpusToSpin CPUs it
// does not spin: a woken thread preempts the one that runs, a spinning thread only gets its time slice.
constexpr TimeNs kSpinNs = 20'000;
constexpr int kCpusToSpin = 3;
// No sender rings for an uplink's frames.
constexpr TimeNs kUplinkSpinNs = 200'000;
constexpr unsigned kTurnsPerLook = 64;
constexpr int kIdleMs = 1000;
constexpr int kUplinkMs = 1;
// Frames at sockets wake the switch; the state of their interface and address does not.
constexpr int kSocketsMs = 100;
// Programs check 50 times a second whether their switch has died.
constexpr TimeNs kRecoverNs = 300'000'000;
constexpr auto kLockPatience = std::chrono::seconds(2);
constexpr auto kPredecessorPatience = std::chrono::seconds(5);

int fail(const std::string& line, int status = 1) {
  std::fprintf(stderr, "%s\n", line.c_str());
  return status;
}

/// Moves this thread, which is the switch's only one, to the lcore of the configuration.
void pin_thread(const Options& options) {
  if (!options.uplink || options.uplink->lcores.empty()) return;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(options.uplink->lcores[0], &cpus);
  static_cast<void>(sched_setaffinity(0, sizeof cpus, &cpus));
}

TimeNs spin_ns(bool has_uplink) {
  if (has_uplink) return kUplinkSpinNs;
  cpu_set_t affinity;
  CPU_ZERO(&affinity);
  const bool known = sched_getaffinity(0, sizeof affinity, &affinity) == 0;
  return known && CPU_COUNT(&affinity) >= kCpusToSpin ? kSpinNs : 0;
}

/// Decides when the switch exits: after `seconds` without clients; never if there is no limit.
class Linger {
 public:
  explicit Linger(std::optional<unsigned> seconds) : seconds_(seconds) {}
  [[nodiscard]] bool is_over(bool in_use, TimeNs now) {
    if (in_use || since_ == 0) since_ = now;
    return seconds_ && now - since_ >= TimeNs{*seconds_} * 1'000'000'000;
  }

 private:
  const std::optional<unsigned> seconds_;
  TimeNs since_ = 0;
};

/// The wire's lock, and the switch's signature in the lock file.
struct Door {
  UniqueFd signature;
  UniqueFd lock;  ///< held from the end until the ports are closed: the next switch creates the same sockets
};

/// Takes the wire's lock, so that no other switch starts meanwhile, and removes the wire's files. Returns
/// false if a process is connecting, or holds the lock in order to connect.
bool close_door(const glue::SwitchPlace& place, const switching::Control& control, Door& door) {
  door.lock = glue::lock_wire(place, {});
  // Without its directory the wire cannot be found any more.
  if (!door.lock && errno == ENOENT) return true;
  if (!door.lock || control.has_pending_connection()) {
    // The signature is a POSIX record lock: closing any descriptor of the file releases it.
    door.lock.reset();
    door.signature = glue::lock_as_switch(place);
    return false;
  }
  glue::remove_files(place);
  return true;
}

/// Called after SIGTERM or SIGINT. Removes the wire's files if no program is attached. Otherwise the programs
/// start another switch, which finds the socket of a dead one and lets them attach first.
void leave_door(const glue::SwitchPlace& place, const switching::Control& control, Door& door) {
  door.lock = glue::lock_wire(place, std::chrono::steady_clock::now() + kLockPatience);
  if (door.lock && !control.has_sessions()) glue::remove_files(place);
}

void run(const Options& options, const glue::SwitchPlace& place, switching::FrameSwitch& frames,
         switching::Control& control, Door& door) {
  Linger linger(options.linger_seconds);
  const TimeNs spin = spin_ns(options.uplink.has_value());
  TimeNs last_moved = 0;
  for (unsigned turns = 0; !control.is_termination_requested(); ++turns) {
    if (turns % kTurnsPerLook == 0) control.serve(0);
    const TimeNs now = monotonic_ns();
    const bool has_moved = frames.turn(now);
    frames.look_after(now);
    if (has_moved) {
      last_moved = now;
      continue;
    }
    if (now - last_moved < spin) {
      sched_yield();
      continue;
    }
    frames.set_asleep(true);
    if (!frames.turn(monotonic_ns()))
      control.serve(frames.needs_polling()            ? kUplinkMs
                    : frames.uplink_descriptor() >= 0 ? kSocketsMs
                                                      : kIdleMs);
    frames.set_asleep(false);
    if (linger.is_over(control.has_sessions(), monotonic_ns()) && close_door(place, control, door)) return;
  }
  leave_door(place, control, door);
}

void report(const switching::SwitchCounters& counters) {
  std::string drops;
  for (size_t i = 1; i < counters.drops.size(); ++i)
    if (counters.drops[i] != 0)
      drops += fmt::format(", {} {}", name_of(static_cast<switching::Drop>(i)), counters.drops[i]);
  log().info("forwarded {}, answered {}, rate-limited {}, dropped: full {}, crowded {}{}", counters.forwarded,
             counters.answered, counters.rate_limited, counters.full, counters.crowded, drops);
}

/// Each seat takes five descriptors: its connection, its process, the two of its inbox, and its ring's event.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(setrlimit(RLIMIT_NOFILE, &limit));
}

int print_status(const Options& options) {
  std::string error;
  const std::string text = switching::ask_status(options.wire, options.as_json, error);
  if (text.empty()) return fail(error, kBadOption);
  std::fputs(text.c_str(), stdout);
  return 0;
}

/// Waits until the process at the other end of the connection closes it; returns whether it has.
bool await_end(int connection, glue::SteadyTime latest) {
  constexpr int kPauseMs = 10;
  pollfd ended{.fd = connection, .events = POLLRDHUP, .revents = 0};
  while (std::chrono::steady_clock::now() < latest)
    if (poll(&ended, 1, kPauseMs) == 1) return true;
  return false;
}

/// Locks a wire that has no switch. If it has one, this waits for its end: it may have received SIGTERM just
/// before. Returns no descriptor, with the reason in `error`, if the wire keeps its switch.
UniqueFd lock_vacant_wire(const Options& options, const glue::SwitchPlace& place, std::string& error) {
  const auto latest = std::chrono::steady_clock::now() + kPredecessorPatience;
  for (bool is_noted = false;; is_noted = true) {
    UniqueFd lock = glue::lock_wire(place, latest);
    if (!lock) {
      error = fmt::format("faultline-switch: cannot lock {}: {}; {}", place.lock_file, std::strerror(errno),
                          glue::advice_on(glue::lock_process(place)));
      return {};
    }
    const UniqueFd connection =
        glue::connect_to_wire(place, std::chrono::steady_clock::now() + kLockPatience);
    if (!connection && errno != ETIMEDOUT) return lock;
    // The ending switch takes the lock too.
    lock.reset();
    if (connection && !is_noted)
      log().warn("waits for the switch of wire {}, process {}, to end", options.wire,
                 glue::switch_process(place));
    if (connection && await_end(connection.get(), latest)) continue;
    error = fmt::format("faultline-switch: wire {} has a switch already", options.wire);
    return {};
  }
}

/// `recover`: a previous switch has left its programs, which attach first.
UniqueFd listener_of(const Options& options, const glue::SwitchPlace& place, bool& recover,
                     std::string& error) {
  if (options.listener) return UniqueFd(*options.listener);
  const UniqueFd lock = lock_vacant_wire(options, place, error);
  if (!lock) return {};
  UniqueFd listener = glue::listen_on_wire(place, recover);
  // With an uplink the note follows when the port is open: a switch that cannot open it leaves none.
  if (listener && !options.uplink && !glue::note_uplink(place, false)) listener.reset();
  if (!listener)
    error =
        fmt::format("faultline-switch: cannot listen on {}: {}", place.control_socket, std::strerror(errno));
  return listener;
}

int serve(const Options& options) {
  std::string error;
  const auto place = glue::place_of_wire(options.wire, error);
  if (!place) return fail(error);
  bool recover = options.recover;
  UniqueFd listener = listener_of(options, *place, recover, error);
  if (!listener) return fail(error);
  // Declared before the ports, so that it is destroyed after them.
  Door door{.signature = glue::lock_as_switch(*place), .lock = {}};
  // Before EAL creates threads, which inherit the mask: the signals are read from a signalfd.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  if (options.listener) std::signal(SIGHUP, SIG_IGN);  // outlives its starter's terminal

  raise_descriptor_limit();
  if (!options.log_file.empty())
    if (const std::string wrong = log_to_file(options.log_file); !wrong.empty())
      log().warn("{}: log.file: {}", options.config_path, wrong);
  const glue::Config config = switching::config_of(options);
  if (options.uplink) {
    switching::await_vfio_group(*options.uplink);
    switching::await_udp_ports(*options.uplink);
  }
  if (!glue::start_eal(config, error)) return fail(error);
  const std::unique_ptr<glue::Inbox> inbox = glue::Inbox::create();
  if (inbox == nullptr) return fail(fmt::format("faultline-switch: no memory: {}", std::strerror(errno)));
  switching::FrameSwitch frames(config, *inbox);
  frames.with_stations([&](switching::StationTable& stations) {
    stations.begin_at(glue::first_given_out(options.wire, geteuid()));
  });
  frames.set_rates(options.rates);
  if (options.uplink && !frames.open_uplink(*options.uplink, error)) return fail(error, kBadOption);
  if (options.has_host && !frames.open_host(*options.uplink, options.exception, error))
    return fail(error, kBadOption);
  if (options.uplink && !glue::note_uplink(*place, true))
    return fail(
        fmt::format("faultline-switch: cannot write {}: {}", place->uplink_file, std::strerror(errno)));
  switching::Control control(
      options.wire, std::move(listener), frames, *inbox, recover ? monotonic_ns() + kRecoverNs : 0,
      {.now = monotonic_ns, .note = [](const std::string& line) { log().info("{}", line); }});
  if (!control.open()) return fail(fmt::format("faultline-switch: {}", std::strerror(errno)));
  if (const int descriptor = frames.exception_descriptor(); descriptor >= 0)
    control.watch_frames(descriptor, [&] { frames.expect_exception_frames(); });
  // The next turn receives them.
  if (const int descriptor = frames.uplink_descriptor(); descriptor >= 0)
    control.watch_frames(descriptor, [] {});
  pin_thread(options);
  run(options, *place, frames, control, door);
  report(frames.counters());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Options options = switching::parse_options(argc, argv);
    if (options.asks_status) return print_status(options);
    switching::load_pmd_modules(options);
    // Started by a program: it waits for this process to exit, and the child continues.
    if (options.listener) {
      const pid_t child = fork();
      if (child != 0) _exit(child < 0 ? 1 : 0);
      if (chdir("/") != 0) return 1;
    }
    prctl(PR_SET_TIMERSLACK, 1);
    return serve(options);
  } catch (const glue::ConfigError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kBadOption;
  } catch (const std::exception& error) {
    return fail(fmt::format("faultline-switch: {}", error.what()));
  }
}
