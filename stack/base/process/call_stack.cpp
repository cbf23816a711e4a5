// SPDX-License-Identifier: BSD-3-Clause
#include "stack/base/process/call_stack.hpp"

#include <cstdint>

#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

namespace faultline {
namespace {

/// A stack walk from the caller outwards. It meets frames of the library, then frames of other objects (the C
/// library's exit), then perhaps frames of the library again.
struct Walk {
  uintptr_t begin;
  uintptr_t end;
  bool left = false;
  bool found = false;
};

_Unwind_Reason_Code look(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  const uintptr_t instruction = _Unwind_GetIP(context);
  const bool is_own = instruction >= walk.begin && instruction < walk.end;
  walk.left |= !is_own;
  walk.found = walk.left && is_own;
  return walk.found ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

}  // namespace

bool has_interrupted_own_call() {
  dl_find_object own{};
  // dlfcn(3): unlike dladdr, takes no lock.
  if (_dl_find_object(reinterpret_cast<void*>(&look), &own) != 0) return false;
  if (own.dlfo_link_map->l_name[0] == '\0') return false;
  Walk walk{.begin = reinterpret_cast<uintptr_t>(own.dlfo_map_start),
            .end = reinterpret_cast<uintptr_t>(own.dlfo_map_end)};
  _Unwind_Backtrace(look, &walk);
  return walk.found;
}

}  // namespace faultline
