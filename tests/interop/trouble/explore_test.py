#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`faultline explore` with programs that pretend to have trouble: what it finds, what it writes, and that nothing survives it.
  explore_test.py FAULTLINE"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402
from lib import expect  # noqa: E402

faultline = pathlib.Path(sys.argv[1]).resolve()
# Without site-packages: it is started some hundred times.
pretender = [sys.executable, "-S", str(pathlib.Path(__file__).resolve().parent / "pretender.py")]
folder = lib.own_folder()
scenario = folder / "pretended.toml"
scenario.write_text('name = "pretended"\n[[rule]]\nwhen = { call = "ibv_post_send" }\ndo = { errno = "ENOMEM" }\n', encoding="utf-8")
PAIR = ["program 0: call ibv_post_send, faultline0 qp 0, n 3: errno ENOMEM",
        "program 0: call ibv_post_send, faultline0 qp 0, n 11: errno ENOMEM"]


def explore(name, status, *words, runs=3, env=None):
    out = folder / name
    ended = lib.call([faultline, "explore", "--trouble", scenario, "--runs", runs, "--out", out, *words], status=status, cwd=folder,
                     env={**os.environ, **(env or {})})
    expect(ended.stdout == "", f"{name}: on stdout: {ended.stdout}")
    return out, ended.stderr


def cases(out):
    """The test cases of the JUnit file: name to type of failure, or None."""
    suite = ElementTree.parse(out / "junit.xml").getroot().find("testsuite")
    found = {}
    for case in suite.findall("testcase"):
        failure = case.find("failure")
        found[case.get("name")] = None if failure is None else failure.get("type")
    expect(int(suite.get("tests")) == len(found), "junit.xml: the number of tests")
    expect(int(suite.get("failures")) == sum(kind is not None for kind in found.values()), "junit.xml: the number of failures")
    return found


def summaries(out):
    return {path.parent.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("seed-*/summary.json"))}


def mode(name, kind, *words, told):
    """Seeds 1 and 2 draw the pair, seed 3 does not."""
    out, errors = explore(name, 1, *words, "--", *pretender, name)
    expect(cases(out) == {"seed 1": kind, "seed 2": kind, "seed 3": None}, f"{name}: {cases(out)}")
    found = summaries(out)
    expect(list(found) == ["seed-1", "seed-2"], f"{name}: folders {list(found)}")
    for seed, summary in found.items():
        expect(summary["decisions"] == PAIR, f"{name}: {seed}: {summary}")
        expect(told in summary["text"] and told in errors, f"{name}: no {told}: {summary['text']}\n{errors}")
        expect(all(line in errors for line in PAIR), f"{name}: the decisions are not on stderr\n{errors}")
    print(f"ok: {name}")
    return out


def test_kinds():
    out = mode("exit", "exit status", told="exit status 3")
    seed = out / "seed-1"
    names = sorted(path.name for path in seed.iterdir())
    expect(names == ["all-decisions-0.jsonl", "journal-0.jsonl", "scenario.toml", "stderr-0", "stdout-0", "summary.json"], f"files: {names}")
    rules = tomllib.loads((seed / "scenario.toml").read_text(encoding="utf-8"))["rule"]
    expect([(rule["when"], rule["do"]) for rule in rules] ==
           [({"at": "call ibv_post_send", "object": "faultline0 qp 0", "n": n}, {"errno": "ENOMEM"}) for n in (3, 11)], f"rules: {rules}")
    expect(len((seed / "journal-0.jsonl").read_text(encoding="utf-8").splitlines()) == 3, "the journal has a header and two decisions")
    summary = summaries(out)["seed-1"]
    expect(summary["minimal"] and summary["repeatable"] and summary["decisions_before"] > summary["decisions_after"] == 2, f"{summary}")
    # The command of the summary fails as the test did.
    lib.call(["sh", "-c", summary["commands"][0]], status=3)
    mode("crash", "signal", told="signal 6 (Aborted)")
    mode("sanitizer", "sanitizer report", told="AddressSanitizer: heap-use-after-free")
    mode("undefined", "sanitizer report", told="runtime error: shift exponent")
    mode("output", "wrong output", "--pass", '! grep -q wrong "$EXPLORE_STDOUT_0"', told="wrong output")


def test_hang():
    # One seed: each trial that fails takes the timeout. It is long for a program that begins and ends, so that none is thought to hang.
    out, errors = explore("hang", 1, "--timeout", "4", "--", *pretender, "hang", runs=1)
    expect(summaries(out)["seed-1"]["decisions"] == PAIR, f"hang: {errors}")
    expect(cases(out) == {"seed 1": "hang"}, "hang: junit.xml")
    print("ok: hang")


def test_pair():
    """A server and a client, two runs at a time. The server has its port to itself only in a network of the job's own."""
    words = ["--wire", "w0"] if can_have_networks() else []
    jobs = "2" if words else "1"
    os.environ["PRETENDER_PORT"] = str(lib.free_port())
    test = folder / "pair.toml"
    test.write_text(f'[[program]]\ncommand = {json.dumps([*pretender, "serve"])}\nwait = false\nlistens = {os.environ["PRETENDER_PORT"]}\n'
                    f'[[program]]\ncommand = {json.dumps([*pretender, "client"])}\n', encoding="utf-8")
    # Without a device: the programs have none, and a wire's option only makes the networks.
    out, _ = explore("pair", 1, "--jobs", jobs, *words, "--test", test)
    for summary in summaries(out).values():
        expect([line.replace("program 1", "program 0") for line in summary["decisions"]] == PAIR, f"pair: {summary}")
        expect(summary["program"] == 1 and len(summary["commands"]) == 2, f"pair: {summary}")
    names = {path.name for path in (out / "seed-1").iterdir()}
    expect({"scenario-0.toml", "scenario-1.toml", "journal-0.jsonl", "journal-1.jsonl", "stdout-1"} <= names, f"pair: {names}")
    expect(cases(out) == {"seed 1": "exit status", "seed 2": "exit status", "seed 3": None}, f"pair: {cases(out)}")
    out, _ = explore("options", 0, "--server", f"{' '.join(pretender)} serve", "--program", f"{' '.join(pretender)} patient-client 99", "--delay", "100",
                     runs=1)
    print(f"ok: a server and a client, {jobs} at a time")


def can_have_networks():
    tried = subprocess.run(["unshare", "-n"] + ([] if os.geteuid() == 0 else ["-Ur"]) + ["true"], check=False, capture_output=True)
    return tried.returncode == 0


def test_edges():
    out, errors = explore("luck", 1, "--", *pretender, "luck")
    expect("not repeatable: the program's own timing" in errors, f"luck: {errors}")
    summary = summaries(out)["seed-1"]
    expect(not summary["repeatable"] and summary["replays"] == 3 and summary["decisions_after"] == summary["decisions_before"], f"luck: {summary}")
    explore("any status", 0, "--any-status", "--", *pretender, "exit")
    explore("any status but a signal", 1, "--any-status", "--", *pretender, "crash")
    explore("accepted", 0, "--accept", "3", "--accept", "4", "--", *pretender, "exit")
    out, errors = explore("few-replays", 1, "--shrink-runs", "2", "--", *pretender, "exit", runs=1)
    expect(not summaries(out)["seed-1"]["minimal"] and "more replays may leave fewer" in errors, f"few replays: {errors}")
    _, errors = explore("no-trouble", 0, "--", "true")
    expect("no run made a decision" in errors, f"no trouble: {errors}")
    # A second exploration replaces the first one's folders.
    out, _ = explore("few-replays", 1, "--", *pretender, "exit", runs=1)
    expect(summaries(out)["seed-1"]["minimal"], "a second exploration")
    print("ok: luck, accepted statuses, few replays, no trouble")


def test_mistakes():
    for words, told in [(["--", "false"], "fails without any trouble: program 0: exit status 1"), ([], "give the test in one way"),
                        (["--program", "true", "--", "true"], "give the test in one way"), (["--program", "a | b"], "sh -c"),
                        (["--server", "true"], "all programs are servers"), (["--test", "none.toml"], "none.toml"),
                        (["--jobs", "0", "--", "true"], "--jobs"),
                        (["--", "/nonexistent/program"], "/nonexistent/program: No such file")]:
        _, errors = explore("mistake", 2, *words)
        expect(errors.count("\n") == 1 and told in errors, f"mistake {words}: {errors}")
    for text, told in [(None, "cannot be read"), ("[", "wrong.toml:1")]:
        wrong = folder / "wrong.toml"
        if text is not None:
            wrong.write_text(text, encoding="utf-8")
        ended = lib.call([faultline, "explore", "--trouble", wrong, "--out", folder / "mistake", "--", "true"], status=2)
        expect(ended.stderr.count("\n") == 1 and told in ended.stderr, f"mistake {text}: {ended.stderr}")
    print("ok: mistakes")


def descendants(marker):
    """Processes whose environment names the folder of a run of this exploration."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"MARKER={marker}\0".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_interrupt():
    for number, one in enumerate([signal.SIGINT, signal.SIGTERM]):
        marker = f"{folder}-{number}"
        process = lib.start([faultline, "explore", "--trouble", scenario, "--jobs", "2", "--out", folder / "interrupted", "--", *pretender, "stubborn"],
                            env={**os.environ, "MARKER": marker}, cwd=folder)
        # Explore, and two jobs with a program and a daemon each.
        lib.await_that(lambda: len(descendants(marker)) == 5, lambda: f"two jobs run: {descendants(marker)}", process)
        process.send_signal(one)
        expect(process.wait() == 128 + one, f"interrupt: exit status {process.returncode}: {process.text()}")
        # A process that has got SIGKILL may take a moment to end.
        lib.await_that(lambda: not descendants(marker), lambda: f"all ends: {descendants(marker)}")
        expect(cases(folder / "interrupted") == {}, "interrupt: junit.xml")
    print("ok: SIGINT and SIGTERM end everything")


test_kinds()
test_hang()
test_pair()
test_edges()
test_mistakes()
test_interrupt()
print("ok")
