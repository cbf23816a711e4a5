// SPDX-License-Identifier: BSD-3-Clause
// Memory regions.
#include <algorithm>
#include <new>
#include <span>
#include <vector>

#include "stack/record/recorded_call.hpp"
#include "stack/verbs/memory/dma_buf.hpp"
#include "stack/verbs/objects/limits.hpp"
#include "stack/verbs/objects/objects.hpp"
#include "stack/verbs/trouble/call.hpp"

namespace faultline::verbs {

namespace {

constexpr uint32_t kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                  IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | odp::kFlushGlobal |
                                  odp::kFlushPersistent;

/// ibv_reg_mr(3): remote write and remote atomic require local write. Unknown bits of the optional range are
/// ignored; other unknown bits are refused.
bool valid_access(uint32_t access) {
  if ((access & ~(kKnownAccess | uint32_t{IBV_ACCESS_OPTIONAL_RANGE})) != 0) return false;
  const bool writes_remotely = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  return !writes_remotely || (access & IBV_ACCESS_LOCAL_WRITE) != 0;
}

int check_region(uint64_t address, uint64_t length_bytes, uint64_t iova, uint32_t access) {
  if (!valid_access(access)) return EINVAL;
  // The implicit ODP region covers the whole address space (ibv_reg_mr(3)).
  if ((access & IBV_ACCESS_ON_DEMAND) != 0 && address == 0 && length_bytes == SIZE_MAX)
    return iova == 0 ? 0 : EINVAL;
  if (length_bytes == 0 || length_bytes > kMaxMrBytes) return EINVAL;
  if (address + length_bytes < address || iova + length_bytes < iova) return EINVAL;
  return 0;
}

odp::RegionRequest request_of(const Pd& pd, uint64_t address, uint64_t length_bytes, uint64_t iova,
                              uint32_t access) {
  odp::RegionRequest request;
  request.domain = pd.domain;
  request.address = address;
  request.length_bytes = length_bytes;
  request.iova = iova;
  request.access = access & (kKnownAccess | IBV_ACCESS_RELAXED_ORDERING);
  return request;
}

void set_key(Mr& mr, odp::Key key) {
  constexpr unsigned kVariantBits = 8;
  mr.lkey = mr.rkey = key;
  mr.handle = key >> kVariantBits;
}

bool is_odp(uint32_t access) {
  return (access & IBV_ACCESS_ON_DEMAND) != 0;
}

/// Counts the region before its key is valid, so that no posted receive misses its hint.
void count_region(Pd& pd, uint32_t access) {
  pd.references.fetch_add(1, std::memory_order_relaxed);
  if (is_odp(access)) pd.odp_regions->fetch_add(1, std::memory_order_relaxed);
}

void uncount_region(Pd& pd, uint32_t access) {
  if (is_odp(access)) release(*pd.odp_regions);
  release(pd.references);
}

/// A region of device memory may be empty, as on adapters. Its key is valid but covers nothing, like that of
/// an unbound window.
odp::RegionResult make_key(odp::MemoryDomain& memory, const odp::RegionRequest& request) {
  if (request.length_bytes == 0) return memory.allocate_window(request.domain, odp::WindowType::type1);
  return memory.register_region(request);
}
int end_key(odp::MemoryDomain& memory, const Mr& mr) {
  return mr.length == 0 ? memory.deallocate_window(mr.lkey) : memory.deregister_region(mr.lkey);
}

/// `va` is the region's address in this process, also that of device memory.
status::MrRow row_of(const Mr& mr, uint64_t va, TimeNs now) {
  status::MrRow row;
  row.created_ns = now;
  row.address = va;
  row.length_bytes = mr.length;
  row.iova = mr.iova;
  row.lkey = mr.lkey;
  row.rkey = mr.rkey;
  row.access = mr.access;
  row.pd_handle = mr.pd->handle;
  return row;
}

/// Memory that is not the program's own.
struct OtherMemory {
  std::shared_ptr<DeviceMemory> device_memory = nullptr;
  std::shared_ptr<DmaBuf> dma_buf = nullptr;
  void* shown = nullptr;  ///< ibv_mr::addr: device memory has no address that the program can use

  [[nodiscard]] bool is_any() const { return device_memory != nullptr || dma_buf != nullptr; }
};

Mr* register_on(OpenDevice& engine, Pd& pd, void* address, size_t length_bytes, uint64_t iova,
                uint32_t access, OtherMemory other) {
  const auto va = reinterpret_cast<uint64_t>(address);
  const bool is_empty = other.device_memory != nullptr && length_bytes == 0 && valid_access(access);
  if (const int error = is_empty ? 0 : check_region(va, length_bytes, iova, access); error != 0)
    return fail(error);
  if (const int error = trouble_of("ibv_reg_mr", pd.context, length_bytes); error != 0) return fail(error);
  std::unique_ptr<Mr> mr(new (std::nothrow) Mr());
  if (mr == nullptr || !acquire(engine.mrs, kMaxMrs)) return fail(ENOMEM);
  count_region(pd, access);
  odp::RegionRequest request = request_of(pd, va, length_bytes, iova, access);
  request.is_of_other_device = other.dma_buf != nullptr;
  const odp::RegionResult result = make_key(engine.backend->memory(), request);
  if (result.error != 0) {
    uncount_region(pd, access);
    release(engine.mrs);
    return fail(result.error);
  }
  mr->context = pd.context;
  mr->pd = &pd;
  mr->addr = other.is_any() ? other.shown : address;
  mr->length = length_bytes;
  mr->iova = iova;
  mr->access = access;
  mr->device_memory = std::move(other.device_memory);
  mr->dma_buf = std::move(other.dma_buf);
  set_key(*mr, result.key);
  note_creation(static_cast<ibv_mr*>(mr.get()));
  mr->published.publish(engine.backend->status(), row_of(*mr, va, engine.backend->now()));
  Context& context = context_of(pd.context);
  const std::lock_guard lock(context.objects_lock);
  link(context.mrs, *mr);
  return mr.release();
}

record::ControlWriter* controls_of(ibv_context* context) {
  return context_of(context).started.load()->backend->controls();
}

void describe(record::ControlRow& row, const void* address, size_t length_bytes, uint32_t access) {
  row.address = reinterpret_cast<uint64_t>(address);
  row.length_bytes = length_bytes;
  row.access = access;
}

Mr* register_region(Pd& pd, void* address, size_t length_bytes, uint64_t iova, uint32_t access,
                    OtherMemory other = {}) {
  record::RecordedCall call(controls_of(pd.context), record::ControlCall::register_mr);
  describe(call.row, address, length_bytes, access);
  Mr* const mr = register_on(*context_of(pd.context).started.load(), pd, address, length_bytes, iova, access,
                             std::move(other));
  if (mr != nullptr)
    call.row.object = mr->lkey;
  else
    call.end(errno);
  return mr;
}

int deregister(Mr* mr) {
  Context& context = context_of(mr->context);
  OpenDevice& engine = *context.started.load();
  const int error = end_key(engine.backend->memory(), *mr);
  if (mr->imported) {
    // ibv_import_mr(3): this call on any of the handles deregisters the region.
    if (error != 0) return error;
    ibv_unimport_mr(mr);
    return 0;
  }
  if (error != 0 && !(error == ENOENT && mr->exported)) return error;
  {
    const std::lock_guard lock(context.objects_lock);
    unlink(context.mrs, *mr);
  }
  uncount_region(pd_of(mr->pd), mr->access);
  if (mr->device_memory != nullptr) mr->device_memory->regions.fetch_sub(1);
  release(engine.mrs);
  delete mr;
  return 0;
}

}  // namespace

FAULTLINE_VERB ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length_bytes, uint64_t iova,
                                        unsigned int access) {
  if (!is_live(pd)) return fail(EINVAL);
  // ibv_reg_mr(3): "specifying 0 for hca_va has the same effect as IBV_ACCESS_ZERO_BASED".
  if ((access & IBV_ACCESS_ZERO_BASED) != 0) iova = 0;
  return register_region(pd_of(pd), address, length_bytes, iova, access);
}

FAULTLINE_VERB ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length_bytes, int access) {
  return ibv_reg_mr_iova2(pd, address, length_bytes, reinterpret_cast<uint64_t>(address),
                          static_cast<unsigned int>(access));
}

FAULTLINE_VERB ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, size_t length_bytes, uint64_t iova,
                                       int access) {
  return ibv_reg_mr_iova2(pd, address, length_bytes, iova, static_cast<unsigned int>(access));
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* ibv_dm_pointer, uint64_t offset_bytes, size_t length_bytes,
                  unsigned int access) {
  if (!is_live(pd) || !is_live(ibv_dm_pointer)) return fail(EINVAL);
  const std::shared_ptr<DeviceMemory>& memory = dm_of(ibv_dm_pointer).shared;
  if (&memory->device != context_of(pd->context).owner || memory->freed) return fail(EINVAL);
  // ibv_alloc_dm(3): the program "must" pass IBV_ACCESS_ZERO_BASED. The memory is always resident, so
  // on-demand paging is refused.
  if ((access & IBV_ACCESS_ZERO_BASED) == 0 || (access & IBV_ACCESS_ON_DEMAND) != 0) return fail(EINVAL);
  if (offset_bytes > memory->length_bytes || length_bytes > memory->length_bytes - offset_bytes)
    return fail(EINVAL);
  memory->regions.fetch_add(1);
  Mr* const mr = register_region(pd_of(pd), memory->memory + offset_bytes, length_bytes, 0, access,
                                 {.device_memory = memory});
  if (mr == nullptr) memory->regions.fetch_sub(1);
  return mr;
}

/// Programs ask with the descriptor -1 whether there is such a call: EBADF says yes (UCX, libfabric, NCCL).
FAULTLINE_VERB ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset_bytes, size_t length_bytes,
                                         uint64_t iova, int descriptor, int access_flags) {
  // ibv_reg_mr(3): "only the following flags are supported".
  constexpr uint32_t kAllowed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING;
  if (!is_live(pd)) return fail(EINVAL);
  const auto access = static_cast<uint32_t>(access_flags);
  if ((access & ~kAllowed) != 0 || !valid_access(access)) return fail(EINVAL);
  std::shared_ptr<DmaBuf> dma_buf;
  const DmaBuf::Part part{.descriptor = descriptor,
                          .offset_bytes = offset_bytes,
                          .length_bytes = length_bytes,
                          .iova = iova,
                          .is_written = (access & IBV_ACCESS_LOCAL_WRITE) != 0};
  if (const int error = DmaBuf::map(part, dma_buf); error != 0) return fail(error);
  void* const address = dma_buf->address();
  // As in rdma-core.
  void* const shown = reinterpret_cast<void*>(offset_bytes);
  return register_region(pd_of(pd), address, length_bytes, iova, access,
                         {.dma_buf = std::move(dma_buf), .shown = shown});
}

FAULTLINE_VERB int ibv_dereg_mr(ibv_mr* ibv_mr_pointer) {
  if (!is_live(ibv_mr_pointer)) return refused(EINVAL);
  if (const int error = trouble_of("ibv_dereg_mr", ibv_mr_pointer); error != 0) return error;
  note_end(ibv_mr_pointer);
  Mr* const mr = static_cast<Mr*>(ibv_mr_pointer);
  record::RecordedCall call(controls_of(mr->context), record::ControlCall::deregister_mr);
  describe(call.row, mr->addr, mr->length, mr->access);
  call.row.object = mr->lkey;
  return refused(call.end(deregister(mr)));
}

FAULTLINE_VERB int ibv_rereg_mr(ibv_mr* ibv_mr_pointer, int flags, ibv_pd* new_pd, void* address,
                                size_t length_bytes, int access) {
  if (!is_live(ibv_mr_pointer)) {
    errno = EINVAL;
    return static_cast<int>(IBV_REREG_MR_ERR_INPUT);
  }
  Mr& mr = *static_cast<Mr*>(ibv_mr_pointer);
  record::RecordedCall call(controls_of(mr.context), record::ControlCall::reregister_mr);
  describe(call.row, address, length_bytes, static_cast<uint32_t>(access));
  call.row.object = mr.lkey;
  const auto refuse = [&call](int error) {
    errno = call.end(error);
    return static_cast<int>(IBV_REREG_MR_ERR_INPUT);
  };
  if (const int error = trouble_of("ibv_rereg_mr", ibv_mr_pointer); error != 0) return refuse(error);
  if (flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 || mr.imported) return refuse(EINVAL);
  if (mr.device_memory != nullptr) return refuse(EINVAL);  // as in Linux (ib_uverbs_rereg_mr)
  if (mr.dma_buf != nullptr) return refuse(EOPNOTSUPP);    // the call has no descriptor for the new memory
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  Pd& old_pd = pd_of(mr.pd);
  Pd* pd = &old_pd;
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) {
    if (!is_live(new_pd) || new_pd->context != mr.context) return refuse(EINVAL);
    pd = &pd_of(new_pd);
  }
  const uint32_t new_access =
      (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? static_cast<uint32_t>(access) : mr.access;
  void* const new_address = moves ? address : mr.addr;
  const size_t new_length_bytes = moves ? length_bytes : mr.length;
  const uint64_t iova = moves ? reinterpret_cast<uint64_t>(address) : mr.iova;
  if (moves && address == nullptr && length_bytes != SIZE_MAX) return refuse(EINVAL);
  // On-demand paging cannot change during a region's lifetime (Linux refuses the change too).
  if (is_odp(new_access) != is_odp(mr.access)) return refuse(EOPNOTSUPP);
  describe(call.row, new_address, new_length_bytes, new_access);
  const auto va = reinterpret_cast<uint64_t>(new_address);
  if (const int error = check_region(va, new_length_bytes, iova, new_access); error != 0)
    return refuse(error);

  // The keys do not change, so that peers can continue to use them, as with adapters.
  odp::MemoryDomain& memory = context_of(mr.context).started.load()->backend->memory();
  count_region(*pd, new_access);
  const odp::RegionRequest wanted = request_of(*pd, va, new_length_bytes, iova, new_access);
  if (const int error = memory.replace_region(mr.lkey, wanted); error != 0) {
    uncount_region(*pd, new_access);
    return refuse(error);
  }
  uncount_region(old_pd, mr.access);
  mr.pd = pd;
  mr.addr = new_address;
  mr.length = new_length_bytes;
  mr.iova = iova;
  mr.access = new_access;
  mr.published.update([&](status::MrRow& row) {
    const uint64_t created_ns = row.created_ns;
    row = row_of(mr, va, created_ns);
  });
  return 0;
}

int advise_mr(ibv_pd* ibv_pd_pointer, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sges,
              uint32_t sge_count) {
  // The capacity of one kernel command, whose length is 16 bits.
  constexpr uint32_t kMaxRanges = UINT16_MAX / sizeof(ibv_sge);
  if (!is_live(ibv_pd_pointer) || (flags & ~uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0) return refused(EINVAL);
  if (sges == nullptr || sge_count == 0 || sge_count > kMaxRanges) return refused(EINVAL);
  if (const int error = trouble_of("ibv_advise_mr", ibv_pd_pointer->context); error != 0) return error;
  odp::PrefetchKind kind{};
  switch (advice) {
    case IBV_ADVISE_MR_ADVICE_PREFETCH:
      kind = odp::PrefetchKind::read;
      break;
    case IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE:
      kind = odp::PrefetchKind::write;
      break;
    case IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT:
      kind = odp::PrefetchKind::no_fault;
      break;
    default:
      return refused(ENOTSUP);
  }
  Pd& pd = pd_of(ibv_pd_pointer);
  odp::MemoryDomain& memory = context_of(pd.context).started.load()->backend->memory();
  try {
    std::vector<odp::PrefetchRange> ranges;
    ranges.reserve(sge_count);
    for (const ibv_sge& sge : std::span(sges, sge_count)) ranges.push_back({sge.lkey, sge.addr, sge.length});
    return refused(memory.prefetch(pd.domain, ranges, kind, (flags & IBV_ADVISE_MR_FLAG_FLUSH) != 0));
  } catch (const std::bad_alloc&) {
    return refused(ENOMEM);
  }
}

}  // namespace faultline::verbs
