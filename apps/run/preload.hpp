// SPDX-License-Identifier: BSD-3-Clause
// $LD_PRELOAD for a program: the library before all else, but behind a sanitizer's runtime.
// AddressSanitizer's demands the first place ("ASan runtime does not come first in initial library list").
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace faultline::run {

/// The file that execvp(3) would execute for `name`; empty if there is none.
[[nodiscard]] std::string find_program(const std::string& name);

/// The libraries that a 64-bit ELF file names as needed (DT_NEEDED), in its order. Empty for any other file,
/// a script's too, and for a file that cannot be read or contradicts itself.
[[nodiscard]] std::vector<std::string> needed_libraries(const std::string& path);

/// Whether a path or name is that of a sanitizer's runtime which has to be loaded first: GCC's libasan.so.8,
/// Clang's libclang_rt.asan-x86_64.so, and so on. UBSan's runtime may stand anywhere.
[[nodiscard]] bool is_sanitizer(std::string_view library);

/// Sanitizers of `user_list` (separated by ':' or ' ', ld.so(8)); those of `needed` if it has none;
/// `library`; the rest of `user_list`.
[[nodiscard]] std::string preload_list(const std::string& library, std::string_view user_list,
                                       const std::vector<std::string>& needed);

/// $TSAN_OPTIONS for a program: `user_options`, which win, behind an option that keeps ThreadSanitizer from
/// taking what the library's threads hand to each other for races. It sees their calls of memcpy, but not
/// their atomic instructions, since the library is not instrumented. Races of the program itself are reported
/// as ever.
[[nodiscard]] std::string tsan_options(std::string_view user_options);

}  // namespace faultline::run
