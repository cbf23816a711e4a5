// SPDX-License-Identifier: BSD-3-Clause
// A program with raised rights (mode 4755) that uses the library: trust_test.py runs it as somebody else.
//   trust LIBRARY [CONFIGURATION]
// The library by its path, since $ORIGIN means nothing in such a program.
#include <cstdio>

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sys/auxv.h>
#include <unistd.h>

namespace {

template <typename Function>
Function* find(void* library, const char* name) {
  auto* const found = reinterpret_cast<Function*>(dlsym(library, name));
  if (found == nullptr) std::fprintf(stderr, "no %s\n", name);
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  void* const library = argc < 2 ? nullptr : dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", argc < 2 ? "no library" : dlerror());
    return 1;
  }
  auto* const configure = find<void(const char*)>(library, "faultline_configure");
  auto* const get_list = find<decltype(ibv_get_device_list)>(library, "ibv_get_device_list");
  auto* const open = find<decltype(ibv_open_device)>(library, "ibv_open_device");
  auto* const alloc_pd = find<decltype(ibv_alloc_pd)>(library, "ibv_alloc_pd");
  if (configure == nullptr || get_list == nullptr || open == nullptr || alloc_pd == nullptr) return 1;
  if (argc > 2) configure(argv[2]);
  int count = 0;
  ibv_device** const list = get_list(&count);
  ibv_context* const context = list != nullptr && count > 0 ? open(list[0]) : nullptr;
  const ibv_pd* const domain = context != nullptr ? alloc_pd(context) : nullptr;
  std::printf("secure %lu uid %u euid %u devices %d opened %d\n", getauxval(AT_SECURE), getuid(), geteuid(),
              list != nullptr ? count : 0, domain != nullptr);
  return 0;
}
