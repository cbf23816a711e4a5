#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the library takes from others, and what it lets others read.
  trust_test.py TRUST LIBRARY FAULTLINE_PERF
Captures have mode 600 and are never written through a link (as anybody). A program with raised rights (setuid, so that
AT_SECURE is set: getauxval(3)) neither executes nor writes anything that a variable of the environment names (as root)."""
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))  # tests
import lib  # noqa: E402

trust, library, perf = (os.path.abspath(path) for path in sys.argv[1:])
NOBODY = 65534
failures = []


def expect(good, what):
    print(("ok: " if good else "FAILED: ") + what, flush=True)
    if not good:
        failures.append(what)


RING = """[[device]]
name = "faultline0"
ip = "198.18.0.1/24"
{0}
[device.port]
kind = "ring"
wire = "w0"
side = "a"
[[device]]
name = "faultline1"
ip = "198.18.0.2/24"
[device.port]
kind = "ring"
wire = "w0"
side = "b"
"""


def capture_files(folder):
    """A capture holds all payload: only its owner may read it."""

    def run(target):
        config = folder / "ring.toml"
        config.write_text(RING.format(f'capture = "{target}"'))
        return subprocess.run([perf, "--config", config, "--both", "--", "--op", "send", "--size", "64", "--iters", "10"],
                              capture_output=True, text=True, timeout=lib.LIMIT_S, check=False)

    os.umask(0o022)
    fresh = folder / "fresh.pcapng"
    done = run(fresh)
    expect(done.returncode == 0 and fresh.stat().st_size > 0, "a capture is written")
    expect(stat.S_IMODE(fresh.stat().st_mode) == 0o600, "a capture has mode 600")
    old = folder / "old.pcapng"
    old.touch(mode=0o644)
    run(old)
    expect(old.stat().st_size > 0 and stat.S_IMODE(old.stat().st_mode) == 0o600,
           "a file that was there, readable by all, has mode 600 as a capture")
    other = folder / "other"
    other.write_text("not to be lost")
    link = folder / "link.pcapng"
    link.symlink_to(other)
    done = run(link)
    expect(done.returncode != 0 and other.read_text() == "not to be lost",
           "a capture is not written through a symbolic link")


def raised_rights(folder):
    """The caller is nobody, the program is root's; all that the caller sets points into the caller's own folder."""
    program = folder / "trust"
    shutil.copy(trust, program)
    alone = folder / "lib" / pathlib.Path(library).name  # no switch beside it: the search goes on in PATH
    alone.parent.mkdir()
    shutil.copy(library, alone)
    program.chmod(0o4755)
    callers = folder / "callers"
    callers.mkdir()
    marker = callers / "marker"
    evil = callers / "faultline-switch"
    evil.write_text(f"#!/bin/sh\necho ran >> {marker}\n")
    evil.chmod(0o755)
    runtime = callers / "runtime"
    runtime.mkdir(mode=0o700)
    capture = callers / "capture.pcapng"
    config = callers / "device.toml"
    config.write_text(RING.format(f'capture = "{capture}"'))
    for path in (callers, marker.parent, runtime):
        os.chown(path, NOBODY, NOBODY)

    def run(library_file, variables, *arguments, change=True):
        return subprocess.run([program, library_file, *arguments], env={"PATH": f"{callers}:/usr/bin:/bin", **variables},
                              capture_output=True, text=True, timeout=lib.LIMIT_S, check=False, cwd=callers,
                              **({"user": NOBODY, "group": NOBODY, "extra_groups": []} if change else {}))

    raised = run(library, {})
    if "secure 1 uid 65534 euid 0" not in raised.stdout:
        print(f"SKIPPED: raised rights: a setuid program gets none here: {raised.stdout}{raised.stderr}")
        return
    wire = f"er{os.getpid()}"
    done = run(library, {"FAULTLINE_WIRE": wire, "FAULTLINE_SWITCH": str(evil)})
    expect(not marker.exists() and "devices 0" in done.stdout, "FAULTLINE_SWITCH and FAULTLINE_WIRE are not heeded")
    expect("environment" in done.stderr, "the line says that the environment is not heeded: " + done.stderr.strip())
    marker.unlink(missing_ok=True)
    done = run(library, {"FAULTLINE_CONFIG": str(config)})
    expect(not capture.exists() and "devices 0" in done.stdout, "FAULTLINE_CONFIG is not heeded: it may write a capture")
    capture.unlink(missing_ok=True)

    # What the program itself configures it gets, and nothing of it lands in the caller's folder.
    plain = folder / "plain.toml"
    plain.write_text(RING.format(""))
    log = callers / "run.log"
    done = run(library, {"XDG_RUNTIME_DIR": str(runtime), "FAULTLINE_LOG_FILE": str(log)}, str(plain))
    expect("devices 2 opened 1" in done.stdout, "a configuration that the program names is used: " + done.stderr.strip())
    expect(not any(runtime.iterdir()), "nothing is written to XDG_RUNTIME_DIR")
    expect(not log.exists(), "FAULTLINE_LOG_FILE is not heeded")
    wired = folder / "wired.toml"
    wired.write_text(f'[[device]]\nname = "faultline0"\n[device.port]\nkind = "wire"\nwire = "{wire}"\n')
    run(alone, {}, str(wired))
    expect(not marker.exists(), "the switch is not looked for in PATH")
    marker.unlink(missing_ok=True)
    # The same without raised rights: so this test can tell.
    runtime_of_root = folder / "runtime"
    runtime_of_root.mkdir(mode=0o700)
    run(library, {"FAULTLINE_WIRE": wire, "FAULTLINE_SWITCH": str(evil), "XDG_RUNTIME_DIR": str(runtime_of_root), "FAULTLINE_LOG_FILE": str(log)},
        change=False)
    for left in (runtime_of_root / "faultline", pathlib.Path("/tmp/faultline-0")):
        for path in left.glob(f"{wire}.*"):
            path.unlink(missing_ok=True)
    expect(marker.exists(), "without raised rights FAULTLINE_SWITCH is heeded")
    expect(log.exists(), "and FAULTLINE_LOG_FILE too")


with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
    place = pathlib.Path(name)
    place.chmod(0o755)
    capture_files(place)
    # Root of a container without capabilities may give no file away.
    if os.geteuid() == 0 and subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "true"],
                                            capture_output=True, check=False).returncode == 0:
        raised_rights(place)
    else:
        print("SKIPPED: raised rights: needs root to make a setuid program")
sys.exit(1 if failures else 0)
