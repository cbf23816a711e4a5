#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`faultline explore` finds each bug planted in a verbs program, reduces it to few decisions, and finds none where there is none. The scenario
and the command that it writes repeat the failure.
  planted_test.py FAULTLINE PLANTED SCENARIO"""
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402

faultline, planted, scenario = sys.argv[1:]
LIMIT_SECONDS = 3 * lib.LIMIT_S  # an exploration is many runs
MOST_DECISIONS = 3
REFUSED = "4"  # the program's status where the device refuses what it needs
# bug: (failures that show it, words of a decision that causes it, runs)
BUGS = {
    "receive": ({"exit status"}, ["ibv_post_recv"], 3),
    "flush": ({"exit status"}, ["RETRY_EXC", "qp error"], 2),
    "event": ({"signal"}, ["qp error"], 4),
    "rkey": ({"exit status"}, ["RETRY_EXC", "qp error"], 2),
    "wake-up": ({"exit status"}, ["poll nothing"], 2),
}


def explore(out, bug, runs):
    return lib.call([faultline, "explore", "--trouble", scenario, "--runs", runs, "--jobs", "2", "--wire", "w0", "--accept", REFUSED,
                     "--timeout", "60", "--shrink-runs", "60", "--out", out, "--", planted, bug], status=None, timeout=LIMIT_SECONDS)


def check(out, bug):
    failures, causes, runs = BUGS[bug]
    ended = explore(out, bug, runs)
    lib.expect(ended.returncode == 1, f"{bug}: exit status {ended.returncode}\n{ended.stdout}{ended.stderr}")
    found = [json.loads(path.read_text(encoding="utf-8")) for path in pathlib.Path(out).glob("seed-*/summary.json")]
    good = [one for one in found if one["repeatable"] and one["failure"] in failures and 1 <= one["decisions_after"] <= MOST_DECISIONS
            and any(cause in line for cause in causes for line in one["decisions"])]
    lib.expect(good, f"{bug}: {json.dumps(found, indent=1)}\n{ended.stderr}")
    print(f"ok: {bug}: {good[0]['decisions']}")
    return good[0]


def repeat(out, found):
    """The written scenario, and the command of the summary, give the status of the failure."""
    runtime = pathlib.Path(out) / "rt"
    runtime.mkdir(mode=0o700)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    scenario_file = f"{out}/seed-{found['seed']}/scenario.toml"
    for words in [["sh", "-c", found["commands"][0]], [faultline, "run", "--trouble", scenario_file, "--wire", "w0", planted, "rkey"]]:
        ended = lib.call(words, status=1, env=environment)
        lib.expect("no progress" in ended.stderr, f"{words}: {ended.stderr}")
    print("ok: the scenario and the command that explore writes")


folder = lib.own_folder()
ended = explore(f"{folder}/none", "none", 6)
lib.expect(ended.returncode == 0 and "no run made a decision" not in ended.stderr, f"none: exit status {ended.returncode}\n{ended.stdout}{ended.stderr}")
print("ok: none")
summary = {name: check(f"{folder}/{name}", name) for name in BUGS}
repeat(f"{folder}/rkey", summary["rkey"])
print("ok")
