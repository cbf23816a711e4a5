// SPDX-License-Identifier: BSD-3-Clause
// The object of a PMD module that is not DPDK's: the version of DPDK that the module was linked from.
#include <rte_version.h>

extern "C" __attribute__((visibility("default"))) const int faultline_pmd_dpdk_version = RTE_VERSION;
