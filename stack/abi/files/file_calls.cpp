// SPDX-License-Identifier: BSD-3-Clause
// The C library's names that take a path, in the drop-in. Paths below our devices' trees are handled here,
// all others by the C library.
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "stack/abi/files/open_sight.hpp"
#include "stack/abi/interpose/next_call.hpp"
#include "stack/abi/tree/descriptor_table.hpp"
#include "stack/abi/tree/file_view.hpp"

namespace faultline::abi {

namespace {

NextCall<int(const char*, int, mode_t)> next_open("open"), next_open64("open64");
NextCall<int(const char*, int)> next_open_2("__open_2"), next_open64_2("__open64_2");
NextCall<int(int, const char*, int, mode_t)> next_openat("openat"), next_openat64("openat64");
NextCall<int(int, const char*, int)> next_openat_2("__openat_2"), next_openat64_2("__openat64_2");
NextCall<FILE*(const char*, const char*)> next_fopen("fopen"), next_fopen64("fopen64");
// glibc before 2.33 has these as inline functions alone, which call __xstat() and the like.
int kernel_fstatat(int directory, const char* path, struct stat* result, int flags) {
  return static_cast<int>(syscall(SYS_newfstatat, directory, path, result, flags));
}
int kernel_stat(const char* path, struct stat* result) {
  return kernel_fstatat(AT_FDCWD, path, result, 0);
}
int kernel_lstat(const char* path, struct stat* result) {
  return kernel_fstatat(AT_FDCWD, path, result, AT_SYMLINK_NOFOLLOW);
}
int kernel_fstat(int descriptor, struct stat* result) {
  return static_cast<int>(syscall(SYS_fstat, descriptor, result));
}
NextCall<int(const char*, struct stat*)> next_stat("stat", kernel_stat), next_stat64("stat64", kernel_stat),
    next_lstat("lstat", kernel_lstat), next_lstat64("lstat64", kernel_lstat);
NextCall<int(int, struct stat*)> next_fstat("fstat", kernel_fstat), next_fstat64("fstat64", kernel_fstat);
NextCall<int(int, const char*, struct stat*, int)> next_fstatat("fstatat", kernel_fstatat),
    next_fstatat64("fstatat64", kernel_fstatat);
NextCall<int(int, const char*, int, unsigned, struct statx*)> next_statx("statx");
NextCall<int(const char*, int)> next_access("access"), next_euidaccess("euidaccess"), next_eaccess("eaccess");
NextCall<int(int, const char*, int, int)> next_faccessat("faccessat");
NextCall<ssize_t(const char*, char*, size_t)> next_readlink("readlink");
NextCall<ssize_t(int, const char*, char*, size_t)> next_readlinkat("readlinkat");
NextCall<ssize_t(const char*, const char*, void*, size_t)> next_getxattr("getxattr"),
    next_lgetxattr("lgetxattr");
NextCall<char*(const char*, char*)> next_realpath("realpath");
NextCall<char*(const char*, char*, size_t)> next_realpath_chk("__realpath_chk");
NextCall<char*(const char*)> next_canonicalize("canonicalize_file_name");

/// Returns the result of `call` if the path is not ours.
template <typename Call>
int open_or(int directory, const char* path, int flags, Call call) {
  if (const auto sight = look_at(directory, path)) return open_sight(*sight, flags);
  return call();
}

template <typename Call>
FILE* fopen_or(const char* path, const char* mode, Call call) {
  const auto sight = look_at(AT_FDCWD, path);
  if (!sight) return call();
  const bool reads_only = mode[0] == 'r' && std::strchr(mode, '+') == nullptr;
  const int descriptor = open_sight(
      *sight, (reads_only ? O_RDONLY : O_RDWR) | (std::strchr(mode, 'e') != nullptr ? O_CLOEXEC : 0));
  return descriptor < 0 ? nullptr : ::fdopen(descriptor, mode);
}

int answer_stat(const Sight& sight, struct stat* result) {
  if (!sight.node) return fail_with(sight.error);
  *result = stat_of(sight);
  return 0;
}

template <typename Call>
int stat_or(int directory, const char* path, struct stat* result, Call call) {
  if (const auto sight = look_at(directory, path)) return answer_stat(*sight, result);
  return call();
}

/// Of lstat(2).
template <typename Call>
int lstat_or(int directory, const char* path, struct stat* result, Call call) {
  const auto sight = look_at(directory, path);
  if (!sight) return call();
  if (!sight->node) return fail_with(sight->error);
  *result = lstat_of(*sight);
  return 0;
}

template <typename Call>
int fstat_or(int descriptor, struct stat* result, Call call) {
  if (const auto file = find_descriptor(descriptor)) return answer_stat(file->sight, result);
  return call();
}

/// With AT_EMPTY_PATH the call refers to the descriptor itself.
template <typename Call>
int fstatat_or(int directory, const char* path, struct stat* result, int flags, Call call) {
  if (path != nullptr && path[0] == '\0' && (flags & AT_EMPTY_PATH) != 0)
    return fstat_or(directory, result, call);
  return (flags & AT_SYMLINK_NOFOLLOW) != 0 ? lstat_or(directory, path, result, call)
                                            : stat_or(directory, path, result, call);
}

template <typename Call>
int access_or(int directory, const char* path, int mode, Call call) {
  if (const auto sight = look_at(directory, path)) return access_sight(*sight, mode);
  return call();
}

template <typename Call>
ssize_t readlink_or(int directory, const char* path, char* buffer, size_t size, Call call) {
  const auto sight = look_at(directory, path);
  if (!sight) return call();
  if (sight->link.empty()) return fail_with(sight->node ? EINVAL : sight->error);
  return static_cast<ssize_t>(sight->link.copy(buffer, size));
}

template <typename Call>
ssize_t getxattr_or(const char* path, Call call) {
  if (const auto sight = look_at(AT_FDCWD, path)) return fail_with(sight->node ? ENODATA : sight->error);
  return call();
}

template <typename Call>
char* realpath_or(const char* path, char* result, Call call) {
  const auto sight = look_at(AT_FDCWD, path);
  if (!sight) return call();
  if (!sight->node) {
    errno = sight->error;
    return nullptr;
  }
  const std::string real = real_path(*sight);
  if (result == nullptr) return ::strdup(real.c_str());
  *std::copy(real.begin(), real.end(), result) = '\0';
  return result;
}

void fill(struct statx& to, const struct stat& from) {
  to = {};
  to.stx_mask = STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_INO | STATX_SIZE;
  to.stx_blksize = static_cast<uint32_t>(from.st_blksize);
  to.stx_nlink = static_cast<uint32_t>(from.st_nlink);
  to.stx_mode = static_cast<uint16_t>(from.st_mode);
  to.stx_ino = from.st_ino;
  to.stx_size = static_cast<uint64_t>(from.st_size);
  to.stx_rdev_major = major(from.st_rdev);
  to.stx_rdev_minor = minor(from.st_rdev);
  to.stx_dev_major = major(from.st_dev);
  to.stx_dev_minor = minor(from.st_dev);
}

}  // namespace

extern "C" {

int abi_open(const char* path, int flags, mode_t mode) FAULTLINE_STANDS_BEFORE("open");
int abi_open(const char* path, int flags, mode_t mode) {
  return open_or(AT_FDCWD, path, flags, [=] { return next_open(path, flags, mode); });
}
int abi_open64(const char* path, int flags, mode_t mode) FAULTLINE_STANDS_BEFORE("open64");
int abi_open64(const char* path, int flags, mode_t mode) {
  return open_or(AT_FDCWD, path, flags, [=] { return next_open64(path, flags, mode); });
}
int abi_open_2(const char* path, int flags) FAULTLINE_STANDS_BEFORE("__open_2");
int abi_open_2(const char* path, int flags) {
  return open_or(AT_FDCWD, path, flags, [=] { return next_open_2(path, flags); });
}
int abi_open64_2(const char* path, int flags) FAULTLINE_STANDS_BEFORE("__open64_2");
int abi_open64_2(const char* path, int flags) {
  return open_or(AT_FDCWD, path, flags, [=] { return next_open64_2(path, flags); });
}
int abi_openat(int directory, const char* path, int flags, mode_t mode) FAULTLINE_STANDS_BEFORE("openat");
int abi_openat(int directory, const char* path, int flags, mode_t mode) {
  return open_or(directory, path, flags, [=] { return next_openat(directory, path, flags, mode); });
}
int abi_openat64(int directory, const char* path, int flags, mode_t mode) FAULTLINE_STANDS_BEFORE("openat64");
int abi_openat64(int directory, const char* path, int flags, mode_t mode) {
  return open_or(directory, path, flags, [=] { return next_openat64(directory, path, flags, mode); });
}
int abi_openat_2(int directory, const char* path, int flags) FAULTLINE_STANDS_BEFORE("__openat_2");
int abi_openat_2(int directory, const char* path, int flags) {
  return open_or(directory, path, flags, [=] { return next_openat_2(directory, path, flags); });
}
int abi_openat64_2(int directory, const char* path, int flags) FAULTLINE_STANDS_BEFORE("__openat64_2");
int abi_openat64_2(int directory, const char* path, int flags) {
  return open_or(directory, path, flags, [=] { return next_openat64_2(directory, path, flags); });
}

FILE* abi_fopen(const char* path, const char* mode) FAULTLINE_STANDS_BEFORE("fopen");
FILE* abi_fopen(const char* path, const char* mode) {
  return fopen_or(path, mode, [=] { return next_fopen(path, mode); });
}
FILE* abi_fopen64(const char* path, const char* mode) FAULTLINE_STANDS_BEFORE("fopen64");
FILE* abi_fopen64(const char* path, const char* mode) {
  return fopen_or(path, mode, [=] { return next_fopen64(path, mode); });
}

// struct stat64 is the same as struct stat with 64-bit offsets.
int abi_stat(const char* path, struct stat* result) FAULTLINE_STANDS_BEFORE("stat");
int abi_stat(const char* path, struct stat* result) {
  return stat_or(AT_FDCWD, path, result, [=] { return next_stat(path, result); });
}
int abi_stat64(const char* path, struct stat* result) FAULTLINE_STANDS_BEFORE("stat64");
int abi_stat64(const char* path, struct stat* result) {
  return stat_or(AT_FDCWD, path, result, [=] { return next_stat64(path, result); });
}
int abi_lstat(const char* path, struct stat* result) FAULTLINE_STANDS_BEFORE("lstat");
int abi_lstat(const char* path, struct stat* result) {
  return lstat_or(AT_FDCWD, path, result, [=] { return next_lstat(path, result); });
}
int abi_lstat64(const char* path, struct stat* result) FAULTLINE_STANDS_BEFORE("lstat64");
int abi_lstat64(const char* path, struct stat* result) {
  return lstat_or(AT_FDCWD, path, result, [=] { return next_lstat64(path, result); });
}
int abi_fstat(int descriptor, struct stat* result) FAULTLINE_STANDS_BEFORE("fstat");
int abi_fstat(int descriptor, struct stat* result) {
  return fstat_or(descriptor, result, [=] { return next_fstat(descriptor, result); });
}
int abi_fstat64(int descriptor, struct stat* result) FAULTLINE_STANDS_BEFORE("fstat64");
int abi_fstat64(int descriptor, struct stat* result) {
  return fstat_or(descriptor, result, [=] { return next_fstat64(descriptor, result); });
}
int abi_fstatat(int directory, const char* path, struct stat* result, int flags)
    FAULTLINE_STANDS_BEFORE("fstatat");
int abi_fstatat(int directory, const char* path, struct stat* result, int flags) {
  return fstatat_or(directory, path, result, flags,
                    [=] { return next_fstatat(directory, path, result, flags); });
}
int abi_fstatat64(int directory, const char* path, struct stat* result, int flags)
    FAULTLINE_STANDS_BEFORE("fstatat64");
int abi_fstatat64(int directory, const char* path, struct stat* result, int flags) {
  return fstatat_or(directory, path, result, flags,
                    [=] { return next_fstatat64(directory, path, result, flags); });
}

// Called by programs built against glibc older than 2.33. The version denotes the layout of struct stat;
// there has been only one. These do not call the newer names: ThreadSanitizer's fstat calls the next
// __fxstat, which would call its fstat again.
int abi_xstat(int version, const char* path, struct stat* result) FAULTLINE_STANDS_BEFORE("__xstat");
int abi_xstat(int /*version*/, const char* path, struct stat* result) {
  return stat_or(AT_FDCWD, path, result, [=] { return next_stat(path, result); });
}
int abi_xstat64(int version, const char* path, struct stat* result) FAULTLINE_STANDS_BEFORE("__xstat64");
int abi_xstat64(int /*version*/, const char* path, struct stat* result) {
  return stat_or(AT_FDCWD, path, result, [=] { return next_stat64(path, result); });
}
int abi_lxstat(int version, const char* path, struct stat* result) FAULTLINE_STANDS_BEFORE("__lxstat");
int abi_lxstat(int /*version*/, const char* path, struct stat* result) {
  return lstat_or(AT_FDCWD, path, result, [=] { return next_lstat(path, result); });
}
int abi_lxstat64(int version, const char* path, struct stat* result) FAULTLINE_STANDS_BEFORE("__lxstat64");
int abi_lxstat64(int /*version*/, const char* path, struct stat* result) {
  return lstat_or(AT_FDCWD, path, result, [=] { return next_lstat64(path, result); });
}
int abi_fxstat(int version, int descriptor, struct stat* result) FAULTLINE_STANDS_BEFORE("__fxstat");
int abi_fxstat(int /*version*/, int descriptor, struct stat* result) {
  return fstat_or(descriptor, result, [=] { return next_fstat(descriptor, result); });
}
int abi_fxstat64(int version, int descriptor, struct stat* result) FAULTLINE_STANDS_BEFORE("__fxstat64");
int abi_fxstat64(int /*version*/, int descriptor, struct stat* result) {
  return fstat_or(descriptor, result, [=] { return next_fstat64(descriptor, result); });
}

int abi_statx(int directory, const char* path, int flags, unsigned mask, struct statx* result)
    FAULTLINE_STANDS_BEFORE("statx");
int abi_statx(int directory, const char* path, int flags, unsigned mask, struct statx* result) {
  struct stat plain {};
  bool passed_on = false;
  const int answer = fstatat_or(directory, path, &plain, flags, [&] {
    passed_on = true;
    return next_statx(directory, path, flags, mask, result);
  });
  if (!passed_on && answer == 0) fill(*result, plain);
  return answer;
}

int abi_access(const char* path, int mode) FAULTLINE_STANDS_BEFORE("access");
int abi_access(const char* path, int mode) {
  return access_or(AT_FDCWD, path, mode, [=] { return next_access(path, mode); });
}
int abi_euidaccess(const char* path, int mode) FAULTLINE_STANDS_BEFORE("euidaccess");
int abi_euidaccess(const char* path, int mode) {
  return access_or(AT_FDCWD, path, mode, [=] { return next_euidaccess(path, mode); });
}
int abi_eaccess(const char* path, int mode) FAULTLINE_STANDS_BEFORE("eaccess");
int abi_eaccess(const char* path, int mode) {
  return access_or(AT_FDCWD, path, mode, [=] { return next_eaccess(path, mode); });
}
int abi_faccessat(int directory, const char* path, int mode, int flags) FAULTLINE_STANDS_BEFORE("faccessat");
int abi_faccessat(int directory, const char* path, int mode, int flags) {
  return access_or(directory, path, mode, [=] { return next_faccessat(directory, path, mode, flags); });
}

ssize_t abi_readlink(const char* path, char* buffer, size_t size) FAULTLINE_STANDS_BEFORE("readlink");
ssize_t abi_readlink(const char* path, char* buffer, size_t size) {
  return readlink_or(AT_FDCWD, path, buffer, size, [=] { return next_readlink(path, buffer, size); });
}
ssize_t abi_readlinkat(int directory, const char* path, char* buffer, size_t size)
    FAULTLINE_STANDS_BEFORE("readlinkat");
ssize_t abi_readlinkat(int directory, const char* path, char* buffer, size_t size) {
  return readlink_or(directory, path, buffer, size,
                     [=] { return next_readlinkat(directory, path, buffer, size); });
}

// ls reads a file's access control list with these.
ssize_t abi_getxattr(const char* path, const char* name, void* value, size_t size)
    FAULTLINE_STANDS_BEFORE("getxattr");
ssize_t abi_getxattr(const char* path, const char* name, void* value, size_t size) {
  return getxattr_or(path, [=] { return next_getxattr(path, name, value, size); });
}
ssize_t abi_lgetxattr(const char* path, const char* name, void* value, size_t size)
    FAULTLINE_STANDS_BEFORE("lgetxattr");
ssize_t abi_lgetxattr(const char* path, const char* name, void* value, size_t size) {
  return getxattr_or(path, [=] { return next_lgetxattr(path, name, value, size); });
}

char* abi_realpath(const char* path, char* result) FAULTLINE_STANDS_BEFORE("realpath");
char* abi_realpath(const char* path, char* result) {
  return realpath_or(path, result, [=] { return next_realpath(path, result); });
}
char* abi_realpath_chk(const char* path, char* result, size_t size) FAULTLINE_STANDS_BEFORE("__realpath_chk");
char* abi_realpath_chk(const char* path, char* result, size_t size) {
  return realpath_or(path, result, [=] { return next_realpath_chk(path, result, size); });
}
char* abi_canonicalize(const char* path) FAULTLINE_STANDS_BEFORE("canonicalize_file_name");
char* abi_canonicalize(const char* path) {
  return realpath_or(path, nullptr, [=] { return next_canonicalize(path); });
}

}  // extern "C"

}  // namespace faultline::abi
