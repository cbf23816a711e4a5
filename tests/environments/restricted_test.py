#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Two programs that meet on a wire, and `faultline doctor`, where the machine allows little: under a container's seccomp profile, without
capabilities, with read-only folders, small limits, old kernels' calls, and half-working RDMA devices of the host.
  restricted_test.py BUILD_DIR LOAD_PROFILE PLACE
PLACE is one of the names below. Each place first proves that it is in effect. Then ibv_rc_pingpong, which checks its data, and ib_write_bw
run at both ends. Each end succeeds, with at most one line that says what is lost; or it is refused with one line. The doctor's page has the
whole. The exit status is 77, which meson takes for a skipped test, if this machine cannot provide the place."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # tests
import lib  # noqa: E402
from docker_profile import has_roots_rights  # noqa: E402
from lib import SKIPPED, free_port, skip  # noqa: E402

USER = lib.own_user()
SHM = "mount -t tmpfs -o mode=1777,size=64m tmpfs /dev/shm"  # Docker's default
READ_ONLY = "mount -t tmpfs -o ro tmpfs /tmp && mount -t tmpfs -o ro tmpfs /var/tmp && mount -t tmpfs -o ro tmpfs /run && mount -o bind,remount,ro /"
NO_CAPABILITIES = ["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
AS_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *NO_CAPABILITIES]
AS_ROOT = ["setpriv", *NO_CAPABILITIES]
MEMLOCK, DESCRIPTORS = ["prlimit", f"--memlock={64 << 10}"], ["prlimit", "--nofile=64"]
NO_GUARDS = r'guard "userfaultfd" is missing \(Operation not permitted\), guard "pins" is missing \(Operation not permitted\): .*"faultline doctor"'

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD, LOAD_PROFILE = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
# In the namespace of a place: a user may be unable to reach the checkout, and /tmp may be another.
SOURCE_THERE, BUILD_THERE = pathlib.Path("/mnt/source"), pathlib.Path("/mnt/build")


class Place:
    """mounts: a script in a mount namespace, which needs root. wrapper: starts each program. profile: a seccomp profile of tests/data/seccomp.
    proof: Python that a program of this place runs. lost: what the one line of a program matches, None if nothing is lost. refused: what the
    line matches if the programs do not run. doctor: the state of some checks; mend: what the advice of some matches."""

    def __init__(self, proof, mounts="", wrapper=(), profile=None, lost=None, refused=None, doctor=None, mend=None, as_root=False):
        self.mounts, self.proof, self.lost, self.refused = mounts, proof, lost, refused
        self.doctor, self.mend = {"program": "ok", **(doctor or {})}, mend or {}
        self.needs_root = bool(mounts) or as_root or "setpriv" in wrapper
        self.wrapper, self.profile = list(wrapper), profile
        self.more = lambda _place: None

    def also(self, check):
        self.more = check
        return self


def fails_with(error, call):
    return f"fails({error}, {call})\n"


PROOFS = """import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
def fails(error, number, *arguments):
    found = libc.syscall(number, *(ctypes.c_ulong(value & (2**64 - 1)) for value in arguments))
    assert found == -1 and ctypes.get_errno() == error, (number, found, ctypes.get_errno())
def capabilities():
    return {line.split()[1] for line in open('/proc/self/status') if line.startswith(('CapEff', 'CapPrm', 'CapBnd'))}
def is_read_only(folder):
    try:
        os.mkdir(folder + '/faultline-proof')
    except OSError as error:
        return error.errno == 30
    os.rmdir(folder + '/faultline-proof')
    return False
"""
NO_USERFAULTFD, NO_RINGS = fails_with(1, "323, 0"), fails_with(1, "425, -1, 0")
IS_DOCKER = NO_USERFAULTFD + fails_with(1, "323, 1") + NO_RINGS + fails_with(38, "435, 0, 0") + fails_with(1, "272, 0x10000000") + fails_with(1, "321, 0, 0, 0")
HAS_NO_CAPABILITIES = "assert capabilities() == {'0' * 16}, capabilities()\n"
IS_READ_ONLY = "assert all(is_read_only(folder) for folder in ('/', '/tmp', '/var/tmp', '/run', '/mnt'))\n"
HAS_SMALL_SHM = "facts = os.statvfs('/dev/shm')\nassert facts.f_blocks * facts.f_frsize == 64 << 20\n"
HAS_LITTLE_MEMLOCK = "assert resource.getrlimit(resource.RLIMIT_MEMLOCK) == (64 << 10,) * 2\n"
HAS_FEW_DESCRIPTORS = "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (64, 64)\n"
IO_URING_SYSCTL = "/proc/sys/kernel/io_uring_disabled"

DOCKER_CHECKS = {"userfaultfd": "missing", "io_uring": "missing"}
DOCKER_MEND = {"userfaultfd": "seccomp", "io_uring": "seccomp"}
CONTAINER = {
    "mounts": f"{SHM} && {READ_ONLY}", "profile": "docker", "lost": NO_GUARDS, "mend": DOCKER_MEND,
    "proof": IS_DOCKER + HAS_NO_CAPABILITIES + IS_READ_ONLY + HAS_SMALL_SHM + HAS_LITTLE_MEMLOCK + HAS_FEW_DESCRIPTORS,
    "doctor": DOCKER_CHECKS | {"/dev/shm": "limited", "memlock": "limited", "capabilities": "limited", "wires": "ok"}}

# The kernel's devices as sysfs has them: one without a GID, and one of a network card that answers no verbs.
HOST_DEVICES = """
# Some attributes can only be written.
mount -t tmpfs tmpfs /mnt/class && { cp -a /sys/class/. /mnt/class/ 2>/dev/null || true; }
mount -t tmpfs tmpfs /mnt/dev && cp -ax /dev/. /mnt/dev/ && mkdir -p /mnt/dev/shm /mnt/dev/infiniband
mount -t tmpfs -o mode=1777 tmpfs /mnt/dev/shm
rm -rf /mnt/class/infiniband /mnt/class/infiniband_verbs
mkdir -p /mnt/class/infiniband_verbs && echo 6 > /mnt/class/infiniband_verbs/abi_version
number=0
for device in mlx5_0:15B3:1017 mana_0:1414:00BA; do
  name=${device%%:*} ids=${device#*:} verbs=/mnt/class/infiniband_verbs/uverbs$number
  folder=/mnt/class/infiniband/$name port=/mnt/class/infiniband/$name/ports/1
  mkdir -p $folder/device $port/gids $port/gid_attrs/types $port/pkeys $verbs/device
  echo '1: CA' > $folder/node_type; echo 0002:c903:0000:000$number > $folder/node_guid; echo 1.0 > $folder/fw_ver
  echo '4: ACTIVE' > $port/state; echo '5: LinkUp' > $port/phys_state; echo Ethernet > $port/link_layer; echo 0xffff > $port/pkeys/0
  echo '100 Gb/sec (4X EDR)' > $port/rate; echo 'RoCE v2' > $port/gid_attrs/types/0; echo 0000:0000:0000:0000:0000:0000:0000:0000 > $port/gids/0
  for place in $folder/device $verbs/device; do
    echo pci:v0000${ids%:*}d0000${ids#*:}sv00000000sd00000000bc02sc00i00 > $place/modalias
    echo 0x${ids%:*} > $place/vendor; echo 0x${ids#*:} > $place/device
  done
  echo $name > $verbs/ibdev; echo 1 > $verbs/abi_version; echo 231:$((192 + number)) > $verbs/dev
  mknod -m 666 /mnt/dev/infiniband/uverbs$number c 231 $((192 + number))
  number=$((number + 1))
done
mount --move /mnt/class /sys/class && mount --move /mnt/dev /dev"""


def check_few_descriptors(place):
    """Any smaller limit: the programs run, or are refused with one line."""
    for limit in (8, 10, 12, 13, 14, 16, 17, 20, 22, 23, 24, 25, 26, 28, 34):
        place.wrapper = ["prlimit", f"--nofile={limit}"]
        run_pair(place, PINGPONG, may_fail=True)
    print("ok: every limit is survived or refused with one line")


def check_hidden_devices(place):
    ended = start(place, ["ibv_devices"])
    ended.wait()
    print("without Faultline:", "ibv_devices lists mlx5_0" if "mlx5_0" in ended.output else "no provider of rdma-core takes mlx5_0")
    run = [BUILD_THERE / "apps/faultline-run", "--wire", wire_name()]
    for what, command in (("ibv_devices", ["ibv_devices"]), ("sysfs", ["ls", "/sys/class/infiniband"]),
                          ("glob", ["sh", "-c", "echo /sys/class/infiniband/*/ports/1/state"]),
                          ("ibv_devinfo", ["ibv_devinfo"]), ("UCX", ["ucx_info", "-d"]), ("libfabric", ["fi_info", "-p", "verbs"])):
        if shutil.which(command[0]) is None:
            print(f"not tried: {command[0]} is not installed")
            continue
        ended = start(place, [*run, *command])
        ended.wait()
        if ended.status != 0 or "faultline0" not in ended.output or re.search(r"mlx5_0|mana_0", ended.output + ended.errors):
            fail(f"{what}: the host's devices", ended)
    ended = start(place, [*run, "ibv_devinfo", "-d", "mlx5_0"])
    ended.wait()
    if ended.status == 0 or "fw_ver" in ended.output:
        fail("a device of the host by its name", ended)
    print("ok: programs see Faultline's device alone")


PLACES = {
    "seccomp": Place(IS_DOCKER, profile="docker", lost=NO_GUARDS, doctor=DOCKER_CHECKS, mend=DOCKER_MEND),
    "no-capabilities": Place(HAS_NO_CAPABILITIES, wrapper=["prlimit", f"--memlock={8 << 20}", *AS_USER],
                             doctor={"capabilities": "limited", "memlock": "limited", "userfaultfd": "ok", "io_uring": "ok"}),
    "read-only": Place(IS_READ_ONLY, mounts=f"{SHM} && {READ_ONLY}", doctor={"wires": "ok", "/dev/shm": "limited"}),
    "read-only-everywhere": Place(IS_READ_ONLY, mounts=f"{READ_ONLY} && mount -t tmpfs -o ro tmpfs /dev/shm",
                                  refused="cannot make the directory .*: Read-only file system; set XDG_RUNTIME_DIR",
                                  doctor={"wires": "missing", "program": None}, mend={"wires": "XDG_RUNTIME_DIR"}),
    "small-shm": Place(HAS_SMALL_SHM + "assert facts.f_bfree == 0\n", mounts=f"{SHM} && {{ cat /dev/zero > /dev/shm/full 2>/dev/null || true; }}",
                       doctor={"/dev/shm": "limited"}),
    "memlock": Place(HAS_LITTLE_MEMLOCK + HAS_NO_CAPABILITIES, wrapper=[*MEMLOCK, *AS_USER],
                     lost=r"a classic memory region of \d+ bytes is not pinned, .*: RLIMIT_MEMLOCK is 65536 bytes .*: raise ulimit -l",
                     doctor={"memlock": "limited"}, mend={"memlock": "ulimit -l"}),
    "descriptors": Place(HAS_FEW_DESCRIPTORS, wrapper=DESCRIPTORS, doctor={"descriptors": "ok"}).also(check_few_descriptors),
    "unprivileged-userfaultfd": Place(NO_USERFAULTFD + HAS_NO_CAPABILITIES, profile="unprivileged_userfaultfd",
                                      wrapper=["prlimit", f"--memlock={8 << 20}", *AS_USER], doctor={"userfaultfd": "ok", "io_uring": "ok"}),
    # The sysctl is one for the whole machine, so it is a file of this namespace here.
    "io_uring-disabled": Place(NO_RINGS + f"assert open({IO_URING_SYSCTL!r}).read() == '2\\n'\n", profile="io_uring_disabled",
                               mounts=f"if [ -e {IO_URING_SYSCTL} ]; then echo 2 > /mnt/two && mount --bind /mnt/two {IO_URING_SYSCTL}; else exit {SKIPPED}; fi",
                               lost=r'guard "pins" is missing: .*\(Operation not permitted\): .*kernel\.io_uring_disabled',
                               doctor={"io_uring": "missing", "userfaultfd": "ok"}, mend={"io_uring": "sysctl -w kernel.io_uring_disabled=0"}),
    "linux-5.15": Place(fails_with(38, "451, -1, 0, 0, 0") + fails_with(25, "16, -1, 0xc0606610, 0") + fails_with(22, "427, -1, 15, 0, 0"),
                        profile="linux_5_15", doctor={"io_uring": "ok", "userfaultfd": "ok"}),
    "container": Place(**CONTAINER, wrapper=[*MEMLOCK, *DESCRIPTORS, *AS_USER]),
    "container-root": Place(**CONTAINER, wrapper=[*MEMLOCK, *DESCRIPTORS, *AS_ROOT]),
    "host-devices": Place("assert sorted(os.listdir('/sys/class/infiniband')) == ['mana_0', 'mlx5_0']\n", mounts=HOST_DEVICES,
                          doctor={"host devices": "limited"}).also(check_hidden_devices),
}
PINGPONG = ["ibv_rc_pingpong", "-g", "0", "-c", "-n", "200"]
WRITE = ["ib_write_bw", "-n", "500"]


def fail(what, *ends):
    lib.fail(what + "".join(f"\n== status {end.status}\n{end.output}{end.errors}" for end in ends))


def wire_name():
    return f"restricted{os.getpid()}"


class Program:
    """A program whose output is in memory: no folder may be writable."""

    def __init__(self, words, variables):
        self.files = [os.memfd_create(name) for name in ("output", "errors")]
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=self.files[0], stderr=self.files[1],
                                        env=variables, cwd="/")
        lib.on_exit(self.end)
        self.status, self.output, self.errors = None, "", ""

    def wait(self):
        try:
            self.status = self.process.wait(timeout=lib.LIMIT_S)
        except subprocess.TimeoutExpired:
            self.end()
            fail("no end", self)
        self.read()

    def end(self):
        self.process.kill()
        self.status = self.process.wait()
        self.read()

    def read(self):
        texts = [os.pread(file, 1 << 20, 0).decode(errors="replace") for file in self.files]
        self.output, self.errors = texts
        return texts

    def own_lines(self):
        return [line for line in (self.output + self.errors).splitlines() if line.startswith("faultline")]


def start(place, command):
    wrapper = list(place.wrapper)
    if place.profile:
        load, profiles = (LOAD_PROFILE, SOURCE) if not place.needs_root else (BUILD_THERE / LOAD_PROFILE.relative_to(BUILD), SOURCE_THERE)
        wrapper += [load, profiles / f"tests/data/seccomp/{place.profile}.json"]
    variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/"}
    return Program([*wrapper, *command], variables)


def tool(place, name):
    return (BUILD_THERE if place.needs_root else BUILD) / "apps" / name


def run_pair(place, command, may_fail=False):
    """Both ends; the client begins once the server listens, or is refused."""
    port = free_port()
    source = SOURCE_THERE if place.needs_root else SOURCE
    run = [tool(place, "faultline-run"), "--wire", wire_name(), "--config", source / "tests/data/patient_wire.toml"]
    server = start(place, [*run, "--side", "a", *command, "-p", port])
    listens = lib.await_that(lambda: server.process.poll() is not None and "no" or lib.listens(port, server.process.pid) and "yes",
                             f"{command[0]} listens or is refused") == "yes"
    client = start(place, [*run, "--side", "b", *command, "-p", port, "198.18.0.1"])
    client.wait()
    ends = [server, client]
    if client.status != 0 and listens:
        # It waits for a client for ever.
        server.end()
        ends = [client]
    server.wait()
    for end in ends:
        check_end(place, command, end, server, client, may_fail=may_fail)


def check_end(place, command, end, *both, may_fail=False):
    what, lines = f"{command[0]} {' '.join(place.wrapper)}", end.own_lines()
    if len(lines) > 1 or any(line in end.output for line in lines):
        fail(f"{what}: more than one line, or lines on stdout", *both)
    if may_fail:
        if end.status != 0 and len(lines) != 1:
            fail(f"{what}: fails without a line of the reason", *both)
    elif place.refused:
        if end.status == 0 or not lines or not re.search(place.refused, lines[0]):
            fail(f"{what}: is not refused with its line", *both)
    elif end.status != 0 or "invalid" in end.output or not re.search(r"bytes in|^ ?65536 ", end.output, re.MULTILINE):
        fail(f"{what}: does not transfer", *both)
    elif lines and not (place.lost and re.search(place.lost, lines[0])):
        fail(f"{what}: an unexpected line", *both)
    elif place.lost and not lines and command is WRITE:
        fail(f"{what}: what is lost is not said", *both)


def check_doctor(place):
    ended = start(place, [tool(place, "faultline"), "doctor", "--json"])
    ended.wait()
    if ended.errors or ended.status not in (0, 1):
        fail("doctor", ended)
    checks = {check["name"]: check for check in json.loads(ended.output)["checks"]}
    for name, state in place.doctor.items():
        if checks[name]["state"] != state and (state or checks[name]["state"] == "ok"):
            fail(f"doctor: {name} is not {state}", ended)
        if state != "ok" and not (checks[name]["lost"] and checks[name]["mend"]):
            fail(f"doctor: {name} lacks what is lost or what to do", ended)
    for name, pattern in place.mend.items():
        if not re.search(pattern, checks[name]["mend"]):
            fail(f"doctor: the advice on {name}", ended)
    print("ok: doctor")


def enter(place):
    """Runs this script again in the place's mount namespace."""
    if not has_roots_rights():
        skip("this place takes root and its capabilities to make")
    script = f"mount -t tmpfs tmpfs /mnt && mkdir /mnt/source /mnt/build /mnt/class /mnt/dev && mount --bind {SOURCE} {SOURCE_THERE} && "
    script += f"mount --bind {BUILD} {BUILD_THERE} && {place.mounts or 'true'} && mount -o remount,ro /mnt && exec \"$@\""
    os.environ["FAULTLINE_RESTRICTED"] = "inside"
    os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", sys.executable,
                           SOURCE_THERE / "tests/environments/restricted_test.py", *sys.argv[1:]])


def main():
    place = PLACES[sys.argv[3]]
    for name in ("ibv_rc_pingpong", "ib_write_bw", "prlimit", "setpriv"):
        if shutil.which(name) is None:
            skip(f"{name} is not installed")
    if place.needs_root and os.environ.get("FAULTLINE_RESTRICTED") != "inside":
        enter(place)
    proof = start(place, ["/usr/bin/python3", "-c", PROOFS + place.proof])
    proof.wait()
    if proof.status == SKIPPED:
        skip(f"this machine does not allow it: {proof.errors.strip()}")
    if proof.status != 0:
        fail("the place is not in effect", proof)
    for command in (PINGPONG, WRITE):
        run_pair(place, command)
    print("ok: both programs" + (", refused with one line" if place.refused else ""))
    check_doctor(place)
    place.more(place)


main()
