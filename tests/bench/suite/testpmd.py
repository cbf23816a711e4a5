# SPDX-License-Identifier: BSD-3-Clause
"""The raw port: DPDK's testpmd in two processes. One sends as fast as it can, the other counts the received packets."""
import contextlib
import glob
import os
import re
import shutil
import time

from . import network_namespaces
from .outcome import RunFailed, Unavailable
from .processes import Child, on_cpu

# As in Faultline (pmd_glue/ports/ethdev_port.hpp): the same buffers, and rings of the same length.
BUFFER_BYTES = 4608
HEADROOM_BYTES = 128  # RTE_PKTMBUF_HEADROOM: testpmd counts it as part of a buffer
RING_BITS = 10
SETTLE_S = 0.5
RATE = re.compile(r"Rx-pps:\s+(\d+)\s")
PROMPT = "testpmd>"
VETH_MTU_BYTES = 4500


def _vdev(kind, folder, sends):
    if kind == "memif":
        return (f"net_memif0,role={'client' if sends else 'server'},socket={folder}/raw.sock,socket-abstract=no,bsize={BUFFER_BYTES},"
                f"rsize={RING_BITS}")
    return (f"net_af_packet0,iface={'fl-b' if sends else 'fl-a'},qpairs=1,framesz={BUFFER_BYTES},blocksz={8 * BUFFER_BYTES},"
            "framecnt=512")


def _command(context, kind, cpu, sends, frame_bytes):
    return on_cpu(cpu, [
        # Line-buffered, although the output is not a terminal.
        "stdbuf", "-oL", "dpdk-testpmd", "--no-huge", "-m", "512", "--no-pci", "--no-shconf", "--no-telemetry",
        f"--file-prefix={context.tag}-{'tx' if sends else 'rx'}", "--lcores", f"0@{cpu},1@{cpu}",
        "--vdev", _vdev(kind, context.folder, sends), "--", "-i", "--auto-start", "--nb-cores=1",
        f"--forward-mode={'txonly' if sends else 'rxonly'}", f"--mbuf-size={BUFFER_BYTES + HEADROOM_BYTES}", "--total-num-mbufs=16384",
        *([f"--txpkts={frame_bytes}"] if sends else [])])


def _ask_rate(child):
    """Packets a second since the last query, by testpmd's own clock."""
    answers = len(RATE.findall(child.output()))
    child.write_line("show port stats 0")
    child.wait_for(lambda: len(RATE.findall(child.output())) > answers, "its port's statistics")
    return int(RATE.findall(child.output())[-1])


def _arriving(context, prefix, kind, frame_bytes):
    with Child(prefix + _command(context, kind, context.cpus[0], False, frame_bytes), talks=True) as receiver:
        receiver.wait_for(lambda: PROMPT in receiver.output(), "its prompt")
        with Child(prefix + _command(context, kind, context.cpus[1], True, frame_bytes), talks=True) as sender:
            sender.wait_for(lambda: PROMPT in sender.output(), "its prompt")
            for child in (receiver, sender):
                if "Start ports failed" in child.output():
                    reasons = [line for line in child.output().splitlines() if line.startswith("eth_")]
                    raise RunFailed(f"testpmd could not start its port: {reasons[:1]}")
            time.sleep(SETTLE_S)
            _ask_rate(receiver)
            began = time.monotonic()
            time.sleep(context.seconds)
            rate = _ask_rate(receiver)
            window = [began, time.monotonic()]
            # net_memif unmaps the rings when its peer leaves, even while another thread reads them.
            receiver.write_line("stop")
            receiver.wait_for(lambda: "Done." in receiver.output(), "the end of its forwarding")
            for child in (sender, receiver):
                child.write_line("quit")
                child.finish(context.limit_s)
    if rate == 0:
        raise RunFailed("no packet arrived at testpmd")
    return rate, window


def measure(context, kind, frame_bytes):
    if shutil.which("dpdk-testpmd") is None:
        raise Unavailable("dpdk-testpmd (dpdk-dev) is not installed")
    try:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(FileNotFoundError):  # left by a process that was ended: no other could listen on it
                os.unlink(os.path.join(context.folder, "raw.sock"))
            prefix = stack.enter_context(network_namespaces.veth(context.tag, VETH_MTU_BYTES)) if kind == "af_packet" else []
            rate, window = _arriving(context, prefix, kind, frame_bytes)
    finally:
        # EAL's own files, root's and an ordinary user's.
        for place in ("/var/run", os.environ.get("XDG_RUNTIME_DIR", "/tmp")):
            for folder in glob.glob(f"{place}/dpdk/{context.tag}-*"):
                shutil.rmtree(folder, ignore_errors=True)
    return {f"raw/{kind}/{frame_bytes}": {"packets_per_second": rate}}, {f"raw/{kind}/{frame_bytes}": {"window_s": window}}
