// SPDX-License-Identifier: BSD-3-Clause
// odp_mix_late LIBRARY MODULE [OPTIONS OF ODP_MIX...]: runs odp_mix with the library opened by dlopen(3) when
// the program runs already, as NCCL, UCX and Python open it. Names that the C library has too, munmap for
// one, then are the C library's: it stands before LIBRARY in the order of search.
#include <cstdio>

#include <dlfcn.h>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: odp_mix_late LIBRARY MODULE [OPTIONS OF ODP_MIX...]\n");
    return 2;
  }
  if (dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    std::fprintf(stderr, "odp_mix_late: %s\n", dlerror());
    return 1;
  }
  void* const module = dlopen(argv[2], RTLD_NOW);
  void* const mix = module == nullptr ? nullptr : dlsym(module, "faultline_odp_mix");
  if (mix == nullptr) {
    std::fprintf(stderr, "odp_mix_late: %s\n", dlerror());
    return 1;
  }
  argv[2] = argv[0];
  return reinterpret_cast<int (*)(int, char**)>(mix)(argc - 2, argv + 2);
}
