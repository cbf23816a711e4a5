// SPDX-License-Identifier: BSD-3-Clause
// net_af_xdp: an XDP socket on a kernel interface.
#include <algorithm>

#include <bpf/libbpf.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <spdlog/fmt/fmt.h>
#include <xdp/libxdp.h>

#include "pmd_glue/config/port_kinds.hpp"
#include "pmd_glue/ports/driver.hpp"
#include "pmd_glue/ports/host/interface_rights.hpp"
#include "pmd_glue/ports/kernel_interface.hpp"

namespace faultline::glue {
namespace {

// AF_XDP stores a frame in one page-sized chunk, after the mempool's and the kernel's headroom (net_af_xdp's
// eth_dev_info).
constexpr uint32_t kPageBytes = 4096;
// The mempool spreads objects over memory channels: it pads an object of exactly one page by a cache line
// (rte_mempool.c, optimize_object_size). The kernel refuses chunks beyond a page (EINVAL).
constexpr uint32_t kSpreadBytes = 64;
constexpr uint32_t kObjectHeaderBytes = RTE_CACHE_LINE_SIZE;
static_assert(sizeof(rte_mempool_objhdr) <= kObjectHeaderBytes);
constexpr uint32_t kHeadroomBytes = 256;
constexpr uint32_t kChunkBytes =
    kPageBytes - kSpreadBytes - kObjectHeaderBytes - sizeof(rte_mbuf) - RTE_PKTMBUF_HEADROOM - kHeadroomBytes;
constexpr uint32_t kMostMtuBytes = kChunkBytes - RTE_ETHER_HDR_LEN - RTE_ETHER_CRC_LEN - RTE_VLAN_HLEN;

class AfXdp final : public KernelInterfacePort {
  [[nodiscard]] std::optional<std::string> missing_rights() const override {
    return glue::missing_rights(name_of(PortKind::af_xdp), true);
  }

  PortResult create(const PortSetup& setup) override {
    // Silences both libraries, which print their attempts; the port's error has the reason.
    libbpf_set_print(nullptr);
    libxdp_set_print(nullptr);
    return KernelInterfacePort::create(setup);
  }

  [[nodiscard]] std::string vdev_arguments(const PortSetup& setup) const override {
    return fmt::format("iface={}", setup.device.port.interface);
  }

  // A separate pool, since the chunks are pages.
  rte_mempool* make_pool(const PortSetup& setup, PortResult& fault) override {
    if (KernelInterfacePort::make_pool(setup, fault) == nullptr) return nullptr;
    const std::string name = fmt::format("fl_xdp_{}", setup.device.name);
    if (rte_mempool* const pool = rte_mempool_lookup(name.c_str())) return pool;
    rte_mempool* const pool = rte_pktmbuf_pool_create(
        name.c_str(), 8191, 256, 0,
        static_cast<uint16_t>(kChunkBytes + kHeadroomBytes + RTE_PKTMBUF_HEADROOM), SOCKET_ID_ANY);
    if (pool == nullptr) fault = PortFault{"no memory for AF_XDP's buffers; raise eal.memory_mib"};
    return pool;
  }
};

}  // namespace

const PortDriver kAfXdpDriver{
    .kind = PortKind::af_xdp,
    .make = [](const PortSetup&) -> std::unique_ptr<DriverPort> { return std::make_unique<AfXdp>(); },
    .mtu_bytes =
        [](const DeviceConfig& device) { return std::min(kMostMtuBytes, interface_port_mtu_bytes(device)); },
    .expects_link = interface_expects_link,
};

}  // namespace faultline::glue
