// SPDX-License-Identifier: BSD-3-Clause
// A program with an fstat, stat and lstat of its own that call the next library's older names, as
// ThreadSanitizer's do: the drop-in's older names must not come back by the newer ones.
#include <cstdio>
#include <cstring>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

constexpr int kStatVersion = 1;  // glibc, bits/stat.h: _STAT_VER on x86-64
constexpr int kDeepest = 8;
int g_depth = 0;
bool g_came_back = false;

template <typename What>
int by_older_name(const char* name, What what, struct stat* result) {
  if (++g_depth > kDeepest) {
    g_came_back = true;
    --g_depth;
    return -1;
  }
  using Older = int(int, What, struct stat*);
  auto* const older = reinterpret_cast<Older*>(dlsym(RTLD_NEXT, name));
  const int status = older != nullptr ? older(kStatVersion, what, result) : -1;
  --g_depth;
  return status;
}

}  // namespace

#define OWN(name) asm(name) __attribute__((visibility("default")))
extern "C" {
int own_fstat(int descriptor, struct stat* result) OWN("fstat");
int own_fstat64(int descriptor, struct stat* result) OWN("fstat64");
int own_stat(const char* path, struct stat* result) OWN("stat");
int own_stat64(const char* path, struct stat* result) OWN("stat64");
int own_lstat(const char* path, struct stat* result) OWN("lstat");
int own_lstat64(const char* path, struct stat* result) OWN("lstat64");

int own_fstat(int descriptor, struct stat* result) {
  return by_older_name("__fxstat", descriptor, result);
}
int own_fstat64(int descriptor, struct stat* result) {
  return by_older_name("__fxstat64", descriptor, result);
}
int own_stat(const char* path, struct stat* result) {
  return by_older_name("__xstat", path, result);
}
int own_stat64(const char* path, struct stat* result) {
  return by_older_name("__xstat64", path, result);
}
int own_lstat(const char* path, struct stat* result) {
  return by_older_name("__lxstat", path, result);
}
int own_lstat64(const char* path, struct stat* result) {
  return by_older_name("__lxstat64", path, result);
}
}

int main() {
  // Without the drop-in before the C library this would test nothing.
  Dl_info found{};
  void* const next = dlsym(RTLD_NEXT, "__fxstat");
  if (next == nullptr || dladdr(next, &found) == 0 || std::strstr(found.dli_fname, "libibverbs") == nullptr) {
    std::fprintf(stderr, "old_stat: the next __fxstat is not the drop-in's\n");
    return 1;
  }
  int failed = 0;
  const auto expect_folder = [&](const char* name, int status, const struct stat& facts) {
    const bool is_right = status == 0 && S_ISDIR(facts.st_mode) && !g_came_back;
    if (!is_right) std::fprintf(stderr, "FAILED: %s%s\n", name, g_came_back ? " came back without end" : "");
    failed += is_right ? 0 : 1;
    g_came_back = false;
  };
  const int folder = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat facts {};
  expect_folder("fstat", own_fstat(folder, &facts), facts);
  expect_folder("fstat64", own_fstat64(folder, &(facts = {})), facts);
  expect_folder("stat", own_stat("/", &(facts = {})), facts);
  expect_folder("stat64", own_stat64("/", &(facts = {})), facts);
  expect_folder("lstat", own_lstat("/", &(facts = {})), facts);
  expect_folder("lstat64", own_lstat64("/", &(facts = {})), facts);
  close(folder);
  return failed == 0 ? 0 : 1;
}
