# SPDX-License-Identifier: BSD-3-Clause
"""Functions that the drivers of applications share: a session for each driver, with a wire of its own, and the rows of the table.

A driver runs in new network, mount and PID namespaces. Its TCP ports and addresses are its own, and the kernel ends every program
that it leaves behind (unshare --kill-child). TCP runs over that namespace's loopback interface.

A row is printed when it is known:
    RESULT: APPLICATION | FIGURE | BESIDE TCP
RESULT is ok, trick (works, with an option that docs/applications.md names), own fault (the program fails because of its own defect, as
expected), limit (it fails, as expected, because of something that Faultline does not offer), FAILED or SKIPPED.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
import networks  # noqa: E402
from networks import lib  # noqa: E402

INSIDE = "FAULTLINE_APPLICATIONS_INSIDE"
SERVER_IP = "198.18.0.1"
CLIENT_IP = "198.18.0.2"
MEGA = 1e6


class Failure(Exception):
    """A program does not do what it should: the row is FAILED."""


class Session(networks.Wire):
    """One wire, `slot0`. Programs run as an ordinary user unless privileged."""

    def __init__(self, faultline_run, brief=False, privileged=False):
        # In a user namespace the caller is mapped to root, and no other user exists.
        if privileged or os.environ[INSIDE] == "user":
            self.user = None
        super().__init__(faultline_run, 1)
        self.brief = brief
        self.rows = []
        self.running = []
        self.count = 0

    # Programs
    def on_wire(self, side, *command):
        """A command on the wire; its address is SERVER_IP for side a, CLIENT_IP for b."""
        return [self.run, "--wire", "slot0", "--side", side, "--", *command]

    def sharing(self, *command):
        """A command on the device that all ranks of a job share."""
        return [self.run, "--wire", "shared", "--share", "--", *command]

    def launch(self, command, **variables):
        """Starts a command; its output is in process.output."""
        self.count += 1
        output = f"{self.folder}/{self.count}.out"
        process = self.start([str(word) for word in command], output, variables)
        process.output = output
        process.name = " ".join(str(word) for word in command)
        self.running.append(process)
        return process

    def output_of(self, process):
        with open(process.output, errors="replace") as file:
            return file.read()

    def wait(self, process, seconds):
        """Waits for its end; returns its status. Raises Failure after that many seconds."""
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end(process)
            raise Failure(f"did not end in {seconds} s: {short(process.name)}: {last_line(self.output_of(process))}") from None

    def finish(self, command, seconds, good=(0,), **variables):
        """Runs a command to its end and returns its output."""
        process = self.launch(command, **variables)
        return self.reap(process, seconds, good)

    def reap(self, process, seconds, good=(0,)):
        status = self.wait(process, seconds)
        if status not in good:
            raise Failure(f"status {status}: {short(process.name)}: {last_line(self.output_of(process))}")
        return self.output_of(process)

    def await_text(self, process, pattern, seconds=lib.LIMIT_S):
        """Waits for a pattern in its output; returns the match."""
        until = time.monotonic() + seconds
        while True:
            ended = process.poll() is not None
            found = re.search(pattern, self.output_of(process))
            if found:
                return found
            if ended or time.monotonic() > until:
                raise Failure(f"did not print {pattern!r}: {short(process.name)}: {last_line(self.output_of(process))}")
            time.sleep(0.05)

    def await_listener(self, port, seconds=lib.LIMIT_S):
        """Waits until a program of this session accepts TCP connections at a port."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if lib.listens(port):
                return
            time.sleep(0.05)
        raise Failure(f"no program listens at port {port}")

    def end(self, process, number=signal.SIGKILL, seconds=10):
        if process.poll() is None:
            try:
                os.killpg(process.pid, number)
                process.wait(seconds)
            except ProcessLookupError:
                pass
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end_all(self):
        for process in self.running:
            self.end(process)
        self.running.clear()
        # A program's children may have sessions of their own (fio's jobs). This PID namespace has no other processes; the wire's switch
        # stays for the next row.
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) not in (1, os.getpid()):
                try:
                    with open(f"/proc/{entry}/cmdline", "rb") as file:
                        if b"faultline-switch" not in file.read():
                            os.kill(int(entry), signal.SIGKILL)
                except OSError:
                    pass

    def close(self):
        self.end_all()
        super().close()

    def hand_over(self, path):
        """Makes a file or folder writable for the programs' user."""
        if self.user is not None:
            os.chown(path, self.user, self.user)

    # Rows
    def row(self, result, application, figure="", tcp=""):
        self.rows.append(result)
        print(f"{result}: {application} | {figure} | {tcp}", flush=True)

    def attempt(self, application, work, result="ok"):
        """A row for the result of `work`: a figure, or a figure and that of TCP. No program outlives its row."""
        try:
            figures = work()
            figure, tcp = figures if isinstance(figures, tuple) else (figures, "")
            self.row(result, application, figure or "", tcp)
            return True
        except Failure as failure:
            self.row("FAILED", application, str(failure).replace("|", "/"))
            for process in self.running:
                for line in self.output_of(process).splitlines()[-12:]:
                    print(f"    {short(process.name, 40)}: {line}")
            return False
        finally:
            self.end_all()

    def may_fail_by_itself(self, application, pattern, work):
        """The same for a program that sometimes fails because of its own defect."""
        try:
            figure, tcp = work()
            self.row("ok", application, figure, tcp)
        except Failure as failure:
            printed = str(failure) + "\n" + "\n".join(self.output_of(process) for process in self.running)
            found = re.search(pattern, printed)
            self.row("own fault" if found else "FAILED", application, found.group(0) if found else str(failure).replace("|", "/"))
        finally:
            self.end_all()

    def fails_by_itself(self, application, pattern, work, result="own fault"):
        """A row of a program that is expected to fail with a message, because of its own defect."""
        try:
            work()
            self.row("ok", application, "did not fail")
        except Failure as failure:
            printed = str(failure) + "\n" + "\n".join(self.output_of(process) for process in self.running)
            found = re.search(pattern, printed)
            if found:
                self.row(result, application, found.group(0))
            else:
                self.row("FAILED", application, f"{failure}; expected {pattern!r}".replace("|", "/"))
        finally:
            self.end_all()


def short(text, length=120):
    text = re.sub(r"\S*/faultline-run --wire \S+ (--side \S+|--share) -- ", "", text)
    return text if len(text) <= length else text[:length] + "…"


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return short(lines[-1].strip()) if lines else "it printed nothing"


def json_of(text):
    """The JSON object in a text that has other lines before and after it."""
    try:
        return json.loads(text[text.index("{"):text.rindex("}") + 1])
    except ValueError:
        raise Failure(f"printed no JSON: {last_line(text)}") from None


def mega(bytes_per_second):
    return f"{bytes_per_second / MEGA:.0f} MB/s"


def enter():
    """Runs this driver again in namespaces of its own."""
    if os.environ.get(INSIDE):
        return
    options = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    kind = "root"
    if os.geteuid() != 0:
        options.append("--map-root-user")
        kind = "user"
    if not shutil.which("unshare") or not shutil.which("ip"):
        networks.skip("unshare and ip are not installed")
    if not networks.quietly("unshare", *options, "true"):
        networks.skip("may not create namespaces")
    os.environ[INSIDE] = kind
    os.execvp("unshare", ["unshare", *options, "--", sys.executable, *sys.argv])


def main(work, needs=(), privileged=False, kernel_addresses=False, prepare=None):
    """Runs work(session). The driver's arguments: FAULTLINE_RUN [--brief].
    kernel_addresses: the loopback interface has the wire's addresses too, for a program that takes one host name for TCP and
    rdma_cm. Without it, no TCP connection to such an address can be mistaken for one over the wire.
    prepare: a function that runs first, while there is a network. The programs then run as the caller, who owns the build."""
    missing = [program for program in needs if not shutil.which(program) and not os.path.exists(program)]
    if missing:
        networks.skip(f"not installed: {', '.join(missing)}")
    if privileged and os.geteuid() != 0:
        networks.skip("needs root")
    if prepare and not os.environ.get(INSIDE):
        prepare()
    enter()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (SERVER_IP, CLIENT_IP) if kernel_addresses else ():
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    faultline_run, *options = sys.argv[1:]
    session = Session(faultline_run, "--brief" in options, privileged or prepare is not None)
    try:
        work(session)
    finally:
        session.close()
    if "FAILED" in session.rows or not session.rows:
        sys.exit(1)
    if all(result == "SKIPPED" for result in session.rows):
        sys.exit(77)
