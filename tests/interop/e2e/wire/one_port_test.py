#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs of a wire that have one port at 0.0.0.0 or ::, as on several hosts; and a port that one host has already.
  one_port_test.py faultline-run TESTS_FOLDER"""
import os
import subprocess
import sys

RUN = os.path.abspath(sys.argv[1])
sys.path.insert(0, sys.argv[2])
import lib  # noqa: E402

WIRE = f"port{os.getpid()}"
SIDES = {"a": "198.18.0.1", "b": "198.18.0.2"}

# A server of one address, which answers with its side; `sockets` of them, with the program's own options.
SERVER = """
import select, socket, sys
side, family, kind, host, port, count, option = sys.argv[1:]
family, kind = getattr(socket, family), getattr(socket, kind)
made = []
try:
    for _ in range(int(count)):
        one = socket.socket(family, kind)
        if option:
            one.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
        one.bind((host, int(port)))
        if kind == socket.SOCK_STREAM:
            one.listen(64)
        made.append(one)
except OSError as error:
    print("refused", error.errno, flush=True)
    sys.exit()
print("bound", made[0].getsockname()[0], flush=True)
while True:
    for one in select.select(made + [sys.stdin], [], [])[0]:
        if one is sys.stdin:
            sys.exit()
        if kind == socket.SOCK_STREAM:
            peer = one.accept()[0]
            peer.sendall(side.encode())
            peer.close()
        else:
            _, peer = one.recvfrom(16)
            one.sendto(side.encode(), peer)
"""

CLIENT = """
import socket, sys
kind, host, port, count = sys.argv[1:]
answers = set()
for _ in range(int(count)):
    one = socket.socket(socket.AF_INET, getattr(socket, kind))
    one.connect((host, int(port)))
    one.send(b"?")
    answers.add(one.recv(16).decode())
print(" ".join(sorted(answers)))
"""


class Server:
    def __init__(self, side, port, family="AF_INET", kind="SOCK_STREAM", host="", count=1, option="", wire=True):
        words = [RUN, "--wire", WIRE, "--side", side] if wire else []
        self.program = lib.start([*words, "python3", "-c", SERVER, side, family, kind, host, str(port), str(count), option],
                                 stdin=subprocess.PIPE)
        self.state = lib.await_line(self.program, "^(bound|refused) .*$").group()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.program.stdin.close()
        self.program.wait()


def answer(host, port, kind="SOCK_STREAM", count=1, side="c"):
    return lib.call([RUN, "--wire", WIRE, "--side", side, "python3", "-c", CLIENT, kind, host, str(port), str(count)]).stdout.strip()


def expect(found, wanted, what):
    assert found == wanted, f"{what}: {found!r}, expected {wanted!r}"
    print(f"{what}: {found}")


def each_side_has_the_port(family, kind, **options):
    port = lib.free_port()
    what = " ".join([family, kind, *map(str, options.values())])
    with Server("a", port, family, kind, **options) as first, Server("b", port, family, kind, **options) as second:
        expect(first.state, "bound ::" if family == "AF_INET6" else "bound 0.0.0.0", f"{what}, side a")
        expect(second.state, "bound ::ffff:198.18.0.2" if family == "AF_INET6" else "bound 198.18.0.2", f"{what}, side b")
        for side, host in SIDES.items():
            expect(answer(host, port, kind, 16), side, f"{what}, 16 answers of {host}")
        expect(answer("127.0.0.1", port, kind), "a", f"{what}, answer of 127.0.0.1")
        own = answer("127.0.0.1", port, kind, side="b")
        expect(own, "b" if kind == "SOCK_STREAM" else "a", f"{what}, its answer for another program of side b")


def one_side_has_it_once():
    for kind in "SOCK_STREAM", "SOCK_DGRAM":
        port = lib.free_port()
        with Server("a", port, kind=kind):
            for host in "", SIDES["a"]:
                with Server("a", port, kind=kind, host=host) as again:
                    expect(again.state, "refused 98", f"{kind}, another program of side a at {host or '0.0.0.0'}")
            with Server("b", port, kind=kind, count=2) as twice:
                expect(twice.state, "refused 98", f"{kind}, a program of side b that binds twice")
            with Server("b", port, kind=kind) as other, Server("b", port, kind=kind) as again:
                expect(other.state, "bound 198.18.0.2", f"{kind}, side b")
                expect(again.state, "refused 98", f"{kind}, another program of side b")
            with Server("b", port, kind=kind, wire=False) as host:
                expect(host.state, "refused 98", f"{kind}, a program of the host")


def own_address_beside_any():
    port = lib.free_port()
    with Server("a", port), Server("b", port, host=SIDES["b"]) as second:
        expect(second.state, "bound 198.18.0.2", "the own address beside another's 0.0.0.0")
        expect(answer(SIDES["b"], port), "b", "its answer")
    with Server("b", port, host=SIDES["b"]), Server("a", port) as second:
        expect(second.state, "bound 198.18.0.1", "0.0.0.0 beside another's own address")
        expect(answer(SIDES["a"], port), "a", "its answer")


def web_servers():
    """A program that nobody wrote for this: two of them, started alike."""
    port = lib.free_port()
    servers = []
    for side in SIDES:
        folder = os.path.join(os.environ["XDG_RUNTIME_DIR"], side)
        os.mkdir(folder)
        with open(os.path.join(folder, "side"), "w", encoding="ascii") as file:
            file.write(side)
        server = lib.start([RUN, "--wire", WIRE, "--side", side, "python3", "-u", "-m", "http.server", "--directory", folder, str(port)])
        lib.await_line(server, "Serving HTTP")
        servers.append(server)
    for side, host in SIDES.items():
        page = lib.call([RUN, "--wire", WIRE, "--side", "c", "python3", "-c",
                         f"import urllib.request as u; print(u.urlopen('http://{host}:{port}/side').read().decode())"])
        expect(page.stdout.strip(), side, f"the page of {host}")
    for server in servers:
        server.end()


def main():
    lib.own_network()
    lib.own_runtime_folder()
    for family in "AF_INET", "AF_INET6":
        for kind in "SOCK_STREAM", "SOCK_DGRAM":
            each_side_has_the_port(family, kind)
    each_side_has_the_port("AF_INET", "SOCK_STREAM", option="SO_REUSEADDR")
    each_side_has_the_port("AF_INET", "SOCK_STREAM", option="SO_REUSEPORT", count=2)
    one_side_has_it_once()
    own_address_beside_any()
    web_servers()


main()
