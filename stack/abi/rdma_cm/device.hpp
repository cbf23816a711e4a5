// SPDX-License-Identifier: BSD-3-Clause
// A device as rdma_cm uses it: the addresses that an identifier may be bound to, and its connection manager.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stack/cm/service.hpp"
#include "stack/verbs/objects/objects.hpp"

namespace faultline::abi {

class CmDevice;

/// Location of one of the devices' own addresses.
struct LocalAddress {
  std::string device;
  uint8_t gid_index = 0;
  wire::Gid gid;
};

/// Returns all addresses of all devices. Starts no device.
[[nodiscard]] std::vector<LocalAddress> local_addresses();
/// Returns the device that has the address.
[[nodiscard]] std::optional<LocalAddress> find_local(const wire::Gid& gid);

/// Returns the local addresses from which `destination` is reachable, best first: the address itself, then
/// those with the longest common prefix (RFC 6724, rule 8).
[[nodiscard]] std::vector<LocalAddress> sources_for(const wire::Gid& destination);

class CmDevice final : public cm::EventHandler, private verbs::RemovalListener {
 public:
  struct Handlers {
    std::function<void(CmDevice&, const cm::Event&)> connection;
    std::function<void(int index)> removed;  ///< on an engine's thread
  };

  CmDevice(std::shared_ptr<verbs::OpenDevice> engine, const ibv_device& device, Handlers handlers);
  ~CmDevice() override;
  CmDevice(const CmDevice&) = delete;
  CmDevice& operator=(const CmDevice&) = delete;

  void on_cm_event(const cm::Event& event) override { handlers_.connection(*this, event); }

  [[nodiscard]] cm::Service& service() { return *service_; }
  [[nodiscard]] const verbs::DeviceDescription& description() const;
  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] uint64_t guid_be() const { return guid_be_; }
  /// As in verbs::DeviceBackend.
  [[nodiscard]] bool wants_reasons() const;
  void log_reason(const std::string& line);
  void note_failure(status::FailureCause cause, const wire::Gid& peer, uint8_t reason);
  /// As in verbs::DeviceBackend.
  [[nodiscard]] status::SegmentWriter* status() const { return engine_->backend->status(); }
  [[nodiscard]] TimeNs now() const { return engine_->backend->now(); }
  /// Returns 0 if `gid` is not the device's.
  [[nodiscard]] uint8_t gid_index(const wire::Gid& gid) const;

  /// Resolves the path from one of the device's addresses to another host. Returns 0, ENETUNREACH,
  /// EHOSTUNREACH or EINVAL. Blocks during neighbour resolution.
  [[nodiscard]] int find_path(uint8_t source_index, const wire::Gid& destination, uint8_t traffic_class,
                              cm::Path& path);

 private:
  void on_device_removed() override { handlers_.removed(index_); }

  const std::shared_ptr<verbs::OpenDevice> engine_;
  const int index_;
  const uint64_t guid_be_;
  const Handlers handlers_;
  std::unique_ptr<cm::Service> service_;  ///< declared last: it calls the handler until destroyed
};

/// The devices in use, each started on first use.
class CmDevices {
 public:
  explicit CmDevices(CmDevice::Handlers handlers) : handlers_(std::move(handlers)) {}

  /// Returns nullptr if the device cannot be started; faultline_last_error() has the reason.
  [[nodiscard]] std::shared_ptr<CmDevice> open(const std::string& name);
  /// Closes the devices if `unused` returns true. It is called while no thread can begin to use one.
  void close(const std::function<bool()>& unused);
  /// Releases a background task's reference, which may be the last one.
  void release(std::shared_ptr<CmDevice> device);

 private:
  /// Held while a device starts or ends, so that a device is not started again while it ends. Never taken
  /// while holding a lock that a device's handler takes.
  std::mutex mutex_;
  const CmDevice::Handlers handlers_;
  std::vector<std::shared_ptr<CmDevice>> open_;
  std::map<std::string, std::weak_ptr<CmDevice>> known_;  ///< a background task may hold one that was closed
};

}  // namespace faultline::abi
