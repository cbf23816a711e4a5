#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Prints the line coverage of stack/, odp/, pmd_glue/ and apps/ from the counters of a build folder, and writes coverage.json and
# coverage.html. A program that ends by SIGKILL or _exit(2), or that may not write into the build folder, leaves no counters: its lines
# count only if another program runs them.
#   coverage.sh BUILD_DIR OUTPUT_DIR
set -euo pipefail
source_dir=$(realpath "$(dirname "$0")/../..")
build=$1
output=$2
mkdir -p "$output/coverage.html"
gcovr --root "$source_dir" --filter "$source_dir/(stack|odp|pmd_glue|apps)/" -j "$(nproc)" --gcov-ignore-parse-errors \
  --json-summary "$output/coverage.json" --json-summary-pretty --html-details "$output/coverage.html/index.html" --output /dev/null "$build"
python3 - "$output/coverage.json" <<'PY'
import collections, json, sys
total, covered = collections.Counter(), collections.Counter()
for file in json.load(open(sys.argv[1]))["files"]:
    for key in (file["filename"].split("/")[0], "all"):
        total[key] += file["line_total"]
        covered[key] += file["line_covered"]
for key in sorted(total, key=lambda key: (key == "all", key)):
    print(f"{key}: {covered[key]} of {total[key]} lines, {100 * covered[key] / max(total[key], 1):.1f} %")
print("without the counters of programs that ended by SIGKILL or _exit, or that may not write into the build folder")
sys.exit(0 if covered["all"] else 1)
PY
