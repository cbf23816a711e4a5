#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What passed on which system: a record of each, and the table of all in docs/conformance.md.
  systems.py record MESON_LOG.json NAME   prints the record of a run of the conformance tests, as JSON; NAME ends with -archive if the
                                          programs used the relocatable archive
  systems.py table                        prints the section of docs/conformance.md
  systems.py renew PAGE                   puts that section in place of the one that the page has
The records are tests/conformance/systems/NAME.json."""
import collections
import datetime
import json
import pathlib
import platform
import re
import subprocess
import sys

RECORDS = pathlib.Path(__file__).resolve().parent / "systems"
HEADING = "## On each system"
ARCHIVE = "-archive"
ORDER = [name + of for name in ("bookworm", "trixie", "forky") for of in ("", ARCHIVE)]
# The packages of the programs, the kernel's library beside them.
PACKAGES = {"rdma-core": "ibverbs-utils", "perftest": "perftest", "pyverbs": "python3-pyverbs", "UCX": "ucx-utils", "libfabric": "libfabric-bin",
            "Open MPI": "openmpi-bin", "qperf": "qperf", "fio": "fio"}
ROW = re.compile(r"(ok|FAILED|SKIPPED)(?: \(([^)]*)\))?: (\S+)")
COUNTS = re.compile(r"(\d+) (pass|fail|error|skip)\b")


def asked(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def record(log, name):
    programs, suites, others = {}, {}, {}
    with open(log, encoding="utf-8") as file:
        tests = [json.loads(line) for line in file]
    for test in tests:
        short, output = test["name"].split(" / ")[-1].split(":")[-1], test.get("stdout") or ""
        if short == "matrix-chosen":  # rows of the matrix of the wire
            continue
        if short.startswith("pyverbs"):
            found = {result: int(count) for count, result in COUNTS.findall(output.split("\n", 1)[0])}
            suites[short] = {"result": test["result"], **found}
        elif short.startswith("matrix-"):
            network = short.removeprefix("matrix-")
            for result, reason, program in (row.groups() for row in map(ROW.match, output.splitlines()) if row):
                counts = programs.setdefault(program, {}).setdefault(network, {})
                key = result if result != "SKIPPED" else f"not run: {reason}"
                counts[key] = counts.get(key, 0) + 1
        else:
            others[short] = test["result"]
    versions = {what: asked("dpkg-query", "-W", "-f", "${Version}", package) for what, package in PACKAGES.items()}
    system = re.search(r'^PRETTY_NAME="?([^"\n]*)', pathlib.Path("/etc/os-release").read_text(encoding="ascii"), re.MULTILINE)
    words, label = name, system.group(1)
    if name.endswith(ARCHIVE):
        words, label = f"--archive {name.removesuffix(ARCHIVE)}", f"{label}, by the archive"
    return {"system": label, "date": datetime.date.today().isoformat(), "commit": asked("git", "rev-parse", "--short=8", "HEAD"),
            "kernel": platform.release(), "command": f"scripts/conformance systems {words}",
            "versions": {what: version for what, version in versions.items() if version}, "programs": programs, "pyverbs": suites, "tests": others}


def cell(networks):
    """Passed of run, over all networks, and why others were not run."""
    total = collections.Counter()
    for counts in networks.values():
        total.update(counts)
    passed, failed = total.pop("ok", 0), total.pop("FAILED", 0)
    words = [f"{passed} of {passed + failed}"] if passed + failed else []
    return "; ".join(words + [f"{count} {reason}" for reason, count in sorted(total.items())])


def table():
    records = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDS.glob("*.json"))}
    names = sorted(records, key=ORDER.index)
    print(f"{HEADING}\n\nWritten by `scripts/conformance systems`: Debian's programs, unmodified, over a wire, veth pairs and UDP sockets. A cell has the rows "
          "that passed of those that ran, and why others did not. Each system has a build of its own; \"by the archive\" has the relocatable archive instead.\n")
    print("| | " + " | ".join(records[name]["system"] for name in names) + " |\n|---|" + "---|" * len(names))
    for key in ("date", "commit"):
        print(f"| {key} | " + " | ".join(records[name][key] for name in names) + " |")
    for what in PACKAGES:
        print(f"| {what} | " + " | ".join(records[name]["versions"].get(what, "") for name in names) + " |")
    for program in sorted({program for name in names for program in records[name]["programs"]}):
        print(f"| `{program}` | " + " | ".join(cell(records[name]["programs"].get(program, {})) for name in names) + " |")
    for suite in sorted({suite for name in names for suite in records[name]["pyverbs"]}):
        cells = []
        for name in names:
            counts = dict(records[name]["pyverbs"].get(suite, {}))
            counts.pop("result", None)
            cells.append(", ".join(f"{count} {result}" for result, count in counts.items()))
        print(f"| {suite} | " + " | ".join(cells) + " |")
    for test in sorted({test for name in names for test in records[name]["tests"]}):
        print(f"| {test} | " + " | ".join(records[name]["tests"].get(test, "").lower() for name in names) + " |")
    print()


def renew(page):
    path = pathlib.Path(page)
    lines = path.read_text(encoding="utf-8").split("\n")
    begin = lines.index(HEADING)
    end = next((number for number in range(begin + 1, len(lines)) if lines[number].startswith("## ")), len(lines))
    section = subprocess.run([sys.executable, "-B", __file__, "table"], capture_output=True, text=True, check=True).stdout
    path.write_text("\n".join(lines[:begin]) + "\n" + section + "\n".join(lines[end:]), encoding="utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", log, name]:
            print(json.dumps(record(log, name), indent=1))
        case ["table"]:
            table()
        case ["renew", page]:
            renew(page)
        case _:
            sys.exit(__doc__)
