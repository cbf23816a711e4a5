// SPDX-License-Identifier: BSD-3-Clause
#include "odp/invalidation/process_page.hpp"

#include <type_traits>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace faultline::odp {

static_assert(std::is_trivially_destructible_v<ProcessPage>);

constinit std::atomic<ProcessPage*> ProcessPage::place_{nullptr};

ProcessPage* ProcessPage::make() {
  if (ProcessPage* const page = find()) return page;
  // Direct system calls: the library's hooks of these functions read this page.
  const long memory = syscall(SYS_mmap, nullptr, sizeof(ProcessPage), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == -1) return nullptr;
  syscall(SYS_madvise, memory, sizeof(ProcessPage), MADV_WIPEONFORK);
  // All zero bytes are the initial state, here as in a child.
  auto* const made = reinterpret_cast<ProcessPage*>(memory);
  ProcessPage* before = nullptr;
  if (place_.compare_exchange_strong(before, made, std::memory_order_acq_rel)) return made;
  syscall(SYS_munmap, memory, sizeof(ProcessPage));  // another thread was faster
  return before;
}

}  // namespace faultline::odp
