// SPDX-License-Identifier: BSD-3-Clause
// What verbs asks of the world below it: devices from the configuration, and a running one with its port and
// engine. The functions at the end are defined by pmd_glue/ (or by a test).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "odp/regions/memory_domain.hpp"
#include "stack/transport/core/core.hpp"
#include "stack/verbs/objects/port_counters.hpp"

namespace faultline::verbs {

/// What is known of a device before it runs: enough for ibv_get_device_list.
struct DeviceDescription {
  std::string name;      ///< "faultline0"
  wire::MacAddress mac;  ///< the GUID is made from it (EUI-64)
  std::vector<wire::Gid> gids;
  uint32_t max_path_mtu_bytes = 4096;  ///< 256..4096: what the port's MTU can carry
  uint32_t vendor_id = 0x02c9;
  uint32_t vendor_part_id = 0;
  uint8_t active_width_code = 2;     ///< ibv_port_attr::active_width: 4 lanes
  uint8_t active_speed_code = 32;    ///< ibv_port_attr::active_speed: EDR, 25 Gb/s a lane
  uint64_t device_memory_bytes = 0;  ///< ibv_alloc_dm; each process has as much
  /// The VLAN of all its frames, and what an address handle that leaves SL or traffic class 0 gets.
  std::optional<uint16_t> vlan_id;
  uint8_t vlan_priority = 0;
  uint8_t traffic_class = 0;
  /// Communication IDs of this process: `base` where the mask has zeros. Processes that share one address
  /// have different ones.
  uint32_t communication_id_base = 0;
  uint32_t communication_id_mask = 0xffffffff;
};

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  [[nodiscard]] virtual const DeviceDescription& description() const = 0;
  [[nodiscard]] virtual odp::MemoryDomain& memory() = 0;
  /// How many cores share the device's QPs, and one of them; a QP's owner is transport::owner_of its number.
  [[nodiscard]] virtual uint32_t core_count() const { return 1; }
  [[nodiscard]] virtual transport::Core& core(uint32_t index) = 0;
  [[nodiscard]] transport::Core& core() { return core(0); }

  /// Runs `function(argument)` on a core's owner thread, between turns, and returns when it has run.
  virtual void call(uint32_t core_index, void (*function)(void*), void* argument) = 0;
  void call(void (*function)(void*), void* argument) { call(0, function, argument); }

  /// One engine turn on the caller's thread where progress is inline; nothing where an lcore polls.
  virtual void drive() = 0;
  /// Sends what was posted to the QP at once, where the caller's thread is the one that drives and has little
  /// else under way; false: the doorbell has to be rung.
  [[nodiscard]] virtual bool send_now(uint32_t core_index, transport::QueuePair* qp) {
    static_cast<void>(core_index);
    static_cast<void>(qp);
    return false;
  }
  /// The program is about to wait for an event: until it drives again, the device drives itself.
  virtual void rest() = 0;

  /// The MAC address that frames to a GID need, its own, its gateway's or its group's: 0, ENETUNREACH where
  /// no network or route holds it, or EHOSTUNREACH when neighbour resolution timed out. Blocks.
  [[nodiscard]] virtual int resolve(const wire::Gid& gid, wire::MacAddress& mac) = 0;

  /// Frames to a multicast address reach the cores from now on, or no more: 0 or an errno. Joins are counted.
  [[nodiscard]] virtual int join_multicast(const wire::Gid& gid) = 0;
  virtual void leave_multicast(const wire::Gid& gid) = 0;

  /// Connection requests for a service come to this process, of those that share the address: 0, EADDRINUSE
  /// where another has it, or another errno. Any thread.
  [[nodiscard]] virtual int claim_service(uint64_t service_id) {
    static_cast<void>(service_id);
    return 0;
  }
  virtual void release_service(uint64_t service_id) { static_cast<void>(service_id); }

  /// The clock that drives the cores. Any thread.
  [[nodiscard]] virtual TimeNs now() = 0;

  [[nodiscard]] virtual bool link_up() = 0;
  [[nodiscard]] virtual PortCounters port_counters() = 0;
  /// Sets where the core's events go, before any QP exists.
  virtual void set_event_sink(transport::EventSink* sink) = 0;

  /// Whether the log takes reasons (level debug): what was refused or failed then has a line.
  [[nodiscard]] virtual bool wants_reasons() const { return false; }
  /// Writes one of them, without a newline; at most so many a second. Any thread, not the data path.
  virtual void log_reason(const std::string& line) { static_cast<void>(line); }

  /// faultline_measure_port_tx and _rx: packets per second of the bare port, or a negative errno value.
  [[nodiscard]] virtual double measure_port_tx(size_t frame_bytes, unsigned milliseconds) = 0;
  [[nodiscard]] virtual double measure_port_rx(unsigned milliseconds) = 0;
};

/// Devices of the configuration ($FAULTLINE_CONFIG, or what faultline_configure was given). On a bad
/// configuration returns an empty list and one line in `error`.
[[nodiscard]] std::vector<DeviceDescription> list_devices(std::string& error);

/// What link_up() will say of a device that does not run, as far as its port exists already.
[[nodiscard]] bool expects_link(const std::string& name);

/// Starts (EAL, port, engine) or joins the running device of that name in this process. nullptr and one line
/// in `error`.
[[nodiscard]] std::shared_ptr<DeviceBackend> open_device(const std::string& name, std::string& error);

/// faultline_measure_copy_crc: GB/s of the engine's own copy and CRC over `bytes` long pieces, hot in cache.
[[nodiscard]] double measure_copy_crc(size_t bytes, unsigned milliseconds);

/// Sets the configuration file for this process, instead of $FAULTLINE_CONFIG; call before anything else.
void configure(const std::string& path);

}  // namespace faultline::verbs
