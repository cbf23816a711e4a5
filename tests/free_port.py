#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A TCP port that nobody has, for programs that cannot take port 0 and say which they got. Below the range that the kernel gives out
by itself (ip(7), ip_local_port_range), so that no connection takes it meanwhile; at random, so that two tests rarely meet. As a program it prints one."""
import errno
import random
import socket

FIRST, LAST = 10_000, 32_000


def is_free(port):
    for family, address in ((socket.AF_INET, ""), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as error:
            # A machine without IPv6 has no such port to take.
            if family == socket.AF_INET or error.errno == errno.EADDRINUSE:
                return False
    return True


def free_port():
    chance = random.SystemRandom()
    for _ in range(1000):
        port = chance.randrange(FIRST, LAST)
        if is_free(port):
            return port
    raise RuntimeError(f"no free TCP port between {FIRST} and {LAST}")


if __name__ == "__main__":
    print(free_port())
