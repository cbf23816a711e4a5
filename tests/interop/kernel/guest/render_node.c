// SPDX-License-Identifier: BSD-3-Clause
// Preloaded into pyverbs: a graphics processor's render node whose buffers are udmabufs. rdma-core's tests of
// dma-bufs ask i915 for theirs (pyverbs/dmabuf_alloc.c), and no emulated machine has such a card. One buffer
// for each open of the node: the node is a memfd, so that the tests map it as they map the card's memory.
// pyverbs calls open, which the headers would rename to open64 here.
#undef _FILE_OFFSET_BITS
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// Of drm.h and i915_drm.h, which a machine without libdrm's headers lacks.
enum {
  DRM = 'd',
  VERSION = 0x00,
  GEM_CLOSE = 0x09,
  HANDLE_TO_FD = 0x2d,
  I915_CREATE = 0x5b,
  I915_MAP_OFFSET = 0x64
};
struct version {
  int numbers[3];
  size_t name_bytes;
  char* name;
};
struct create {
  uint64_t bytes;
  uint32_t handle;
};
struct map_offset {
  uint32_t handle, pad;
  uint64_t offset;
};
struct handle_to_fd {
  uint32_t handle, flags;
  int32_t descriptor;
};

static const char node_path[] = "/dev/dri/renderD128";
static const char node_link[] = "/memfd:render-node (deleted)";

static int open_node(void) {
  return memfd_create("render-node", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

static int is_node(int descriptor) {
  char path[64];
  char target[sizeof node_link + 1];
  snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(path, target, sizeof target);
  return length == sizeof node_link - 1 && memcmp(target, node_link, sizeof node_link - 1) == 0;
}

int open(const char* path, int flags, ...) {
  if (strcmp(path, node_path) == 0) return open_node();
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  int (*next)(const char*, int, ...);
  *(void**)&next = dlsym(RTLD_NEXT, "open");  // as in dlsym(3)
  return next(path, flags, mode);
}

static int make_buffer(int node, uint64_t bytes) {
  const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
  const uint64_t whole_bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  if (ftruncate(node, (off_t)whole_bytes) != 0) return -1;
  return fcntl(node, F_ADD_SEALS, F_SEAL_SHRINK);
}

static int export_buffer(int node) {
  struct udmabuf_create create = {.memfd = (uint32_t)node, .flags = UDMABUF_FLAGS_CLOEXEC};
  create.size = (uint64_t)lseek(node, 0, SEEK_END);
  const int device = (int)syscall(SYS_openat, AT_FDCWD, "/dev/udmabuf", O_RDWR | O_CLOEXEC);
  const int descriptor = device < 0 ? -1 : (int)syscall(SYS_ioctl, device, UDMABUF_CREATE, &create);
  if (device >= 0) close(device);
  return descriptor;
}

int ioctl(int descriptor, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  int (*next)(int, unsigned long, ...);
  *(void**)&next = dlsym(RTLD_NEXT, "ioctl");
  if (_IOC_TYPE(request) != DRM || !is_node(descriptor)) return next(descriptor, request, argument);
  switch (_IOC_NR(request)) {
    case VERSION: {
      struct version* const version = argument;
      strncpy(version->name, "i915", version->name_bytes);
      return 0;
    }
    case I915_CREATE: {
      struct create* const create = argument;
      create->handle = 1;
      return make_buffer(descriptor, create->bytes);
    }
    case I915_MAP_OFFSET:
      ((struct map_offset*)argument)->offset = 0;
      return 0;
    case HANDLE_TO_FD: {
      struct handle_to_fd* const wanted = argument;
      wanted->descriptor = export_buffer(descriptor);
      return wanted->descriptor < 0 ? -1 : 0;
    }
    case GEM_CLOSE:
      return 0;
    default:
      errno = EOPNOTSUPP;
      return -1;
  }
}
