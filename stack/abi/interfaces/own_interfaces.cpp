// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/interfaces/own_interfaces.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "stack/abi/interpose/next_call.hpp"
#include "stack/base/process/errno_kept.hpp"
#include "stack/verbs/objects/objects.hpp"

namespace faultline::abi {
namespace {

// The names of stack/abi/interface_calls would list our interfaces too.
NextCall<int(ifaddrs**)> next_hosts_getifaddrs("getifaddrs");
NextCall<void(ifaddrs*)> next_hosts_freeifaddrs("freeifaddrs");

/// Set while the devices are listed. A device may ask for the host's interfaces then: those are the kernel's.
thread_local bool g_listing = false;

class Listing {
 public:
  Listing() { g_listing = true; }
  ~Listing() { g_listing = false; }
  Listing(const Listing&) = delete;
  Listing& operator=(const Listing&) = delete;
};

}  // namespace

bool shows_interfaces() {
  const char* const wanted = secure_getenv("FAULTLINE_WIRE_INTERFACE");
  return secure_getenv("FAULTLINE_WIRE") != nullptr && (wanted == nullptr || std::strcmp(wanted, "off") != 0);
}

HostInterfaces::HostInterfaces() {
  if (next_hosts_getifaddrs(&first_) != 0) first_ = nullptr;
}
HostInterfaces::~HostInterfaces() {
  if (first_ != nullptr) next_hosts_freeifaddrs(first_);
}

std::vector<OwnInterface> own_interfaces() {
  std::vector<OwnInterface> interfaces;
  if (g_listing || !shows_interfaces()) return interfaces;
  const Listing listing;
  const ErrnoKept kept;
  const HostInterfaces hosts;
  std::string error;
  const std::vector<verbs::DeviceDescription> descriptions = verbs::list_devices(error);
  for (const verbs::VerbsDevice* const listed : verbs::visible_devices(descriptions)) {
    const verbs::VerbsDevice& device = *listed;
    const auto engine = verbs::running_engine(device.description.name);
    const ibv_port_attr port = verbs::describe_port(device.description, engine.get());
    if (auto own = interface_of(device.description, device.index, port, hosts.first()))
      interfaces.push_back(std::move(*own));
  }
  return interfaces;
}

bool is_own_interface(std::string_view name) {
  if (!shows_interfaces()) return false;
  const std::vector<OwnInterface> interfaces = own_interfaces();
  return std::ranges::find(interfaces, name, &OwnInterface::name) != interfaces.end();
}

}  // namespace faultline::abi
