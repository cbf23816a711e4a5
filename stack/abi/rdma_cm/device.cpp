// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/rdma_cm/device.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include <endian.h>

#include "stack/verbs/device/address.hpp"
#include "stack/verbs/objects/limits.hpp"

namespace faultline::abi {

namespace {

using DeviceList = std::unique_ptr<ibv_device*[], void (*)(ibv_device**)>;

DeviceList list_devices(int& count) {
  return {ibv_get_device_list(&count), ibv_free_device_list};
}

unsigned common_bits(const wire::Gid& a, const wire::Gid& b) {
  unsigned bits = 0;
  for (size_t i = 0; i < a.bytes.size(); ++i) {
    const auto difference = static_cast<uint8_t>(a.bytes[i] ^ b.bytes[i]);
    bits += static_cast<unsigned>(std::countl_zero(difference));
    if (difference != 0) break;
  }
  return bits;
}

transport::PathMtu mtu_of(uint32_t bytes) {
  constexpr int kLogOf128 = 7;
  return static_cast<transport::PathMtu>(std::bit_width(bytes) - 1 - kLogOf128);
}

cm::ManagerConfig config_of(uint64_t guid_be) {
  cm::ManagerConfig config;
  // perftest's server creates a new listener between its parameter exchange and the measurement. Shorter than
  // the peer's retry interval.
  constexpr uint64_t kListenerPatienceNs = 40'000'000;
  config.ca_guid = be64toh(guid_be);
  config.listener_patience_ns = kListenerPatienceNs;
  return config;
}

}  // namespace

std::vector<LocalAddress> local_addresses() {
  int count = 0;
  const DeviceList devices = list_devices(count);
  std::vector<LocalAddress> addresses;
  for (int i = 0; i < count; ++i) {
    const verbs::DeviceDescription& description = verbs::device_of(devices[i]).description;
    const auto gids = static_cast<uint8_t>(std::min<size_t>(description.gids.size(), verbs::kGidTableLength));
    for (uint8_t index = 0; index < gids; ++index)
      addresses.push_back({description.name, index, description.gids[index]});
  }
  return addresses;
}

std::optional<LocalAddress> find_local(const wire::Gid& gid) {
  for (const LocalAddress& address : local_addresses())
    if (address.gid == gid) return address;
  return std::nullopt;
}

std::vector<LocalAddress> sources_for(const wire::Gid& destination) {
  std::vector<LocalAddress> sources = local_addresses();
  std::erase_if(sources,
                [&](const LocalAddress& source) { return source.gid.is_ipv4() != destination.is_ipv4(); });
  std::stable_sort(sources.begin(), sources.end(), [&](const LocalAddress& a, const LocalAddress& b) {
    return common_bits(a.gid, destination) > common_bits(b.gid, destination);
  });
  return sources;
}

CmDevice::CmDevice(std::shared_ptr<verbs::OpenDevice> engine, const ibv_device& device, Handlers handlers)
    : engine_(std::move(engine)),
      index_(ibv_get_device_index(const_cast<ibv_device*>(&device))),
      guid_be_(ibv_get_device_guid(const_cast<ibv_device*>(&device))),
      handlers_(std::move(handlers)),
      service_(std::make_unique<cm::Service>(engine_->backend, config_of(guid_be_), *this)) {
  engine_->add_listener(*this);
}

CmDevice::~CmDevice() {
  engine_->remove_listener(*this);
}

const verbs::DeviceDescription& CmDevice::description() const {
  return engine_->backend->description();
}

bool CmDevice::wants_reasons() const {
  return engine_->backend->wants_reasons();
}

void CmDevice::log_reason(const std::string& line) {
  engine_->backend->log_reason(line);
}

void CmDevice::note_failure(status::FailureCause cause, const wire::Gid& peer, uint8_t reason) {
  status::FailureRecord record;
  record.cause = cause;
  record.peer_gid = peer.bytes;
  record.syndrome = reason;
  engine_->backend->note_failure(record);
}

uint8_t CmDevice::gid_index(const wire::Gid& gid) const {
  const std::vector<wire::Gid>& gids = description().gids;
  const auto at = std::find(gids.begin(), gids.end(), gid);
  return at == gids.end() ? 0 : static_cast<uint8_t>(at - gids.begin());
}

int CmDevice::find_path(uint8_t source_index, const wire::Gid& destination, uint8_t traffic_class,
                        cm::Path& path) {
  ibv_ah_attr attributes{};
  std::memcpy(attributes.grh.dgid.raw, destination.bytes.data(), sizeof attributes.grh.dgid.raw);
  attributes.grh.sgid_index = source_index;
  attributes.grh.traffic_class = traffic_class;
  attributes.grh.hop_limit = verbs::kDefaultHopLimit;
  attributes.is_global = 1;
  attributes.port_num = verbs::kPortNumber;
  path.mtu = mtu_of(description().max_path_mtu_bytes);
  return verbs::make_address_vector(*engine_->backend, attributes, path.av);
}

std::shared_ptr<CmDevice> CmDevices::open(const std::string& name) {
  const std::lock_guard lock(mutex_);
  for (const auto& device : open_)
    if (device->description().name == name) return device;
  if (auto device = known_[name].lock()) {
    open_.push_back(device);
    return device;
  }
  int count = 0;
  const DeviceList devices = list_devices(count);
  for (int i = 0; i < count; ++i) {
    if (name != devices[i]->name) continue;
    std::string error;
    auto engine = verbs::join_engine(name, error);
    if (engine == nullptr) {
      verbs::set_last_error(std::move(error));
      return nullptr;
    }
    open_.push_back(std::make_shared<CmDevice>(std::move(engine), *devices[i], handlers_));
    known_[name] = open_.back();
    return open_.back();
  }
  return nullptr;
}

void CmDevices::close(const std::function<bool()>& unused) {
  const std::lock_guard lock(mutex_);
  if (unused()) open_.clear();
}

void CmDevices::release(std::shared_ptr<CmDevice> device) {
  const std::lock_guard lock(mutex_);
  device.reset();
}

}  // namespace faultline::abi
