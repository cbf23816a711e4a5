#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes docs/conformance.md from the log of the conformance tests.

    report.py MESON_LOG.json PYVERBS_EXPECTED.tsv

A test prints "ok: PROGRAM ARGUMENTS" for each successful run, and otherwise "FAILED: ..." or "SKIPPED: ...".
"""
import collections
import json
import pathlib
import re
import subprocess
import sys

PACKAGES = ["ibverbs-utils", "perftest", "rdmacm-utils", "python3-pyverbs", "ucx-utils", "libfabric-bin", "openmpi-bin"]


def versions():
    found = []
    for package in PACKAGES:
        query = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True)
        if query.returncode == 0 and query.stdout:
            found.append(f"{package} {query.stdout}")
    return ", ".join(found)


def rows_of(test):
    """Program, arguments and result of each run in a test's output."""
    for line in (test.get("stdout") or "").splitlines():
        row = re.match(r"(ok|FAILED|SKIPPED)(?: \([^)]*\))?: (\S+) ?(.*)", line)
        if row:
            yield row.group(2), row.group(3), row.group(1)


def matrix(tests, totals):
    """Rows that run on several networks: a column for each."""
    networks = {test["name"].split("matrix-")[-1]: test for test in tests if "matrix-" in test["name"]}
    results = {}
    for network, test in networks.items():
        for program, arguments, result in rows_of(test):
            totals[result] += 1
            results.setdefault((program, arguments), {})[network] = result
    print("\n## Each program, in each way\n")
    print("`wire`: over `faultline-run --wire`, as an ordinary user (uid 65534), without huge pages. `veth`: as root, in two network "
          "namespaces that a veth pair joins.\n`udp`: over sockets in these, as an ordinary user without a capability.\nThe rows are in `tests/conformance/matrix.txt`, with what perftest refuses by itself. "
          "librpma's examples are not among them: Debian ships the library (librpma0) and its manual pages, but no example.\n")
    for network, test in sorted(networks.items()):
        lines = [line for line in (test.get("stdout") or "").splitlines() if line.strip()]
        print(f"- {network}: {test['result'].lower()}, {lines[-1] if lines else 'it printed nothing'}")
    print("\n| program | arguments | wire | veth | udp |")
    print("|---|---|---|---|---|")
    for (program, arguments), of in sorted(results.items()):
        print(f"| `{program}` | {'`' + arguments + '`' if arguments else ''} | {of.get('wire', '')} | {of.get('veth', '')} | "
              f"{of.get('udp', '')} |")


def main():
    log, expected = sys.argv[1:]
    print("# Programs that others wrote")
    print()
    print("Written by `scripts/conformance`. The programs are Debian's, unmodified: " + versions() + ".")
    for by_hand in ("specification.md", "heads.md"):
        print("\n" + (pathlib.Path(__file__).parent / by_hand).read_text(), end="")
    print("\n" + subprocess.run([sys.executable, "-B", pathlib.Path(__file__).parent / "systems.py", "table"], capture_output=True, text=True,
                                 check=True).stdout, end="")
    totals = collections.Counter()
    with open(log) as file:
        tests = [json.loads(line) for line in file]
    # The chosen rows are rows of the matrix of the wire.
    tests = [test for test in tests if re.search(r":conformance(\+default)? / ", test["name"]) and not test["name"].endswith(" / matrix-chosen")]
    matrix(tests, totals)
    for test in sorted(tests, key=lambda test: test["name"]):
        name = test["name"].split(" / ")[-1]
        if name.startswith("matrix-"):
            continue
        print(f"\n## {name}: {test['result'].lower()}\n")
        rows = list(rows_of(test))
        if not rows:
            last = [line for line in (test.get("stdout") or "").splitlines() if line.strip()]
            print(last[-1] if last else "It said nothing.")
            continue
        print("| program | arguments | result |")
        print("|---|---|---|")
        for program, arguments, result in rows:
            totals[result] += 1
            print(f"| `{program}` | {'`' + arguments + '`' if arguments else ''} | {result} |".replace("||", "|"))
    print("\n## rdma-core's own suite, test by test\n")
    print("What the check holds the results to. All but the rdma_cm tests are one run, `pyverbs`. Those are part of `pyverbs-share`, on a wire whose device its forked processes share.\n")
    reasons = collections.defaultdict(list)
    passed = []
    with open(expected) as file:
        for line in file:
            if line.startswith("#"):
                continue
            test, result, reason = (line.rstrip("\n").split("\t") + [""])[:3]
            if result == "skip":
                reasons[reason.replace("\\", "")].append(test)
            else:
                passed.append(test)
    print(f"Passed: {len(passed)}. Skipped: {sum(len(tests) for tests in reasons.values())}. Failed: none.\n")
    print("| skipped, as it says itself | tests |")
    print("|---|---|")
    for reason, skipped in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"| {reason.replace('|', ' or ')} | {len(skipped)}: {', '.join(t.split('.')[-1] for t in skipped[:4])}"
              + (", …" if len(skipped) > 4 else "") + " |")
    print(f"\n{totals['ok']} runs ended well, {totals['FAILED']} failed, {totals['SKIPPED']} were skipped.")


main()
