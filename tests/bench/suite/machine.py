# SPDX-License-Identifier: BSD-3-Clause
"""Describes this machine, and how much of it other programs use."""
import os
import pathlib
import platform
import re
import subprocess

TELLING_FLAGS = ("sse4_2", "pclmulqdq", "avx2", "erms", "fsrm", "avx512f", "avx512bw", "avx512vl", "vpclmulqdq", "hypervisor")


def _read(path):
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return ""


def _first_line(command):
    try:
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=30)
    except OSError:
        return ""
    return run.stdout.strip().splitlines()[0] if run.returncode == 0 and run.stdout.strip() else ""


def _cpu_line(key):
    found = re.search(rf"^{key}\s*:\s*(.*)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return found.group(1) if found else ""


def _version_of(package):
    return _first_line(["dpkg-query", "-W", "-f=${Version}", package])


def facts(root):
    flags = set(_cpu_line("flags").split())
    memory = dict(re.findall(r"^(\w+):\s+(\d+)", _read("/proc/meminfo"), re.MULTILINE))
    git = ["git", "-C", root]
    return {
        "cpu": _cpu_line("model name"),
        "cpus": os.cpu_count(),
        "flags": [flag for flag in TELLING_FLAGS if flag in flags],
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "not told",
        "kernel": platform.release(),
        "memory_mib": int(memory.get("MemTotal", 0)) // 1024,
        "huge_pages": int(memory.get("HugePages_Total", 0)),
        "transparent_huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "compiler": _first_line(["g++", "--version"]),
        "dpdk": _first_line(["pkg-config", "--modversion", "libdpdk"]),
        "testpmd": _version_of("dpdk-dev"),
        "ucx": _version_of("ucx-utils"),
        "libfabric": _version_of("libfabric-bin"),
        "perftest": _version_of("perftest"),
        "openmpi": _version_of("openmpi-bin"),
        "commit": _first_line([*git, "rev-parse", "HEAD"]) or "not a checkout",
        "changed_since": bool(_first_line([*git, "status", "--porcelain", "--untracked-files=no"])),
    }


def cpu_times():
    """(busy ticks, ticks that a hypervisor took, all ticks) since the machine started."""
    words = [int(word) for word in _read("/proc/stat").splitlines()[0].split()[1:9]]
    user, nice, system, idle, waiting, interrupt, soft_interrupt, stolen = words
    return user + nice + system + interrupt + soft_interrupt, stolen, sum(words)


def load():
    return os.getloadavg()[0]
