# SPDX-License-Identifier: BSD-3-Clause
"""A Linux kernel with Soft-RoCE in a virtual machine, whose network card is a tap in a network namespace of this machine. A second card
may be that of a vhost-user back end."""
import json
import os
import shutil
import signal
import subprocess
import sys
import zlib

from condition import stop

from .guest import HANG_S, Guest, skip

HERE = os.path.dirname(os.path.realpath(__file__))
# The folder of the programs that run at both ends.
SHARED = os.path.dirname(HERE)
MEMORY_MIB = 1024


def image():
    """The directory of its boot image; skips the test if there is none."""
    if not shutil.which("qemu-system-x86_64"):
        skip("no kernel peer: qemu-system-x86_64 is not installed")
    built = subprocess.run(["bash", f"{HERE}/image.sh"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if built.returncode != 0:
        if built.returncode == 77:
            print(built.stderr.strip().splitlines()[-1])
            sys.exit(77)
        raise RuntimeError(f"image.sh: {built.stderr}")
    return built.stdout.strip()


class Peer(Guest):
    """addresses: of its eth0, with their prefix lengths. back_end: the socket of a vhost-user back end for eth1; QEMU waits until the back
    end listens. The folder of the lanes is on /mnt/share."""

    def __init__(self, namespace, bridge, addresses, mtu_bytes, name="peer", back_end=None):
        super().__init__(name)
        self.back_end = back_end
        self.namespace, self.bridge, self.addresses, self.mtu_bytes = namespace, bridge, addresses, mtu_bytes
        self.tap = f"fl-{name}"[:15]
        number = zlib.crc32(name.encode())
        self.mac = "52:54:00:" + ":".join(f"{number >> shift & 255:02x}" for shift in (16, 8, 0))

    def _boot(self):
        files = image()
        ip = ["ip", "-n", self.namespace]
        subprocess.run([*ip, "tuntap", "add", "dev", self.tap, "mode", "tap"], check=True)
        subprocess.run([*ip, "link", "set", self.tap, "mtu", str(self.mtu_bytes), "master", self.bridge, "up"], check=True)
        kernel_parameters = f"peer.addresses={','.join(self.addresses)} peer.mtu={self.mtu_bytes}"
        self.launch(
            ["ip", "netns", "exec", self.namespace],
            ["-machine", f"pc{self._shared_memory()}", "-m", str(MEMORY_MIB), "-smp", "1", "-kernel", f"{files}/vmlinuz", "-initrd", f"{files}/initrd",
             "-append", f"console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on {kernel_parameters}",
             "-netdev", f"tap,id=net0,ifname={self.tap},script=no,downscript=no",
             # Offloads off: checksums must arrive as they were sent.
             "-device", f"virtio-net-pci,netdev=net0,mac={self.mac},romfile=,csum=off,gso=off,guest_csum=off,guest_tso4=off,"
                        "guest_tso6=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ufo=off,mrg_rxbuf=on",
             *self._second_card(),
             "-virtfs", f"local,path={SHARED},mount_tag=share,security_model=none,readonly=on"])

    def _shared_memory(self):
        """The back end maps all of the guest's memory."""
        return ",memory-backend=memory" if self.back_end else ""

    def _second_card(self):
        """A card with QEMU's own offloads, as a virtual machine has them by default."""
        if not self.back_end:
            return []
        return ["-object", f"memory-backend-memfd,id=memory,size={MEMORY_MIB}M,share=on",
                "-chardev", f"socket,id=back-end,path={self.back_end},reconnect=1", "-netdev", "vhost-user,id=net1,chardev=back-end",
                # vectors=0: without KVM, QEMU 7.2 crashes when a vhost-user device gets MSI-X vectors.
                "-device", f"virtio-net-pci,netdev=net1,mac=52:54:01{self.mac[8:]},romfile=,vectors=0,host_mtu={self.mtu_bytes}"]

    def use_second_card(self, addresses, device="rxe0"):
        """Gives eth1 these addresses, and the device to eth1. Programs exchange their parameters over eth0 as before."""
        self.check("sh", "-ec", "; ".join([
            *self._up("eth1", addresses),
            *(["rdma link delete rxe0"] if device == "rxe0" else []), f"rdma link add {device} type rxe netdev eth1"]))

    def use_vlan(self, vlan_id, addresses):
        """Adds a VLAN of eth0 with these addresses. rxe takes whole interfaces only: rxe0 stays on eth0, and gets the VLAN's GIDs too."""
        name = f"eth0.{vlan_id}"
        self.check("sh", "-ec", "; ".join([
            "modprobe 8021q", f"ip link add link eth0 name {name} type vlan id {vlan_id}", *self._up(name, addresses)]))

    def _up(self, interface, addresses):
        """Commands. Addresses must be usable at once: no duplicate address detection."""
        return [f"for key in accept_dad router_solicitations; do echo 0 >/proc/sys/net/ipv6/conf/{interface}/$key; done",
                f"ip link set {interface} mtu {self.mtu_bytes} up",
                *(f"ip address add {address} dev {interface}" for address in addresses)]

    def gid_index(self, text):
        """The index of the GID that contains this text in the notation of sysfs: an IPv6 address's last group, or IPv4's four bytes in
        hexadecimal."""
        return int(self.check("sh", "-c", f"cd /sys/class/infiniband/rxe0/ports/1/gids && grep -l '{text}' * | sort -n | head -n 1"))

    def counters(self):
        """rxe's own counters, by name."""
        words = self.check("rdma", "-j", "statistic", "show", "link", "rxe0/1")
        return json.loads(words)[0]

    def freeze(self):
        """Freezes it as it is: no answer, no clock."""
        stop(self.machine.pid)

    def thaw(self):
        os.kill(self.machine.pid, signal.SIGCONT)

    def stop(self):
        super().stop()
        subprocess.run(["ip", "-n", self.namespace, "link", "del", self.tap], stderr=subprocess.DEVNULL)

    def reboot(self):
        self.stop()
        self.start()
