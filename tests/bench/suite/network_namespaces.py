# SPDX-License-Identifier: BSD-3-Clause
"""Network namespaces of this suite: measurements do not touch the machine's networks."""
import contextlib
import itertools
import os
import shutil
import subprocess
import threading

from .outcome import Unavailable

_numbers = itertools.count()


def _ip(*words):
    subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def _space(tag):
    if os.getuid() != 0:
        raise Unavailable("needs root for network namespaces")
    if shutil.which("ip") is None:
        raise Unavailable("ip (iproute2) is not installed")
    name = f"{tag}-{next(_numbers)}"
    try:
        _ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"may not create network namespaces: {error.stderr.strip()}") from error
    try:
        _ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def veth(tag, mtu_bytes):
    """fl-a and fl-b, joined, in one namespace; the prefix of a command in it."""
    with _space(tag) as name:
        _ip("-n", name, "link", "add", "fl-a", "mtu", str(mtu_bytes), "type", "veth", "peer", "name", "fl-b", "mtu", str(mtu_bytes))
        for side in ("fl-a", "fl-b"):
            _ip("-n", name, "link", "set", side, "up")
        yield ["ip", "netns", "exec", name]


@contextlib.contextmanager
def bridged_taps(tag):
    """A bridge that fl-a and fl-b join when their programs have created them."""
    if not os.path.exists("/dev/net/tun"):
        raise Unavailable("there is no /dev/net/tun")
    with _space(tag) as name:
        _ip("-n", name, "link", "add", "fl-br", "type", "bridge")
        _ip("-n", name, "link", "set", "fl-br", "up")
        over = threading.Event()

        def join():
            missing = {"fl-a", "fl-b"}
            while missing and not over.wait(0.05):
                for side in list(missing):
                    with contextlib.suppress(subprocess.CalledProcessError):
                        _ip("-n", name, "link", "set", side, "master", "fl-br", "up")
                        missing.discard(side)

        joiner = threading.Thread(target=join)
        joiner.start()
        try:
            yield ["ip", "netns", "exec", name]
        finally:
            over.set()
            joiner.join()
