// SPDX-License-Identifier: BSD-3-Clause
// The files of page/, which the build makes a part of the program (embed.py).
#pragma once

#include <string_view>

namespace faultline::story::page_files {

[[nodiscard]] std::string_view html();
[[nodiscard]] std::string_view css();
[[nodiscard]] std::string_view js();  ///< all scripts, one after the other

}  // namespace faultline::story::page_files
