#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The probes of a library, as its notes state them: provider, names and numbers of arguments are those of the table in docs/seeing/probes.md, and
the scripts in scripts/bpftrace use no other probe and no argument that a probe lacks.
  probes_test.py SOURCE_DIR LIBRARY..."""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402

NAMES = {"post", "send", "receive", "retransmit", "fault", "resolve", "complete"}
source = pathlib.Path(sys.argv[1])
faults = []


def documented():
    """Returns the number of arguments of each probe in the page's table."""
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", (source / "docs/seeing/probes.md").read_text(), re.MULTILINE)
    return {name: len(re.findall(r"`\w+`", arguments)) for name, arguments in rows}


def built(library):
    """Returns the numbers of arguments that the places of each probe have."""
    notes = subprocess.run(["readelf", "-n", library], check=True, capture_output=True, text=True, timeout=lib.LIMIT_S).stdout
    probes = {}
    for provider, name, arguments in re.findall(r"Provider: (\S+)\s+Name: (\S+)\s+Location:[^\n]*\s+Arguments: ([^\n]*)", notes):
        if provider == "faultline":
            # An argument is SIZE@OPERAND; the operand may have blanks.
            probes.setdefault(name, set()).add(len(re.findall(r"(?:^|\s)-?\d+f?@", arguments)))
    return probes


expected = documented()
if set(expected) != NAMES:
    faults.append(f"docs/seeing/probes.md has {sorted(expected)}")
for library in sys.argv[2:]:
    found = built(library)
    if found != {name: {count} for name, count in expected.items()}:
        faults.append(f"{library}: {found}, documented: {expected}")
scripts = sorted((source / "scripts/bpftrace").glob("*.bt"))
if len(scripts) < 2:
    faults.append("scripts/bpftrace has fewer than two scripts")
for script in scripts:
    for name, body in re.findall(r"^usdt:\$1:faultline:(\w+)\n(.*?)^}", script.read_text(), re.MULTILINE | re.DOTALL):
        most = max((int(number) for number in re.findall(r"\barg(\d)\b", body)), default=-1)
        if most >= expected.get(name, 0):
            faults.append(f"{script.name}: {name} has no arg{most}")
for fault in faults:
    print(fault)
sys.exit(1 if faults else 0)
