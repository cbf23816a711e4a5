#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Faultline in a guest, by vfio-pci on a virtio-net card behind an emulated IOMMU, against Faultline on the host, whose port of kind
vhost is the card's back end. Every transfer is verified. The ends exchange the parameters of their QPs over QEMU's user network.

    vhost.py FAULTLINE_RUN [REGULAR EXPRESSION]
"""
import os
import re
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, f"{HERE}/../kernel")
import nic_guest  # noqa: E402
from guest.guest import HANG_S  # noqa: E402
from guest.lane import run_lane  # noqa: E402
from tally import Tally  # noqa: E402

ROWS = {
    "every operation": "--op write,write_imm,read,send --size 64,4k,64k",
    "datagrams": "--op ud_send --size 64,1k",
    "eight QPs": "--op write,read,send --size 64,4k --qps 8",
    "as an ordinary user, without huge pages": "--op write,read,send --size 64,4k",
}


class VhostGuest(nic_guest.NicGuest):
    """A guest with one virtio-net card, the front end of a vhost-user socket."""

    def __init__(self, back_end):
        super().__init__(["virtio"], "vhost", wire="vhost-user,id={id},chardev=back-end")
        self.back_end = back_end

    def launch(self, before, words):
        words[words.index("-machine") + 1] += ",memory-backend=memory"
        super().launch(before, [*words, "-object", f"memory-backend-memfd,id=memory,size={nic_guest.MEMORY_MIB}M,share=on",
                                "-netdev", "user,id=exchange,net=198.18.7.0/24,host=198.18.7.1",
                                "-device", "virtio-net-pci,netdev=exchange,mac=52:54:00:11:00:00,romfile="])
        self.check("sh", "-ec", "ip address add 198.18.7.2/24 dev eth0; ip link set eth0 up")

    def _nics(self):
        # vectors=0: without KVM, QEMU 7.2 crashes when a vhost-user device gets MSI-X vectors.
        return ["-chardev", f"socket,id=back-end,path={self.back_end},reconnect=1",
                *(f"{word},vectors=0" if word.startswith("virtio-net-pci") else word for word in super()._nics())]


class Ends:
    def __init__(self, folder, apps):
        self.folder, self.perf = folder, f"{apps}/faultline-perf"
        self.back_end = f"{folder}/vm.sock"
        path = f"{folder}/host.toml"
        with open(path, "w") as file:
            file.write(self.device(1, f'kind = "vhost"\nsocket = "{self.back_end}"'))
        # One process serves all rows, and QEMU's boot: the guest's programs come and go.
        self.server = subprocess.Popen([self.perf, "--config", path, "--server", "--port", "0", "--keep-serving"], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True)
        found = re.search("listening on TCP port ([0-9]+)", self.server.stdout.readline())
        if not found:
            raise RuntimeError("the server does not listen")
        self.port = found.group(1)

    @staticmethod
    def device(number, port):
        return f'[[device]]\nname = "faultline0"\nip = "198.18.1.{number}/24"\nmtu = 4500\n[device.port]\n{port}\n'

    def row(self, guest, name, words):
        """Returns what is wrong."""
        before, eal = [], "[eal]\nmemory_mib = 192\nhuge_pages = true\n"
        address = guest.addresses["virtio"][0]
        if "ordinary user" in name:
            eal = "[eal]\nmemory_mib = 192\nhuge_pages = false\n"
            guest.check("sh", "-ec", f"chown 65534 /dev/vfio/{guest.vfio_group(address)}; mkdir -p /run/user; chown 65534:65534 /run/user")
            before = ["prlimit", "--memlock=unlimited", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env",
                      "HOME=/run/user", "XDG_RUNTIME_DIR=/run/user"]
        guest.write("/run/guest.toml", eal + self.device(2, f'kind = "pci"\naddress = "{address}"'))
        client = guest.run([*before, self.perf, "--config", "/run/guest.toml", "--client", "198.18.7.1", "--port", self.port, "--",
                            *words.split(), "--mtu", "4096", "--iters", "40", "--verify"], HANG_S)
        print(client.output, flush=True)
        return "" if client.returncode == 0 else f"status {client.returncode}: {client.output[-1000:]}"


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    nic_guest.image()  # skips before anything is set up
    tally = Tally("vhost")
    with tempfile.TemporaryDirectory(prefix="fl-vhost-") as folder:
        ends = Ends(folder, os.path.dirname(os.path.realpath(sys.argv[1])))
        try:
            with VhostGuest(ends.back_end) as guest:
                for name, words in ROWS.items():
                    if not re.search(wanted, name):
                        continue
                    problem = ends.row(guest, name, words)
                    if problem:
                        tally.fail(name, problem)
                    else:
                        tally.ok(name)
        finally:
            ends.server.kill()
            ends.server.wait()
    tally.finish()


run_lane(main)
