#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""UCX's own gtest, built from Debian's source package: its tests for rc_verbs and ud_verbs, of UCT and of UCP.
  ucx_gtest.py FAULTLINE_RUN [FILTER...]
Each test suite is a process of its own, on one wire. ucx_gtest_expected.tsv lists the exceptions; every other test must pass or skip
itself.
"""
import re
import sys

import harness
import source
from harness import Failure

SUITE_SECONDS = 600
# Without those that measure speed: they take an hour on two CPUs, and compare with the speed of adapters.
FILTERS = ["rc_verbs*/*", "ud_verbs*/*", "rcv*/*", "udv*/*", "rc/*", "ud/*", "ib/*", "-*perf*"]
LIBRARIES = "src/ucm src/ucs src/uct src/ucp src/tools/perf"
RESULT = re.compile(r"^\[\s+(OK|FAILED|SKIPPED)\s+\] (\S+?)(?:,| <| \(|$)")


def gtest():
    options = "--enable-gtest --with-verbs --with-rdmacm --without-java --without-go --without-cuda --without-rocm --without-knem " + \
              "--without-xpmem --without-mlx5-dv --disable-doxygen-doc CFLAGS='-O1 -g0' " + source.compiler()
    # Newer compilers print warnings that its tests turn into errors.
    flags = "CXXFLAGS='-O2 -g0 -Wno-error'"
    # Its configure script needs files of Debian's packaging, which the original source does not have.
    return source.build("ucx_gtest", "ucx", ["bookworm"], [
        "mkdir -p debian; cd debian; touch compat copyright ucx.prerm rules.in control.in changelog.in; cd ..; [ -e test/gtest/Makefile.in ] || ./autogen.sh",
        f"./configure --prefix=$out {options}", f"for library in {LIBRARIES}; do make -j2 -C $library && make -C $library install; done",
        f"make -j2 -C test/gtest gtest {flags}",
        "mkdir -p $out/bin; ./libtool --mode=install cp test/gtest/gtest $out/bin/ || cp test/gtest/gtest $out/bin/"], "bin/gtest")


def names(text):
    """The tests that gtest lists, by suite."""
    suites = {}
    suite = None
    for line in text.splitlines():
        if re.match(r"^\S+\.(\s|$)", line):
            suite = line.split()[0]
        elif line.startswith("  ") and suite:
            suites.setdefault(suite, []).append(line.split()[0])
    return suites


def run_suite(session, binary, variables, tests):
    """The result of each test. A test that ends its process, or does not end, has failed; the tests after it run in another process."""
    results = {}
    while len(results) < len(tests):
        left = [test for test in tests if test not in results]
        process = session.launch(session.on_wire("a", binary, "--gtest_filter=" + ":".join(left)), **variables)
        try:
            session.wait(process, SUITE_SECONDS)
        except Failure:
            pass
        for line in session.output_of(process).splitlines():
            found = RESULT.match(line)
            if found:
                results.setdefault(found.group(2), found.group(1))
        session.end_all()
        first = next((test for test in left if test not in results), None)
        if first:
            results[first] = "FAILED"
    return results


def work(session):
    binary = source.cache("ucx_gtest") + "/out/bin/gtest"
    variables = {"LD_LIBRARY_PATH": source.cache("ucx_gtest") + "/out/lib", "UCX_NET_DEVICES": "faultline0:1", "GTEST_COLOR": "no"}
    wanted = source.expected("ucx_gtest_expected.tsv")
    filters = ":".join([word for word in sys.argv[2:] if not word.startswith("--")] or FILTERS)
    listed = session.finish(session.on_wire("a", binary, "--gtest_list_tests", f"--gtest_filter={filters}"), SUITE_SECONDS, **variables)
    totals = {}
    for suite, tests in names(listed).items():
        layer = suite.split("/")[0]
        counts = totals.setdefault(layer, {"OK": 0, "FAILED": 0, "own": 0, "SKIPPED": 0, "wrong": []})
        for test, result in run_suite(session, binary, variables, [suite + name for name in tests]).items():
            if result == "FAILED" and any(re.fullmatch(pattern, test) for pattern in wanted):
                result = "own"
            counts[result] += 1
            if result == "FAILED":
                counts["wrong"].append(test)
                print(f"    failed: {test}", flush=True)
    for layer, counts in totals.items():
        text = f"{counts['OK']} passed, {counts['FAILED']} failed, {counts['own']} failed as expected, {counts['SKIPPED']} skipped"
        session.row("FAILED" if counts["wrong"] else "ok", f"UCX gtest, {layer}", text)


if __name__ == "__main__":
    harness.main(work, prepare=gtest)
