// SPDX-License-Identifier: BSD-3-Clause
// $LD_PRELOAD for a program: the library first, except that a sanitizer's runtime precedes it.
// AddressSanitizer's runtime requires the first position ("ASan runtime does not come first in initial
// library list").
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace faultline::run {

/// Returns the file that execvp(3) would execute for `name`; empty if there is none.
[[nodiscard]] std::string find_program(const std::string& name);

/// Returns the libraries that a 64-bit ELF file needs (DT_NEEDED), in the file's order. Empty for any other
/// file, including a script, and for a file that cannot be read or is inconsistent.
[[nodiscard]] std::vector<std::string> needed_libraries(const std::string& path);

/// Returns whether a path or name is a sanitizer runtime that must be loaded first: GCC's libasan.so.8,
/// Clang's libclang_rt.asan-x86_64.so, and so on. UBSan's runtime may be at any position.
[[nodiscard]] bool is_sanitizer(std::string_view library);

/// Returns the sanitizers of `user_list` (separated by ':' or ' ', ld.so(8)), or those of `needed` if it has
/// none; then `library`; then the rest of `user_list`.
[[nodiscard]] std::string preload_list(const std::string& library, std::string_view user_list,
                                       const std::vector<std::string>& needed);

/// Returns $TSAN_OPTIONS for a program: an option against false reports, then `user_options`, which override
/// it. ThreadSanitizer sees the memcpy calls of the library's threads, but not their atomic instructions,
/// since the library is not instrumented. It would report their hand-overs as races. Races of the program
/// itself are still reported.
[[nodiscard]] std::string tsan_options(std::string_view user_options);

}  // namespace faultline::run
