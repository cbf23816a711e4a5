// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/wires/sealed_memory.hpp"

#include <array>
#include <cerrno>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace faultline::glue {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

UniqueFd create_sealed_memory(const char* name, size_t size_bytes) {
  UniqueFd memory(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || ftruncate(memory.get(), static_cast<off_t>(size_bytes)) != 0 ||
      fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0)
    return {};
  return memory;
}

bool is_sealed_memory(int fd, size_t size_bytes) {
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat status {};
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &status) == 0 &&
         static_cast<size_t>(status.st_size) >= size_bytes;
}

void* map_sealed_memory(int fd, size_t size_bytes) {
  if (!is_sealed_memory(fd, size_bytes)) {
    errno = EINVAL;
    return nullptr;
  }
  void* const mapped = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return nullptr;
  // A child that still had it would keep it alive, and could write to it.
  static_cast<void>(madvise(mapped, size_bytes, MADV_DONTFORK));
  return mapped;
}

bool is_event(int fd) {
  // write(2) to a full counter would wait, and with it every process of the wire.
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_NONBLOCK) == 0) return false;
  std::array<char, 64> target{};
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(path.c_str(), target.data(), target.size());
  return length > 0 && std::string_view(target.data(), static_cast<size_t>(length)) == "anon_inode:[eventfd]";
}

}  // namespace faultline::glue
