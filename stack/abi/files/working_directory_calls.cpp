// SPDX-License-Identifier: BSD-3-Clause
// The C library's names that change or return the working directory, in the drop-in. Scripts change to a
// folder of our devices and list it (ibstatus: "cd /sys/class/infiniband; for dev in *").
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stack/abi/interpose/next_call.hpp"
#include "stack/abi/tree/descriptor_table.hpp"
#include "stack/abi/tree/file_view.hpp"

namespace faultline::abi {

namespace {

NextCall<int(const char*)> next_chdir("chdir");
NextCall<int(int)> next_fchdir("fchdir");
NextCall<char*(char*, size_t)> next_getcwd("getcwd");
NextCall<char*(char*, size_t, size_t)> next_getcwd_chk("__getcwd_chk");
NextCall<char*()> next_get_current_dir_name("get_current_dir_name");

/// `existing` is the path of the call, which may have links.
int enter(const Sight& sight, std::string existing) {
  if (!sight.node || sight.node->kind != NodeKind::directory) {
    errno = sight.node ? ENOTDIR : sight.error;
    return -1;
  }
  // The kernel's working directory becomes the nearest existing parent, for programs started by this one.
  while (!existing.empty() && next_chdir(existing.c_str()) != 0) existing.resize(existing.rfind('/'));
  if (existing.empty() && next_chdir("/") != 0) return -1;
  set_working_directory(sight.path);
  return 0;
}

int enter_path(const char* path) {
  const std::string here = working_directory();
  const bool is_relative = path != nullptr && path[0] != '\0' && path[0] != '/';
  if (const auto sight = look_at(AT_FDCWD, path); sight && path != nullptr)
    return enter(*sight, normal_path(is_relative ? here + "/" + path : path));
  // Leaves a folder of ours by "..": the kernel does not know that folder, so the path is made absolute.
  const int result =
      !here.empty() && is_relative ? next_chdir(normal_path(here + "/" + path).c_str()) : next_chdir(path);
  if (result == 0) set_working_directory({});
  return result;
}

bool has_kernel(const std::string& path) {
  return syscall(SYS_faccessat, AT_FDCWD, path.c_str(), F_OK) == 0;
}

// exec(2) keeps the kernel's working directory. A shell names its own in $PWD, so its commands find it.
[[gnu::constructor]] void take_over_working_directory() {
  const char* const named = secure_getenv("PWD");
  const auto own = named == nullptr ? std::nullopt : own_path(named);
  if (!own || *own != named || has_kernel(*own)) return;
  std::string parent = *own;
  while (!parent.empty() && !has_kernel(parent)) parent.resize(parent.rfind('/'));
  std::array<char, PATH_MAX> here;
  if (next_getcwd(here.data(), here.size()) != nullptr && here.data() == (parent.empty() ? "/" : parent))
    set_working_directory(*own);
}

template <typename Call>
char* getcwd_or(char* buffer, size_t size, Call call) {
  const std::string here = working_directory();
  if (here.empty()) return call();
  if (buffer == nullptr && size == 0) return ::strdup(here.c_str());
  if (size <= here.size()) {
    errno = size == 0 ? EINVAL : ERANGE;
    return nullptr;
  }
  if (buffer == nullptr) buffer = static_cast<char*>(std::malloc(size));
  if (buffer != nullptr) std::memcpy(buffer, here.c_str(), here.size() + 1);
  return buffer;
}

}  // namespace

extern "C" {

int abi_chdir(const char* path) FAULTLINE_STANDS_BEFORE("chdir");
int abi_chdir(const char* path) {
  return enter_path(path);
}
int abi_fchdir(int descriptor) FAULTLINE_STANDS_BEFORE("fchdir");
int abi_fchdir(int descriptor) {
  if (const auto file = find_descriptor(descriptor)) return enter(file->sight, file->sight.path);
  const int result = next_fchdir(descriptor);
  if (result == 0) set_working_directory({});
  return result;
}
char* abi_getcwd(char* buffer, size_t size) FAULTLINE_STANDS_BEFORE("getcwd");
char* abi_getcwd(char* buffer, size_t size) {
  return getcwd_or(buffer, size, [=] { return next_getcwd(buffer, size); });
}
char* abi_getcwd_chk(char* buffer, size_t size, size_t room) FAULTLINE_STANDS_BEFORE("__getcwd_chk");
char* abi_getcwd_chk(char* buffer, size_t size, size_t room) {
  return getcwd_or(buffer, size, [=] { return next_getcwd_chk(buffer, size, room); });
}
char* abi_get_current_dir_name() FAULTLINE_STANDS_BEFORE("get_current_dir_name");
char* abi_get_current_dir_name() {
  return getcwd_or(nullptr, 0, [] { return next_get_current_dir_name(); });
}

}  // extern "C"

}  // namespace faultline::abi
