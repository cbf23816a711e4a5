#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests the options of faultline-switch that describe its uplink: each error is one line, with exit status 2.

  switch_config_test.py FAULTLINE_SWITCH
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402

DEVICE = '[[device]]\nname = "nic"\nip = "198.18.9.1/24"\n'
PORT = '[device.port]\nkind = "af_packet"\ninterface = "fl-none"\n'

# name, file (None: no --config), further arguments, a part of the line
CASES = [
    ("no interface", DEVICE + PORT, [], "there is no interface fl-none"),
    ("unknown key", DEVICE + "mtuu = 1500\n" + PORT, [], 'did you mean "mtu"?'),
    ("kind", DEVICE + '[device.port]\nkind = "memif"\nrole = "server"\nsocket = "/x/y"\n', [], "device.port.kind"),
    ("two devices", DEVICE + PORT + DEVICE.replace("nic", "two").replace("9.1", "9.2") + PORT.replace("none", "two"), [],
     "a switch has one uplink"),
    ("two addresses", DEVICE.replace('"198.18.9.1/24"', '["198.18.9.1/24", "198.18.9.2/24"]') + PORT, [], "device.ip"),
    ("gateway", DEVICE + 'gateway = "198.18.9.254"\n' + PORT, [], "device.gateway"),
    ("capture", DEVICE + 'capture = "/x/y"\n' + PORT, [], "device.capture"),
    ("lcores", DEVICE + 'progress = "dedicated"\nlcores = [0, 1]\n' + PORT, [], "device.lcores"),
    ("chaos", DEVICE + PORT + "[device.chaos]\nloss = 0.1\n", [], "device.chaos"),
    ("empty file", "\n", [], "is empty"),
    ("with --uplink", DEVICE + PORT, ["--uplink", "tap:x"], "excludes"),
    ("exception's name", '[switch]\nexception = "a/b"\n' + DEVICE + PORT, [], "switch.exception"),
    ("exception's kind", DEVICE + PORT, ["--exception", "af_packet:x"], "is not tap:NAME"),
    ("exception without an address", None, ["--uplink", "tap:x", "--exception", "tap:y"], "needs the host's address"),
    ("rate", '[switch]\nprogram_rate_mbps = 0\n' + DEVICE + PORT, [], "switch.program_rate_mbps"),
    ("rate as an option", None, ["--uplink", "tap:x", "--program-rate-mbps", "0"], "--program-rate-mbps"),
    ("rate without an uplink", None, ["--program-rate-mbps", "10"], "needs an uplink"),
    ("no wire", None, [], "--wire: it is missing"),
    ("address", None, ["--uplink", "tap:x", "--ip", "198.18.9.1"], "is not an IPv4 address"),
    ("uplink's kind", None, ["--uplink", "memif:x"], "is none of tap:NAME"),
    ("uplink's socket", None, ["--uplink", "vhost:vm.sock"], "is not the path of a socket"),
    ("sockets' address", None, ["--uplink", "udp:x"], "is not an address of a host"),
    ("sockets' other address", None, ["--uplink", "udp:203.0.113.1"], "no interface of this host has the address 203.0.113.1"),
    ("file of sockets", '[[device]]\nname = "s"\nip = "203.0.113.1"\n[device.port]\nkind = "udp"\n', [],
     "no interface of this host has the address 203.0.113.1"),
    ("no back end", None, ["--uplink", "virtio_user:/tmp/fl-none.sock"], "no vhost-user back end listens"),
]


def main():
    switch = sys.argv[1]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, XDG_RUNTIME_DIR=folder)
        os.chmod(folder, 0o700)
        for name, text, arguments, part in CASES:
            command = [switch, *([] if name == "no wire" else ["--wire", "config"]), *arguments]
            if text is not None:
                path = os.path.join(folder, "switch.toml")
                with open(path, "w", encoding="ascii") as file:
                    file.write(text)
                command += ["--config", path]
            done = subprocess.run(command, capture_output=True, text=True, timeout=lib.LIMIT_S, env=environment, check=False)
            if part == "there is no interface fl-none" and "CAP_NET_RAW" in done.stderr:
                continue
            lines = [line for line in done.stderr.splitlines() if line and "--help" not in line]
            if done.returncode != 2 or len(lines) != 1 or part not in done.stderr or done.stdout:
                failed += 1
                print(f"FAILED: {name}: status {done.returncode}, {done.stderr!r}")
            else:
                print(f"ok: {name}: {lines[0]}")
        done = subprocess.run([switch, "--status", "config"], capture_output=True, text=True, timeout=lib.LIMIT_S, env=environment,
                              check=False)
        if done.returncode != 2 or done.stdout or done.stderr.count("\n") != 1 or "it has no switch" not in done.stderr:
            failed += 1
            print(f"FAILED: the status of no switch: status {done.returncode}, {done.stderr!r}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
