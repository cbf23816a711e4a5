#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs built with a sanitizer, and programs under valgrind and gdb, run on a wire under faultline-run. They transfer data and exit
successfully, and the tool still finds a bug of the program.
  sanitizers_test.py FAULTLINE_RUN TOOL       TOOL is one of TOOLS"""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # tests
import lib  # noqa: E402
from docker_profile import has_userfaultfd  # noqa: E402
from lib import need, skip  # noqa: E402

RUN, TOOL = sys.argv[1:]
SOURCE = pathlib.Path(__file__).resolve().parent / "small_verbs.c"
RIGHT = "every byte is right"
VALGRIND_FOUND = 9


def fail(what, ended):
    lib.fail(f"{what}: status {ended.returncode}\n{ended.stdout}{ended.stderr}")


class Bench:
    """A folder with the program, built in one way, and how to run it."""

    def __init__(self, folder):
        self.folder = folder
        self.program = folder / "small_verbs"
        self.environment = {name: value for name, value in os.environ.items() if not name.endswith("SAN_OPTIONS")}
        # Meson's variable, with which libraries of the build are found; a user does not have it.
        self.environment.pop("LD_LIBRARY_PATH", None)

    def build(self, compiler, *options):
        need(compiler)
        command = [compiler, "-g", "-O1", *options, SOURCE, "-o", self.program, "-libverbs", "-lpthread"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            skip(f"{compiler} {' '.join(options)} does not link here: {ended.stderr.strip().splitlines()[-1]}")

    def run(self, mode, before=(), between=(), environment=None):
        command = [*before, RUN, "--wire", "sanitizers", "--", *between, self.program, mode]
        return lib.call(command, None, env=self.environment | (environment or {}), stdin=subprocess.DEVNULL)

    def expect_clean(self, what, reports, **how):
        ended = self.run("clean", **how)
        if ended.returncode != 0 or RIGHT not in ended.stdout or reports in ended.stdout + ended.stderr:
            fail(f"{what}: a program without a bug", ended)
        print(f"ok: {what}: moves data")

    def need_events(self):
        """A sanitizer's own functions precede the library's hooks: without userfaultfd on-demand registration is refused."""
        if not has_userfaultfd():
            skip("a sanitizer stands before the hooks, and userfaultfd is refused here")

    def expect_found(self, what, mode, reports, **how):
        """The tool works under faultline-run."""
        ended = self.run(mode, **how)
        if ended.returncode == 0 or reports not in ended.stdout + ended.stderr:
            fail(f"{what}: {mode} was not found", ended)
        print(f"ok: {what}: finds what the program does wrong")

    def loads(self, library):
        return library in subprocess.run(["readelf", "-d", self.program], capture_output=True, text=True, check=True).stdout


def asan(bench, what):
    bench.need_events()
    bench.expect_clean(what, "ERROR: AddressSanitizer")
    bench.expect_found(what, "overflow", "heap-buffer-overflow")


def gcc_asan(bench):
    bench.build("gcc", "-fsanitize=address")
    assert bench.loads("libasan.so")
    asan(bench, "gcc -fsanitize=address")
    # The started program is a script, so the user must name its sanitizer.
    runtime = subprocess.check_output(["gcc", "-print-file-name=libasan.so"], text=True).strip()
    bench.expect_clean("a shell that starts it", "ERROR: AddressSanitizer", between=["sh", "-c", 'exec "$0" "$@"'],
                       environment={"LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0"})


def gcc_ubsan(bench):
    bench.build("gcc", "-fsanitize=undefined")
    bench.expect_clean("gcc -fsanitize=undefined", "runtime error")


def clang_asan(bench):
    bench.build("clang", "-fsanitize=address")
    assert not bench.loads("libclang_rt.asan")
    asan(bench, "clang -fsanitize=address, the runtime in the program")


def clang_asan_shared(bench):
    need("clang")
    runtime = subprocess.check_output(["clang", "-print-file-name=libclang_rt.asan-x86_64.so"], text=True).strip()
    bench.build("clang", "-fsanitize=address", "-shared-libasan", f"-Wl,-rpath,{os.path.dirname(runtime)}")
    assert bench.loads("libclang_rt.asan")
    asan(bench, "clang -fsanitize=address -shared-libasan")


def tsan(bench, what):
    bench.need_events()
    bench.expect_clean(what, "WARNING: ThreadSanitizer")
    bench.expect_found(what, "race", "WARNING: ThreadSanitizer: data race")


def gcc_tsan(bench):
    bench.build("gcc", "-fsanitize=thread")
    assert bench.loads("libtsan.so")
    tsan(bench, "gcc -fsanitize=thread")


def clang_tsan(bench):
    bench.build("clang", "-fsanitize=thread")
    tsan(bench, "clang -fsanitize=thread, the runtime in the program")


def valgrind(bench):
    need("valgrind")
    bench.build("gcc")
    options = ["valgrind", f"--error-exitcode={VALGRIND_FOUND}"]
    bench.expect_clean("valgrind", "Invalid read", between=options)
    bench.expect_found("valgrind", "overflow", "Invalid read of size 1", between=options)
    bench.expect_clean("valgrind before faultline-run", "Invalid read", before=[*options, "--trace-children=yes"])


def gdb(bench):
    need("gdb")
    bench.build("gcc")
    # A program under ptrace; a container may refuse ptrace.
    options = ["gdb", "-nx", "-q", "-batch", "-ex", "set breakpoint pending on", "-ex", "set debuginfod enabled off",
               "-ex", "break post_receive", "-ex", "run", "-ex", "bt", "-ex", "delete", "-ex", "continue", "--args"]
    for what, how in {"gdb": {"between": options}, "gdb before faultline-run": {"before": options}}.items():
        ended = bench.run("clean", **how)
        output = ended.stdout + ended.stderr
        if "ptrace: Operation not permitted" in output or "Could not trace the inferior" in output:
            skip("this process may not trace another (ptrace)")
        if not all(text in output for text in ("Breakpoint 1, ", "main (argc=", RIGHT, "exited normally")):
            fail(what, ended)
        print(f"ok: {what}: stops the program, walks its stack, lets it end")


TOOLS = {"gcc-asan": gcc_asan, "gcc-ubsan": gcc_ubsan, "gcc-tsan": gcc_tsan, "clang-asan": clang_asan,
         "clang-asan-shared": clang_asan_shared, "clang-tsan": clang_tsan, "valgrind": valgrind, "gdb": gdb}

TOOLS[TOOL](Bench(lib.own_runtime_folder("fl-san-")))
