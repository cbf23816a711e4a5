#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The invalidation mix (odp_mix) in the environments of real programs.
  odp_mix_environments_test.py [--amount N] [--seed N] [--qp-timeout N] [--without CALL] BUILD_DIR LANE
LANE is one of the names below, or all. Each lane first proves that its environment is in effect. The exit status is 77, which meson
takes for a skipped test, if this machine cannot provide the environment."""
import argparse
import ctypes
import ctypes.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from docker_profile import DOCKER_CAPABILITIES, DOCKER_EPERM, IO_URING, PROBE_NUMBERS, has_roots_rights, has_userfaultfd

SKIPPED = 77
# Ends a hang that the mix itself has not ended (kMostNs and kHangNs of odp_mix).
LIMIT_SECONDS = 800


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def need_root():
    if not has_roots_rights():
        skip("this environment takes root and its capabilities to make")


class Lane:
    """How one environment runs the mix."""

    def __init__(self, build, amount, seed, qp_timeout, without):
        self.build = build
        self.mix_dir = build / "tests/interop/e2e"
        self.refuse_program = build / "tests/environments/refuse_syscalls"
        self.wrapper = []
        self.program = [self.mix_dir / "odp_mix"]
        self.options = ["--amount", str(amount), "--seed", str(seed)]
        if qp_timeout is not None:
            self.options += ["--timeout", str(qp_timeout)]
        # MADV_COLLAPSE holds the lock of the address space while it waits for a kernel thread on each CPU, for seconds where other work keeps
        # those busy. The test odp-mix makes these calls, and so does a soak.
        if not os.environ.get("FAULTLINE_SOAK") and "COLLAPSE" not in without:
            without = [*without, "COLLAPSE"]
        for call in without:
            self.options += ["--without", call]
        self.environment = dict(os.environ)
        self.expected_failure = None  # a pattern that the output must contain, if the mix must not start
        self.folder = tempfile.TemporaryDirectory(prefix="faultline-mix-lane-")

    def prove_refused(self, error, names):
        """Checks that the wrapper's filter works."""
        probe = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        for name in names:
            probe += f"assert libc.syscall({PROBE_NUMBERS[name]}, -1, 0, 0, 0) == -1 and ctypes.get_errno() == {error}, {name!r}\n"
        ended = subprocess.run([*self.wrapper, sys.executable, "-c", probe], timeout=LIMIT_SECONDS, check=False)
        if ended.returncode == SKIPPED:
            skip("the kernel refuses the filter")
        if ended.returncode != 0:
            sys.exit("the environment is not in effect: a system call was not refused")

    def refuse(self, names):
        self.wrapper += [self.refuse_program, "EPERM", ",".join(names), "--"]
        self.prove_refused(1, [name for name in names if name in PROBE_NUMBERS])

    def preload(self, name, behind_faultline=False):
        library = ctypes.util.find_library(name)
        if library is None:
            skip(f"lib{name} is not installed")
        ours = [str((self.build / "libfaultline.so.0").resolve())] if behind_faultline else []
        self.environment["LD_PRELOAD"] = " ".join([*ours, library])
        mapped = subprocess.run(["cat", "/proc/self/maps"], env=self.environment, capture_output=True, text=True, check=True).stdout
        if f"/lib{name}" not in mapped:
            sys.exit(f"the environment is not in effect: {library} was not preloaded")

    def without_munmap_hook(self):
        # Between an unmapping and its event, another thread may map new memory at the same address. Only a hook can prevent that. The
        # promise
        # to the calling thread, after its munmap has returned, holds nevertheless.
        if not has_userfaultfd():
            skip("no hook sees the program's calls in this environment, and userfaultfd is refused here")
        self.options += ["--without", "munmap-taken"]

    def open_late(self):
        self.without_munmap_hook()
        self.program = [self.mix_dir / "odp_mix_late", self.build / "libfaultline.so.0", self.mix_dir / "odp_mix_module.so"]

    def in_docker(self):
        need_root()
        capabilities = ",".join(["-all", *(f"+{name}" for name in DOCKER_CAPABILITIES)])
        self.wrapper += ["prlimit", f"--memlock={8 << 20}", "setpriv", f"--bounding-set={capabilities}"]
        self.wrapper += [self.refuse_program, "ENOSYS", "clone3", "--"]
        self.prove_refused(38, ["clone3"])
        self.refuse(DOCKER_EPERM)

    def in_chroot(self):
        """A tree with the program, its libraries, /dev and /sys, and without /proc."""
        need_root()
        root = pathlib.Path(self.folder.name)
        for name in ("tmp", "dev", "sys", "run"):
            (root / name).mkdir()
        program = self.program[0]
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            place = root / library.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)
        shutil.copy(program, root / "odp_mix")
        self.environment |= {"TMPDIR": "/tmp", "HOME": "/tmp", "LD_LIBRARY_PATH": str(self.build.resolve())}
        self.environment.pop("XDG_RUNTIME_DIR", None)
        assert not (root / "proc").exists()
        script = 'mount --bind /dev "$1/dev" && mount --bind /sys "$1/sys" && root=$1 && shift && exec chroot "$root" /odp_mix "$@"'
        # The mounts are in a namespace that ends with the mix.
        self.program = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", root]

    def run(self):
        command = [str(word) for word in [*self.wrapper, *self.program, *self.options]]
        print("==", " ".join(command), flush=True)
        try:
            ended = subprocess.run(command, env=self.environment, timeout=LIMIT_SECONDS, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, check=False)
        except subprocess.TimeoutExpired as expired:
            sys.stdout.write((expired.stdout or b"").decode())
            print(f"no end after {LIMIT_SECONDS} s")
            return False
        sys.stdout.write(ended.stdout)
        if self.expected_failure is not None:
            found = re.search(self.expected_failure, ended.stdout)
            if not found:
                print(f"the output does not hold {self.expected_failure!r}")
            return ended.returncode != 0 and found is not None
        return ended.returncode == 0


def behind_tcmalloc(lane):
    """tcmalloc has its own munmap, mmap and mremap, which precede the library's if it is preloaded."""
    lane.preload("tcmalloc_minimal")
    lane.without_munmap_hook()


def late_unguarded(lane):
    """No hook and no userfaultfd: nothing reports an unmapping, so an on-demand region must be refused."""
    lane.open_late()
    lane.refuse(["userfaultfd"])
    lane.expected_failure = r"ibv_reg_mr \(errno 95\)"  # ENOTSUP


# The lane "allocators" runs these in turn. They call the kernel through the library, each in its own way.
ALLOCATORS = {
    "jemalloc": lambda lane: lane.preload("jemalloc"),
    "mimalloc": lambda lane: lane.preload("mimalloc"),
    "tcmalloc-behind-us": lambda lane: lane.preload("tcmalloc_minimal", behind_faultline=True),
}
LANES = {
    # Its own munmap precedes the library's: a guard less.
    "tcmalloc": behind_tcmalloc,
    "no-userfaultfd": lambda lane: lane.refuse(["userfaultfd"]),
    "no-io-uring": lambda lane: lane.refuse(IO_URING),
    "neither": lambda lane: lane.refuse(["userfaultfd", *IO_URING]),
    "docker": Lane.in_docker,
    "chroot": Lane.in_chroot,
    "descriptors": lambda lane: lane.options.append("--fill-descriptors"),
    # Two polling lcores occupy both CPUs of a small machine.
    "dedicated": lambda lane: lane.options.extend(["--progress", "dedicated", "--without", "COLLAPSE"]),
    "late": Lane.open_late,
    "late-unguarded": late_unguarded,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--amount", type=float, default=60 if os.environ.get("FAULTLINE_SOAK") else 2, help="of work, as odp_mix takes it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--qp-timeout", type=int, help="as ibv_modify_qp takes it: a longer one for a machine with much other work")
    parser.add_argument("--without", action="append", default=[], metavar="CALL", help="leaves a call out, as odp_mix does")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("lane", choices=["allocators", *LANES, "all"])
    arguments = parser.parse_args()
    lanes = {"all": LANES | ALLOCATORS, "allocators": ALLOCATORS}.get(arguments.lane) or {arguments.lane: LANES[arguments.lane]}
    results = {}
    for name, prepare in lanes.items():
        print(f"== {name}", flush=True)
        try:
            lane = Lane(arguments.build, arguments.amount, arguments.seed, arguments.qp_timeout, arguments.without)
            prepare(lane)
            results[name] = "ok" if lane.run() else "FAILED"
        except SystemExit as end:
            if len(lanes) == 1:
                raise
            results[name] = "skipped" if end.code == SKIPPED else f"FAILED: {end.code}"
    for name, result in results.items():
        print(f"{name}: {result}")
    if all(result == "skipped" for result in results.values()):
        return SKIPPED
    return 1 if any(result.startswith("FAILED") for result in results.values()) else 0


sys.exit(main())
