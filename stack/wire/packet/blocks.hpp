// SPDX-License-Identifier: BSD-3-Clause
// Operations on blocks of sixteen bytes, by the names of SSE up to 4.1. On other CPUs SIMDe maps each name
// to that CPU's instructions.
#pragma once

#if defined(__x86_64__)
#include <smmintrin.h>
#else
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/sse4.1.h>
#endif
