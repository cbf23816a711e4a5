// SPDX-License-Identifier: BSD-3-Clause
// odp_mix as a function, so that a program can open the library and this mix late (dlopen(3)).
#pragma once

extern "C" [[gnu::visibility("default")]] int faultline_odp_mix(int argc, char** argv);
