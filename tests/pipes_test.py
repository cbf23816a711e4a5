#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""No script of bash pipes into a command that may end before it has read all: with pipefail, the SIGPIPE of a writer that was slower
is then the result of the pipe, so that it depends on the load of the machine. `grep -q X < <(command)` and `sed -n 1p` do the same safely.
  pipes_test.py"""
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent
# head; grep -q, also among other letters, and -m; a sed script or an awk program that ends early.
ENDS_EARLY = re.compile(r"""[^|]\|&?\s*(?:[a-z]*grep\s+(?:-\S+\s+)*(?:-[A-Za-z]*(?:q|m\s*\d)|--(?:quiet|silent|max-count))|head\b|sed\s[^|]*[;{/0-9]q\b|awk\s[^|]*\bexit\b)""")
FAULTY = ("ldd x | grep -q y", "ldd x | grep -i -Eq y", "ldd x |& grep -m 1 y", "ldd x | egrep -qx y", "ldd x | grep -i --quiet y", "ldd x | grep --max-count=1 y",
          "ldd x | head -n 1", "ldd x | sed -n '/y/{p;q}'",
          "ldd x | sed 5q", "ldd x | awk '{ print; exit }'")
SAFE = ("grep -q y < <(ldd x)", "ldd x | grep -c y", "a || grep -q y file", "ldd x | sed -n 1p", "ldd x | grep -e quick", "ldd x | grep --color=never y", "x | awk '{ print }'")


def is_bash(text):
    first = text.split("\n", 1)[0]
    return first.startswith("#!") and "bash" in first or "# shellcheck shell=bash" in text


for line in FAULTY:
    assert ENDS_EARLY.search(line), f"not found: {line}"
for line in SAFE:
    assert not ENDS_EARLY.search(line), f"found: {line}"
scripts = 0
faults = []
for top in (".ci", "apps", "debian", "scripts", "tests"):
    for path in sorted((SOURCE / top).rglob("*")):
        if not path.is_file() or path.is_symlink() or path.suffix in (".pcap", ".patch", ".py", ".cpp", ".hpp", ".md"):
            continue
        text = path.read_text(errors="replace")
        if not is_bash(text):
            continue
        scripts += 1
        whole = re.sub(r"\\\n\s*|\|\n\s*", lambda found: found.group().rstrip().rstrip("\\") + " ", text)
        faults += [f"{path.relative_to(SOURCE)}: {line.strip()}" for line in whole.splitlines()
                   if ENDS_EARLY.search(line) and not line.lstrip().startswith("#")]
assert scripts > 0, "no script"
print(*faults, f"{scripts} scripts, {len(faults)} faults", sep="\n")
sys.exit(1 if faults else 0)
