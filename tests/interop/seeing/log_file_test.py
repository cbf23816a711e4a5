#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The log of an unmodified program in a file: nothing of it is on stdout or stderr.
  log_file_test.py FAULTLINE_RUN"""
import os
import pathlib
import stat
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402

run = os.path.realpath(sys.argv[1])
failures = []
# With this, the log has a line at level warn for certain.
CONFIG = """[[device]]
name = "faultline0"
[device.port]
kind = "wire"
[device.chaos]
delay_us = 1
"""
WITH_FILE = CONFIG + """[log]
file = "{0}"
"""
LINE = "faultline: faultline0: [device.chaos] is on"


def expect(good, what):
    print(("ok: " if good else "FAILED: ") + what, flush=True)
    if not good:
        failures.append(what)


def program(config, variable=None):
    """Opens the device, and ends since no server answers at port 1."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("FAULTLINE_LOG")}
    if variable is not None:
        variables["FAULTLINE_LOG_FILE"] = str(variable)
    return lib.call([run, "--config", config, "--wire", "lf", "ibv_rc_pingpong", "-g", "0", "-p", "1", "127.0.0.1"], status=None, env=variables)


def ours(output):
    return [line for line in output.splitlines() if line.startswith("faultline")]


def is_silent(done):
    """The program has had its device, and its output is its own."""
    return "local address" in done.stdout and not ours(done.stdout) and not ours(done.stderr)


def check(folder):
    config = folder / "wire.toml"
    config.write_text(CONFIG, encoding="utf-8")
    done = program(config)
    expect(len(ours(done.stderr)) == 1 and ours(done.stderr)[0].startswith(LINE) and not ours(done.stdout),
           f"without a file the log is on stderr: {done.stdout}{done.stderr}")

    config.write_text(WITH_FILE.format(folder / "key-%p.log"), encoding="utf-8")
    done = program(config)
    files = list(folder.glob("key-*.log"))
    expect(is_silent(done), "the key log.file: nothing of ours is on stdout or stderr: " + done.stderr)
    expect(len(files) == 1 and files[0].stem[len("key-"):].isdigit(), f"the name has the process ID: {files}")
    expect([LINE in line for file in files for line in file.read_text(encoding="utf-8").splitlines()] == [True], "the file has the line")
    expect([stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600], "the file has mode 600")

    shared = folder / "variable.log"
    for _ in range(2):
        done = program(config, shared)
        expect(is_silent(done), "FAULTLINE_LOG_FILE: nothing of ours is on stdout or stderr: " + done.stderr)
    lines = shared.read_text(encoding="utf-8").splitlines()
    expect([line.startswith(LINE) for line in lines] == [True, True], f"two programs append: {lines}")
    expect(list(folder.glob("key-*.log")) == files, "the variable takes precedence over the key")

    nowhere = folder / "none" / "run.log"
    done = program(config, nowhere)
    complaints = [line for line in ours(done.stderr) if str(nowhere) in line]
    expect(len(complaints) == 1 and complaints[0].startswith("faultline: FAULTLINE_LOG_FILE: cannot append to ")
           and "No such file or directory; name a file" in complaints[0], f"a file that cannot be opened has one line: {done.stderr}")
    expect(LINE in done.stderr and not ours(done.stdout), "and the log is on stderr")


lib.need("ibv_rc_pingpong")
check(lib.own_runtime_folder())
sys.exit(1 if failures else 0)
