#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The product's first commands in the environments of its users: with and without a runtime folder, as the second user of a host, in a
container.
  user_environments_test.py BUILD_DIR NAME...         as meson runs it, without building: the demo, what programs find on their stdout at
                                                      every log level, and the tests of TESTS
  user_environments_test.py --full BUILD_DIR NAME...  scripts/run and scripts/test, wholly, in a copy of the tracked files
NAME is one of ENVIRONMENTS, or all. Each environment first proves that it is in effect. The exit status is 77, which meson takes for a
skipped test, if this machine cannot provide it. All except the caller's own need root: they have a mount namespace with a separate
/tmp."""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # tests
import lib  # noqa: E402
from docker_profile import DOCKER_EPERM, PROBE_NUMBERS, has_roots_rights  # noqa: E402
from lib import SKIPPED, skip  # noqa: E402

# Users that own no process of this machine.
USER, OTHER_USER = lib.own_user(), 210_002
MEMLOCK_BYTES = 64 << 10  # Docker's default
SHM_BYTES = 64 << 20      # the same
# For hangs only.
FULL_LIMIT_SECONDS = 4 * 3600
# A part of scripts/test that needs little time and depends much on the environment.
TESTS = ["abi", "devinfo", "devinfo-wire", "guards", "late-open", "late-open-refused", "few-threads-2", "odp-allocation", "odp-unprivileged",
         "one-process-loopback", "pyverbs", "switch", "trust", "wire-cm"]
# Those of them that need long, and were run in the caller's own environment. In brief they run where rights are fewest.
LONG_TESTS = ["pyverbs", "trust", "wire-cm"]
LOG_LEVELS = ["trace", "debug", "info", "warn", "err", "critical", "off"]
DEVICE = '[[device]]\nname = "faultline0"\n[device.port]\nkind = "wire"\n'
RIGHT = "every byte is right\n"


class Environment:
    """user: None for the caller's; runtime_folder: XDG_RUNTIME_DIR is set; other_first: another user owns EAL's folder in /tmp."""

    def __init__(self, user=None, runtime_folder=True, container=False, other_first=False):
        self.user, self.runtime_folder, self.container, self.other_first = user, runtime_folder, container, other_first
        # The caller's own environment needs nothing that requires root.
        self.is_private = user is not None or container

    def enter(self, source, build):
        """Makes the folders; `source` is visible at self.tree."""
        self.temporary = tempfile.TemporaryDirectory(prefix="fl-environment-", dir="/var/tmp", ignore_cleanup_errors=True)
        self.folder = pathlib.Path(self.temporary.name)
        self.folder.chmod(0o755)
        self.source, self.tree = source, source
        self.home = self.folder / "home"
        self.home.mkdir(mode=0o700)
        self.variables = {name: os.environ[name] for name in ("PATH", "LANG", "TERM") if name in os.environ}
        self.variables |= {"HOME": str(self.home), "TMPDIR": "/tmp", "FAULTLINE_BRIEF": "1"}
        if self.runtime_folder:
            (self.home / "runtime").mkdir(mode=0o700)
            self.variables["XDG_RUNTIME_DIR"] = str(self.home / "runtime")
        self.wrapper = []
        if not self.is_private:
            return
        # Not the caller's PATH: programs of its home folder are not accessible to another user.
        self.variables["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        if not has_roots_rights():
            skip("this environment takes root and its capabilities to make")
        self.tree = self.folder / "tree"
        self.tree.mkdir()
        owner = self.user or 0
        for path in (self.home, *self.home.iterdir()):
            os.chown(path, owner, owner)
        # The user may not be able to read the tree, or it may be in /tmp: it is bound to a folder of the environment.
        script = 'mount --bind "$1" "$2" && mount -t tmpfs -o mode=1777 tmpfs /tmp && mount -t tmpfs -o mode=1777,size=$3 tmpfs /dev/shm'
        if self.other_first:
            script += f" && mkdir -m 0700 /tmp/dpdk && chown {OTHER_USER}:{OTHER_USER} /tmp/dpdk"
        script += ' && shift 3 && exec "$@"'
        self.wrapper = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", source, self.tree, SHM_BYTES]
        change = ["setpriv", f"--reuid={owner}", f"--regid={owner}", "--clear-groups"]
        if self.container:
            refuse = self.mapped(build / "tests/environments/refuse_syscalls")
            self.wrapper += ["prlimit", f"--memlock={MEMLOCK_BYTES}", *change, "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
            self.wrapper += [refuse, "ENOSYS", "clone3", "--", refuse, "EPERM", ",".join(DOCKER_EPERM), "--"]
        else:
            self.wrapper += change

    def mapped(self, text):
        return str(text).replace(str(self.source), str(self.tree))

    def run(self, command, variables=None, limit=lib.LIMIT_S, **others):
        words = [str(word) for word in [*self.wrapper, *command]]
        return subprocess.run(words, env=self.variables | (variables or {}), timeout=limit, stdin=subprocess.DEVNULL, text=True,
                              check=False, **others)

    def prove(self):
        probe = f"import ctypes, os, resource\nassert os.getuid() == {os.getuid() if self.user is None else self.user}, os.getuid()\n"
        probe += f"assert ('XDG_RUNTIME_DIR' in os.environ) == {self.runtime_folder}\n"
        if self.other_first:
            probe += "assert not os.access('/tmp/dpdk', os.W_OK)\n"
        if self.is_private:
            held = "Cap" if self.container else "CapEff"
            probe += f"caps = [line.split()[1] for line in open('/proc/self/status') if line.startswith({held!r})]\n"
            probe += "assert set(caps) == {'0' * 16}, caps\n"
        if self.container:
            probe += "libc = ctypes.CDLL(None, use_errno=True)\n"
            for name, error in {"userfaultfd": 1, "io_uring_setup": 1, "bpf": 1, "clone3": 38}.items():
                probe += f"assert libc.syscall({PROBE_NUMBERS[name]}, -1, 0, 0, 0) == -1 and ctypes.get_errno() == {error}, {name!r}\n"
            probe += f"assert resource.getrlimit(resource.RLIMIT_MEMLOCK) == ({MEMLOCK_BYTES},) * 2\n"
            probe += f"shm = os.statvfs('/dev/shm')\nassert shm.f_blocks * shm.f_frsize == {SHM_BYTES}\n"
        ended = self.run(["python3", "-c", probe], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if ended.returncode == SKIPPED or (self.is_private and "unshare failed" in ended.stdout):
            skip(f"this machine does not allow it: {ended.stdout.strip()}")
        if ended.returncode != 0:
            sys.exit(f"FAILED: the environment is not in effect\n{ended.stdout}")


ENVIRONMENTS = {
    "own": lambda: Environment(),
    "own-without-runtime-folder": lambda: Environment(runtime_folder=False),
    "user": lambda: Environment(user=USER),
    "user-without-runtime-folder": lambda: Environment(user=USER, runtime_folder=False),
    "second-user": lambda: Environment(user=USER, runtime_folder=False, other_first=True),
    "container": lambda: Environment(runtime_folder=False, container=True),
    "container-user": lambda: Environment(user=USER, runtime_folder=False, container=True),
}


def fail(what, ended=None):
    sys.exit(f"FAILED: {what}" + (f": status {ended.returncode}\n{ended.stdout}{ended.stderr or ''}" if ended else ""))


PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def check_demo(environment, build):
    ended = environment.run([environment.mapped(build / "apps/faultline-perf"), "--demo"], **PIPES)
    if ended.returncode != 0 or ended.stdout.count(" yes") != 9:
        fail("the demo", ended)
    if odd := [line for line in ended.stdout.splitlines() if not line.startswith(("op ", "write ", "read ", "send ", "  "))]:
        fail(f"the demo's stdout has {odd}")
    print("ok: faultline-perf --demo")


def check_stdout(environment, build, program):
    """The library writes nothing to a program's stdout, at any log level and with any failure to open the device."""
    run = environment.mapped(build / "apps/faultline-run")
    config = environment.folder / "log.toml"
    for level in LOG_LEVELS:
        config.write_text(f'{DEVICE}[log]\nlevel = "{level}"\n')
        config.chmod(0o644)
        ended = environment.run([run, "--wire", f"environment{os.getpid()}", "--config", config, program], **PIPES)
        if ended.returncode != 0 or ended.stdout != RIGHT:
            fail(f"a program at log level {level}", ended)
        if level == "off" and ended.stderr:
            fail("log level off is not silent", ended)
    # rte_eal_init(): an unknown option makes EAL print its usage.
    config.write_text(DEVICE + '[log]\nlevel = "off"\n[eal]\nextra_args = ["--no-such-option"]\n')
    ended = environment.run([run, "--wire", f"environment{os.getpid()}", "--config", config, program], **PIPES)
    if ended.returncode == 0 or ended.stdout:
        fail("a program whose EAL does not start", ended)
    print("ok: stdout at every log level, and without EAL")


def check_tests(environment, build):
    tests = {test["name"]: test for test in json.loads(subprocess.check_output(["meson", "introspect", "--tests", build]))}
    failed = []
    brief = "FAULTLINE_BRIEF" in os.environ and not environment.container and not environment.other_first
    for name in TESTS:
        if brief and name in LONG_TESTS:
            continue
        if name not in tests:
            print(f"not built: {name}")
            continue
        test = tests[name]
        variables = {key: environment.mapped(value) for key, value in test["env"].items()}
        begun = time.monotonic()
        try:
            # Meson's working directory, as a path within the environment.
            command = ["env", f"--chdir={environment.mapped(test['workdir'] or build)}", *(environment.mapped(word) for word in test["cmd"])]
            ended = environment.run(command, variables, limit=2 * test["timeout"], **PIPES)
        except subprocess.TimeoutExpired:
            failed.append(name)
            print(f"FAILED: {name}: no end in {2 * test['timeout']} s")
            continue
        output = (ended.stdout + ended.stderr).strip().splitlines()
        if ended.returncode == 0:
            print(f"ok: {name}, {time.monotonic() - begun:.1f} s")
        elif ended.returncode == SKIPPED:
            print(f"skipped: {name}: {output[-1] if output else 'no reason given'}")
        else:
            failed.append(name)
            print("\n".join([f"FAILED: {name}: status {ended.returncode}", *output[-30:]]))
    if failed:
        fail(", ".join(failed))


def run_quickly(environment, source, build):
    environment.enter(source, build)
    environment.prove()
    program = environment.folder / "small_verbs"
    if shutil.which("cc") is None:
        skip("cc is not installed")
    subprocess.run(["cc", "-O1", source / "tests/environments/small_verbs.c", "-o", program, "-libverbs", "-lpthread"], check=True)
    check_demo(environment, build)
    check_stdout(environment, build, program)
    check_tests(environment, build)


def run_wholly(environment, source, build, cache):
    """The two commands as a new user runs them, in a copy that the environment's user owns. The environments share a compiler cache, so only
    the first one has the times of a new user."""
    environment.enter(source, build)
    environment.variables |= {"CCACHE_DIR": cache, "CCACHE_UMASK": "000", "CCACHE_NOHASHDIR": "1"}
    environment.prove()
    copy = environment.folder / "faultline"
    for name in subprocess.check_output(["git", "ls-files", "-z"], cwd=source, text=True).split("\0"):
        if name and (source / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, copy / name)
    if environment.user is not None:
        subprocess.run(["chown", "-R", f"{environment.user}:{environment.user}", copy], check=True)
    for command in (["scripts/run"], ["scripts/test"]):
        begun = time.monotonic()
        ended = environment.run([copy / command[0], *command[1:]], limit=FULL_LIMIT_SECONDS, cwd=copy)
        print(f"== {' '.join(command)}: status {ended.returncode}, {time.monotonic() - begun:.0f} s", flush=True)
        if ended.returncode != 0:
            fail(" ".join(command))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("environment", nargs="+", choices=[*ENVIRONMENTS, "all"])
    arguments = parser.parse_args()
    source = pathlib.Path(__file__).resolve().parents[2]
    names = list(ENVIRONMENTS) if "all" in arguments.environment else arguments.environment
    results = {}
    cache = tempfile.TemporaryDirectory(prefix="fl-environments-", dir="/var/tmp", ignore_cleanup_errors=True)
    os.chmod(cache.name, 0o777)
    for name in names:
        print(f"== environment {name}", flush=True)
        try:
            environment = ENVIRONMENTS[name]()
            if arguments.full:
                run_wholly(environment, source, arguments.build, cache.name)
            else:
                run_quickly(environment, source, arguments.build)
            results[name] = "ok"
        except SystemExit as end:
            if len(names) == 1:
                raise
            results[name] = "skipped" if end.code == SKIPPED else str(end.code)
            if end.code != SKIPPED:
                print(end.code)
    for name, result in results.items():
        print(f"{name}: {result.splitlines()[0]}")
    return 1 if any(result.startswith("FAILED") for result in results.values()) else 0


sys.exit(main())
