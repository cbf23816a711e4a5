// SPDX-License-Identifier: BSD-3-Clause
// The device list, open and close.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <vector>

#include <endian.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stack/base/process/process_local.hpp"
#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"
#include "stack/wire/link/link.hpp"

namespace faultline::verbs {

namespace {

/// Devices live as long as the process: a program may open a device, free the list, and continue to use the
/// device's name. A forked child may do so with its parent's.
struct Registry {
  std::mutex mutex;
  std::vector<std::unique_ptr<VerbsDevice>> devices;
};

constinit ProcessLocal<Registry> registry;

bool same(const DeviceDescription& a, const DeviceDescription& b) {
  return a.name == b.name && a.mac == b.mac && a.gids == b.gids && a.prefix_bits == b.prefix_bits &&
         a.routes == b.routes && a.mtu_bytes == b.mtu_bytes && a.max_path_mtu_bytes == b.max_path_mtu_bytes &&
         a.vendor_id == b.vendor_id && a.vendor_part_id == b.vendor_part_id && a.firmware == b.firmware &&
         a.device_memory_bytes == b.device_memory_bytes && a.vlan_id == b.vlan_id &&
         a.vlan_priority == b.vlan_priority && a.traffic_class == b.traffic_class;
}

std::unique_ptr<VerbsDevice> make_device(const DeviceDescription& description, int index) {
  auto device = std::make_unique<VerbsDevice>();
  device->node_type = IBV_NODE_CA;
  device->transport_type = IBV_TRANSPORT_IB;
  std::snprintf(device->name, sizeof device->name, "%s", description.name.c_str());
  std::snprintf(device->dev_name, sizeof device->dev_name, "uverbs%d", index);
  std::snprintf(device->dev_path, sizeof device->dev_path, "/sys/class/infiniband_verbs/%s",
                device->dev_name);
  std::snprintf(device->ibdev_path, sizeof device->ibdev_path, "/sys/class/infiniband/%s", device->name);
  device->description = description;
  device->index = index;
  return device;
}

VerbsDevice* find_or_add(Registry& known, const DeviceDescription& description) {
  for (const auto& device : known.devices)
    if (same(device->description, description)) return device.get();
  known.devices.push_back(make_device(description, static_cast<int>(known.devices.size())));
  return known.devices.back().get();
}

/// Sets one line for faultline_last_error(), because an errno alone does not identify the refused call.
ibv_context* refuse_to_open(const char* call, int error) {
  try {
    set_last_error(std::string("faultline: ibv_open_device: ") + call + ": " + std::strerror(error));
  } catch (const std::bad_alloc&) {
  }
  return fail(error);
}

}  // namespace

std::vector<VerbsDevice*> visible_devices(std::span<const DeviceDescription> descriptions) {
  std::vector<VerbsDevice*> devices;
  Registry& known = registry.get();
  const std::lock_guard lock(known.mutex);
  for (const DeviceDescription& description : descriptions)
    if (!is_hidden(description.name)) devices.push_back(find_or_add(known, description));
  return devices;
}

FAULTLINE_VERB ibv_device** ibv_get_device_list(int* count) {
  if (count != nullptr) *count = 0;
  try {
    std::string error;
    const std::vector<DeviceDescription> descriptions = list_devices(error);
    if (!error.empty()) {
      set_last_error(std::move(error));
      return fail(EINVAL);
    }
    if (const int refused = trouble_of("ibv_get_device_list"); refused != 0) return fail(refused);
    const std::vector<VerbsDevice*> devices = visible_devices(descriptions);
    auto list = std::make_unique<ibv_device*[]>(devices.size() + 1);
    std::copy(devices.begin(), devices.end(), list.get());
    if (count != nullptr) *count = static_cast<int>(devices.size());
    return list.release();
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

FAULTLINE_VERB void ibv_free_device_list(ibv_device** list) {
  delete[] list;
}

FAULTLINE_VERB const char* ibv_get_device_name(ibv_device* device) {
  return device == nullptr ? nullptr : device->name;
}

FAULTLINE_VERB int ibv_get_device_index(ibv_device* device) {
  return device == nullptr ? -1 : device_of(device).index;
}

FAULTLINE_VERB __be64 ibv_get_device_guid(ibv_device* device) {
  return device == nullptr ? 0 : htobe64(wire::eui64(device_of(device).description.mac));
}

FAULTLINE_VERB ibv_context* ibv_open_device(ibv_device* device) {
  if (device == nullptr) return fail(EINVAL);
  if (const int error = trouble_of("ibv_open_device", device); error != 0) return fail(error);
  // Programs poll, duplicate and fstat the descriptor, although no kernel device exists. A separate file per
  // context identifies its duplicates.
  const int cmd_fd = ::memfd_create("faultline-context", MFD_CLOEXEC);
  if (cmd_fd < 0) return refuse_to_open("memfd_create", errno);
  ibv_context* const context = make_context(device_of(device), cmd_fd);
  if (context == nullptr) {
    const int error = errno;
    ::close(cmd_fd);
    errno = error;
  }
  return context;
}

ibv_context* make_context(VerbsDevice& device, int cmd_fd) {
  std::unique_ptr<Context> context(new (std::nothrow) Context());
  if (context == nullptr || !make_enrolment()) return fail(ENOMEM);
  if (const int error = context->events.open(); error != 0) return refuse_to_open("eventfd", error);
  ibv_context& opened = context->context;
  opened.cmd_fd = cmd_fd;
  context->owner = &device;
  opened.device = &device;
  opened.async_fd = context->events.descriptor();
  opened.num_comp_vectors = 1;
  pthread_mutex_init(&opened.mutex, nullptr);
  opened.abi_compat = __VERBS_ABI_IS_EXTENDED;
  const bool in_trouble = trouble::director() != nullptr;
  opened.ops.poll_cq = in_trouble ? poll_cq_in_trouble : poll_cq;
  opened.ops.req_notify_cq = in_trouble ? req_notify_cq_in_trouble : req_notify_cq;
  opened.ops.post_send = in_trouble ? post_send_in_trouble : post_send;
  opened.ops.post_recv = in_trouble ? post_recv_in_trouble : post_recv;
  opened.ops.post_srq_recv = in_trouble ? post_srq_recv_in_trouble : post_srq_recv;
  opened.ops.alloc_mw = alloc_mw;
  opened.ops.bind_mw = in_trouble ? bind_mw_in_trouble : bind_mw;
  opened.ops.dealloc_mw = dealloc_mw;
  context->sz = sizeof(verbs_context);
  context->query_port = query_port;
  context->query_device_ex = query_device_ex;
  context->query_rt_values = query_rt_values;
  context->advise_mr = advise_mr;
  context->create_cq_ex = create_cq_ex;
  context->modify_cq = modify_cq;
  context->create_qp_ex = create_qp_ex;
  context->open_qp = open_qp;
  context->create_srq_ex = create_srq_ex;
  context->get_srq_num = get_srq_num;
  context->alloc_td = alloc_td;
  context->dealloc_td = dealloc_td;
  context->alloc_parent_domain = alloc_parent_domain;
  context->open_xrcd = open_xrcd;
  context->close_xrcd = close_xrcd;
  context->alloc_dm = alloc_dm;
  context->free_dm = free_dm;
  context->reg_dm_mr = reg_dm_mr;
  context->port_active.element.element.port_num = kPortNumber;
  context->port_error.element.element.port_num = kPortNumber;
  enroll(*context);
  return &context.release()->context;
}

FAULTLINE_VERB int ibv_close_device(ibv_context* ibv_context_pointer) {
  if (!is_live(ibv_context_pointer)) return refused(EINVAL);
  Context* const context = &context_of(ibv_context_pointer);
  // ibv_close_device(3): it "does not release all the resources allocated using context". Programs do leave
  // objects behind (perftest's ib_send_bw leaves a CQ). Such objects refer to the context, so it is kept.
  if (context->live_objects.load(std::memory_order_acquire) != 0) return 0;
  for (const Pd* pd = context->pds; pd != nullptr; pd = pd->next)
    if (pd->references.load(std::memory_order_acquire) != 0) return 0;
  if (const int error = trouble_of("ibv_close_device", ibv_context_pointer); error != 0) return error;
  while (context->pds != nullptr) remove_pd(context->pds);
  strike(*context);
  if (context->engine != nullptr) context->engine->remove_context(*context);
  ::close(context->context.cmd_fd);
  pthread_mutex_destroy(&context->context.mutex);
  delete context;
  return 0;
}

}  // namespace faultline::verbs
