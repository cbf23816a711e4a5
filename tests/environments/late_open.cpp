// SPDX-License-Identifier: BSD-3-Clause
// late_open LIBRARY SCOPE EXPECTED: a program that finds the library by dlopen, as UCX, NCCL and ctypes do.
// The C library's munmap, shmdt and sigaction are then the program's, and the library's hooks see nothing.
//   SCOPE     global, deep (RTLD_DEEPBIND)
//   EXPECTED  events     userfaultfd reports: on-demand memory is registered, System V memory is refused
//             refused    nothing reports: on-demand memory is refused
//             allowed    nothing reports, and the configuration allows it
//             quiet      as refused, with the log off
//             preloaded  LD_PRELOAD has loaded the library before: all is registered
// Exit status 77 where this machine has no userfaultfd.
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include "stack/include/faultline/faultline.h"

// A macro in rdma-core's header.
#undef ibv_reg_mr

namespace {

constexpr size_t kBytes = 1 << 16;

void* library = nullptr;
int report = -1;  ///< the stderr that the test was started with

template <typename Function>
Function* find(const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

[[noreturn]] void fail(const std::string& line) {
  dprintf(report, "late_open: FAILED: %s\n", line.c_str());
  std::exit(1);
}

/// Puts a file of this test's own in a descriptor's place; what is written there is looked at in the end.
int capture(int descriptor) {
  const int file = memfd_create("output", 0);
  if (file < 0 || dup2(file, descriptor) < 0) fail("cannot capture output");
  return file;
}

std::string text_of(int file) {
  std::string text(static_cast<size_t>(lseek(file, 0, SEEK_END)), '\0');
  if (pread(file, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    fail("cannot read output");
  return text;
}

size_t count_of(const std::string& text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::string write_configuration(std::string_view expected) {
  std::string path = "/tmp/faultline-late-open-XXXXXX";
  const int file = mkstemp(path.data());
  std::string text =
      "[[device]]\nname = \"faultline0\"\nip = \"198.18.0.1/24\"\n"
      "[device.port]\nkind = \"ring\"\nwire = \"late\"\nside = \"a\"\n";
  if (expected == "allowed") text += "[odp]\nallow_unguarded = true\n";
  if (expected == "quiet") text += "[log]\nlevel = \"off\"\n";
  if (file < 0 || write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    fail("cannot write the configuration");
  close(file);
  return path;
}

std::vector<faultline_guard> guards() {
  const auto query = find<decltype(faultline_query_guards)>("faultline_query_guards");
  if (query == nullptr) fail("no faultline_query_guards");
  std::vector<faultline_guard> all(static_cast<size_t>(query(nullptr, 0)));
  query(all.data(), all.size());
  return all;
}

faultline_guard guard_of(std::string_view name) {
  for (const faultline_guard& guard : guards())
    if (guard.name == name) return guard;
  fail("no guard " + std::string(name));
}

ibv_pd* open_device() {
  int count = 0;
  ibv_device** const list = find<decltype(ibv_get_device_list)>("ibv_get_device_list")(&count);
  if (list == nullptr || count != 1) fail("no device");
  ibv_context* const context = find<decltype(ibv_open_device)>("ibv_open_device")(list[0]);
  ibv_pd* const pd = context == nullptr ? nullptr : find<decltype(ibv_alloc_pd)>("ibv_alloc_pd")(context);
  if (pd == nullptr) fail("the device does not start: " + std::string(std::strerror(errno)));
  return pd;
}

int errno_of_registration(ibv_pd* pd, void* address, size_t length_bytes, int access) {
  errno = 0;
  const auto reg = find<ibv_mr*(ibv_pd*, void*, size_t, int)>("ibv_reg_mr");
  return reg(pd, address, length_bytes, access) != nullptr ? 0 : errno;
}

void expect(const char* what, int result, int expected) {
  if (result == expected) return;
  fail(std::string(what) + ": " + std::strerror(result) + ", expected: " + std::strerror(expected));
}

}  // namespace

int main(int argc, char** argv) {
  report = dup(2);
  if (argc != 4) fail("usage: late_open LIBRARY SCOPE EXPECTED");
  const std::string_view expected = argv[3];
  const std::string path = write_configuration(expected);
  setenv("FAULTLINE_CONFIG", path.c_str(), 1);
  const int output = capture(1);
  const int errors = capture(2);
  library = dlopen(argv[1], RTLD_NOW | (std::string_view(argv[2]) == "deep" ? RTLD_DEEPBIND : RTLD_GLOBAL));
  if (library == nullptr) fail(dlerror());

  const bool preloaded = expected == "preloaded";
  const bool reported = expected == "events" || preloaded;
  const int hooks = guard_of("memory hooks").state;
  const int events = guard_of("userfaultfd").state;
  if (expected == "events" && events == FAULTLINE_GUARD_MISSING) {
    dprintf(report, "late_open: skipped: this machine has no userfaultfd\n");
    unlink(path.c_str());
    return 77;
  }
  expect("state of the memory hooks", hooks, preloaded ? FAULTLINE_GUARD_WORKS : FAULTLINE_GUARD_MISSING);
  ibv_pd* const pd = open_device();
  unlink(path.c_str());
  if (guard_of("memory hooks").state != hooks || guard_of("userfaultfd").state != events)
    fail("the guards are others once a device is open");

  constexpr int kClassic = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  constexpr int kOnDemand = kClassic | IBV_ACCESS_ON_DEMAND;
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const int id = shmget(IPC_PRIVATE, kBytes, IPC_CREAT | 0600);
  void* const segment = shmat(id, nullptr, 0);
  shmctl(id, IPC_RMID, nullptr);
  if (memory == MAP_FAILED || segment == MAP_FAILED) fail("no memory");
  const bool allowed = expected == "allowed";
  const int unguarded = allowed ? 0 : ENOTSUP;
  expect("a classic region", errno_of_registration(pd, memory, kBytes, kClassic), 0);
  expect("on demand", errno_of_registration(pd, memory, kBytes, kOnDemand), reported ? 0 : unguarded);
  expect("implicit", errno_of_registration(pd, nullptr, SIZE_MAX, kOnDemand), reported ? 0 : unguarded);
  expect("System V memory", errno_of_registration(pd, segment, kBytes, kOnDemand), preloaded ? 0 : unguarded);

  if (!text_of(output).empty()) fail("the library writes to the program's stdout: " + text_of(output));
  const std::string log = text_of(errors);
  const bool refused = unguarded != 0 && !preloaded;
  if (expected == "quiet") {
    if (!log.empty()) fail("the log is off: " + log);
  } else {
    if (count_of(log, "fails (ENOTSUP)") != (refused ? 1U : 0U)) fail("one line of a refusal: " + log);
    if (count_of(log, "guard \"memory hooks\" is missing") != (preloaded ? 0U : 1U))
      fail("one line of the hooks: " + log);
  }
  std::_Exit(0);
}
