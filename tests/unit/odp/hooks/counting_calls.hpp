// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// How many calls of a name have reached the library behind the hooks.
extern "C" int counted_calls(const char* name);
