// SPDX-License-Identifier: BSD-3-Clause
// Queries of device, port, GID and P_Key attributes. No query starts the engine, except query_rt_values.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include <endian.h>
#include <ifaddrs.h>
#include <net/if.h>

#include "stack/verbs/device/address.hpp"
#include "stack/verbs/device/host_interface.hpp"
#include "stack/verbs/device/port_speed.hpp"
#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

namespace {

// From newer versions of rdma-core (IB_UVERBS_DEVICE_FLUSH_GLOBAL, _ATOMIC_WRITE). Persistent flush is not
// reported, since no region persists across a power loss.
constexpr uint64_t kCapFlushGlobal = uint64_t{1} << 38;
constexpr uint64_t kCapAtomicWrite = uint64_t{1} << 40;
// From newer versions, too: IBV_ODP_SUPPORT_FLUSH, _ATOMIC_WRITE.
constexpr uint32_t kOdpFlush = 1U << 6;
constexpr uint32_t kOdpAtomicWrite = 1U << 7;
constexpr unsigned kCapFlags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID |
                               IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_PORT_ACTIVE_EVENT |
                               IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
                               IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_XRC;

ibv_mtu mtu_of(uint32_t bytes) {
  // 256 maps to 1; each doubling adds one.
  constexpr int kLogOf128 = 7;
  return static_cast<ibv_mtu>(std::bit_width(bytes) - 1 - kLogOf128);
}

ibv_device_attr device_attributes(ibv_context* context) {
  const DeviceDescription& description = description_of(context_of(context));
  ibv_device_attr result{};
  std::snprintf(result.fw_ver, sizeof result.fw_ver, "%s", firmware_of(description).c_str());
  result.node_guid = ibv_get_device_guid(context->device);
  result.sys_image_guid = result.node_guid;
  result.max_mr_size = kMaxMrBytes;
  result.page_size_cap = 0xfffff000U;
  result.vendor_id = description.vendor_id;
  result.vendor_part_id = description.vendor_part_id;
  result.max_qp = kMaxQps;
  result.max_qp_wr = kMaxQpWr;
  result.device_cap_flags = kCapFlags;
  result.max_sge = kMaxSge;
  result.max_sge_rd = kMaxSge;
  result.max_cq = kMaxCqs;
  result.max_cqe = kMaxCqe;
  result.max_mr = kMaxMrs;
  result.max_pd = kMaxPds;
  result.max_qp_rd_atom = kMaxRdAtomic;
  result.max_res_rd_atom = static_cast<int>(kMaxRdAtomic * kMaxQps);
  result.max_qp_init_rd_atom = kMaxRdAtomic;
  result.atomic_cap = IBV_ATOMIC_GLOB;  // executed by the CPU's atomic instructions
  result.max_mw = kMaxMws;
  result.max_mcast_grp = kMaxMulticastGroups;
  result.max_mcast_qp_attach = kMaxQpsPerMulticastGroup;
  result.max_total_mcast_qp_attach = kMaxMulticastGroups * kMaxQpsPerMulticastGroup;
  result.max_ah = kMaxAhs;
  result.max_srq = kMaxSrqs;
  result.max_srq_wr = kMaxSrqWr;
  result.max_srq_sge = kMaxSge;
  result.max_pkeys = kPkeyTableLength;
  result.phys_port_cnt = 1;
  return result;
}

}  // namespace

std::string firmware_of(const DeviceDescription& description) {
  return description.firmware.empty() ? FAULTLINE_VERSION : description.firmware;
}

uint64_t device_capabilities() {
  return kCapFlags | kCapFlushGlobal | kCapAtomicWrite;
}

ibv_port_attr describe_port(const DeviceDescription& description, OpenDevice* engine) {
  constexpr uint8_t kPhysicalLinkUp = 5;
  constexpr uint8_t kPhysicalDisabled = 3;
  // The port is started with the engine, by the first object.
  const bool up = (engine == nullptr ? expects_link(description.name) : engine->backend->link_up()) &&
                  !is_link_in_trouble(description.name);
  ibv_port_attr result{};
  result.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  result.max_mtu = mtu_of(description.max_path_mtu_bytes);
  result.active_mtu = result.max_mtu;
  result.gid_tbl_len = kGidTableLength;
  result.port_cap_flags = IBV_PORT_IP_BASED_GIDS;
  result.max_msg_sz = static_cast<uint32_t>(kMaxMessageBytes);
  result.pkey_tbl_len = kPkeyTableLength;
  result.max_vl_num = 1;
  result.active_width = description.active_width_code;
  result.active_speed = description.active_speed_code;
  result.phys_state = up ? kPhysicalLinkUp : kPhysicalDisabled;
  result.link_layer = IBV_LINK_LAYER_ETHERNET;
  result.flags = IBV_QPF_GRH_REQUIRED;
  return result;
}

namespace {

/// Copies as much of `from` as fits into the struct of a caller built against an older header.
template <typename Attributes>
void copy_known(void* to, const Attributes& from, size_t length_bytes) {
  const size_t known_bytes = std::min(length_bytes, sizeof from);
  std::memcpy(to, &from, known_bytes);
  std::memset(static_cast<uint8_t*>(to) + known_bytes, 0, length_bytes - known_bytes);
}

ibv_gid to_ibv(const wire::Gid& gid) {
  ibv_gid result;
  std::memcpy(result.raw, gid.bytes.data(), sizeof result.raw);
  return result;
}

/// Returns the index of the network interface that has one of the device's addresses; 0 if there is none.
uint32_t interface_index_of(const DeviceDescription& description) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return 0;
  const char* const name = interface_with(description.gids, list);
  const uint32_t index = name == nullptr ? 0 : if_nametoindex(name);
  freeifaddrs(list);
  return index;
}

ibv_gid_entry gid_entry(const DeviceDescription& description, uint32_t index, uint32_t interface_index) {
  ibv_gid_entry entry{};
  entry.gid = to_ibv(description.gids[index]);
  entry.gid_index = index;
  entry.port_num = kPortNumber;
  entry.gid_type = IBV_GID_TYPE_ROCE_V2;
  entry.ndev_ifindex = interface_index;
  return entry;
}

uint32_t gid_count(const DeviceDescription& description) {
  return static_cast<uint32_t>(std::min<size_t>(description.gids.size(), kGidTableLength));
}

}  // namespace

FAULTLINE_VERB int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  if (!is_live(context) || attributes == nullptr) return refused(EINVAL);
  if (const int error = trouble_of("ibv_query_device", context); error != 0) return error;
  *attributes = device_attributes(context);
  return 0;
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attributes, size_t length_bytes) {
  if (!is_live(context) || attributes == nullptr) return refused(EINVAL);
  if (input != nullptr && input->comp_mask != 0) return refused(EINVAL);
  if (length_bytes < offsetof(ibv_device_attr_ex, comp_mask) + sizeof(uint32_t)) return refused(EINVAL);
  if (const int error = trouble_of("ibv_query_device", context); error != 0) return error;
  ibv_device_attr_ex result{};
  result.orig_attr = device_attributes(context);
  result.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  constexpr uint32_t kOdpOnRc = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
                                IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV |
                                kOdpFlush | kOdpAtomicWrite;
  result.odp_caps.per_transport_caps.rc_odp_caps = kOdpOnRc;
  result.odp_caps.per_transport_caps.uc_odp_caps =
      IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE;
  result.odp_caps.per_transport_caps.ud_odp_caps =
      IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
  result.xrc_odp_caps = kOdpOnRc;
  // Completions carry CLOCK_MONOTONIC in nanoseconds.
  result.completion_timestamp_mask = UINT64_MAX;
  result.hca_core_clock = 1'000'000;  // kHz
  result.cq_mod_caps = {UINT16_MAX, UINT16_MAX};
  result.device_cap_flags_ex = device_capabilities();
  result.phys_port_cnt_ex = result.orig_attr.phys_port_cnt;
  result.max_dm_size = description_of(context_of(context)).device_memory_bytes;
  copy_known(attributes, result, length_bytes);
  return 0;
}

int query_port(ibv_context* context, uint8_t port_num, ibv_port_attr* attributes, size_t length_bytes) {
  if (!is_live(context) || attributes == nullptr || port_num != kPortNumber) return refused(EINVAL);
  if (const int error = trouble_of("ibv_query_port", context); error != 0) return error;
  Context& own = context_of(context);
  copy_known(attributes, describe_port(description_of(own), own.started.load(std::memory_order_acquire)),
             length_bytes);
  return 0;
}

FAULTLINE_VERB int ibv_query_port(ibv_context* context, uint8_t port_num, _compat_ibv_port_attr* attributes) {
  // Programs built before port_cap_flags2 pass a struct that ends before it (rdma-core's compat-1_0).
  return query_port(context, port_num, reinterpret_cast<ibv_port_attr*>(attributes),
                    offsetof(ibv_port_attr, port_cap_flags2));
}

/// ibv_query_port_speed(3), of rdma-core 62: in units of 100 Mb/s.
FAULTLINE_VERB int ibv_query_port_speed(ibv_context* context, uint32_t port_num, uint64_t* speed) {
  if (!is_live(context) || port_num != kPortNumber || speed == nullptr) return refused(EINVAL);
  if (const int error = trouble_of("ibv_query_port", context); error != 0) return error;
  const DeviceDescription& description = description_of(context_of(context));
  *speed = tenths_of_gbps(description.active_speed_code, description.active_width_code);
  return 0;
}

/// Returns the clock's ticks, which are nanoseconds, in tv_nsec, as ConnectX does.
int query_rt_values(ibv_context* context, ibv_values_ex* values) {
  if (!is_live(context) || values == nullptr) return refused(EINVAL);
  if ((values->comp_mask & ~uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) != 0) return refused(EINVAL);
  if (values->comp_mask == 0) return 0;
  if (const int error = trouble_of("ibv_query_rt_values", context); error != 0) return error;
  OpenDevice* const engine = open_device_of(context_of(context));
  if (engine == nullptr) return errno;
  values->raw_clock.tv_sec = 0;
  values->raw_clock.tv_nsec = static_cast<long>(engine->backend->now());
  return 0;
}

FAULTLINE_VERB int ibv_query_gid(ibv_context* context, uint8_t port_num, int index, ibv_gid* gid) {
  if (!is_live(context) || gid == nullptr || port_num != kPortNumber || index < 0 ||
      index >= kGidTableLength) {
    errno = EINVAL;
    return -1;
  }
  if (const int error = trouble_of("ibv_query_gid", context); error != 0) {
    errno = error;
    return -1;
  }
  const DeviceDescription& description = description_of(context_of(context));
  *gid = {};
  if (static_cast<uint32_t>(index) < gid_count(description)) *gid = to_ibv(description.gids[index]);
  return 0;
}

FAULTLINE_VERB int _ibv_query_gid_ex(ibv_context* context, uint32_t port_num, uint32_t gid_index,
                                     ibv_gid_entry* entry, uint32_t flags, size_t entry_bytes) {
  if (!is_live(context) || entry == nullptr) return refused(EINVAL);
  if (flags != 0) return refused(EOPNOTSUPP);
  if (port_num != kPortNumber || gid_index >= kGidTableLength) return refused(EINVAL);
  if (const int error = trouble_of("ibv_query_gid", context); error != 0) return error;
  const DeviceDescription& description = description_of(context_of(context));
  if (gid_index >= gid_count(description)) return refused(ENODATA);
  copy_known(entry, gid_entry(description, gid_index, interface_index_of(description)), entry_bytes);
  return 0;
}

FAULTLINE_VERB ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max_entries,
                                            uint32_t flags, size_t entry_bytes) {
  if (!is_live(context)) return -refused(EINVAL);
  if (flags != 0) return -refused(EOPNOTSUPP);
  if (const int error = trouble_of("ibv_query_gid", context); error != 0) return -error;
  const DeviceDescription& description = description_of(context_of(context));
  const uint32_t count = gid_count(description);
  if (entries == nullptr || count > max_entries) return -refused(EINVAL);
  const uint32_t interface_index = interface_index_of(description);
  for (uint32_t i = 0; i < count; ++i)
    copy_known(reinterpret_cast<uint8_t*>(entries) + i * entry_bytes,
               gid_entry(description, i, interface_index), entry_bytes);
  return count;
}

FAULTLINE_VERB int ibv_query_pkey(ibv_context* context, uint8_t port_num, int index, __be16* pkey) {
  if (!is_live(context) || pkey == nullptr || port_num != kPortNumber || index < 0 ||
      index >= kPkeyTableLength) {
    errno = EINVAL;
    return -1;
  }
  if (const int error = trouble_of("ibv_query_pkey", context); error != 0) {
    errno = error;
    return -1;
  }
  *pkey = htobe16(wire::kDefaultPkey);
  return 0;
}

FAULTLINE_VERB int ibv_get_pkey_index(ibv_context* context, uint8_t port_num, __be16 pkey) {
  for (int index = 0; index < kPkeyTableLength; ++index) {
    __be16 entry = 0;
    if (ibv_query_pkey(context, port_num, index, &entry) != 0) return -1;
    if (entry == pkey) return index;
  }
  errno = EINVAL;
  return -1;
}

}  // namespace faultline::verbs
