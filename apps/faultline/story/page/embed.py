#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the page's files a C++ source with functions that return them.  embed.py OUTPUT FILE..."""
import pathlib
import sys

OUTPUT, *FILES = (pathlib.Path(path) for path in sys.argv[1:])
lines = ["// SPDX-License-Identifier: BSD-3-Clause", '#include "apps/faultline/story/page_files.hpp"', "", "namespace faultline::story::page_files {"]
for kind in ["html", "css", "js"]:
    data = b"".join(file.read_bytes() for file in FILES if file.suffix == f".{kind}")
    lines.append(f"std::string_view {kind}() {{\n  static constexpr unsigned char kBytes[] = {{")
    lines += ["    " + ",".join(map(str, data[at:at + 40])) + "," for at in range(0, len(data), 40)]
    lines.append(f"  }};\n  return {{reinterpret_cast<const char*>(kBytes), {len(data)}}};\n}}")
lines.append("}  // namespace faultline::story::page_files")
OUTPUT.write_text("\n".join(lines) + "\n")
