# SPDX-License-Identifier: BSD-3-Clause
"""The restrictions of Docker's defaults, and which of them this process already has. Imported by odp_mix_environments_test.py, user_environments_test.py and
sanitizers_test.py."""
import ctypes
import os
import subprocess

# docs.docker.com/engine/security/seccomp: the calls that the default profile refuses to a container with Docker's default capabilities,
# by name or x86-64 number. Calls that it refuses by their arguments only (clone with CLONE_NEW*, socket AF_VSOCK) are left out.
DOCKER_EPERM = [
    "add_key", "bpf", "get_mempolicy", "io_uring_enter", "io_uring_register", "io_uring_setup", "kcmp", "keyctl", "mbind",
    "mount", "move_pages", "name_to_handle_at", "open_by_handle_at", "perf_event_open", "pidfd_getfd", "pivot_root",
    "process_madvise", "request_key", "set_mempolicy", "setns", "umount2", "unshare", "userfaultfd",
    "163",  # acct
    "305", "227", "164",  # clock_adjtime, clock_settime, settimeofday
    "174", "175", "313", "176", "177", "178",  # the calls on kernel modules
    "172", "173",  # iopl, ioperm
    "246", "320",  # kexec_load, kexec_file_load
    "212",  # lookup_dcookie
    "428", "429", "430", "431", "432", "433", "442",  # open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr
    "256", "450",  # migrate_pages, set_mempolicy_home_node
    "179", "443", "180",  # quotactl, quotactl_fd, nfsservctl
    "169", "170", "171",  # reboot, sethostname, setdomainname
    "167", "168",  # swapon, swapoff
    "139", "156", "134", "136", "153",  # sysfs, _sysctl, uselib, ustat, vhangup
]
# docs.docker.com/engine/containers/run: the capabilities that a container has without --cap-add.
DOCKER_CAPABILITIES = [
    "audit_write", "chown", "dac_override", "fowner", "fsetid", "kill", "mknod", "net_bind_service", "net_raw", "setfcap",
    "setgid", "setpcap", "setuid", "sys_chroot",
]
IO_URING = ["io_uring_enter", "io_uring_register", "io_uring_setup"]
# Calls with arguments that are always wrong: if the filter does not refuse them, they fail with another errno.
PROBE_NUMBERS = {"userfaultfd": 323, "io_uring_setup": 425, "io_uring_register": 427, "bpf": 321, "clone3": 435}


def has_roots_rights():
    """Root of a container without capabilities may neither become another user nor mount (capabilities(7))."""
    tries = (["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "true"], ["unshare", "--mount", "true"])
    return os.geteuid() == 0 and all(subprocess.run(words, capture_output=True, check=False).returncode == 0 for words in tries)


def has_userfaultfd():
    """For faults in kernel mode too, as the library needs it (userfaultfd(2))."""
    descriptor = ctypes.CDLL(None).syscall(PROBE_NUMBERS["userfaultfd"], os.O_CLOEXEC | os.O_NONBLOCK)
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor >= 0
