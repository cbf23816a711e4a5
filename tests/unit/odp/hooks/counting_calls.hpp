// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// Returns how many calls of `name` have reached the library after the hooks.
extern "C" int counted_calls(const char* name);
