// SPDX-License-Identifier: BSD-3-Clause
// A device as rdma_cm sees it: the addresses it may be bound to, and its communication manager.
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

/// Where one of the device's own addresses is.
struct LocalAddress {
  std::string device;
  uint8_t gid_index = 0;
  wire::Gid gid;
};

/// All addresses of all devices. Starts nothing.
[[nodiscard]] std::vector<LocalAddress> local_addresses();
/// The device that has the address.
[[nodiscard]] std::optional<LocalAddress> find_local(const wire::Gid& gid);

/// Those from which `destination` may be reached, the likeliest first: the address itself, then those that
/// have most of their leading bits in common (RFC 6724, rule 8).
[[nodiscard]] std::vector<LocalAddress> sources_for(const wire::Gid& destination);

class CmDevice final : public cm::EventHandler, private verbs::RemovalListener {
 public:
  struct Handlers {
    std::function<void(CmDevice&, const cm::Event&)> connection;
    std::function<void(int index)> removed;  ///< on an engine's thread
  };

  CmDevice(std::shared_ptr<verbs::Engine> engine, const ibv_device& device, Handlers handlers);
  ~CmDevice() override;
  CmDevice(const CmDevice&) = delete;
  CmDevice& operator=(const CmDevice&) = delete;

  void on_cm_event(const cm::Event& event) override { handlers_.connection(*this, event); }

  [[nodiscard]] cm::Service& service() { return *service_; }
  [[nodiscard]] const verbs::DeviceDescription& description() const;
  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] uint64_t guid_be() const { return guid_be_; }
  /// As of verbs::DeviceBackend.
  [[nodiscard]] bool wants_reasons() const;
  void log_reason(const std::string& line);
  /// 0 where it is none of its own.
  [[nodiscard]] uint8_t gid_index(const wire::Gid& gid) const;

  /// The way from one of its addresses to another host: 0, or ENETUNREACH, EHOSTUNREACH, EINVAL. Blocks while
  /// the neighbour is asked.
  [[nodiscard]] int find_path(uint8_t source_index, const wire::Gid& destination, uint8_t traffic_class,
                              cm::Path& path);

 private:
  void on_device_removed() override { handlers_.removed(index_); }

  const std::shared_ptr<verbs::Engine> engine_;
  const int index_;
  const uint64_t guid_be_;
  const Handlers handlers_;
  std::unique_ptr<cm::Service> service_;  ///< last: it calls the handler until it is gone
};

/// The devices in use, each started when it is first needed.
class CmDevices {
 public:
  explicit CmDevices(CmDevice::Handlers handlers) : handlers_(std::move(handlers)) {}

  /// nullptr where it cannot be started; the reason is faultline_last_error()'s.
  [[nodiscard]] std::shared_ptr<CmDevice> open(const std::string& name);
  /// Ends them, if `unused` says that nobody can be using one: it is asked when nobody can begin to.
  void close(const std::function<bool()>& unused);
  /// What a background task has held on to: it may be the last that does.
  void release(std::shared_ptr<CmDevice> device);

 private:
  /// Held while a device starts or ends: one that is being ended must not be started again meanwhile. Never
  /// waited for with a lock that a device's handler takes.
  std::mutex mutex_;
  const CmDevice::Handlers handlers_;
  std::vector<std::shared_ptr<CmDevice>> open_;
  std::map<std::string, std::weak_ptr<CmDevice>> known_;  ///< a background task may hold one that was closed
};

}  // namespace faultline::abi
