#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The pytest plugin of apps/examples gives tests two devices. Without Faultline the tests are skipped with a reason, and a program that
fails is a failed test.
  pytest_test.py EXAMPLES_FOLDER FAULTLINE_RUN"""
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # tests
import lib  # noqa: E402

FOLDER, RUN = pathlib.Path(sys.argv[1]), sys.argv[2]
PYTHON = "/usr/bin/python3"  # Debian's, which has pyverbs
FAILING = '''
def test_failing_program(faultline_wire):
    faultline_wire.run("a", ["false"])
'''


def run_pytest(before, tests, **environment):
    """The counts of pytest's last line, and its whole output."""
    variables = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    variables |= {"PYTHONPATH": str(FOLDER / "pytest"), "PYTHONDONTWRITEBYTECODE": "1"} | environment
    command = [*before, PYTHON, "-m", "pytest", "-p", "faultline_pytest", "-p", "no:cacheprovider", "-rs", tests]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=lib.LIMIT_S,
                           stdin=subprocess.DEVNULL)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", ended.stdout.splitlines()[-1])}
    return counts, ended.stdout + ended.stderr


def expect(what, counts, expected, text):
    if counts != expected:
        lib.fail(f"{what}: {counts}, not {expected}\n{text}")
    print(f"ok: {what}")


for module in ("pytest", "pyverbs.device"):
    if subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True, check=False).returncode != 0:
        lib.skip(f"{PYTHON} has no {module.split('.', maxsplit=1)[0]} (python3-{module.split('.', maxsplit=1)[0]})")
folder = str(lib.own_runtime_folder("fl-pytest-"))
tests = FOLDER / "pytest/test_two_devices.py"
with_devices = [RUN, "--config", FOLDER / "two_devices.toml", "--"]
counts, output = run_pytest(with_devices, tests, FAULTLINE_RUN=RUN, XDG_RUNTIME_DIR=folder)
expect("both fixtures", counts, {"passed": 2}, output)
counts, output = run_pytest([], tests, FAULTLINE_RUN=RUN, XDG_RUNTIME_DIR=folder)
expect("a process without devices", counts, {"passed": 1, "skipped": 1}, output)
counts, output = run_pytest([], tests, PATH=folder)
expect("a machine without Faultline", counts, {"skipped": 2}, output)
if "faultline-run is neither in PATH" not in output:
    lib.fail(f"no reason\n{output}")
failing = pathlib.Path(folder) / "test_failing.py"
failing.write_text(FAILING)
counts, output = run_pytest([], failing, FAULTLINE_RUN=RUN, XDG_RUNTIME_DIR=folder)
expect("a program that fails", counts, {"failed": 1}, output)
