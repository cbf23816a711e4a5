# SPDX-License-Identifier: BSD-3-Clause
"""A guest with NICs of several kinds behind an emulated IOMMU: two of each kind, on a hub of their own, bound to vfio-pci."""
import json
import os
import shutil
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, f"{HERE}/../kernel")
from guest.guest import Guest, skip  # noqa: E402

# Faultline's end of each kind. host_mtu: a virtio device carries 1500 bytes unless its host says more. iommu_platform: the device's DMA
# passes the IOMMU, as a NIC's does.
KINDS = {
    "e1000e": "e1000e",
    "virtio": "virtio-net-pci,disable-legacy=on,iommu_platform=on,ats=on,host_mtu=9000",
    "vmxnet3": "vmxnet3",
    "igb": "igb",
}
# A virtio NIC that sends four frames each 4 ms: a link slower than the CPUs, whose frames wait in the NIC's ring. For the rows of shares.
SLOW = "slow"
DEVICES = {**KINDS, SLOW: KINDS["virtio"] + ",tx=timer,x-txtimer=4000000,x-txburst=4"}
MEMORY_MIB = 2048
TAP_PACKETS = 8192
HUGE_PAGES = 300


def image():
    """The directory of its boot image; skips the test if there is none."""
    if not shutil.which("qemu-system-x86_64"):
        skip("no NIC lab: qemu-system-x86_64 is not installed")
    built = subprocess.run(["bash", f"{HERE}/image.sh"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if built.returncode == 77:
        print(built.stderr.strip().splitlines()[-1])
        sys.exit(77)
    if built.returncode != 0:
        raise RuntimeError(f"image.sh: {built.stderr}")
    return built.stdout.strip()


def program_for(kind, may_fetch):
    """The QEMU that has NICs of that kind, which is this machine's or Debian 13's; None: neither. igb came with QEMU 8."""
    if _has_nic(Guest.program, kind):
        return Guest.program
    if not may_fetch:
        return None
    built = subprocess.run(["bash", f"{HERE}/qemu.sh"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    program = built.stdout.strip()
    return program if built.returncode == 0 and _has_nic(program, kind) else None


def _has_nic(program, kind):
    known = subprocess.run([program, "-device", "help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    return f'name "{DEVICES[kind].split(",")[0]}"' in known


class NicGuest(Guest):
    """addresses: of the NICs of each kind.
    counts: the guest's clock counts instructions, 2 ns each, of one CPU.
    bridge: the namespace and the name of a bridge of this machine, to which taps join the NICs. Otherwise both NICs of a kind have a hub.
    queues: of each NIC that has several; a virtio NIC needs a tap for this. Each has a CPU of the guest.
    address: of the guest's kernel, on a NIC of its own on the bridge. Then there is one NIC of each kind.
    properties: further ones of each NIC, in QEMU's notation.
    kernel_words: further ones of the kernel's command line."""

    kernel_words = ""

    def __init__(self, kinds, name="nic", counts=False, bridge=None, queues=1, address=None, properties=""):
        super().__init__(name)
        self.program = program_for(kinds[-1], may_fetch=True) or self.program
        self.kinds, self.counts, self.bridge, self.queues, self.address = kinds, counts, bridge, queues, address
        self.properties = f",{properties}" if properties else ""
        self.taps = []
        self.addresses = {}

    def _boot(self):
        files = image()
        clock = "clocksource=tsc tsc=reliable no_timer_check " if self.counts else ""
        self.launch(["ip", "netns", "exec", self.bridge[0]] if self.bridge else [], ["-machine", "q35,kernel-irqchip=split", "-m", str(MEMORY_MIB), "-smp", "1" if self.counts else str(2 * self.queues),
                         *(["-icount", "shift=1,sleep=on"] if self.counts else []),
                         "-kernel", f"{files}/vmlinuz", "-initrd", f"{files}/initrd",
                         "-append", "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on net.ifnames=0 intel_iommu=on "
                                    f"{clock}{self.kernel_words} hugepagesz=2M hugepages={HUGE_PAGES} lab.agent={os.path.realpath(HERE + '/../kernel/guest/agent.py')}",
                         "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
                         "-qmp", f"unix:{self.folder}/qmp,server=on,wait=off",
                         "-device", "intel-iommu,intremap=on,device-iotlb=on", *self._nics()])
        for kind in self.kinds:
            self.addresses[kind] = [self.check("sh", "-c", f"cd /sys/bus/pci/devices && dirname $(grep -l {self.mac(kind, which)} */net/*/address "
                                               "*/virtio*/net/*/address 2>/dev/null) | cut -d/ -f1").strip()
                                    for which in self._ends()]
        for address in sum(self.addresses.values(), []):
            self.bind(address, "vfio-pci")
        if self.address:
            name = self.check("sh", "-c", f"cd /sys/class/net && dirname $(grep -l {self.mac('', 0)} */address)").strip()
            self.check("ip", "addr", "add", self.address, "dev", name)
            self.check("ip", "link", "set", name, "up")

    def stop(self):
        super().stop()
        for tap in self.taps:
            subprocess.run(["ip", "-n", self.bridge[0], "link", "del", tap], stderr=subprocess.DEVNULL)
        self.taps = []

    def _ends(self):
        return (0,) if self.address else (0, 1)

    def _tap(self, name, queues=1):
        """Makes a tap on the bridge; returns QEMU's words of its netdev."""
        space, bridge = self.bridge
        tap = f"fl-{name}"[:15]
        subprocess.run(["ip", "-n", space, "tuntap", "add", "dev", tap, "mode", "tap", *(["multi_queue"] if queues > 1 else [])], check=True)
        self.taps.append(tap)
        with subprocess.Popen(["ip", "-n", space, "-j", "link", "show", bridge], stdout=subprocess.PIPE) as shown:
            mtu = json.load(shown.stdout)[0]["mtu"]
        subprocess.run(["ip", "-n", space, "link", "set", tap, "mtu", str(mtu), "txqueuelen", str(TAP_PACKETS), "master", bridge, "up"], check=True)
        return f"tap,id=net-{name},ifname={tap},script=no,downscript=no,vhost=off" + (f",queues={queues}" if queues > 1 else "")

    def mac(self, kind, which):
        if not kind:
            return "52:54:00:10:ff:00"
        return f"52:54:00:10:{list(DEVICES).index(kind):02x}:{which:02x}"

    def _nics(self):
        words = []
        for number, kind in enumerate(self.kinds):
            for which in self._ends():
                name = f"{kind}{which}"
                words += ["-netdev", self._tap(name, self._queues(kind)) if self.bridge else f"hubport,id=net-{name},hubid={number}",
                          "-device", f"pcie-root-port,id=root-{name},chassis={2 * number + which + 1}",
                          "-device", f"{DEVICES[kind]}{self._more(kind)}{self.properties},bus=root-{name},netdev=net-{name},id={name},mac={self.mac(kind, which)},romfile="]
        if self.address:
            words += ["-netdev", self._tap("kernel"), "-device", f"virtio-net-pci,netdev=net-kernel,mac={self.mac('', 0)},romfile="]
        return words

    def _queues(self, kind):
        """Of its netdev: the emulated igb distributes over its queues itself."""
        return self.queues if kind == "virtio" else 1

    def _more(self, kind):
        if self.counts and kind == "virtio":
            # A doorbell ends in the device's timer, whose clock is the guest's, rather than in a thread that this machine schedules.
            return ",ioeventfd=off,tx=timer,x-txtimer=1000"
        # A vector for each queue, one for the configuration, one for the control queue.
        return f",mq=on,rss=on,hash=on,vectors={2 * self.queues + 2}" if self._queues(kind) > 1 else ""

    def bind(self, address, driver):
        """Gives a device to a driver of the guest."""
        self.check("sh", "-ec", f"cd /sys/bus/pci/devices/{address}; [ ! -e driver ] || echo {address} >driver/unbind; "
                                f"echo {driver} >driver_override; echo {address} >/sys/bus/pci/drivers_probe; [ -e driver ]")

    def vfio_group(self, address):
        return os.path.basename(self.check("readlink", f"/sys/bus/pci/devices/{address}/iommu_group").strip())

    def write(self, path, text):
        self.check("sh", "-c", 'printf %s "$1" >"$0"', path, text)

    def qmp(self, command, **arguments):
        """Runs a command of QEMU's monitor; returns its result, and raises RuntimeError for an error."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(f"{self.folder}/qmp")
            lines = monitor.makefile("rwb")
            lines.readline()
            for words in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                lines.write(json.dumps(words).encode() + b"\n")
                lines.flush()
                while True:
                    answer = json.loads(lines.readline())
                    if "error" in answer:
                        raise RuntimeError(f"{command}: {answer['error']['desc']}")
                    if "return" in answer:
                        break
        return answer["return"]
