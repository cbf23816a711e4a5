#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The functions of tests/lib.py, on which the verdicts of other tests rest."""
import os
import socket
import subprocess
import sys

import lib


def check_users():
    """Runs at the same time have different users, and a run keeps its user beyond exec."""
    command = [sys.executable, "-c", "import os, sys; sys.path.insert(0, sys.argv[1]); import lib; user = str(lib.own_user()); print(user, flush=True)\n"
               "for place in '/tmp', '/dev/shm': os.makedirs(f'{place}/faultline-{user}/status', exist_ok=True)\n"
               "if len(sys.argv) == 2: input(); os.execv(sys.executable, [*sys.orig_argv, 'again'])", os.path.dirname(lib.__file__)]
    runs = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    users = [run.communicate("\n", timeout=lib.LIMIT_S)[0].split() for run in runs]
    lib.expect(all(len(user) == 2 and user[0] == user[1] for user in users), "a run keeps its user")
    lib.expect(len({user[0] for user in users}) == len(runs), "runs at the same time have users of their own")
    lib.expect(not any(os.path.exists(f"{place}/faultline-{user[0]}") for place in ("/tmp", "/dev/shm") for user in users), "no folder remains")
    print("ok: a run has a user of its own")


def main():
    check_users()
    lib.own_network()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        port = server.getsockname()[1]
        datagrams.bind(("127.0.0.1", 0))
        lib.expect(lib.listens(port), "the own port")
        lib.expect(lib.listens(datagrams.getsockname()[1], kind="udp"), "the own port of UDP")
        # Others' sockets are not the program's. A command that takes it into its namespace is in this one first.
        stranger = lib.start(["sleep", "600"])
        lib.expect(not lib.listens(port, stranger.pid), "a process that has not the socket")
        program = lib.start(["sleep", "600"], pass_fds=[server.fileno()])
        lib.expect(lib.listens(port, program.pid), "a process with the socket")
        parent = lib.start([sys.executable, "-c", "import os, subprocess, sys\nsocket = int(sys.argv[1])\n"
                            "subprocess.Popen(['sleep', '600'], pass_fds=[socket])\nos.close(socket)\nprint('started', flush=True)\ninput()",
                            server.fileno()], stdin=subprocess.PIPE, pass_fds=[server.fileno()])
        lib.await_line(parent, "started")
        lib.expect(lib.listens(port, parent.pid), "a process whose child has the socket")
        parent.end()
        program.end()
        lib.expect(not lib.listens(port, program.pid), "a process that has ended")
    lib.expect(not lib.listens(port), "a port that is closed")
    lib.expect(lib.polls(os.getpid(), 0) is False, "a process that does not wait in poll")
    for name, words in (("accept", "server.accept()"), ("poll", "select.poll().poll()")):
        program = lib.start([sys.executable, "-c", "import select, socket\nserver = socket.create_server(('127.0.0.1', 0))\n"
                            "print('reads', flush=True)\ninput()\n" + words], stdin=subprocess.PIPE)
        lib.await_line(program, "reads")
        lib.expect(not lib.awaits_client(program.pid), "a process that reads")
        program.stdin.write(b"\n")
        program.stdin.flush()
        lib.await_that(lambda program=program: lib.awaits_client(program.pid), f"the process waits in {name}", program)
    print("ok: a port is looked for where the program itself is")


main()
