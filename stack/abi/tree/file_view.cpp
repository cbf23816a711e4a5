// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/tree/file_view.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <system_error>

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "stack/abi/interfaces/own_interfaces.hpp"
#include "stack/abi/tree/descriptor_table.hpp"
#include "stack/abi/tree/interface_statistics.hpp"
#include "stack/abi/tree/known_devices.hpp"
#include "stack/base/process/file_text.hpp"

namespace faultline::abi {

namespace {

/// Set while the devices are listed, which opens the configuration file: those paths belong to the file
/// system.
thread_local bool g_looking = false;

class Looking {
 public:
  Looking() { g_looking = true; }
  ~Looking() {
    g_looking = false;
    errno = errno_;
  }
  Looking(const Looking&) = delete;
  Looking& operator=(const Looking&) = delete;

 private:
  const int errno_ = errno;
};

/// Counters are read only if the path is one of theirs: a look at any other file need not wait for them.
bool needs_counters(std::string_view path) {
  return path.find("counters") != std::string_view::npos ||
         path.find("statistics") != std::string_view::npos || path == kInterfaceTable;
}

/// Looking: the kernel's file is read.
Sight look_at_table(std::span<const DeviceFacts> devices) {
  std::string text = text_of_file(std::string(kInterfaceTable)).value_or("");
  for (const DeviceFacts& device : devices)
    if (device.own_interface)
      text += statistics_row(device.own_interface->name, interface_statistics(device.counters));
  return {std::string(kInterfaceTable), Node{NodeKind::file, std::move(text), 0, 0, {}}, {}};
}

/// Former values are leaked: another thread may be reading one, and programs change it seldom.
std::atomic<const std::string*> g_working_directory{nullptr};

/// Returns the absolute path of a relative one in `directory` if it may be ours; otherwise "".
std::string absolute_path(int directory, const char* path) {
  if (directory == AT_FDCWD) {
    const std::string* const here = g_working_directory.load(std::memory_order_acquire);
    return here == nullptr || path[0] == '\0' ? std::string() : *here + "/" + path;
  }
  if (const auto file = find_descriptor(directory)) return file->sight.path + "/" + path;
  // hwloc opens "/" and continues relative to it.
  if (std::strstr(path, "infiniband") == nullptr) return {};
  std::array<char, 64> link;
  std::array<char, 2> target;
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", directory);
  const bool is_root =
      syscall(SYS_readlinkat, AT_FDCWD, link.data(), target.data(), target.size()) == 1 && target[0] == '/';
  return is_root ? std::string("/") + path : std::string();
}

/// Looking: the kernel's folder is listed.
void add_host_interfaces(Node& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(kInterfaces, error), end; !error && at != end;
       at.increment(error))
    folder.names.push_back(at->path().filename());
  std::ranges::sort(folder.names);
}

Sight sight_of(DeviceFiles::Place place) {
  Sight sight{std::move(place.path), std::nullopt, std::move(place.link), place.error};
  if (place.node != nullptr) sight.node = *place.node;
  return sight;
}

/// Returns nullopt for the entries of the host's interfaces.
std::optional<Sight> look_at_interface(const DeviceFiles& files, std::string path) {
  const bool is_virtual = path.starts_with(kVirtualInterfaces);
  // The folder of all virtual interfaces is the kernel's.
  if (is_virtual && path.size() == kVirtualInterfaces.size()) return std::nullopt;
  const std::string below = path.substr(is_virtual ? kVirtualInterfaces.size() : kInterfaces.size());
  const std::string place = std::string(kInterfaces) + below;
  const size_t name_end = std::min(place.find('/', kInterfaces.size() + 1), place.size());
  if (files.find(place.substr(0, name_end)) == nullptr) return std::nullopt;
  Sight sight = sight_of(files.follow(place));
  if (sight.path == place) sight.path = std::move(path);
  if (below.empty())
    add_host_interfaces(*sight.node);
  else if (!is_virtual && name_end == place.size())
    sight.link = "../../devices/virtual/net" + below;
  return sight;
}

/// A link is followed if the path goes on behind it, even with nothing (path_resolution(7)).
bool enters_link(std::string_view path) {
  return path.ends_with('/') || path.ends_with("/.") || path.ends_with("/..");
}

}  // namespace

std::string working_directory() {
  const std::string* const here = g_working_directory.load(std::memory_order_acquire);
  return here == nullptr ? std::string() : *here;
}

void set_working_directory(const std::string& path) {
  if (path == working_directory()) return;
  g_working_directory.store(path.empty() ? nullptr : new std::string(path), std::memory_order_release);
}

std::optional<Sight> look_at(int directory, const char* path) {
  if (path == nullptr || g_looking) return std::nullopt;
  std::optional<std::string> own;
  if (path[0] == '/')
    own = own_path(path);
  else if (const std::string absolute = absolute_path(directory, path); !absolute.empty())
    own = own_path(absolute);
  if (!own) return std::nullopt;
  const bool is_of_interface = own->starts_with(kInterfaces) || own->starts_with(kVirtualInterfaces);
  const bool is_table = *own == kInterfaceTable;
  if ((is_of_interface || is_table) && !shows_interfaces()) return std::nullopt;
  const Looking looking;
  const KnownDevices devices(needs_counters(*own));
  if (devices.facts().empty()) return std::nullopt;
  if (is_table) return look_at_table(devices.facts());
  const DeviceFiles files(devices.facts());
  std::optional<Sight> sight =
      is_of_interface ? look_at_interface(files, std::move(*own)) : sight_of(files.follow(std::move(*own)));
  if (sight && enters_link(path)) sight->link.clear();
  return sight;
}

std::string real_path(const Sight& sight) {
  std::string real = sight.path;
  if (real.size() > kInterfaces.size() && real.starts_with(kInterfaces))
    real.replace(0, kInterfaces.size(), kVirtualInterfaces);
  return real;
}

struct stat stat_of(const Sight& sight) {
  constexpr uint32_t kAnonymousMinor = 0xfa;
  constexpr off_t kAttributeBytes = 4096;  // size that sysfs reports for every attribute
  struct stat result {};
  const Node& node = *sight.node;
  switch (node.kind) {
    case NodeKind::directory:
      result.st_mode = S_IFDIR | 0755;
      break;
    case NodeKind::file:
    case NodeKind::empty_row:
      result.st_mode = S_IFREG | 0444;
      result.st_size = kAttributeBytes;
      break;
    case NodeKind::verbs_device:
    case NodeKind::connection_manager:
      result.st_mode = S_IFCHR | 0666;
      result.st_rdev = makedev(node.device_major, node.device_minor);
      break;
    case NodeKind::socket:
      result.st_mode = S_IFSOCK | 0777;
      break;
    case NodeKind::link:  // a sight's node is at the link's end
      break;
  }
  result.st_dev = makedev(0, kAnonymousMinor);
  result.st_ino = std::hash<std::string>{}(real_path(sight));
  result.st_nlink = node.kind == NodeKind::directory ? 2 : 1;
  result.st_blksize = kAttributeBytes;
  return result;
}

struct stat lstat_of(const Sight& sight) {
  struct stat result = stat_of(sight);
  if (sight.link.empty()) return result;
  result.st_ino = ~result.st_ino;  // another file than the one at its end
  result.st_mode = S_IFLNK | 0777;
  result.st_size = static_cast<off_t>(sight.link.size());
  result.st_nlink = 1;
  return result;
}

int access_sight(const Sight& sight, int mode) {
  if (!sight.node) {
    errno = sight.error;
    return -1;
  }
  const mode_t granted = stat_of(sight).st_mode & 07;
  if ((static_cast<mode_t>(mode) & ~granted) == 0) return 0;
  errno = EACCES;
  return -1;
}

}  // namespace faultline::abi
