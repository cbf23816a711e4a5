// SPDX-License-Identifier: BSD-3-Clause
// Verbs on completion counters of rdma-core 65, which the headers of a system may lack. Where they have them,
// these declarations repeat theirs.
#pragma once

#include <cstddef>
#include <cstdint>

#include <infiniband/verbs.h>

struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;

extern "C" {
int _ibv_query_comp_cntr_caps(ibv_context* context, ibv_comp_cntr_caps* caps, size_t caps_bytes);
ibv_comp_cntr* ibv_create_comp_cntr(ibv_context* context, ibv_comp_cntr_init_attr* attributes);
int ibv_destroy_comp_cntr(ibv_comp_cntr* counter);
int ibv_set_comp_cntr(ibv_comp_cntr* counter, uint64_t value);
int ibv_set_err_comp_cntr(ibv_comp_cntr* counter, uint64_t value);
int ibv_inc_comp_cntr(ibv_comp_cntr* counter, uint64_t amount);
int ibv_inc_err_comp_cntr(ibv_comp_cntr* counter, uint64_t amount);
int ibv_read_comp_cntr(ibv_comp_cntr* counter, uint64_t* value);
int ibv_read_err_comp_cntr(ibv_comp_cntr* counter, uint64_t* value);
int ibv_qp_attach_comp_cntr(ibv_qp* qp, ibv_comp_cntr* counter, ibv_qp_attach_comp_cntr_attr* attributes);
}

namespace faultline::verbs {

/// `ibv_comp_cntr_caps`.
struct CounterCapabilities {
  uint64_t max_value;
  uint32_t max_counters;
  uint32_t supported_operations;  ///< bits of transport::CountedOperation
};

/// `ibv_comp_cntr_init_attr`.
struct CounterAttributes {
  uint32_t comp_mask;
  uint32_t type;  ///< CounterType
  uint32_t flags;
};
enum class CounterType : uint32_t { work_requests, bytes };  // ibv_comp_cntr_type

/// `ibv_qp_attach_comp_cntr_attr`.
struct AttachAttributes {
  uint32_t comp_mask;
  uint32_t operations;
};

}  // namespace faultline::verbs
