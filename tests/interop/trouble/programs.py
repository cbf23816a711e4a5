# SPDX-License-Identifier: BSD-3-Clause
"""Programs that a test of trouble starts, each in a process group of its own, and the journals of their decisions."""
import json
import os
import signal
import subprocess
import sys

started = []


def start(words, **options):
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **options)
    started.append(process)
    return process


def end(process):
    """Ends the program with its group, if it has not ended; returns its output."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    return process.communicate()[0]


def end_all():
    for process in started:
        if process.poll() is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                process.kill()
            process.wait()


def decisions(journal):
    """The lines after the header; none before the program has begun."""
    if not os.path.exists(journal):
        return []
    with open(journal, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    assert not lines or lines[0]["faultline_journal"] == 1, lines[0]
    return lines[1:]


def enter_own_network():
    """As root the test runs anew in a network namespace, so that its addresses meet no others."""
    if os.geteuid() != 0:
        return
    if "FAULTLINE_OWN_NETWORK" not in os.environ:
        os.environ["FAULTLINE_OWN_NETWORK"] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
