// SPDX-License-Identifier: BSD-3-Clause
// A program that ends by exit() in a signal handler, as many measuring tools do, while the thread that the
// signal interrupts is inside a verbs call. The signal is raised at each point of the call that can be told
// apart: where it reads the clock (within a turn), has just taken a mutex, or allocates. Each point has a
// process of its own, which must end with the handler's status.
//   exit_in_handler                       all of them
//   exit_in_handler CALL EVENT N PROGRESS one of them
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include <dlfcn.h>
#include <faultline/faultline.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int kEndedInHandler = 5;
constexpr int kNotReached = 6;
constexpr int kUnblocked = 7;  // a thread was started that takes the program's signals

enum class Event : int { clock, lock, allocation, kinds };
constexpr std::array<const char*, 3> kEvents{"clock", "lock", "allocation"};

// Of the main thread, while it is in the call.
constinit std::atomic<bool> armed{false};
constinit thread_local bool is_main = false;
constinit Event wanted = Event::kinds;
constinit int remaining = 0;
constinit std::atomic<int> open_threads{0};
constinit std::atomic<int> threads{0};

void at(Event event) {
  if (!is_main || !armed.load(std::memory_order_relaxed) || event != wanted || --remaining != 0) return;
  armed.store(false, std::memory_order_relaxed);
  raise(SIGALRM);
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define BEFORE_THE_LIBRARY extern "C" __attribute__((visibility("default")))

BEFORE_THE_LIBRARY void* __libc_malloc(size_t);

BEFORE_THE_LIBRARY void* malloc(size_t bytes) {
  at(Event::allocation);
  return __libc_malloc(bytes);
}
BEFORE_THE_LIBRARY int clock_gettime(clockid_t clock, timespec* now) noexcept {
  static auto* const real = next<int(clockid_t, timespec*)>("clock_gettime");
  at(Event::clock);
  return real(clock, now);
}
BEFORE_THE_LIBRARY int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static auto* const real = next<int(pthread_mutex_t*)>("pthread_mutex_lock");
  const int failed = real(mutex);
  at(Event::lock);
  return failed;
}
BEFORE_THE_LIBRARY int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                      void* (*function)(void*), void* argument) noexcept {
  static auto* const real =
      next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  threads.fetch_add(1);
  if (sigismember(&mask, SIGALRM) == 0) open_threads.fetch_add(1);
  return real(thread, attributes, function, argument);
}

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "FAILED: %s: %s\n", what, faultline_last_error());
  _exit(1);
}

void configure(const std::string& progress) {
  std::string path = "/tmp/exit-in-handler-" + std::to_string(getpid()) + ".toml";
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr) fail("fopen");
  std::fprintf(file,
               "[[device]]\nname = \"faultline0\"\nip = \"198.18.0.1/24\"\nprogress = \"%s\"\n"
               "[device.port]\nkind = \"ring\"\nwire = \"w0\"\nside = \"a\"\n",
               progress.c_str());
  std::fclose(file);
  if (faultline_configure(path.c_str()) != 0) fail("faultline_configure");
  ibv_free_device_list(ibv_get_device_list(nullptr));  // reads it
  unlink(path.c_str());
}

struct Program {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  std::array<char, 8192> memory{};

  void open() {
    ibv_device** const list = ibv_get_device_list(nullptr);
    if (list == nullptr || *list == nullptr) fail("ibv_get_device_list");
    context = ibv_open_device(*list);
    if (context == nullptr) fail("ibv_open_device");
    ibv_free_device_list(list);
  }
  void prepare() {
    open();
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
    if (pd == nullptr || cq == nullptr) fail("ibv_create_cq");
  }
  void poll() const {
    ibv_wc completion;
    for (int i = 0; i < 100; ++i)
      if (ibv_poll_cq(cq, 1, &completion) < 0) fail("ibv_poll_cq");
  }
  void create_qp() const {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {4, 4, 1, 1, 0};
    ibv_qp* const qp = ibv_create_qp(pd, &attributes);
    if (qp == nullptr || ibv_destroy_qp(qp) != 0) fail("ibv_create_qp");
  }
  void register_memory() {
    ibv_mr* const mr =
        ibv_reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
    if (mr == nullptr || ibv_dereg_mr(mr) != 0) fail("ibv_reg_mr");
  }
  void create_cq() const {
    ibv_cq* const other = ibv_create_cq(context, 16, nullptr, nullptr, 0);
    if (other == nullptr || ibv_destroy_cq(other) != 0) fail("ibv_create_cq");
  }
  void close() const {
    if (ibv_destroy_cq(cq) != 0 || ibv_dealloc_pd(pd) != 0 || ibv_close_device(context) != 0)
      fail("ibv_close_device");
  }
};

constexpr std::array<const char*, 6> kCalls{"poll", "create_qp", "register", "create_cq", "open", "close"};

int run(const std::string& call, Event event, int n, const std::string& progress) {
  static Program program;
  is_main = true;
  // So that a program that hangs ends: SIGKILL's own deadline is the caller's.
  std::signal(SIGALRM, [](int) { std::exit(kEndedInHandler); });
  configure(progress);
  if (call != "open") program.prepare();
  wanted = event;
  remaining = n;
  armed = true;
  if (call == "poll")
    program.poll();
  else if (call == "create_qp")
    program.create_qp();
  else if (call == "register")
    program.register_memory();
  else if (call == "create_cq")
    program.create_cq();
  else if (call == "open")
    program.prepare();  // the first call that needs it starts the device
  else
    program.close();
  armed = false;
  if (open_threads != 0 || threads == 0) _exit(kUnblocked);
  std::exit(kNotReached);
}

/// The exit status, or a line on stderr and no value.
int status_of(const char* self, const char* call, const char* event, int n, const char* progress) {
  constexpr int kDeadlineSeconds = 20;
  const pid_t child = fork();
  if (child == 0) {
    execl(self, self, call, event, std::to_string(n).c_str(), progress, nullptr);
    _exit(1);
  }
  int status = 0;
  for (int waits = 0; waitpid(child, &status, WNOHANG) == 0; ++waits) {
    if (waits == kDeadlineSeconds * 200) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      std::fprintf(stderr, "FAILED: %s, %s %d, %s: it hangs\n", call, event, n, progress);
      return -1;
    }
    usleep(5000);
  }
  if (!WIFEXITED(status)) {
    std::fprintf(stderr, "FAILED: %s, %s %d, %s: killed by signal %d\n", call, event, n, progress,
                 WTERMSIG(status));
    return -1;
  }
  if (WEXITSTATUS(status) == kEndedInHandler || WEXITSTATUS(status) == kNotReached)
    return WEXITSTATUS(status);
  std::fprintf(
      stderr, "FAILED: %s, %s %d, %s: status %d%s\n", call, event, n, progress, WEXITSTATUS(status),
      WEXITSTATUS(status) == kUnblocked ? ": a thread of the library takes the program's signals" : "");
  return -1;
}

/// Every point, up to a number that reaches all of a call's locks and turns.
int run_all(const char* self) {
  constexpr int kMostPoints = 5;
  int ended = 0;
  int failed = 0;
  for (const char* const progress : {"auto", "dedicated"})
    for (const char* const call : kCalls)
      for (const char* const event : kEvents)
        for (int n = 1; n <= kMostPoints; ++n) {
          const int status = status_of(self, call, event, n, progress);
          if (status < 0) ++failed;
          if (status == kNotReached || status < 0) break;
          ++ended;
        }
  std::printf("%d processes ended in their handlers, %d failed\n", ended, failed);
  constexpr int kFewest = 60;
  return failed == 0 && ended >= kFewest ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) return run_all(argv[0]);
  if (argc != 5) return 2;
  for (size_t i = 0; i < kEvents.size(); ++i)
    if (std::strcmp(argv[2], kEvents[i]) == 0)
      return run(argv[1], static_cast<Event>(i), std::atoi(argv[3]), argv[4]);
  return 2;
}
