// SPDX-License-Identifier: BSD-3-Clause
// Verbs on memory of rdma-core 59 to 65, which the headers of a system may lack. Where they have them, these
// declarations repeat theirs.
#pragma once

#include <cstddef>
#include <cstdint>

#include <infiniband/verbs.h>

struct ibv_buf;
struct ibv_mr_init_attr;

extern "C" {
void* ibv_alloc_buf(ibv_pd* pd, size_t length_bytes, ibv_buf** buffer);
void ibv_free_buf(ibv_buf* buffer);
int ibv_export_buf_dmabuf_fd(ibv_buf* buffer);
int ibv_dm_export_dmabuf_fd(ibv_dm* dm);
ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attributes);
ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buffer, void* address, size_t length_bytes, int access);
}

namespace faultline::verbs {

/// `ibv_mr_init_attr` as of rdma-core 64. In rdma-core 59 it ends before `buffer`, so a member is read only
/// if its bit is set.
struct RegionAttributes {
  enum Bit : uint64_t {  // IBV_REG_MR_MASK_*
    iova_bit = 1,
    address_bit = 2,
    descriptor_bit = 4,
    offset_bit = 8,
    handle_bit = 16,
    buffer_bit = 32
  };
  static constexpr uint64_t kKnown = 63;

  size_t length_bytes;
  int access;
  uint64_t members;  ///< Bit
  uint64_t iova;
  void* address;
  int descriptor;
  uint64_t offset_bytes;
  void* dma_handle;
  ibv_buf* buffer;

  [[nodiscard]] bool has(uint64_t bit) const { return (members & bit) != 0; }
};

}  // namespace faultline::verbs
