// SPDX-License-Identifier: BSD-3-Clause
// Device memory (ibv_alloc_dm(3)), emulated in host memory: anonymous pages of the process that no program
// maps or unmaps, pinned while they are registered. Where the kernel has udmabuf, they are those of a memfd,
// so that the program can export them. Needs no engine.
#include <cstring>
#include <memory>

#include <sys/mman.h>

#include "stack/verbs/memory/dma_buf.hpp"
#include "stack/verbs/memory/later_calls.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

namespace {

constexpr uint32_t kMaxLogAlign = 12;  ///< page alignment
/// Copies must consist of whole words, as on adapters (mlx5's memcpy_to_dm), because programs test that.
constexpr uint64_t kCopyAlignmentBytes = 4;

uint32_t next_handle() {
  static std::atomic<uint32_t> last{0};
  return ++last;
}

/// Reserves `bytes` of the device's limit; false if they exceed it.
bool take(VerbsDevice& device, uint64_t bytes) {
  const uint64_t limit = device.description.device_memory_bytes;
  uint64_t used = device.device_memory_used_bytes;
  do {
    if (bytes > limit - used) return false;
  } while (!device.device_memory_used_bytes.compare_exchange_weak(used, used + bytes));
  return true;
}

int check_copy(const DeviceMemory& memory, const void* host_address, uint64_t offset_bytes,
               size_t length_bytes) {
  if (memory.freed || (host_address == nullptr && length_bytes != 0)) return EINVAL;
  if (offset_bytes > memory.length_bytes || length_bytes > memory.length_bytes - offset_bytes) return EFAULT;
  return offset_bytes % kCopyAlignmentBytes != 0 || length_bytes % kCopyAlignmentBytes != 0 ? EINVAL : 0;
}

int copy_to(ibv_dm* dm, uint64_t offset_bytes, const void* host_address, size_t length_bytes) {
  if (!is_live(dm)) return refused(EINVAL);
  const DeviceMemory& memory = *dm_of(dm).shared;
  if (const int error = check_copy(memory, host_address, offset_bytes, length_bytes); error != 0)
    return refused(error);
  if (length_bytes != 0) std::memcpy(memory.memory + offset_bytes, host_address, length_bytes);
  return 0;
}

int copy_from(void* host_address, ibv_dm* dm, uint64_t offset_bytes, size_t length_bytes) {
  if (!is_live(dm)) return refused(EINVAL);
  const DeviceMemory& memory = *dm_of(dm).shared;
  if (const int error = check_copy(memory, host_address, offset_bytes, length_bytes); error != 0)
    return refused(error);
  if (length_bytes != 0) std::memcpy(host_address, memory.memory + offset_bytes, length_bytes);
  return 0;
}

int copy_to_in_trouble(ibv_dm* dm, uint64_t offset_bytes, const void* host_address, size_t length_bytes) {
  if (!is_live(dm)) return refused(EINVAL);
  if (const int error = trouble_of("ibv_memcpy_to_dm", dm->context, length_bytes); error != 0) return error;
  return copy_to(dm, offset_bytes, host_address, length_bytes);
}

int copy_from_in_trouble(void* host_address, ibv_dm* dm, uint64_t offset_bytes, size_t length_bytes) {
  if (!is_live(dm)) return refused(EINVAL);
  if (const int error = trouble_of("ibv_memcpy_from_dm", dm->context, length_bytes); error != 0) return error;
  return copy_from(host_address, dm, offset_bytes, length_bytes);
}

}  // namespace

DeviceMemory::DeviceMemory(VerbsDevice& lender, uint8_t* start, uint64_t bytes)
    : device(lender), memory(start), length_bytes(bytes), handle(next_handle()) {}

DeviceMemory::DeviceMemory(VerbsDevice& lender, std::unique_ptr<ExportableMemory> pages, uint64_t bytes)
    : device(lender),
      exportable(std::move(pages)),
      memory(exportable->memory()),
      length_bytes(bytes),
      handle(next_handle()) {}

DeviceMemory::~DeviceMemory() {
  if (exportable == nullptr) ::munmap(memory, length_bytes);
  device.device_memory_used_bytes.fetch_sub(length_bytes);
}

ibv_dm* make_dm(Context& context, std::shared_ptr<DeviceMemory> memory, bool imported) {
  auto* const dm = new (std::nothrow) Dm();
  if (dm == nullptr) return fail(ENOMEM);
  dm->context = &context.context;
  const bool in_trouble = trouble::director() != nullptr;
  dm->memcpy_to_dm = in_trouble ? copy_to_in_trouble : copy_to;
  dm->memcpy_from_dm = in_trouble ? copy_from_in_trouble : copy_from;
  dm->handle = memory->handle;
  dm->shared = std::move(memory);
  dm->imported = imported;
  context.live_objects.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(context.objects_lock);
  link(context.dms, *dm);
  return dm;
}

void remove_dm(Dm& dm) {
  Context& context = context_of(dm.context);
  {
    const std::lock_guard lock(context.objects_lock);
    unlink(context.dms, dm);
  }
  delete &dm;
  release(context.live_objects);
}

namespace {

/// Null if memory is short. Throws std::bad_alloc. The memory gives its bytes back to the device at its end.
std::shared_ptr<DeviceMemory> make_memory(VerbsDevice& device, uint64_t bytes) {
  if (ExportableMemory::is_possible()) {
    std::unique_ptr<ExportableMemory> pages = ExportableMemory::make(bytes);
    return pages == nullptr ? nullptr : std::make_shared<DeviceMemory>(device, std::move(pages), bytes);
  }
  void* const start = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  try {
    return std::make_shared<DeviceMemory>(device, static_cast<uint8_t*>(start), bytes);
  } catch (const std::bad_alloc&) {
    ::munmap(start, bytes);
    throw;
  }
}

}  // namespace

ibv_dm* alloc_dm(ibv_context* ibv_context_pointer, ibv_alloc_dm_attr* attributes) {
  if (!is_live(ibv_context_pointer) || attributes == nullptr) return fail(EINVAL);
  Context& context = context_of(ibv_context_pointer);
  VerbsDevice& device = *context.owner;
  if (device.description.device_memory_bytes == 0) return fail(EOPNOTSUPP);
  if (attributes->comp_mask != 0 || attributes->log_align_req > kMaxLogAlign) return fail(EINVAL);
  if (attributes->length == 0 || attributes->length > device.description.device_memory_bytes)
    return fail(EINVAL);
  if (const int error = trouble_of("ibv_alloc_dm", ibv_context_pointer); error != 0) return fail(error);
  if (!take(device, attributes->length)) return fail(ENOMEM);
  try {
    std::shared_ptr<DeviceMemory> memory = make_memory(device, attributes->length);
    if (memory != nullptr) return make_dm(context, std::move(memory), false);
  } catch (const std::bad_alloc&) {
  }
  device.device_memory_used_bytes.fetch_sub(attributes->length);
  return fail(ENOMEM);
}

/// ibv_import_dm(3): this call on any handle ends the memory's use. The remaining handles can only be freed
/// or unimported.
int free_dm(ibv_dm* ibv_dm_pointer) {
  if (!is_live(ibv_dm_pointer)) return refused(EINVAL);
  Dm& dm = dm_of(ibv_dm_pointer);
  if (dm.shared->regions != 0) return refused(EBUSY);
  if (const int error = trouble_of("ibv_free_dm", dm.context); error != 0) return error;
  dm.shared->freed = true;
  remove_dm(dm);
  return 0;
}

/// EOPNOTSUPP where the kernel has no udmabuf, or this user may not use it.
FAULTLINE_VERB int ibv_dm_export_dmabuf_fd(ibv_dm* ibv_dm_pointer) {
  errno = EINVAL;
  if (!is_live(ibv_dm_pointer) || dm_of(ibv_dm_pointer).shared->freed) return -1;
  errno = EOPNOTSUPP;
  const ExportableMemory* const pages = dm_of(ibv_dm_pointer).shared->exportable.get();
  return pages == nullptr ? -1 : pages->export_descriptor();
}

}  // namespace faultline::verbs
