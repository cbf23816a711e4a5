#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reads logs of meson test (testlog.json).
  results.py counts LOG             prints: passed failed skipped
  results.py skipped LOG            prints each skipped test with its reason
  results.py summary NAME=LOG...    prints the failed and the slowest tests of several runs
  results.py repeated LOG           prints how often each test failed; exit status 1 if one did"""
import collections
import json
import sys

GOOD = ("OK", "EXPECTEDFAIL")


def tests_of(log):
    """The tests of a log. Meson writes "project:suite / name"."""
    with open(log) as file:
        return [{**test, "name": test["name"].split(" / ")[-1]} for test in map(json.loads, file)]


def counts(log):
    results = [test["result"] for test in tests_of(log)]
    passed, skipped = sum(result in GOOD for result in results), results.count("SKIP")
    print(passed, len(results) - passed - skipped, skipped)


def skipped(log):
    for test in tests_of(log):
        if test["result"] == "SKIP":
            output = [line for stream in ("stdout", "stderr") for line in (test.get(stream) or "").splitlines() if line.strip()]
            print(f"SKIPPED: {test['name']}: {output[-1] if output else 'no reason given'}")


def summary(*entries):
    tests = []
    for entry in entries:
        name, log = entry.split("=", 1)
        tests += [(test["duration"], f"{test['name']} ({name})", test["result"]) for test in tests_of(log)]
    failed = [test for _, test, result in tests if result not in (*GOOD, "SKIP")]
    if failed:
        print("== failed: " + ", ".join(failed))
    print("== slowest: " + ", ".join(f"{test} {seconds:.0f} s" for seconds, test, _ in sorted(tests, reverse=True)[:10]))


def repeated(log):
    runs, failures = collections.Counter(), collections.Counter()
    for test in tests_of(log):
        runs[test["name"]] += 1
        failures[test["name"]] += test["result"] not in (*GOOD, "SKIP")
    for name in sorted(runs, key=lambda name: (-failures[name], name)):
        print(f"{name}: {failures[name]} of {runs[name]} failed")
    sys.exit(1 if not runs or any(failures.values()) else 0)


if len(sys.argv) < 3 or sys.argv[1] not in ("counts", "skipped", "summary", "repeated"):
    sys.exit(__doc__)
globals()[sys.argv[1]](*sys.argv[2:])
