// SPDX-License-Identifier: BSD-3-Clause
// The interface that verbs requires from the lower layer: devices from the configuration, and a running
// device with its port and engine. pmd_glue/ (or a test) defines the functions at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "odp/regions/memory_domain.hpp"
#include "stack/record/ring_writer.hpp"
#include "stack/status/failure.hpp"
#include "stack/status/segment_writer.hpp"
#include "stack/transport/core/core.hpp"
#include "stack/verbs/objects/port_counters.hpp"

namespace faultline::verbs {

/// A network, with its prefix counted in a GID's 128 bits (IPv4: 96 more), and the gateway to it.
struct DeviceRoute {
  wire::Gid to;
  uint8_t prefix_bits = 0;
  wire::Gid via;
  friend bool operator==(const DeviceRoute&, const DeviceRoute&) = default;
};

/// Properties of a device that are known before it runs; enough for ibv_get_device_list.
struct DeviceDescription {
  std::string name;      ///< "faultline0"
  wire::MacAddress mac;  ///< the GUID derives from it (EUI-64)
  std::vector<wire::Gid> gids;
  std::vector<uint8_t> prefix_bits;  ///< of the network of each of `gids`, as in DeviceRoute
  std::vector<DeviceRoute> routes;
  uint32_t mtu_bytes = 0;              ///< of the port: the largest IP packet
  uint32_t max_path_mtu_bytes = 4096;  ///< 256..4096: limited by the port's MTU
  uint32_t vendor_id = 0xffffff;       ///< of Linux's rxe: no program takes it for an adapter that it knows
  uint32_t vendor_part_id = 0;
  std::string firmware;              ///< ibv_device_attr::fw_ver; empty: the library's version
  uint8_t active_width_code = 2;     ///< ibv_port_attr::active_width: 4 lanes
  uint8_t active_speed_code = 32;    ///< ibv_port_attr::active_speed: EDR, 25 Gb/s per lane
  uint64_t device_memory_bytes = 0;  ///< ibv_alloc_dm; limit per process
  /// The VLAN of all frames, and the defaults for an address handle whose SL or traffic class is 0.
  std::optional<uint16_t> vlan_id;
  uint8_t vlan_priority = 0;
  uint8_t traffic_class = 0;
  /// The bits of this process's communication IDs at which the mask is zero. They distinguish processes that
  /// share one address.
  uint32_t communication_id_base = 0;
  uint32_t communication_id_mask = 0xffffffff;
};

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  [[nodiscard]] virtual const DeviceDescription& description() const = 0;
  [[nodiscard]] virtual odp::MemoryDomain& memory() = 0;
  /// Number of cores that share the device's QPs. transport::owner_of maps a QPN to the core that owns the
  /// QP.
  [[nodiscard]] virtual uint32_t core_count() const { return 1; }
  [[nodiscard]] virtual transport::Core& core(uint32_t index) = 0;
  [[nodiscard]] transport::Core& core() { return core(0); }

  /// Runs `function(argument)` on a core's owner thread, between turns; returns when it has run.
  virtual void call(uint32_t core_index, void (*function)(void*), void* argument) = 0;
  void call(void (*function)(void*), void* argument) { call(0, function, argument); }

  /// Runs one engine turn on the caller's thread if progress is inline; does nothing if an lcore polls.
  virtual void drive() = 0;
  /// Runs one engine turn on every core, whichever threads run the others; waits for turns under way.
  virtual void run_turns() { drive(); }
  /// Transmits the QP's posted work at once, if the caller's thread drives the engine and little else is
  /// outstanding. False: the caller must ring the doorbell.
  [[nodiscard]] virtual bool serve_posted(uint32_t core_index, transport::QueuePair* qp) {
    static_cast<void>(core_index);
    static_cast<void>(qp);
    return false;
  }
  /// The program is about to wait for an event. The device makes progress by itself until the program drives
  /// it again.
  virtual void rest() = 0;

  /// Resolves the MAC address for frames to a GID: the destination's, its gateway's or its multicast group's.
  /// Returns 0, ENETUNREACH if no network or route matches, or EHOSTUNREACH if no neighbour has answered for
  /// 10 s. Blocks.
  [[nodiscard]] virtual int resolve(const wire::Gid& gid, wire::MacAddress& mac) = 0;

  /// Starts or stops reception of frames to a multicast address. Returns 0 or an errno. Joins are counted.
  [[nodiscard]] virtual int join_multicast(const wire::Gid& gid) = 0;
  virtual void leave_multicast(const wire::Gid& gid) = 0;

  /// Directs connection requests for a service to this process, of all processes that share the address.
  /// Returns 0, EADDRINUSE if another process has claimed it, or another errno. Any thread.
  [[nodiscard]] virtual int claim_service(uint64_t service_id) {
    static_cast<void>(service_id);
    return 0;
  }
  virtual void release_service(uint64_t service_id) { static_cast<void>(service_id); }

  /// The clock that drives the cores. Any thread.
  [[nodiscard]] virtual TimeNs now() = 0;

  [[nodiscard]] virtual bool link_up() = 0;
  [[nodiscard]] virtual PortCounters port_counters() = 0;
  /// Sets the sink of the cores' events, before any QP exists.
  virtual void set_event_sink(transport::EventSink* sink) = 0;

  /// Where the device's objects are published for other processes; nullptr: nowhere. Valid as long as the
  /// device.
  [[nodiscard]] virtual status::SegmentWriter* status() { return nullptr; }

  /// Where control calls are recorded; nullptr: nowhere. Valid as long as the device.
  [[nodiscard]] virtual record::ControlWriter* controls() { return nullptr; }

  /// Copies the newest failure of a QP since a time. Returns false if there is none. Any thread.
  [[nodiscard]] virtual bool last_failure(uint32_t core_index, uint32_t qpn, TimeNs since,
                                          status::FailureRecord& record) {
    static_cast<void>(core_index);
    static_cast<void>(qpn);
    static_cast<void>(since);
    static_cast<void>(record);
    return false;
  }

  /// Adds a record that is not of a QP: of a connection or an address. Sets its time. Any thread.
  virtual void note_failure(status::FailureRecord record) { static_cast<void>(record); }

  /// Whether the log accepts reasons (level debug): each refused or failed call then logs one line.
  [[nodiscard]] virtual bool wants_reasons() const { return false; }
  /// Logs one reason, without a newline; rate-limited. Any thread, but not the data path.
  virtual void log_reason(const std::string& line) { static_cast<void>(line); }

  /// faultline_measure_port_tx and _rx: packets per second of the raw port, or a negative errno value.
  [[nodiscard]] virtual double measure_port_tx(size_t frame_bytes, unsigned milliseconds) = 0;
  [[nodiscard]] virtual double measure_port_rx(unsigned milliseconds) = 0;
};

/// Returns the devices of the configuration ($FAULTLINE_CONFIG, or the file given to faultline_configure). On
/// an invalid configuration returns an empty list and one line in `error`.
[[nodiscard]] std::vector<DeviceDescription> list_devices(std::string& error);

/// Predicts link_up() for a device that is not running, from whether its port exists already.
[[nodiscard]] bool expects_link(const std::string& name);

/// Starts the named device (EAL, port, engine), or joins it if it runs in this process. On failure returns
/// nullptr and one line in `error`.
[[nodiscard]] std::shared_ptr<DeviceBackend> open_device(const std::string& name, std::string& error);

/// faultline_measure_copy_crc: GB/s of the engine's own copy and CRC over pieces of `bytes` bytes, hot in
/// cache.
[[nodiscard]] double measure_copy_crc(size_t bytes, unsigned milliseconds);

/// Sets this process's configuration file, instead of $FAULTLINE_CONFIG; call before anything else.
void configure(const std::string& path);

}  // namespace faultline::verbs
