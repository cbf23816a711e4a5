# SPDX-License-Identifier: BSD-3-Clause
"""A virtual function (VF) of an igb, whose physical function (PF) stays with the guest's kernel. The other end is a whole igb."""
import os

from nic_guest import NicGuest
from rows import Row

VF_MAC = "52:54:00:10:f0:00"


class VfGuest(NicGuest):
    """The first NIC is the VF; its PF is `physical`, an interface of the guest's kernel."""

    def _boot(self):
        super()._boot()
        whole = self.addresses["igb"][0]
        self.bind(whole, "igb")
        device = f"/sys/bus/pci/devices/{whole}"
        self.physical = self.check("ls", f"{device}/net").strip()
        self.check("sh", "-ec", f"ip link set {self.physical} up; echo 1 >{device}/sriov_numvfs; ip link set {self.physical} vf 0 mac {VF_MAC}")
        self.addresses["igb"][0] = os.path.basename(self.check("readlink", f"{device}/virtfn0").strip())
        self.bind(self.addresses["igb"][0], "vfio-pci")
        self.check("sh", "-c", f"until grep -q 1 /sys/class/net/{self.physical}/carrier; do sleep 0.2; done")


ROWS = [Row("VF: operations", lambda lab: lab.perf("--op write,read,send --size 64,4k", lab.configs()), ())]
