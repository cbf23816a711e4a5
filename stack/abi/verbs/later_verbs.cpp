// SPDX-License-Identifier: BSD-3-Clause
// Verbs of rdma-core releases after the one whose headers are used here (ibv_alloc_dmah(3) and the
// like). A program that was linked with a later release starts, and learns that the device does not support
// them.
#include <cerrno>

#include "stack/verbs/objects/objects.hpp"

namespace faultline::abi {

FAULTLINE_VERB void* private_later_object(...) {
  return verbs::fail(EOPNOTSUPP);
}
/// Returns an errno.
FAULTLINE_VERB int private_later_call(...) {
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

#define FAULTLINE_LATER(name, what, version) \
  __asm__(".symver private_later_" #what "," #name "@@IBVERBS_1." #version)
FAULTLINE_LATER(ibv_alloc_dmah, object, 15);
FAULTLINE_LATER(ibv_dealloc_dmah, call, 15);
#undef FAULTLINE_LATER

}  // namespace faultline::abi
