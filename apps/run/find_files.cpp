// SPDX-License-Identifier: BSD-3-Clause
#include "apps/run/find_files.hpp"

#include <array>
#include <cstdlib>
#include <initializer_list>

#include <unistd.h>

namespace faultline::run {
namespace {

std::string first_of(std::initializer_list<std::string> paths, int mode) {
  for (const std::string& path : paths) {
    std::array<char, 4096> whole{};
    if (access(path.c_str(), mode) == 0 && realpath(path.c_str(), whole.data()) != nullptr)
      return whole.data();
  }
  return {};
}

}  // namespace

std::string own_path() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  return std::string(path.data(), length > 0 ? static_cast<size_t>(length) : 0);
}

std::string own_directory() {
  const std::string file = own_path();
  return file.substr(0, file.rfind('/'));
}

std::string find_library(const std::string& directory, const std::string& libdir) {
  // `meson configure -Dlibdir=/...` gives an absolute libdir.
  const std::string installed = libdir.starts_with('/') ? libdir : directory + "/../" + libdir;
  return first_of({directory + "/../stack/abi/libibverbs.so.1", installed + "/faultline/libibverbs.so.1",
                   directory + "/../libfaultline.so.0", installed + "/libfaultline.so.0"},
                  R_OK);
}

std::string find_switch(const std::string& directory) {
  return first_of({directory + "/faultline-switch"}, X_OK);
}

}  // namespace faultline::run
