#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""faultline-sim with the example configurations: each runs, two runs are equal, the files agree with the summary, and a mistake is one line.
  fabrics_test.py FAULTLINE_SIM FAULTLINE CONFIGS_FABRICS"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # tests
import lib  # noqa: E402

PROGRAM, FAULTLINE, CONFIGS = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
# Virtual time in ns, so that a run takes a second or less.
SHORT = {"fat-tree-1024": 20_000, "ring-allreduce": 1_500_000, "tree-allreduce": 1_500_000, "leaf-spine": 2_000_000, "incast": 5_000_000,
         "dcqcn-incast": 5_000_000, "swift-incast": 2_000_000, "permutation": 500_000}


def run(*words, status=0):
    ended = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=False, timeout=lib.LIMIT_S)
    assert ended.returncode == status, f"{words}: exit status {ended.returncode}: {ended.stderr}"
    return ended


def files_of(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def check_conservation(name, summary):
    for what in ("frames", "bytes"):
        counts = summary[what]
        assert counts["sent"] == counts["delivered"] + counts["dropped"] + counts["inside"], f"{name}: {what}: {counts}"
    assert summary["flows"]["started"] > 0 and summary["frames"]["delivered"] > 0, f"{name}: {summary}"


def check_tables(name, folder, summary):
    flows = list(csv.DictReader((folder / "flows.csv").open()))
    ports = list(csv.DictReader((folder / "ports.csv").open()))
    hosts = list(csv.DictReader((folder / "hosts.csv").open()))
    done = [flow for flow in flows if flow["state"] == "done"]
    assert len(flows) == summary["flows"]["started"] and len(done) == summary["flows"]["done"], name
    assert all(int(flow["end_ns"]) > int(flow["start_ns"]) for flow in done), name
    assert len(ports) == 2 * summary["links"] and len(hosts) == summary["hosts"], name
    assert sum(int(port["marks"]) for port in ports) == summary["marks"], name
    assert sum(int(port["drops"]) for port in ports) == summary["drops"]["full"], name
    assert sum(int(port["pauses"]) for port in ports) == summary["pauses"], name
    assert sum(int(host["retransmitted_packets"]) for host in hosts) == summary["retransmits"], name


def check_config(config, scratch):
    words = [config, "--json"]
    if config.stem in SHORT:
        words += ["--duration-ns", SHORT[config.stem]]
    first = run(*words, "--output", scratch / "first")
    second = run(*words, "--output", scratch / "second")
    assert first.stdout == second.stdout and first.stderr == "", f"{config.name}: two runs differ: {first.stderr}"
    assert files_of(scratch / "first") == files_of(scratch / "second"), f"{config.name}: files of two runs differ"
    summary = json.loads(first.stdout)
    assert summary == json.loads((scratch / "first/summary.json").read_text())
    check_conservation(config.name, summary)
    check_tables(config.name, scratch / "first", summary)
    return summary


def check_options(scratch):
    config = CONFIGS / "pfc.toml"
    text = run(config).stdout
    assert "congestion control: none; seed 1" in text, text
    assert "congestion control: swift; seed 9" in run(config, "--seed", 9, "--congestion", "swift").stdout
    costly = run(config, "--cost")
    assert costly.stdout == text and costly.stderr.startswith("cost "), costly.stderr
    run(CONFIGS / "link-failure.toml", "--output", scratch / "json", "--format", "json")
    samples = json.loads((scratch / "json/queues.json").read_text())
    assert samples and set(samples[0]) == {"time_ns", "port", "bytes"}
    for name in ("flows", "ports", "hosts"):
        assert json.loads((scratch / f"json/{name}.json").read_text()), name


def check_recording(scratch):
    """The story of a recorded host has its packets, and none of them is of another connection."""
    words = [CONFIGS / "link-failure.toml", "--seed", 5]
    plain = run(*words).stdout
    files = [scratch / name for name in ("a.rec", "b.rec")]
    for file in files:
        file.write_text("an older one")
        assert run(*words, "--record", file, "--record-host", "b1", "--output", scratch / "recorded").stdout == plain
    assert files[0].read_bytes() == files[1].read_bytes(), "recordings of two runs differ"
    told = subprocess.run([FAULTLINE, "story", "--json", files[0]], capture_output=True, text=True, check=True, timeout=lib.LIMIT_S)
    story = json.loads(told.stdout)
    assert story["origin"].startswith("recording of b1 of faultline-sim"), story["origin"]
    assert len(story["connections"]) == 12 and story["start_realtime_ns"] < 10_000_000, story
    assert {one["ends"][0]["address"] for one in story["connections"]} == {"198.18.0.4"}
    sent_again = sum(one["ends"][0]["retransmitted_packets"] for one in story["connections"])
    host = next(row for row in csv.DictReader((scratch / "recorded/hosts.csv").open()) if row["host"] == "b1")
    assert 0 < sent_again == int(host["retransmitted_packets"]), (sent_again, host)
    ended = run(*words, "--record", scratch / "c.rec", "--record-host", "x", status=2)
    assert ended.stderr.startswith('faultline-sim: --record-host: "x" is not a host'), ended.stderr
    ended = run(*words, "--record", scratch / "none/c.rec", status=1)
    assert ended.stderr.startswith("faultline-sim: --record: cannot write ") and ended.stderr.count("\n") == 1, ended.stderr


def check_mistakes(scratch):
    wrong = scratch / "wrong.toml"
    wrong.write_text('[topology]\nkind = "fat-tree"\nk = 3\n')
    for words, begin in (((wrong,), f"faultline-sim: {wrong}:3: topology.k: must be even"),
                         ((scratch / "none.toml",), f"faultline-sim: {scratch / 'none.toml'}: "),
                         ((), "faultline-sim: file is required; "),
                         ((CONFIGS / "pfc.toml", "--congestion", "cubic"), "faultline-sim: --congestion: "),
                         ((CONFIGS / "pfc.toml", "--format", "json"), "faultline-sim: --format requires --output; ")):
        ended = run(*words, status=2)
        assert ended.stdout == "" and ended.stderr.startswith(begin), f"{words}: {ended.stderr}"
        assert ended.stderr.count("\n") == 1, ended.stderr
    ended = run(CONFIGS / "pfc.toml", "--output", "/proc/none", status=1)
    assert ended.stderr.startswith("faultline-sim: /proc/none: ") and ended.stderr.count("\n") == 1, ended.stderr


with tempfile.TemporaryDirectory() as folder:
    place = pathlib.Path(folder)
    summaries = {}
    for one in sorted(CONFIGS.glob("*.toml")):
        (place / one.stem).mkdir()
        summaries[one.stem] = check_config(one, place / one.stem)
    assert len(summaries) >= 8, summaries.keys()
    assert summaries["fat-tree-1024"]["hosts"] == 1024 and summaries["fat-tree-1024"]["connections"] == 32 * 1024
    assert summaries["pfc"]["pauses"] > 0 and summaries["pfc"]["frames"]["dropped"] == 0
    assert summaries["incast"]["marks"] > 0 and summaries["incast"]["cnps"] > 0
    assert summaries["link-failure"]["drops"]["failure"] > 0
    assert summaries["ring-allreduce"]["rounds"] >= 1
    assert summaries["trace"]["flows"]["done"] == summaries["trace"]["flows"]["started"]
    check_options(place)
    check_recording(place)
    check_mistakes(place)
print("ok")
