# SPDX-License-Identifier: BSD-3-Clause
"""What the tests in Python share: conditions to wait for, processes, folders, networks, switches, and their clean-up. A test begins with

    import sys
    from pathlib import Path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests
    import lib

Whatever a function here makes ends with the test: after a failure, and after the SIGTERM of meson's timeout, too. tests/lib.sh has the same
names for shell scripts.

No test asserts a duration. LIMIT_S ends a hang, and is no bound of anything else: a test that reaches it has failed."""
import atexit
import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from free_port import free_port  # noqa: F401  (for the tests)

LIMIT_S = int(os.environ.get("FAULTLINE_HANG_SECONDS", "300"))  # as in tests/lib.sh
SKIPPED = 77
SHOWN_CHARACTERS = 2000
CLONE_NEWNET = 0x40000000
POLL_CALLS = (7, 73)  # poll of x86-64, and ppoll of AArch64, where the C library's poll is this
ACCEPT_CALLS = {"x86_64": (43, 288), "aarch64": (202, 242)}  # accept and accept4

_clean_up = contextlib.ExitStack()
_processes = []


# Verdicts

def skip(reason):
    """Ends the test as skipped."""
    print(f"SKIPPED: {reason}", flush=True)
    sys.exit(SKIPPED)


def fail(what):
    """Ends the test as failed; prints the last output of its processes."""
    show_outputs()
    print(f"FAILED: {what}", flush=True)
    sys.exit(1)


def expect(holds, what):
    """Fails unless the condition holds."""
    if not holds:
        fail(what)


def need(*names):
    """Skips the test unless all of these programs are installed."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        skip(f"not installed: {', '.join(missing)}")


def need_root(reason=""):
    """Skips the test unless it runs as root."""
    if os.geteuid() != 0:
        skip(f"needs root {reason}".rstrip())


# Conditions

def await_that(condition, what, *processes):
    """Waits until the condition is true; returns its value. Fails if one of the processes ends before. The pauses grow from 5 ms to 0.2 s,
    and are at least as long as the condition takes, so that the wait leaves the CPU to the processes that it waits for. A function as `what` is
    called for the text of a failure."""
    limit, pause = time.monotonic() + LIMIT_S, 0.005
    while True:
        ended = [process for process in processes if process.poll() is not None]
        begun = time.monotonic()
        value = condition()
        if value:
            return value
        if ended:
            fail(f"{what() if callable(what) else what}: {name_of(ended[0])} has ended with status {ended[0].returncode}")
        now = time.monotonic()
        if now > limit:
            fail(f"{what() if callable(what) else what}: not within {LIMIT_S} s")
        time.sleep(max(pause, now - begun))
        pause = min(pause * 1.5, 0.2)


def await_line(process, pattern, what=None, count=1):
    """Waits until the pattern (of re, ^ and $ match at each line) occurs so many times in the output of a Process; returns the last match."""
    def found():
        matches = list(re.finditer(pattern, process.text(), re.MULTILINE))
        return matches[count - 1] if len(matches) >= count else None
    return await_that(found, what or f"{process.name} prints {pattern!r}", process)


def await_file(path, *processes):
    """Waits until the path exists."""
    await_that(lambda: os.path.exists(path), f"{path} exists", *processes)


def _children(pid):
    """The processes that a process has started, and theirs. Not from /proc/PID/task/TID/children, which some kernels lack (proc(5))."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as file:
                parents.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(entry))
    found = list(parents.get(pid, []))
    for child in found:
        found += parents.get(child, [])
    return found


def _has_socket(pid, inodes):
    """Tells whether a process has one of these sockets. Of a process that this one may not look into, the answer is yes."""
    links = {f"socket:[{inode}]" for inode in inodes}
    try:
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed since
                if os.readlink(f"/proc/{pid}/fd/{descriptor}") in links:
                    return True
    except PermissionError:
        return True
    except OSError:  # it has ended
        pass
    return False


def listens(port, pid=None, kind="tcp"):
    """Tells whether a socket of a process, or of one that it has started, listens at the TCP port, or is bound to the UDP port with kind
    "udp". Without a process, any socket of this network namespace will do. With one, a socket of others must not: a command that takes
    the process into its namespace is in this one first, where another test may have the port."""
    end, states = f":{int(port):04X}", {"tcp": ("0A",), "udp": ("07",)}[kind]  # proc(5), /proc/net/tcp: TCP_LISTEN, and TCP_CLOSE of UDP
    inodes = set()
    for table in (kind, kind + "6"):
        with contextlib.suppress(OSError), open(f"/proc/{pid or 'self'}/net/{table}", encoding="ascii") as file:
            for line in file:
                fields = line.split()
                if fields[1].endswith(end) and fields[3] in states:
                    inodes.add(fields[9])
    if not inodes or pid is None:
        return bool(inodes)
    return _has_socket(pid, inodes) or any(_has_socket(child, inodes) for child in _children(pid))


def polls(pid, descriptor):
    """Tells whether the first thread of a process waits in poll(2) for this one descriptor."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/syscall", encoding="ascii") as file, \
            open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        number, address, count = file.read().split()[:3]
        if int(number) in POLL_CALLS and int(count, 16) == 1:
            memory.seek(int(address, 16))
            return int.from_bytes(memory.read(4), sys.byteorder) == int(descriptor)
    return False


def awaits_client(pid):
    """Tells whether the first thread of a process waits in poll(2) or accept(2). Where the kernel does not say, the answer is yes."""
    try:
        with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
            number = file.read().split()[0]
    except OSError:
        return True
    return number.isdigit() and int(number) in POLL_CALLS + ACCEPT_CALLS.get(os.uname().machine, ())


def await_port(port, process, kind="tcp"):
    """Waits until the process listens at the port. On a wire, too: the port is the kernel's there."""
    await_that(lambda: listens(port, process.pid, kind), f"{kind} port {port} listens", process)


def await_cm_listener(run, wire, process):
    """Waits until the process listens for connections of rdma_cm on a wire; needs the program rdma of iproute2."""
    def listening():
        shown = call([run, "--wire", wire, "--", "rdma", "-j", "res", "show", "cm_id"], status=None)
        return shown.returncode == 0 and shown.stdout.strip() and \
            any(one.get("pid") == process.pid and one.get("state") == "LISTEN" for one in json.loads(shown.stdout))
    await_that(listening, f"{name_of(process)} listens", process)


# Clean-up

def on_exit(function, *arguments):
    """Calls the function when the test ends: the last one first."""
    _clean_up.callback(function, *arguments)


def _end_by_signal(number, _):
    signal.signal(number, signal.SIG_IGN)  # meson sends SIGKILL half a second later
    fail(f"ended by {signal.Signals(number).name}")


def _report_exception(kind, value, trace):
    sys.__excepthook__(kind, value, trace)
    show_outputs()


for _number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(_number, _end_by_signal)
sys.excepthook = _report_exception
atexit.register(_clean_up.close)


# Processes

class Process(subprocess.Popen):
    """A process with a group of its own, whose output is a file; see start()."""

    def __init__(self, words, name, errors_apart, **options):
        self.name = name
        self._files = [tempfile.TemporaryFile() for _ in range(2 if errors_apart else 1)]
        super().__init__([str(word) for word in words], stdout=self._files[0], stderr=self._files[1] if errors_apart else subprocess.STDOUT,
                         start_new_session=True, **options)
        _processes.append(self)
        on_exit(self.end)

    def text(self):
        """What the process has written to stdout, and to stderr unless that is apart."""
        return _content(self._files[0])

    def error_text(self):
        """What the process has written to stderr; only with errors_apart."""
        return _content(self._files[1])

    def wait(self, timeout=LIMIT_S):
        """Waits for the end; returns the exit status."""
        try:
            return super().wait(timeout)
        except subprocess.TimeoutExpired:
            if timeout is not LIMIT_S:
                raise
            return fail(f"{self.name} does not end")

    def succeed(self):
        """Waits for the end, which has to be exit status 0; returns the output."""
        expect(self.wait() == 0, f"{self.name} ended with status {self.returncode}")
        return self.text()

    def end(self, number=signal.SIGKILL):
        """Ends the process and its group, if it has not ended; returns the exit status."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
            self.wait()
        return self.returncode


def _content(file):
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


def name_of(process):
    return getattr(process, "name", None) or " ".join(str(word) for word in process.args[:6])


def start(words, name=None, errors_apart=False, **options):
    """Starts a process; options are those of subprocess.Popen. Returns a Process."""
    return Process(words, name or os.path.basename(str(words[0])), errors_apart, **{"stdin": subprocess.DEVNULL, **options})


def call(words, status=0, **options):
    """Runs a process to its end, which has to be this exit status (None: any); returns subprocess.CompletedProcess with text."""
    words = [str(word) for word in words]
    done = subprocess.run(words, **{"capture_output": True, "text": True, "timeout": LIMIT_S, "check": False, **options})
    expect(status in (None, done.returncode), f"{' '.join(words)}: exit status {done.returncode}, not {status}\n{done.stdout or ''}{done.stderr or ''}")
    return done


def run_pair(server, client, port, **options):
    """Runs a server, and a client once the server listens at the TCP port; both have to succeed. Returns both Processes."""
    ends = [start(server, name="server", **options)]
    await_port(port, ends[0])
    ends.append(start(client, name="client", **options))
    for end in reversed(ends):
        end.succeed()
    return ends


def show_outputs():
    """Prints the last output of each Process."""
    for process in _processes:
        state = "runs" if process.poll() is None else f"status {process.returncode}"
        for file in process._files:  # pylint: disable=protected-access
            if text := _content(file)[-SHOWN_CHARACTERS:].rstrip():
                print(f"--- {process.name} ({state}): {text}", flush=True)


# Folders

def own_folder(prefix="fl-", parent=None):
    """Makes a folder for files of the test; returns its Path, which is short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    on_exit(shutil.rmtree, folder, True)
    return folder


def own_runtime_folder(prefix="fl-"):
    """Makes a folder and names it in XDG_RUNTIME_DIR, where the programs of a user find each other, their wires and switches: tests with one
    of their own do not meet. Processes that have it in their environment, such as switches that programs start, end with the test."""
    folder = own_folder(prefix)
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    on_exit(end_processes_of, folder)
    return folder


def processes_of(folder, program=""):
    """The IDs of the processes that have this folder as XDG_RUNTIME_DIR, and a program whose path ends so."""
    wanted, found = f"XDG_RUNTIME_DIR={folder}".encode(), []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") and words[0].endswith(program.encode()):
                found.append(int(pid))
    return found


def own_user():
    """A user that no other test and no other run of this one is: programs of one user share the runtime folder in /tmp, and the memory that
    RLIMIT_MEMLOCK allows. It stays the same where the test replaces its own process by exec. The user's folders go with the test."""
    user = 300_000 + os.getpid()
    for place in ("/tmp", "/dev/shm"):
        on_exit(shutil.rmtree, f"{place}/faultline-{user}", True)
    return user


def end_processes_of(folder, program="", number=signal.SIGKILL):
    """Ends the processes that processes_of() finds, except this one."""
    for pid in processes_of(folder, program):
        if pid != os.getpid():
            with contextlib.suppress(OSError):
                os.kill(pid, number)


# Networks

def own_network():
    """As root: moves the test into a network namespace with a loopback interface, so that its addresses and ports meet no others. Otherwise
    the test remains in the host's: its ports have to be free_port()s. Returns whether the network is its own."""
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        return False
    call(["ip", "link", "set", "lo", "up"])
    return True


class Namespace:
    """A network namespace with a loopback interface; skips the test where it may not be made. Its name is unique."""

    def __init__(self, name):
        self.name = f"fl-{os.getpid()}-{name}"
        made = call(["ip", "netns", "add", self.name], status=None)
        if made.returncode != 0:
            skip(f"may not make network namespaces: {made.stderr.strip()}")
        on_exit(call, ["ip", "netns", "del", self.name], None)
        self.ip("link", "set", "lo", "up")

    def ip(self, *words):
        """Runs ip(8) in the namespace; returns its output."""
        return call(["ip", "-n", self.name, *words]).stdout

    def words(self, *command):
        """The command as it runs in the namespace; the process becomes the command's."""
        return ["ip", "netns", "exec", self.name, *command]


def veth_pair(one, other, names=("fl-a", "fl-b"), mtu=4500):
    """Joins two Namespaces, or one with itself, by a veth pair that is up."""
    one.ip("link", "add", names[0], "mtu", str(mtu), "type", "veth", "peer", "name", names[1], "mtu", str(mtu), "netns", other.name)
    for space, name in ((one, names[0]), (other, names[1])):
        space.ip("link", "set", name, "up")


# Switches

def status_of_switch(switch, wire):
    """What faultline-switch --status --json has of the wire in this test's runtime folder, or None if no switch answers."""
    asked = call([switch, "--status", wire, "--json"], status=None)
    return json.loads(asked.stdout) if asked.returncode == 0 else None


def start_switch(switch, wire, *options, prefix=(), **popen_options):
    """Starts faultline-switch for a wire, and waits until this one answers. Returns the Process. A prefix may enter a namespace."""
    process = start([*prefix, switch, "--wire", wire, *options], name=f"switch {wire}", **popen_options)
    await_that(lambda: (status := status_of_switch(switch, wire)) and status["pid"] == process.pid, f"the switch of {wire} answers", process)
    return process
