#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs of other projects under `faultline explore`: each with trouble that it has to survive (network.toml), and with trouble by which it
may fail, but must end without a crash (errors.toml). Writes a table for docs/found/searched.md.

  campaign.py FAULTLINE [--runs N] [--seed FIRST] [--out FOLDER] [--family NAME] [--timeout SECONDS] [--shrink-runs N] [REGULAR EXPRESSION]

The status is 0 if each campaign could run: what it finds belongs to those programs, or is a defect of Faultline, to be read in FOLDER."""
import argparse
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SERVER = "198.18.0.1"
FAMILIES = ("network", "errors")
PRELOAD = next(iter(glob.glob("/usr/lib/*/rsocket/librspreload.so")), None)


def pair(server, client, port=None, delay_ms=1500, waits=True):
    """Two programs; the second begins when the first listens on a TCP port, or after a time."""
    return [{"command": server, "wait": waits, **({"listens": port} if port else {})},
            {"command": client, **({} if port else {"delay_ms": delay_ms})}]


def perftest(program, *options, port=18515):
    words = [program, "-d", "faultline0", "-F", *options]
    return pair(words, [*words, SERVER], port=port)


def pingpong(program, *options):
    words = [program, "-d", "faultline0", "-g", "0", *options]
    return pair(words, [*words, SERVER], port=18515)


def connected(program, *options, waits=True):
    """A program that finds its peer by rdma_cm."""
    return pair([program, "-b", SERVER, *options], [program, "-s", SERVER, *options], waits=waits)


def fabric(provider, endpoint, *options):
    words = ["fi_pingpong", "-e", endpoint, "-p", provider, "-c", "-I", "50", "-d", "faultline0", *options]
    return pair([*words, "-B", "47592"], [*words, "-P", "47592", SERVER], port=47592)


def ucx(test, *options):
    words = ["env", "UCX_NET_DEVICES=faultline0:1", "UCX_TLS=rc_verbs,ud_verbs", "ucx_perftest", "-t", test, "-n", "200", "-w", "10", *options]
    return pair(words, [*words[:3], "ucx_perftest", SERVER, *words[4:]], port=13337)


# name: (version's package, programs). The programs end by themselves unless `waits` is False. RING is the program of ring().
PROGRAMS = {
    "ib_write_bw": ("perftest", perftest("ib_write_bw", "-n", "200", "-s", "4096")),
    "ib_send_bw, events": ("perftest", perftest("ib_send_bw", "-n", "200", "-s", "4096", "-e")),
    "ib_read_lat": ("perftest", perftest("ib_read_lat", "-n", "100", "-s", "512")),
    "ib_atomic_bw": ("perftest", perftest("ib_atomic_bw", "-n", "100")),
    "ib_write_bw -R": ("perftest", perftest("ib_write_bw", "-n", "100", "-R", port=None)),
    "rping": ("rdmacm-utils", pair(["rping", "-s", "-a", SERVER, "-C", "20", "-v"], ["rping", "-c", "-a", SERVER, "-C", "20", "-v"])),
    "rstream": ("rdmacm-utils", pair(["rstream", "-S", "4000", "-C", "100", "-T", "v"],
                                     ["rstream", "-s", SERVER, "-S", "4000", "-C", "100", "-T", "v"])),
    "riostream": ("rdmacm-utils", pair(["riostream", "-S", "4000", "-C", "100", "-T", "v"],
                                       ["riostream", "-s", SERVER, "-S", "4000", "-C", "100", "-T", "v"])),
    "ibv_rc_pingpong -o": ("ibverbs-utils", pingpong("ibv_rc_pingpong", "-n", "300", "-c", "-o")),
    "ibv_srq_pingpong -e": ("ibverbs-utils", pingpong("ibv_srq_pingpong", "-n", "300", "-e")),
    "ibv_xsrq_pingpong": ("ibverbs-utils", pingpong("ibv_xsrq_pingpong", "-n", "100")),
    "ibv_ud_pingpong": ("ibverbs-utils", pingpong("ibv_ud_pingpong", "-n", "300")),
    "ibv_uc_pingpong": ("ibverbs-utils", pingpong("ibv_uc_pingpong", "-n", "300")),
    "ucmatose": ("rdmacm-utils", connected("ucmatose", "-c", "4", "-C", "5", "-S", "1000")),
    "cmtime": ("rdmacm-utils", connected("cmtime", "-c", "20", waits=False)),
    "udaddy": ("rdmacm-utils", connected("udaddy", "-c", "3", "-C", "5", "-S", "1000")),
    "mckey": ("rdmacm-utils", pair(["mckey", "-b", SERVER, "-m", "239.5.5.5", "-C", "20"],
                                   ["mckey", "-s", "-b", "198.18.0.2", "-m", "239.5.5.5", "-C", "20"])),
    "rcopy": ("rdmacm-utils", pair(["rcopy"], ["sh", "-c", "cd $EXPLORE_FOLDER && head -c 3000000 /dev/urandom >in && "
                                               f"rcopy in {SERVER}:$PWD/out && cmp in out"], waits=False)),
    "ucx_perftest tag_bw": ("ucx-utils", ucx("tag_bw", "-s", "65536")),
    "ucx_perftest ucp_put_bw": ("ucx-utils", ucx("ucp_put_bw", "-s", "4096")),
    "fi_pingpong verbs, msg": ("libfabric-bin", fabric("verbs", "msg")),
    "fi_pingpong verbs;ofi_rxm, rdm": ("libfabric-bin", fabric("verbs;ofi_rxm", "rdm")),
    "fio rdma write": ("fio", pair(
        ["fio", "--name=receiver", "--rw=read", "--size=4m", "--bs=64k", "--iodepth=4", "--thread", "--ioengine=rdma", "--port=21000"],
        ["fio", "--name=sender", "--rw=write", "--size=4m", "--bs=64k", "--iodepth=4", "--thread", "--ioengine=rdma", "--port=21000",
         f"--hostname={SERVER}", "--verb=write"])),
    "tgt, iscsi-inq over iSER": ("tgt", pair(["sh", str(HERE / "iser_target.sh"), SERVER],
                                             ["iscsi-inq", "-i", "iqn.2026-11.test.faultline:host",
                                              f"iser://{SERVER}:3260/iqn.2026-11.test.faultline:disk/1"], delay_ms=4000, waits=False)),
    "Open MPI ring": ("openmpi-bin", [{"command": ["env", "UCX_NET_DEVICES=faultline0:1", "UCX_TLS=rc_verbs,ud_verbs", "mpirun", "--allow-run-as-root",
                                                   "--oversubscribe", "-n", "2", "--mca", "pml", "ucx", "--mca", "btl", "^openib,uct", "RING"]}]),
}
SHARED = {"Open MPI ring"}
# Without the trouble of network.toml: nobody sends again what they lose, and they wait for it.
UNRELIABLE = {"ibv_ud_pingpong", "ibv_uc_pingpong", "udaddy", "mckey"}


def toml(programs, family):
    """With errors a server is ended after its client: it may wait for a client that has failed."""
    lines = []
    for number, program in enumerate(programs):
        lines.append("[[program]]")
        if family == "errors" and number < len(programs) - 1:
            program = {**program, "wait": False}
        for key, value in program.items():
            lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def version(package):
    ended = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False)
    return ended.stdout if ended.returncode == 0 else None


def ring(folder):
    """The MPI program of the conformance tests; None without a compiler for MPI."""
    program = folder / "ring"
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        return None
    subprocess.run(["mpicc", "-o", program, HERE.parents[2] / "conformance/mpi_ring.c"], check=True)
    return str(program)


def explore(arguments, name, programs, family):
    out = arguments.out / f"{re.sub('[^a-z0-9]+', '-', name.lower())}-{family}"
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="faultline-campaign-") as folder:
        program = ring(pathlib.Path(folder)) if name in SHARED else None
        test = pathlib.Path(folder) / "test.toml"
        test.write_text(toml(programs, family).replace('"RING"', json.dumps(program)), encoding="utf-8")
        words = [arguments.faultline, "explore", "--trouble", HERE / f"{family}.toml", "--runs", str(arguments.runs), "--seed", str(arguments.seed),
                 "--wire", "campaign", *(["--share"] if name in SHARED else []), "--timeout", str(arguments.timeout), "--shrink-runs", str(arguments.shrink_runs),
                 "--out", out, *(["--any-status"] if family == "errors" else []), "--test", test]
        ended = subprocess.run(words, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1):
        return None, ended.stderr.strip().splitlines()[-1:]
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("seed-*/summary.json"))], []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faultline", type=lambda path: os.path.realpath(path))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("faultline-campaign"))
    parser.add_argument("--family", choices=FAMILIES, help="this one alone")
    parser.add_argument("--timeout", type=int, default=20, metavar="SECONDS", help="of a run, and of each replay of a wait")
    parser.add_argument("--shrink-runs", type=int, default=4, metavar="N")
    parser.add_argument("wanted", nargs="?", default="", type=re.compile)
    arguments = parser.parse_intermixed_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.out = arguments.out.resolve()
    broken = 0
    print("| program | version | trouble | runs | failed | failures |\n|---|---|---|---|---|---|", flush=True)
    for name, (package, programs) in PROGRAMS.items():
        if not arguments.wanted.search(name):
            continue
        release = version(package)
        if release is None:
            print(f"| {name} | {package} is not installed | | | | |", flush=True)
            continue
        for family in FAMILIES:
            if (family == "network" and name in UNRELIABLE) or arguments.family not in (None, family):
                continue
            failed, problem = explore(arguments, name, programs, family)
            if failed is None:
                broken += 1
                print(f"| {name} | {package} {release} | {family} | not run: {' '.join(problem)} | | |", flush=True)
                continue
            kinds = "; ".join(f"seed {one['seed']}: {one['text']}" for one in failed)
            print(f"| {name} | {package} {release} | {family} | {arguments.runs} | {len(failed)} | {kinds} |", flush=True)
    sys.exit(1 if broken else 0)


main()
