#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests the modules of faultline-switch with PMDs on libibverbs. Each loads, so the switch exports all that it calls. Neither the switch nor
Faultline's libraries depend on rdma-core's libraries, and no module uses Faultline's libibverbs.

  switch_pmds_test.py FAULTLINE_SWITCH LIBFAULTLINE DROPIN MODULE...
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402

VERBS = re.compile(r"^(ibv|rdma|mlx[45]dv|manadv)_")
# No machine has a device there.
CONFIG = '[[device]]\nname = "nic"\nip = "198.18.9.1/24"\n[device.port]\nkind = "pci"\naddress = "ffff:ff:1f.7"\n'

UUID = "635a7ae3-091e-4410-ad59-667c4f8c04c3"


def names(path, *options):
    printed = subprocess.run(["nm", "-D", *options, path], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in printed.splitlines()}


def needed(path):
    printed = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout
    return re.findall(r"NEEDED +(\S+)", printed)


def main():
    switch, library, dropin, *modules = sys.argv[1:]
    problems = []

    def expect(holds, text):
        print(f"{'ok' if holds else 'FAILED'}: {text}")
        if not holds:
            problems.append(text)

    found = {name for name in names(switch) if VERBS.match(name)}
    expect(not found, f"the switch neither exports nor uses verbs: {sorted(found)}")
    for path in (switch, library, dropin):
        found = [name for name in needed(path) if re.match(r"lib(ibverbs|rdmacm|mlx|mana)", name)]
        expect(not found, f"{os.path.basename(path)} depends on no library of rdma-core: {found}")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        config = os.path.join(folder, "switch.toml")
        with open(config, "w", encoding="ascii") as file:
            file.write(CONFIG)

        def run(pmd, part, libraries=""):
            environment = dict(os.environ, XDG_RUNTIME_DIR=folder, LD_LIBRARY_PATH=libraries)
            done = subprocess.run([switch, "--wire", "pmds", "--config", config, "--pmd", pmd], capture_output=True, text=True, timeout=lib.LIMIT_S,
                                  env=environment, check=False)
            lines = done.stderr.splitlines()
            expect(done.returncode == 2 and len(lines) == 1 and part in done.stderr and not done.stdout,
                   f"{pmd}: status {done.returncode}, {done.stderr.strip()}")

        for module in modules:
            exported = names(module, "--defined-only")
            expect(exported == {"faultline_pmd_dpdk_version"}, f"{os.path.basename(module)} exports {sorted(exported)}")
            pmd = re.fullmatch(r"faultline-pmd-(\w+)\.so", os.path.basename(module)).group(1)
            # EAL has started with the module.
            run(pmd, "there is no PCI device ffff:ff:1f.7")
            if pmd != "netvsc":
                run(pmd, "its libibverbs is Faultline's", os.path.dirname(os.path.realpath(dropin)))
                continue
            with open(config, "w", encoding="ascii") as file:
                file.write(CONFIG.replace("ffff:ff:1f.7", UUID))
            run(pmd, "set eal.huge_pages = true")
            with open(config, "w", encoding="ascii") as file:
                file.write(CONFIG)
        run("none", "there is no faultline-pmd-none.so")
    if not modules:
        print("SKIPPED: this machine's DPDK or rdma-core has none of mlx4, mlx5 and mana")
        return 77 if not problems else 1
    return 1 if problems else 0


sys.exit(main())
