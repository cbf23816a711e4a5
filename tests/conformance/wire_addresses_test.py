#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A wire's addresses in TCP and UDP, by unmodified programs: perftest and UCX take the peer's address, and two servers have one port at
two addresses. With --no-wire-sockets the kernel has no such address.
  wire_addresses_test.py FAULTLINE_RUN
"""
import errno
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
PYTHON = "/usr/bin/python3"  # of any user
SIDES = {"a": "198.18.0.1", "b": "198.18.0.2", "c": "198.18.0.3"}
LIMIT_S = 300  # ends a hang, also of the copy that the programs run


def serve(address, port):
    """Answers one connection and one datagram with the addresses that this end sees."""
    stream = socket.create_server((address, port))
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((address, port))
    print(stream.getsockname()[0], datagrams.getsockname()[0], flush=True)
    connection, peer = stream.accept()
    seen = [peer[0], connection.getpeername()[0], connection.getsockname()[0]]
    connection.sendall(" ".join(seen).encode())
    connection.close()
    _, peer = datagrams.recvfrom(16)
    datagrams.sendto(peer[0].encode(), peer)


def ask(address, port, own):
    """The other end, at the address `own`."""
    with socket.create_connection((address, port), LIMIT_S) as connection:
        assert connection.getpeername() == (address, port), connection.getpeername()
        assert connection.getsockname()[0] == own, connection.getsockname()
        seen = connection.recv(256).decode()
        assert seen == f"{own} {own} {address}", seen
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.settimeout(LIMIT_S)
        datagrams.sendto(b"who am I", (address, port))
        seen, source = datagrams.recvfrom(256)
        assert (seen.decode(), source) == (own, (address, port)), (seen, source)


def bind(address):
    """Prints the result, by which no packet leaves the host."""
    try:
        with socket.create_server((address, 0)) as server:
            print("bound to", server.getsockname()[0])
    except OSError as error:
        print(errno.errorcode[error.errno])


class Programs:
    def __init__(self, network, listens):
        self.listens = listens
        self.network, self.count, self.running = network, 0, []

    def start(self, side, *command, options=(), **variables):
        words = [*command]
        if side is not None:
            words = [self.network.run, "--wire", "slot0", "--side", side, *options, "--", *words]
        self.count += 1
        process = self.network.start([str(word) for word in words], f"{self.network.folder}/{self.count}.out", variables)
        process.output, process.words = f"{self.network.folder}/{self.count}.out", words
        self.running.append(process)
        return process

    def end(self):
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    @staticmethod
    def output(process):
        with open(process.output, errors="replace") as file:
            return file.read()

    def finish(self, process, status=0):
        """Waits for its end; returns what it printed."""
        found = process.wait(LIMIT_S)
        assert found == status, f"status {found}: {process.words}: {self.output(process)[-600:]}"
        return self.output(process)

    def await_listener(self, port, server):
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until and server.poll() is None:
            if self.listens(port):
                return
            time.sleep(0.05)
        raise AssertionError(f"does not listen: {server.words}: {self.output(server)}")

    def await_output(self, server):
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until and server.poll() is None and not self.output(server):
            time.sleep(0.05)


def check(programs, script, free_port):
    python = (PYTHON, script)

    port = free_port()
    servers = []
    for side in "ab":
        servers.append(programs.start(side, *python, "--serve", SIDES[side], port))
        programs.await_output(servers[-1])
        assert programs.output(servers[-1]).split() == [SIDES[side]] * 2, programs.output(servers[-1])
    for side in "ab":
        programs.finish(programs.start("c", *python, "--ask", SIDES[side], port, SIDES["c"]))
    for server in servers:
        programs.finish(server)
    print("ok: two servers at one port, by TCP and UDP, with the addresses as typed")

    pairs = [("ib_send_lat", ("-F", "-n", 50), {})]
    if shutil.which("ucx_perftest") and glob.glob("/usr/lib/*/ucx/libuct_ib.so*"):
        pairs.append(("ucx_perftest", ("-t", "tag_lat", "-n", 50, "-w", 5),
                      {"UCX_TLS": "rc_verbs,ud_verbs", "UCX_NET_DEVICES": "faultline0:1"}))
    for name, options, variables in pairs:
        port = free_port()
        server = programs.start("a", name, *options, "-p", port, **variables)
        programs.await_listener(port, server)
        programs.finish(programs.start("b", name, *options, "-p", port, SIDES["a"], **variables))
        programs.finish(server)
        print(f"ok: {name} {SIDES['a']}")

    assert programs.finish(programs.start("b", *python, "--bind", SIDES["b"])) == f"bound to {SIDES['b']}\n"
    without = programs.finish(programs.start(None, *python, "--bind", SIDES["b"]))  # what the kernel says
    off = {"options": ("--no-wire-sockets",)}, {"FAULTLINE_WIRE_SOCKETS": "off"}
    for how in off:
        assert programs.finish(programs.start("b", *python, "--bind", SIDES["b"], **how)) == without, how
    preloaded = programs.start(None, *python, "--bind", SIDES["b"], LD_PRELOAD=f"{programs.network.folder}/stack/abi/libibverbs.so.1")
    assert programs.finish(preloaded) == without, "a program on no wire"
    refused = programs.finish(programs.start("b", "true", FAULTLINE_WIRE_SOCKETS="of"), 2)
    assert refused.count("\n") == 1 and '"of" is neither' in refused, refused
    print(f"ok: without wire sockets the address is the kernel's: {without.strip()}")


def main():
    sys.path[:0] = [HERE, os.path.dirname(HERE)]
    import lib
    import networks
    from free_port import free_port
    if not shutil.which("ib_send_lat"):
        lib.skip("ib_send_lat is not installed")
    if subprocess.run([PYTHON, "-c", ""]).returncode != 0:
        lib.skip(f"there is no {PYTHON}")
    network = networks.Wire(sys.argv[1], 1)
    programs = Programs(network, lib.listens)
    try:
        script = f"{network.folder}/programs.py"
        shutil.copyfile(__file__, script)
        check(programs, script, free_port)
    finally:
        programs.end()
        network.close()


if __name__ == "__main__":
    roles = {"--serve": lambda address, port: serve(address, int(port)), "--ask": lambda address, port, own: ask(address, int(port), own),
             "--bind": bind}
    if sys.argv[1] in roles:
        roles[sys.argv[1]](*sys.argv[2:])
    else:
        main()
