#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The prompt of faultline-perf: a script, mistakes, a peer that ends during a run, and a terminal with completion and history.
  prompt_test.py FAULTLINE_PERF RING_TOML MAN_PAGE"""
import os
import re
import signal
import subprocess
import sys

from terminal import Terminal, lib, pyte

PERF, RING, PAGE = (os.path.realpath(path) for path in sys.argv[1:4])
BOTH = [PERF, "--config", RING, "--both", "--", "-i"]
LINES = 200

# The rates of a run end with it, and its QPs exist until stop.
SCRIPT = """
# Three runs: two that end by themselves, and one that is stopped.
show config
set op write size 4k qps 2 verify on iters 1000
start
show rates 1
show qp
show mr
stop
show odp all
show port
show counters
set op ud_send size 1k verify off
start
wait
show stats
set op read iters off
start
show rates 0.1 2
stop
quit
"""

# Each line is a mistake, with what its line on stderr has.
MISTAKES = {
    "foo": 'unknown command "foo"; help lists the commands',
    "help foo": 'unknown command "foo"',
    "set": "help set lists them",
    "set size": "help set lists them",
    "set color red": 'there is no setting "color"',
    "set size 4x": 'set size: "4x" is not possible; it takes 1 to 1g',
    "set size 0": "is not possible",
    "set size 20000000000g": "is not possible",
    "set qps 16385": "is not possible; it takes 1 to 16384",
    "set depth -1": "is not possible",
    "set mtu 1000": "is not possible",
    "set seconds nan": "is not possible",
    "set op read touch hot": 'set touch: "hot" is not possible; it takes warm, cold, prefetch',
    "show": "help show lists it",
    "show foo": 'there is no "foo" to show',
    "show qp": "show qp: no run is under way; start begins one",
    "show rates 1 2 3": "too many arguments",
    "show counters some": "it takes all or nothing",
    "stop": "stop: no run is under way",
    "wait": "wait: no run is under way",
    "quit now": "help quit explains the command",
}


def script(text, *options):
    result = lib.call([*BOTH, *options], status=None, input=text)
    return result.returncode, result.stdout, result.stderr


def check_script():
    status, out, errors = script(SCRIPT)
    assert (status, errors) == (0, ""), (status, out, errors)
    assert "faultline>" not in out, out
    assert re.search(r"^  size +64$", out, re.M), out
    assert re.search(r"seconds +messages/s +GB/s\n( +[\d.]+ +\d+ +[\d.]+\n){2}op .*\nread ", out), out
    qps = re.findall(r"^ *(\d+) RC +RTS +(\d+) ::ffff:198\.18\.0\.1 +(\d+) +(\d+)$", out, re.M)
    assert len({qpn for qpn, *_ in qps}) == 2 and all(int(under_way) <= int(depth) for *_, under_way, depth in qps), out
    assert re.search(r"^messages +0x[0-9a-f]+ +\d+ 0x[0-9a-f]{8} 0x[0-9a-f]{8}\n  page_faults +[1-9]", out, re.M), out
    assert re.search(r"^verify +0x", out, re.M), out
    assert re.search(r"^write +bw +4096 +2 .* yes$", out, re.M), out
    assert re.search(r"^  state +active$", out, re.M), out
    assert re.search(r"^  odp\.\S+ +0$", out, re.M), "show odp all has zeros"
    counters = out[out.index("  state  "):out.index("ud_send")]
    assert re.search(r"^transport\n  transport\.\S+ +[1-9]", counters, re.M) and not re.search(r"^  \S+\.\S+ +0$", counters, re.M), counters
    assert re.search(r"^ud_send +bw +1024 +2 ", out, re.M), out
    done = re.search(r"messages of the last run +(\d+)", out)
    assert done and int(done[1]) >= 1000, out
    # Options are the first settings, the length of a run among them.
    for length in (["--iters", "500"], ["--seconds", "0.1"]):
        status, out, errors = script("start\nwait\n", "--op", "read", *length)
        assert (status, errors) == (0, "") and re.search(r"^read +bw ", out, re.M), (length, status, out, errors)


def check_mistakes():
    status, out, errors = script("\n".join(MISTAKES) + "\nshow config\n")
    lines = errors.splitlines()
    assert status == 2 and len(lines) == len(MISTAKES), (status, errors)
    for (command, words), line in zip(MISTAKES.items(), lines):
        assert line.startswith("faultline-perf: ") and words in line, (command, line)
    assert re.search(r"^  op +write$", out, re.M), "a line with a mistake changes nothing"
    # Settings that exclude each other; a change during a run.
    status, out, errors = script("set mode lat qps 2\nstart\nset mode bw\nstart\nset op read\nshow rates\nwait\nstart\nstop\n")
    lines = errors.splitlines()
    assert status == 2 and len(lines) == 5, (status, errors)
    for words, line in zip(["start: mode lat measures one QP", "set: a run is under way; stop ends it", "give a count", "nothing ends this run",
                            "start: a run is under way; stop ends it"], lines):
        assert words in line, (words, line)
    assert re.search(r"^write +bw +64 +2 ", out, re.M), out


    status, out, errors = script("", "--json", "/nonexistent/results.json")
    assert (status, out, errors.count("\n")) == (2, "", 1) and "leave out --json" in errors, (status, out, errors)


def check_help():
    """Help and the manual page name the same commands, views and settings."""
    status, out, errors = script("help\nhelp show\nhelp set\n")
    assert (status, errors) == (0, ""), (status, errors)
    names = re.findall(r"^ {2,4}(\S+) ", out, re.M)
    assert {"help", "start", "stop", "show", "set", "quit", "qp", "mr", "odp", "port", "counters", "rates", "size", "mtu"} <= set(names), names
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    prompt = page[page.index(".Ss Prompt"):]
    for name in names:
        assert re.search(rf"^\.(It )?(Ic|Cm) .*\b{re.escape(name)}\b", prompt, re.M), f"{name} is not on the manual page"


def check_lost_peer():
    folder = lib.own_runtime_folder()
    for role, address in (("server", 1), ("client", 2)):
        (folder / f"{role}.toml").write_text(f'[[device]]\nname = "faultline0"\nip = "198.18.0.{address}/24"\n[device.port]\nkind = "memif"\n'
                                             f'role = "{role}"\nsocket = "{folder}/wire.sock"\n', encoding="utf-8")
    server = lib.start([PERF, "--config", f"{folder}/server.toml", "--server", "--listen", "127.0.0.1", "--port", "0"], name="server")
    port = lib.await_line(server, r"(\d+)$").group(1)
    client = lib.start([PERF, "--config", f"{folder}/client.toml", "--client", "127.0.0.1", "--port", port, "--", "-i"], name="client",
                       errors_apart=True, stdin=subprocess.PIPE, text=True)
    client.stdin.write("start\nshow rates 0.1 1\nshow qp\n")
    client.stdin.flush()
    lib.await_line(client, " RTS ", "a line of a queue pair")
    server.end()
    # The QP retries before it fails, so the traffic ends by itself.
    client.stdin.write("show rates 0.1 5\nwait\nstop\nshow config\n")
    client.stdin.close()
    assert client.wait() == 1 and "faultline-perf: the run failed: " in client.error_text(), (client.returncode, client.error_text())


def on_terminal():
    prompt = r"^faultline> "
    screen = Terminal(BOTH, LINES)
    screen.shows(prompt.rstrip() + r"$")
    screen.press("he\t", prompt + "help$")
    screen.press("\n", r"^  start +connect queue pairs")
    screen.press("foo\n", r'^faultline-perf: unknown command "foo"; help lists the commands$')
    screen.press("sh\t", prompt + "show$")
    screen.press("\t", r"^qp  mr  odp  port  counters")  # what may follow
    screen.press("conf\t\n", r"^  size +64$")
    screen.press("set op wr\t", prompt + "set op write$")
    screen.press("\t", r"^write  write_imm$")
    screen.press("_\t", prompt + "set op write_imm$")
    screen.press("mt\t1\t\n", prompt + "set op write_imm mtu 1024$")
    screen.press("\x1b[A", prompt + r"set op write_imm mtu 1024(.|\n)*" + prompt + "set op write_imm mtu 1024$")  # the last line again
    screen.press("\x15set size 2k\n", prompt + "set size 2k$")  # ^U empties the line
    screen.press("start\nshow rates 0.2\n", r"^ +[\d.]+ +[1-9]\d* +\d+\.\d{3}$")
    screen.press("\n", r"GB/s\n([ \d.]*\n)+" + prompt.rstrip() + r"$")  # Enter ends the rates
    screen.press("show qp\n", r"^ *\d+ RC +RTS +\d+ ::ffff:198\.18\.0\.1 +\d+ +128$")
    screen.press("show counters\n", r"^transport\n  transport\.\S+ +[1-9]")
    screen.press("stop\n", r"^write_imm +bw +2048 +1 +128 +1024 ")
    screen.press("set iters 100\nset op send\nstart\nwait\n", r"^send +bw +2048 ")
    screen.press("quit\n", prompt + "quit$")
    assert screen.end() == 0, "on a terminal mistakes do not change the status"
    for key, status in (("\x04", 0), ("\x03", -signal.SIGINT)):  # the end of the input; an interrupt
        screen = Terminal(BOTH, LINES)
        screen.shows(prompt.rstrip() + r"$")
        os.write(screen.fd, key.encode())
        assert screen.end() == status, key


def main():
    check_script()
    check_mistakes()
    check_help()
    check_lost_peer()
    if pyte is None:
        lib.skip("python3-pyte is not installed")
    on_terminal()
    print("a script, mistakes, help, a peer that ends, a terminal")


main()
