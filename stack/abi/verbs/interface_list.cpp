// SPDX-License-Identifier: BSD-3-Clause
// getifaddrs(3), in the drop-in. libfabric finds a host's devices by binding an rdma_cm id to each address of
// the kernel's interfaces, which do not include ours. Only libfabric's calls list ours too: other programs
// would try to open sockets on them.
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <netinet/in.h>

#include "stack/abi/interpose/next_call.hpp"
#include "stack/base/process/inherited.hpp"
#include "stack/verbs/objects/objects.hpp"

namespace faultline::abi {

namespace {

NextCall<int(ifaddrs**)> next_getifaddrs("getifaddrs");
NextCall<void(ifaddrs*)> next_freeifaddrs("freeifaddrs");

/// One address of a device as an entry of the list.
struct Entry {
  ifaddrs listed{};
  std::array<char, IF_NAMESIZE> name{};
  sockaddr_in6 address{}, mask{};  // large enough for either family
};
using Entries = std::vector<std::unique_ptr<Entry>>;

/// Entries added before the C library's own list, keyed by the first entry. A forked child may free a list
/// that its parent got.
using Lists = std::map<const ifaddrs*, Entries>;
constinit Inherited<Lists> lists;

bool is_libfabric(const void* caller) {
  Dl_info info{};
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return false;
  const std::string_view path = info.dli_fname;
  return path.substr(path.rfind('/') + 1).starts_with("libfabric.so");
}

std::unique_ptr<Entry> entry_of(const verbs::DeviceDescription& device, const wire::Gid& gid) {
  auto entry = std::make_unique<Entry>();
  if (gid.is_ipv4()) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    std::memcpy(&address.sin_addr, gid.bytes.data() + gid.bytes.size() - sizeof address.sin_addr,
                sizeof address.sin_addr);
    std::memcpy(&entry->address, &address, sizeof address);
    std::memset(&address.sin_addr, 0xff, sizeof address.sin_addr);
    std::memcpy(&entry->mask, &address, sizeof address);
  } else {
    entry->address.sin6_family = AF_INET6;
    std::memcpy(&entry->address.sin6_addr, gid.bytes.data(), gid.bytes.size());
    entry->mask.sin6_family = AF_INET6;
    std::memset(&entry->mask.sin6_addr, 0xff, sizeof entry->mask.sin6_addr);
  }
  device.name.copy(entry->name.data(), entry->name.size() - 1);
  entry->listed.ifa_name = entry->name.data();
  entry->listed.ifa_flags = IFF_UP | IFF_RUNNING | IFF_MULTICAST;
  entry->listed.ifa_addr = reinterpret_cast<sockaddr*>(&entry->address);
  entry->listed.ifa_netmask = reinterpret_cast<sockaddr*>(&entry->mask);
  return entry;
}

Entries our_entries() {
  Entries entries;
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i) {
    const verbs::DeviceDescription& device = verbs::device_of(devices[i]).description;
    for (const wire::Gid& gid : device.gids) {
      constexpr uint8_t kLinkLocal = 0xfe;  // fe80::/10: unusable without a scope
      if (gid.is_ipv4() || gid.bytes[0] != kLinkLocal) entries.push_back(entry_of(device, gid));
    }
  }
  if (devices != nullptr) ibv_free_device_list(devices);
  return entries;
}

}  // namespace

}  // namespace faultline::abi

using namespace faultline::abi;

extern "C" int faultline_getifaddrs(ifaddrs** list) noexcept FAULTLINE_STANDS_BEFORE("getifaddrs");
int faultline_getifaddrs(ifaddrs** list) noexcept {
  if (const int result = next_getifaddrs(list); result != 0) return result;
  if (!is_libfabric(__builtin_return_address(0))) return 0;
  try {
    Entries entries = our_entries();
    if (entries.empty()) return 0;
    ifaddrs* next = *list;
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
      (*entry)->listed.ifa_next = next;
      next = &(*entry)->listed;
    }
    lists.access()->emplace(next, std::move(entries));
    *list = next;
  } catch (const std::bad_alloc&) {
    // The kernel's own entries are a complete list too.
  }
  return 0;
}

extern "C" void faultline_freeifaddrs(ifaddrs* list) noexcept FAULTLINE_STANDS_BEFORE("freeifaddrs");
void faultline_freeifaddrs(ifaddrs* list) noexcept {
  {
    const auto all = lists.access();
    if (const auto found = all->find(list); found != all->end()) {
      list = found->second.back()->listed.ifa_next;
      all->erase(found);
    }
  }
  next_freeifaddrs(list);
}
