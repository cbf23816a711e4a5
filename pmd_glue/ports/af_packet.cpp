// SPDX-License-Identifier: BSD-3-Clause
// net_af_packet: packet sockets on a kernel interface, one for each core.
#include <algorithm>
#include <cstddef>

#include <spdlog/fmt/fmt.h>

#include "pmd_glue/config/port_kinds.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/ports/driver.hpp"
#include "pmd_glue/ports/host/interface_rights.hpp"
#include "pmd_glue/ports/host/packet_fanout.hpp"
#include "pmd_glue/ports/kernel_interface.hpp"
#include "stack/base/log.hpp"

namespace faultline::glue {
namespace {

// Enough for the windows of eight QPs. Frames beyond that are lost, and READ responses to many QPs arrive in
// one burst.
constexpr uint32_t kRingFrames = 2048;
// The PMD assumes contiguous frames, so a block must be a multiple of a frame and of a page.
constexpr uint32_t kBlockBytes = 8 * kBufferBytes;
static_assert(kBlockBytes % 4096 == 0);

class AfPacket final : public KernelInterfacePort {
  [[nodiscard]] std::optional<std::string> missing_rights() const override {
    return glue::missing_rights(name_of(PortKind::af_packet), false);
  }

  PortResult create(const PortSetup& setup) override {
    queue_pairs_ = static_cast<uint16_t>(cores_);
    ring_frames_ = packet_ring_frames(kRingFrames, kBufferBytes, queue_pairs_);
    const size_t wanted_bytes = size_t{2} * kRingFrames * kBufferBytes * queue_pairs_;
    if (ring_frames_ == 0) return PortFault{locked_memory_advice("its rings need", wanted_bytes)};
    if (ring_frames_ < kRingFrames)
      log().warn("{}: rings of {} frames in place of {}, so that bursts may lose packets: {}",
                 setup.device.name, ring_frames_, kRingFrames,
                 locked_memory_advice("its rings need", wanted_bytes));
    return KernelInterfacePort::create(setup);
  }

  [[nodiscard]] std::string vdev_arguments(const PortSetup& setup) const override {
    return fmt::format("iface={},qpairs={},framesz={},blocksz={},framecnt={}", setup.device.port.interface,
                       queue_pairs_, kBufferBytes, kBlockBytes, ring_frames_);
  }

  PortResult finish(const PortSetup& setup) override {
    if (auto fault = KernelInterfacePort::finish(setup)) return fault;
    earlier_drops_ = packet_socket_drops(interface_index_);
    frames_descriptors_ = packet_sockets_at(interface_index_);
    // Another port of this process may use the same interface: the newest sockets are this port's.
    const size_t others =
        frames_descriptors_.size() - std::min<size_t>(frames_descriptors_.size(), queue_pairs_);
    frames_descriptors_.erase(frames_descriptors_.begin(),
                              frames_descriptors_.begin() + static_cast<std::ptrdiff_t>(others));
    return {};
  }

  [[nodiscard]] uint64_t uncounted_drops() const override {
    return packet_socket_drops(interface_index_) - earlier_drops_;
  }

  uint32_t ring_frames_ = kRingFrames;
  uint64_t earlier_drops_ = 0;  ///< of an earlier port of this process at the interface
};

}  // namespace

const PortDriver kAfPacketDriver{
    .kind = PortKind::af_packet,
    .make = [](const PortSetup&) -> std::unique_ptr<DriverPort> { return std::make_unique<AfPacket>(); },
    .mtu_bytes = interface_port_mtu_bytes,
    .expects_link = interface_expects_link,
};

}  // namespace faultline::glue
