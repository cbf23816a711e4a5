// SPDX-License-Identifier: BSD-3-Clause
// The C library's names that list network interfaces, in the drop-in. A program on a wire finds the wire's
// interface. libfabric finds a host's devices by binding an rdma_cm id to each address of getifaddrs(3): to
// it, each device without an interface is one.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <netpacket/packet.h>

#include "stack/abi/interfaces/own_interfaces.hpp"
#include "stack/abi/interpose/next_call.hpp"
#include "stack/abi/tree/interface_statistics.hpp"
#include "stack/abi/tree/known_devices.hpp"
#include "stack/base/process/inherited.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/wire/link/link.hpp"

namespace faultline::abi {

namespace {

NextCall<int(ifaddrs**)> next_getifaddrs("getifaddrs");
NextCall<void(ifaddrs*)> next_freeifaddrs("freeifaddrs");
NextCall<unsigned(const char*)> next_if_nametoindex("if_nametoindex");
NextCall<char*(unsigned, char*)> next_if_indextoname("if_indextoname");
NextCall<struct if_nameindex*()> next_if_nameindex("if_nameindex");

/// One address of an interface as an entry of the list.
struct Entry {
  ifaddrs listed{};
  std::array<char, IF_NAMESIZE> name{};
  union Address {
    sockaddr any;
    sockaddr_in ipv4;
    sockaddr_in6 ipv6;
    sockaddr_ll link;
  } address{}, mask{}, broadcast{};
  rtnl_link_stats statistics{};  ///< of an AF_PACKET address
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

Entry::Address address_of(const wire::Gid& gid) {
  Entry::Address address{};
  if (gid.is_ipv4()) {
    address.ipv4 = {.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(gid.ipv4())}, .sin_zero = {}};
  } else {
    address.ipv6.sin6_family = AF_INET6;
    std::memcpy(&address.ipv6.sin6_addr, gid.bytes.data(), gid.bytes.size());
  }
  return address;
}

std::unique_ptr<Entry> entry_of(const OwnInterface& interface) {
  auto entry = std::make_unique<Entry>();
  interface.name.copy(entry->name.data(), entry->name.size() - 1);
  entry->listed.ifa_name = entry->name.data();
  entry->listed.ifa_flags = flags_of(interface);
  return entry;
}

std::unique_ptr<Entry> link_entry(const OwnInterface& interface) {
  auto entry = entry_of(interface);
  sockaddr_ll& link = entry->address.link;
  link.sll_family = AF_PACKET;
  link.sll_ifindex = static_cast<int>(interface.index);
  link.sll_hatype = ARPHRD_ETHER;
  link.sll_halen = static_cast<uint8_t>(interface.mac.bytes.size());
  std::copy(interface.mac.bytes.begin(), interface.mac.bytes.end(), link.sll_addr);
  entry->broadcast.link = link;
  std::copy(kBroadcastMac.bytes.begin(), kBroadcastMac.bytes.end(), entry->broadcast.link.sll_addr);
  entry->listed.ifa_addr = &entry->address.any;
  entry->listed.ifa_broadaddr = &entry->broadcast.any;
  // getifaddrs(3): of this family, ifa_data is a struct rtnl_link_stats.
  entry->statistics =
      low_halves(interface_statistics(named_counters(counters_of_programs(interface.device))));
  entry->listed.ifa_data = &entry->statistics;
  return entry;
}

std::unique_ptr<Entry> address_entry(const OwnInterface& interface, const InterfaceAddress& own) {
  auto entry = entry_of(interface);
  wire::Gid ones;
  ones.bytes.fill(0xff);
  if (own.gid.is_ipv4()) ones = wire::Gid::from_ipv4(UINT32_MAX);
  const wire::Gid mask = masked(ones, own.prefix_bits);
  entry->address = address_of(own.gid);
  entry->mask = address_of(mask);
  if (wire::is_link_local(own.gid)) entry->address.ipv6.sin6_scope_id = interface.index;
  entry->listed.ifa_addr = &entry->address.any;
  entry->listed.ifa_netmask = &entry->mask.any;
  if (own.gid.is_ipv4()) {
    entry->broadcast = address_of(wire::Gid::from_ipv4(own.gid.ipv4() | ~mask.ipv4()));
    entry->listed.ifa_broadaddr = &entry->broadcast.any;
  }
  return entry;
}

Entries entries_of_interfaces() {
  Entries entries;
  const std::vector<OwnInterface> interfaces = own_interfaces();
  for (const OwnInterface& interface : interfaces) entries.push_back(link_entry(interface));
  for (const OwnInterface& interface : interfaces)
    for (const InterfaceAddress& own : interface.addresses) entries.push_back(address_entry(interface, own));
  return entries;
}

/// For libfabric, each device is an interface of its own name.
Entries entries_of_devices() {
  Entries entries;
  std::string error;
  const std::vector<verbs::DeviceDescription> descriptions = verbs::list_devices(error);
  for (const verbs::VerbsDevice* const device : verbs::visible_devices(descriptions)) {
    OwnInterface interface;
    interface.name = device->description.name;
    interface.is_up = true;
    for (const wire::Gid& gid : device->description.gids) {
      constexpr uint8_t kIpv4Bits = 32, kIpv6Bits = 128;
      // A link-local address is unusable without a scope.
      if (!wire::is_link_local(gid))
        entries.push_back(address_entry(interface, {gid, gid.is_ipv4() ? kIpv4Bits : kIpv6Bits}));
    }
  }
  return entries;
}

/// if_freenameindex() of glibc frees each name, and the list.
struct if_nameindex* with_own(struct if_nameindex* list, const std::vector<OwnInterface>& interfaces) {
  size_t count = 0;
  while (list[count].if_name != nullptr) ++count;
  void* const larger = std::realloc(list, (count + interfaces.size() + 1) * sizeof *list);
  if (larger == nullptr) return list;
  list = static_cast<struct if_nameindex*>(larger);
  for (const OwnInterface& own : interfaces) {
    char* const name = ::strdup(own.name.c_str());
    if (name != nullptr) list[count++] = {.if_index = own.index, .if_name = name};
  }
  list[count] = {};
  return list;
}

}  // namespace

}  // namespace faultline::abi

using namespace faultline::abi;

extern "C" {

int faultline_getifaddrs(ifaddrs** list) noexcept FAULTLINE_STANDS_BEFORE("getifaddrs");
int faultline_getifaddrs(ifaddrs** list) noexcept {
  if (const int result = next_getifaddrs(list); result != 0) return result;
  const bool shows_all = is_libfabric(__builtin_return_address(0));
  if (!shows_all && !shows_interfaces()) return 0;
  try {
    Entries entries = shows_all ? entries_of_devices() : entries_of_interfaces();
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

void faultline_freeifaddrs(ifaddrs* list) noexcept FAULTLINE_STANDS_BEFORE("freeifaddrs");
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

unsigned faultline_if_nametoindex(const char* name) noexcept FAULTLINE_STANDS_BEFORE("if_nametoindex");
unsigned faultline_if_nametoindex(const char* name) noexcept {
  const unsigned index = next_if_nametoindex(name);
  if (index != 0 || !shows_interfaces()) return index;
  try {
    for (const OwnInterface& own : own_interfaces())
      if (own.name == name) return own.index;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  }
  return 0;
}

char* faultline_if_indextoname(unsigned index, char* name) noexcept FAULTLINE_STANDS_BEFORE("if_indextoname");
char* faultline_if_indextoname(unsigned index, char* name) noexcept {
  char* const found = next_if_indextoname(index, name);
  if (found != nullptr || !shows_interfaces()) return found;
  try {
    for (const OwnInterface& own : own_interfaces())
      if (own.index == index) {
        *std::copy(own.name.begin(), own.name.end(), name) = '\0';
        return name;
      }
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  }
  return nullptr;
}

struct if_nameindex* faultline_if_nameindex() noexcept FAULTLINE_STANDS_BEFORE("if_nameindex");
struct if_nameindex* faultline_if_nameindex() noexcept {
  struct if_nameindex* const list = next_if_nameindex();
  if (list == nullptr || !shows_interfaces()) return list;
  try {
    return with_own(list, own_interfaces());
  } catch (const std::bad_alloc&) {
    return list;
  }
}

}  // extern "C"
