// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// Exports symbols in every version of rdma-core's private interface. libibverbs.map has the default version
/// (34) of each name, and a node for each version.

/// `apply(version)` for each version but the default one. rdma-core 28 to 32 have 25, rdma-core 33 has 33, 34
/// to 56 have 34; from 57 on a release has its own number.
#define FAULTLINE_PRIVATE_RELEASES(apply)                                                             \
  apply(25) apply(33) apply(57) apply(58) apply(59) apply(60) apply(61) apply(62) apply(63) apply(64) \
      apply(65)

/// Exports `symbol`, which is global and of C linkage, as `name` in one version.
#define FAULTLINE_PRIVATE_IN(name, symbol, version) \
  __asm__(".symver " #symbol "," #name "@IBVERBS_PRIVATE_" #version)

/// Exports `symbol` as `name` in every version.
#define FAULTLINE_PRIVATE(name, symbol)                         \
  __asm__(".symver " #symbol "," #name "@@IBVERBS_PRIVATE_34"); \
  FAULTLINE_PRIVATE_IN(name, symbol, 25);                       \
  FAULTLINE_PRIVATE_IN(name, symbol, 33);                       \
  FAULTLINE_PRIVATE_IN(name, symbol, 57);                       \
  FAULTLINE_PRIVATE_IN(name, symbol, 58);                       \
  FAULTLINE_PRIVATE_IN(name, symbol, 59);                       \
  FAULTLINE_PRIVATE_IN(name, symbol, 60);                       \
  FAULTLINE_PRIVATE_IN(name, symbol, 61);                       \
  FAULTLINE_PRIVATE_IN(name, symbol, 62);                       \
  FAULTLINE_PRIVATE_IN(name, symbol, 63);                       \
  FAULTLINE_PRIVATE_IN(name, symbol, 64);                       \
  FAULTLINE_PRIVATE_IN(name, symbol, 65)
