// SPDX-License-Identifier: BSD-3-Clause
// Buffers that the device allocates (ibv_alloc_buf(3), rdma-core 64), and ibv_reg_mr_ex(3), which registers
// them and all other memory.
#include <cerrno>
#include <cstdlib>
#include <new>

#include <unistd.h>

#include "stack/verbs/memory/later_calls.hpp"
#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

namespace {

/// An ibv_buf. Programs know only its address.
struct Buffer {
  Buffer(ibv_pd* domain, void* memory, size_t bytes) : pd(domain), address(memory), length_bytes(bytes) {}
  ~Buffer() { std::free(address); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  ibv_pd* const pd;
  void* const address;
  const size_t length_bytes;
  const LiveObject live{this, ObjectKind::buffer};
};

[[nodiscard]] Buffer* buffer_of(ibv_buf* pointer) {
  auto* const buffer = reinterpret_cast<Buffer*>(pointer);
  return is_live(buffer, ObjectKind::buffer) ? buffer : nullptr;
}

/// Whether the range lies within the buffer, and both are of the same domain (ibv_reg_mr_ex(3)).
bool is_within(const ibv_pd* pd, const RegionAttributes& wanted) {
  const Buffer* const buffer = buffer_of(wanted.buffer);
  if (buffer == nullptr || buffer->pd != pd) return false;
  const auto begin = reinterpret_cast<uint64_t>(buffer->address);
  const auto address = reinterpret_cast<uint64_t>(wanted.address);
  return address >= begin && address - begin <= buffer->length_bytes &&
         wanted.length_bytes <= buffer->length_bytes - (address - begin);
}

/// Either a descriptor with an offset and an iova, or an address, which may be within a buffer
/// (ibv_reg_mr_ex(3)).
bool is_valid(const ibv_pd* pd, const RegionAttributes& wanted) {
  using Attributes = RegionAttributes;
  if ((wanted.members & ~Attributes::kKnown) != 0) return false;
  const bool is_descriptor = wanted.has(Attributes::descriptor_bit);
  if (wanted.has(Attributes::offset_bit) != is_descriptor ||
      wanted.has(Attributes::address_bit) == is_descriptor)
    return false;
  if (is_descriptor) return wanted.has(Attributes::iova_bit) && !wanted.has(Attributes::buffer_bit);
  return !wanted.has(Attributes::buffer_bit) || is_within(pd, wanted);
}

}  // namespace

FAULTLINE_VERB void* ibv_alloc_buf(ibv_pd* pd, size_t length_bytes, ibv_buf** result) {
  if (!is_live(pd) || result == nullptr) return fail(EINVAL);
  if (const int error = trouble_of("ibv_alloc_buf", pd->context); error != 0) return fail(error);
  if (length_bytes > kMaxMrBytes) return fail(ENOMEM);
  void* memory = nullptr;
  if (const int error = posix_memalign(&memory, static_cast<size_t>(sysconf(_SC_PAGESIZE)), length_bytes);
      error != 0)
    return fail(error);
  auto* const buffer = new (std::nothrow) Buffer(pd, memory, length_bytes);
  if (buffer == nullptr) {
    std::free(memory);
    return fail(ENOMEM);
  }
  *result = reinterpret_cast<ibv_buf*>(buffer);
  return memory;
}

FAULTLINE_VERB void ibv_free_buf(ibv_buf* pointer) {
  delete buffer_of(pointer);
}

/// No buffer is a dma-buf: ENODATA (ibv_export_buf_dmabuf_fd(3)).
FAULTLINE_VERB int ibv_export_buf_dmabuf_fd(ibv_buf* pointer) {
  errno = buffer_of(pointer) != nullptr ? ENODATA : EINVAL;
  return -1;
}

FAULTLINE_VERB ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* pointer) {
  using Attributes = RegionAttributes;
  if (!is_live(pd) || pointer == nullptr) return fail(EINVAL);
  const auto& wanted = *reinterpret_cast<const Attributes*>(pointer);
  if (!is_valid(pd, wanted)) return fail(EINVAL);
  // The device gives out no handle for TLP processing hints (ibv_alloc_dmah(3)).
  if (wanted.has(Attributes::handle_bit)) return fail(EOPNOTSUPP);
  if (wanted.has(Attributes::descriptor_bit))
    return ibv_reg_dmabuf_mr(pd, wanted.offset_bytes, wanted.length_bytes, wanted.iova, wanted.descriptor,
                             wanted.access);
  const uint64_t iova =
      wanted.has(Attributes::iova_bit) ? wanted.iova : reinterpret_cast<uint64_t>(wanted.address);
  return ibv_reg_mr_iova2(pd, wanted.address, wanted.length_bytes, iova,
                          static_cast<unsigned int>(wanted.access));
}

FAULTLINE_VERB ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buffer, void* address, size_t length_bytes,
                                      int access) {
  RegionAttributes wanted{};
  wanted.length_bytes = length_bytes;
  wanted.access = access;
  wanted.members = RegionAttributes::address_bit | RegionAttributes::buffer_bit;
  wanted.address = address;
  wanted.buffer = buffer;
  return ibv_reg_mr_ex(pd, reinterpret_cast<ibv_mr_init_attr*>(&wanted));
}

}  // namespace faultline::verbs
