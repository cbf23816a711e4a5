// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/tree/file_view.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "stack/abi/tree/descriptor_table.hpp"
#include "stack/verbs/objects/counter_list.hpp"
#include "stack/verbs/objects/objects.hpp"

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

wire::Gid gid_of(const sockaddr& address) {
  wire::Gid gid;
  if (address.sa_family == AF_INET)
    return wire::Gid::from_ipv4(ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr));
  if (address.sa_family == AF_INET6)
    std::memcpy(gid.bytes.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr,
                gid.bytes.size());
  return gid;
}

/// Returns the kernel interface that has an address of the device, as a tap or veth may. Programs use its
/// addresses, so an interface without one of them would mislead them.
std::string interface_of(const verbs::DeviceDescription& device, const ifaddrs* interfaces) {
  for (const ifaddrs* at = interfaces; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const wire::Gid gid = gid_of(*at->ifa_addr);
    if (gid.is_zero()) continue;
    for (const wire::Gid& own : device.gids)
      if (own == gid) return at->ifa_name;
  }
  return {};
}

/// A forked child does not use its parent's device: for it, the device does not run.
std::vector<uint64_t> counters_of(const verbs::OpenDevice* engine) {
  if (engine == nullptr || engine->is_of_parent_process()) return {};
  return verbs::counter_values(*engine->backend);
}

/// Counters are read only if the path is one of theirs: a look at any other file need not wait for them.
std::optional<DeviceFiles> device_files(bool with_counters) {
  int count = 0;
  const std::unique_ptr<ibv_device*[], void (*)(ibv_device**)> list(ibv_get_device_list(&count),
                                                                    ibv_free_device_list);
  if (list == nullptr || count == 0) return std::nullopt;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) interfaces = nullptr;
  std::vector<DeviceFacts> facts;
  for (int i = 0; i < count; ++i) {
    const verbs::VerbsDevice& device = verbs::device_of(list[i]);
    const auto engine = verbs::running_engine(device.description.name);
    facts.push_back({.description = &device.description,
                     .guid_be = ibv_get_device_guid(list[i]),
                     .index = device.index,
                     .verbs_name = device.dev_name,
                     .version = FAULTLINE_VERSION,
                     .port = verbs::describe_port(device.description, engine.get()),
                     .interface = interface_of(device.description, interfaces),
                     .counters = with_counters ? std::optional(counters_of(engine.get())) : std::nullopt});
  }
  if (interfaces != nullptr) freeifaddrs(interfaces);
  return DeviceFiles(facts);
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
  const Looking looking;
  const auto files = device_files(own->find("counters") != std::string::npos);
  if (!files) return std::nullopt;
  Sight sight{std::move(*own), std::nullopt};
  if (const Node* const node = files->find(sight.path)) sight.node = *node;
  return sight;
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
      result.st_mode = S_IFREG | 0444;
      result.st_size = kAttributeBytes;
      break;
    case NodeKind::verbs_device:
    case NodeKind::connection_manager:
      result.st_mode = S_IFCHR | 0666;
      result.st_rdev = makedev(node.device_major, node.device_minor);
      break;
  }
  result.st_dev = makedev(0, kAnonymousMinor);
  result.st_ino = std::hash<std::string>{}(sight.path);
  result.st_nlink = node.kind == NodeKind::directory ? 2 : 1;
  result.st_blksize = kAttributeBytes;
  return result;
}

int access_sight(const Sight& sight, int mode) {
  if (!sight.node) {
    errno = ENOENT;
    return -1;
  }
  const mode_t granted = stat_of(sight).st_mode & 07;
  if ((static_cast<mode_t>(mode) & ~granted) == 0) return 0;
  errno = EACCES;
  return -1;
}

}  // namespace faultline::abi
