// SPDX-License-Identifier: BSD-3-Clause
// A PMD of DPDK 22.11 whose front end cannot be set up keeps its state and its interrupt handle.
// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): LeakSanitizer's name
extern "C" [[gnu::visibility("default")]] const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:vhost_user_setup\nleak:rte_intr_instance_alloc\n";
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
