// SPDX-License-Identifier: BSD-3-Clause
#include "stack/verbs/device/address.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"
#include "stack/wire/link/link.hpp"

namespace faultline::verbs {

namespace {

/// Returns the index of one of the device's own GIDs, or -1.
int own_gid_index(const DeviceDescription& description, const wire::Gid& gid) {
  const auto at = std::find(description.gids.begin(), description.gids.end(), gid);
  return at == description.gids.end() ? -1 : static_cast<int>(at - description.gids.begin());
}

/// Returns the GID that packets to a destination come from: the one at the program's index. A packet has
/// addresses of one family, so one to a group of the other family comes from the device's first GID of that
/// family. Null if there is none.
const wire::Gid* source_towards(const DeviceDescription& description, uint8_t index,
                                const wire::Gid& destination) {
  const auto is_of_family = [&](const wire::Gid& gid) { return gid.is_ipv4() == destination.is_ipv4(); };
  const wire::Gid& chosen = description.gids[index];
  if (is_of_family(chosen)) return &chosen;
  if (!wire::is_multicast(destination)) return nullptr;
  const auto at = std::find_if(description.gids.begin(), description.gids.end(), is_of_family);
  return at == description.gids.end() ? nullptr : &*at;
}

}  // namespace

wire::Gid gid_from(const ibv_gid& gid) {
  wire::Gid result;
  std::memcpy(result.bytes.data(), gid.raw, sizeof gid.raw);
  return result;
}

int make_address_vector(DeviceBackend& backend, const ibv_ah_attr& attributes, transport::AddressVector& av) {
  const DeviceDescription& description = backend.description();
  const auto refuse = [&](const char* why) {
    if (backend.wants_reasons()) backend.log_reason(std::string("address refused: ") + why);
    return EINVAL;
  };
  // RoCE has no LIDs: the GRH is required (IBV_QPF_GRH_REQUIRED in query_port).
  if (attributes.is_global == 0)
    return refuse("is_global is 0, but RoCE needs a GRH; give the program a GID index (often -g 0)");
  if (attributes.port_num != kPortNumber) return refuse("port_num: the device has port 1 alone");
  if (attributes.grh.sgid_index >= description.gids.size())
    return refuse("sgid_index: the GID table has no such entry");
  const wire::Gid destination = gid_from(attributes.grh.dgid);
  if (destination.is_zero()) return refuse("dgid is zero: the program has not exchanged GIDs");
  const wire::Gid* const source = source_towards(description, attributes.grh.sgid_index, destination);
  if (source == nullptr)
    return refuse("dgid and the GID at sgid_index are not both IPv4, or both IPv6; choose another GID index");

  av = {};
  av.loopback = own_gid_index(description, destination) >= 0;
  if (av.loopback) {
    av.path.destination_mac = description.mac;
  } else if (const int error = backend.resolve(destination, av.path.destination_mac); error != 0) {
    return error;
  }
  av.path.source_mac = description.mac;
  av.path.source_gid = *source;
  av.path.destination_gid = destination;
  av.path.traffic_class =
      attributes.grh.traffic_class != 0 ? attributes.grh.traffic_class : description.traffic_class;
  if (description.vlan_id) {
    // The service level becomes the VLAN tag's priority, as in Linux's RoCE drivers.
    av.path.has_vlan = true;
    av.path.vlan_tci =
        wire::vlan_tci(*description.vlan_id, attributes.sl != 0 ? attributes.sl : description.vlan_priority);
  }
  av.path.hop_limit = attributes.grh.hop_limit == 0 ? kDefaultHopLimit : attributes.grh.hop_limit;
  // Twenty bits; programs (UCX) pass -1, and other providers mask it too.
  av.path.flow_label = attributes.grh.flow_label & IB_GRH_FLOWLABEL_MASK;
  av.path.udp_source_port = udp_source_port(av.path.flow_label, 0, 0);
  return 0;
}

FAULTLINE_VERB ibv_ah* ibv_create_ah(ibv_pd* ibv_pd_pointer, ibv_ah_attr* attributes) {
  if (!is_live(ibv_pd_pointer) || attributes == nullptr) return fail(EINVAL);
  if (const int error = trouble_of("ibv_create_ah", ibv_pd_pointer->context); error != 0) return fail(error);
  Pd& pd = pd_of(ibv_pd_pointer);
  OpenDevice& engine = *context_of(pd.context).started;
  if (engine.is_of_parent_process()) return fail(EIO);
  std::unique_ptr<Ah> ah(new (std::nothrow) Ah());
  if (ah == nullptr) return fail(ENOMEM);
  if (const int error = make_address_vector(*engine.backend, *attributes, ah->av); error != 0)
    return fail(error);
  if (!acquire(engine.ahs, kMaxAhs)) return fail(ENOMEM);
  ah->context = pd.context;
  ah->pd = &pd;
  ah->port_from_flow_label = attributes->grh.flow_label != 0;
  pd.references.fetch_add(1, std::memory_order_relaxed);
  return ah.release();
}

FAULTLINE_VERB int ibv_destroy_ah(ibv_ah* ibv_ah_pointer) {
  if (!is_live(ibv_ah_pointer)) return refused(EINVAL);
  if (const int error = trouble_of("ibv_destroy_ah", ibv_ah_pointer->context); error != 0) return error;
  Ah* const ah = static_cast<Ah*>(ibv_ah_pointer);
  release(context_of(ah->context).started.load()->ahs);
  release(pd_of(ah->pd).references);
  delete ah;
  return 0;
}

namespace {

/// The GRH of a UD receive is the IPv6 header, or 20 undefined bytes followed by the IPv4 header (IBA
/// A17.4.5.1).
struct Ipv4Header {
  uint8_t version_ihl, tos;
  __be16 total_length, identification, fragment;
  uint8_t ttl, protocol;
  __be16 checksum;
  std::array<uint8_t, 4> source, destination;
};
constexpr size_t kIpv4OffsetInGrh = 20;
static_assert(sizeof(Ipv4Header) + kIpv4OffsetInGrh == sizeof(ibv_grh));

constexpr uint32_t kFlowLabelBits = 20;

wire::Gid mapped(const std::array<uint8_t, 4>& address) {
  wire::Gid gid;
  gid.bytes[10] = gid.bytes[11] = 0xff;
  std::copy(address.begin(), address.end(), gid.bytes.begin() + 12);
  return gid;
}

/// Fills the route back to the sender. Returns false if the header is not IP or not addressed to one of the
/// device's GIDs.
bool route_back(const DeviceDescription& description, const ibv_grh& grh, ibv_global_route& route) {
  wire::Gid peer;
  wire::Gid own;
  Ipv4Header ipv4;
  std::memcpy(&ipv4, reinterpret_cast<const uint8_t*>(&grh) + kIpv4OffsetInGrh, sizeof ipv4);
  const uint32_t version_class_flow = be32toh(grh.version_tclass_flow);
  if (version_class_flow >> 28 == 6) {
    peer = gid_from(grh.sgid);
    own = gid_from(grh.dgid);
    route.flow_label = version_class_flow & IB_GRH_FLOWLABEL_MASK;
    route.traffic_class = static_cast<uint8_t>(version_class_flow >> kFlowLabelBits);
    route.hop_limit = grh.hop_limit;
  } else if (ipv4.version_ihl >> 4 == 4) {
    peer = mapped(ipv4.source);
    own = mapped(ipv4.destination);
    route.traffic_class = ipv4.tos;
    route.hop_limit = ipv4.ttl;
  } else {
    return false;
  }
  const int index = own_gid_index(description, own);
  if (index < 0) return false;
  route.sgid_index = static_cast<uint8_t>(index);
  std::memcpy(route.dgid.raw, peer.bytes.data(), sizeof route.dgid.raw);
  return true;
}

}  // namespace

FAULTLINE_VERB int ibv_init_ah_from_wc(ibv_context* context, uint8_t port_num, ibv_wc* wc, ibv_grh* grh,
                                       ibv_ah_attr* attributes) {
  const bool needs_header = wc != nullptr && (wc->wc_flags & IBV_WC_GRH) != 0;
  if (!is_live(context) || wc == nullptr || attributes == nullptr || (needs_header && grh == nullptr)) {
    errno = EINVAL;
    return -1;
  }
  if (const int error = trouble_of("ibv_init_ah_from_wc", context); error != 0) {
    errno = error;
    return -1;
  }
  *attributes = {};
  attributes->port_num = port_num;
  if (!needs_header) return 0;
  attributes->is_global = 1;
  if (route_back(description_of(context_of(context)), *grh, attributes->grh)) return 0;
  errno = EPROTONOSUPPORT;
  return -1;
}

FAULTLINE_VERB ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port_num) {
  if (!is_live(pd)) return fail(EINVAL);
  ibv_ah_attr attributes;
  if (ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attributes) != 0) return nullptr;
  return ibv_create_ah(pd, &attributes);
}

FAULTLINE_VERB int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attributes,
                                               uint8_t mac[ETHERNET_LL_SIZE], uint16_t* vlan) {
  if (!is_live(context) || attributes == nullptr || mac == nullptr) return refused(EINVAL);
  if (const int error = trouble_of("ibv_resolve_eth_l2_from_gid", context); error != 0) return error;
  OpenDevice* const engine = open_device_of(context_of(context));
  if (engine == nullptr) return errno;
  transport::AddressVector av;
  if (const int error = make_address_vector(*engine->backend, *attributes, av); error != 0)
    return refused(error);
  std::memcpy(mac, av.path.destination_mac.bytes.data(), ETHERNET_LL_SIZE);
  constexpr uint16_t kNoVlan = 0xffff;
  if (vlan != nullptr) *vlan = engine->backend->description().vlan_id.value_or(kNoVlan);
  return 0;
}

}  // namespace faultline::verbs
