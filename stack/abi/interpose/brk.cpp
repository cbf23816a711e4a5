// SPDX-License-Identifier: BSD-3-Clause
// brk(2) and sbrk(3) of the program, in libfaultline.so. The C library's malloc moves the break without these
// names; userfaultfd reports that.
#include <cerrno>
#include <cstdint>

#include <sys/syscall.h>
#include <unistd.h>

#include "odp/invalidation/invalidation_monitor.hpp"
#include "odp/invalidation/program_call.hpp"
#include "odp/regions/address_space.hpp"
#include "odp/regions/page_map.hpp"
#include "stack/abi/interpose/next_definition.hpp"
#include "stack/abi/interpose/program_range.hpp"

namespace {

using faultline::abi::has_domains;
using faultline::abi::page_end;
using faultline::odp::AddressSpaceCall;
using faultline::odp::PageEvent;
using faultline::odp::ProgramCall;
namespace next = faultline::odp::next;

/// Returns the break. brk(2) changes nothing if the address is refused, and 0 is always refused.
uint64_t current_break() {
  return static_cast<uint64_t>(syscall(SYS_brk, 0));
}

/// Makes a call that may lower the break to `wanted`. The pages that it removes are marked before the call.
template <typename Call>
auto lower_break(uint64_t wanted, uint64_t before, Call call) {
  ProgramCall guard(page_end(wanted), page_end(before), PageEvent::kill);
  const AddressSpaceCall in_progress;
  const auto result = call();
  // glibc's brk() returns 0 even if the kernel has refused an address below the heap.
  if (page_end(current_break()) >= page_end(before)) guard.undo_kill();
  return result;
}

}  // namespace

FAULTLINE_CALL int brk(void* end) noexcept {
  const auto call = [end] { return next::brk(end); };
  if (!has_domains()) return call();
  const uint64_t before = current_break();
  const auto wanted = reinterpret_cast<uint64_t>(end);
  return wanted < before ? lower_break(wanted, before, call) : call();
}

FAULTLINE_CALL void* sbrk(intptr_t increment) noexcept {
  const auto call = [increment] { return next::sbrk(increment); };
  if (increment >= 0 || !has_domains()) return call();
  const uint64_t before = current_break();
  const uint64_t wanted = before + static_cast<uint64_t>(increment);
  return wanted < before ? lower_break(wanted, before, call) : call();
}
