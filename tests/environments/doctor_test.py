#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`faultline doctor`, `info` and the commands that start programs, on restricted machines: with a container's seccomp profile, small limits, no
writable folder, no network, as an ordinary user.
  doctor_test.py FAULTLINE REFUSE_SYSCALLS CONFIGS"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # tests
import lib  # noqa: E402
from docker_profile import DOCKER_EPERM, IO_URING, has_roots_rights  # noqa: E402

FAULTLINE, REFUSE, CONFIGS = (pathlib.Path(path).resolve() for path in sys.argv[1:4])
# A user that owns no process of this machine.
USER = lib.own_user()
MEMLOCK_BYTES = 64 << 10  # Docker's default
SHM_BYTES = 64 << 20      # the same

folder = lib.own_folder("fl-doctor-", "/var/tmp")
folder.chmod(0o755)
runtime = folder / "runtime"
runtime.mkdir(mode=0o700)
lib.on_exit(lib.end_processes_of, runtime)
ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ} | {"XDG_RUNTIME_DIR": str(runtime)}


def fail(what, ended):
    lib.fail(f"{what}: status {ended.returncode}\n{ended.stdout}{ended.stderr}")


def run(command, variables=None, **others):
    return subprocess.run([str(word) for word in command], env=ENVIRONMENT | (variables or {}), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=lib.LIMIT_S, check=False, **others)


def examine(what, wrapper=(), variables=None, options=(), status=0, **states):
    """The checks of `faultline doctor` by name. `states`: what some have to be, a name with _ for a blank; None for not ok."""
    ended = run([*wrapper, FAULTLINE, "doctor", "--json", *options], variables)
    if ended.returncode == 77:
        print(f"not tried: {what}: {ended.stderr.strip()}")
        return None
    if ended.returncode != status or ended.stderr:
        fail(what, ended)
    page = json.loads(ended.stdout)
    if page["programs_run"] != (status == 0):
        fail(f"{what}: programs_run", ended)
    checks = {check["name"]: check for check in page["checks"]}
    for name, state in states.items():
        found = checks[name.replace("_", " ")]["state"] if name.replace("_", " ") in checks else checks[name]["state"]
        if found != state and (state is not None or found == "ok"):
            fail(f"{what}: {name} is {found}, not {state}", ended)
    for check in checks.values():
        if (check["state"] == "ok") != (check["lost"] == "") or (check["state"] == "ok") != (check["mend"] == "") or not check["reason"]:
            fail(f"{what}: {check['name']} lacks a text", ended)
    print(f"ok: {what}")
    return checks


def check_usage():
    for arguments in (["doctor", "--wire", "a b"], ["doctor", "--config", "/nonexistent.toml"], ["info", "--udp", "--wire", "w"], ["nonsense"], [],
                      ["doctor", "--udp", "--ip", "one"], ["info", "--ip", "198.18.0.1"], ["doctor", "words"]):
        ended = run([FAULTLINE, *arguments])
        if ended.returncode != 2 or ended.stdout or ended.stderr.count("\n") != 1 or not ended.stderr.startswith("faultline: "):
            fail(f"the mistake {arguments}", ended)
    ended = run([FAULTLINE, "info"], {"FAULTLINE_WIRE": "a b"})
    if ended.returncode != 2 or ended.stderr.count("\n") != 1:
        fail("a wrong variable", ended)
    for arguments in (["--help"], ["--version"], ["doctor", "--help"], ["info", "--help"]):
        ended = run([FAULTLINE, *arguments])
        if ended.returncode != 0 or not ended.stdout or ended.stderr:
            fail(f"{arguments}", ended)
    print("ok: usage")


def check_programs():
    """`faultline NAME` is faultline-NAME, with all arguments and its exit status."""
    for name in ("run", "perf", "switch"):
        for arguments in (["--help"], ["--nonsense"]):
            ended, other = run([FAULTLINE, name, *arguments]), run([f"{FAULTLINE}-{name}", *arguments])
            if (ended.returncode, ended.stdout, ended.stderr) != (other.returncode, other.stdout, other.stderr):
                fail(f"faultline {name} {arguments}", ended)
    ended = run([FAULTLINE, "perf", "--", "--help"])
    if ended.returncode != 0 or "--op" not in ended.stdout:
        fail("faultline perf -- --help", ended)
    ended = run([FAULTLINE, "run", "--wire", f"doctor{os.getpid()}", "sh", "-c", "echo $0 $1; exit 7", "--json", "--help"])
    if ended.returncode != 7 or ended.stdout != "--json --help\n":
        fail("arguments of a program", ended)
    print("ok: run, perf and switch")


def check_without_installation():
    alone = folder / "alone"
    alone.mkdir()
    shutil.copy2(FAULTLINE, alone)
    ended = run([alone / "faultline", "doctor"])
    if ended.returncode != 1 or not ended.stdout.endswith("verbs programs do not run here\n") or ended.stderr:
        fail("doctor without a library", ended)
    if [line.split()[1] for line in ended.stdout.splitlines() if line.startswith(("program ", "library "))] != ["missing", "missing"]:
        fail("doctor without a library: its lines", ended)
    ended = run([alone / "faultline", "info"])
    if ended.returncode != 0 or "the library is neither" not in ended.stdout:
        fail("info without a library", ended)
    ended = run([alone / "faultline", "run", "true"])
    if ended.returncode != 127 or ended.stderr.count("\n") != 1:
        fail("run without the program", ended)
    print("ok: without an installation")


def wires():
    return {file.name for file in runtime.glob("faultline/*.control")}


def check_info():
    before = wires()
    ended = run([FAULTLINE, "info", "--json"])
    if ended.returncode != 0 or ended.stderr:
        fail("info", ended)
    page = json.loads(ended.stdout)
    if set(page) != {"faultline", "machine", "limits", "guards"} or page["machine"]["kernel"] != os.uname().release:
        fail("info: its sections", ended)
    if wires() - before:
        fail("info without a device has started a switch", ended)
    guards = {line[:20].strip() for line in run([f"{FAULTLINE}-run", "--guards"]).stdout.splitlines()}
    if set(page["guards"]) != guards:
        fail(f"info: guards other than {guards}", ended)
    ended = run([FAULTLINE, "info", "--json", "--wire", f"doctor{os.getpid()},side=b"])
    page = json.loads(ended.stdout)
    device = page.get("device faultline0", {})
    if ended.returncode != 0 or device.get("gids", [""])[0] != "198.18.0.2" or device.get("port_state") != "active" or device["path_mtu_bytes"] != 4096:
        fail("info of a wire", ended)
    ended = run([FAULTLINE, "info"], {"FAULTLINE_CONFIG": str(CONFIGS / "ring.toml")})
    if ended.returncode != 0 or ended.stdout.count("\ndevice ") != 2:
        fail("info of a file with two devices", ended)
    print("ok: info")


def namespace(script, options=("--mount",)):
    """A wrapper with namespaces of its own, in which the script runs first."""
    return ["unshare", *options, "--propagation", "private", "sh", "-c", script + ' && exec "$@"', "sh"]


def as_user(*words):
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *words]


def check_limits():
    examine("this machine", program="ok", library="ok", wires="ok", memory_hooks="ok", signal_hooks="ok")
    examine("options for a device", options=["--wire", f"doctor{os.getpid()}"], program="ok")
    examine("a file with devices", options=["--config", CONFIGS / "ring.toml"], program="ok")
    checks = examine("seccomp of userfaultfd and io_uring", [REFUSE, "EPERM", ",".join(["userfaultfd", *IO_URING]), "--"],
                     program="ok", userfaultfd="missing", io_uring="missing")
    if checks and not all("seccomp" in checks[name]["mend"] for name in ("userfaultfd", "io_uring")):
        lib.fail(f"the remedy for seccomp: {checks}")
    examine("one CPU", ["taskset", "-c", min(os.sched_getaffinity(0))], program="ok", CPUs="limited")
    examine("64 descriptors", ["prlimit", "--nofile=64"], program="ok")
    examine("30 descriptors", ["prlimit", "--nofile=30"], descriptors="limited", program="ok")
    examine("no descriptors for a device", ["prlimit", "--nofile=12"], status=1, program="missing")
    sysfs = folder / "sys"
    (sysfs / "class/infiniband/mlx5_0").mkdir(parents=True)
    checks = examine("a host with an adapter", variables={"SYSFS_PATH": str(sysfs)}, host_devices="limited", program="ok")
    if "mlx5_0" not in checks["host devices"]["reason"]:
        lib.fail(f"the name of the host's device: {checks}")


def check_as_root():
    tree = folder / "tree"
    tree.mkdir()
    users = folder / "users-runtime"
    users.mkdir(mode=0o700)
    os.chown(users, USER, USER)
    users_own = {"XDG_RUNTIME_DIR": str(users)}
    # The user may be unable to reach the build folder.
    build = FAULTLINE.parent.parent
    bind = f"mount --bind {build} {tree} && "
    inside = pathlib.Path(str(FAULTLINE).replace(str(build), str(tree)))
    refuse = pathlib.Path(str(REFUSE).replace(str(build), str(tree)))
    outside, globals()["FAULTLINE"] = FAULTLINE, inside
    no_rights = ["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
    examine("an ordinary user", [*namespace(bind + "true"), *as_user()], users_own, program="ok", wires="ok", capabilities="limited")
    examine("64 KiB of locked memory", [*namespace(bind + "true"), "prlimit", f"--memlock={MEMLOCK_BYTES}", *as_user()], users_own, program="ok",
            memlock="limited")
    docker = [refuse, "ENOSYS", "clone3", "--", refuse, "EPERM", ",".join(DOCKER_EPERM), "--"]
    shm = f"mount -t tmpfs -o mode=1777,size={SHM_BYTES} tmpfs /dev/shm"
    container = {"userfaultfd": "missing", "io_uring": "missing", "/dev/shm": "limited", "memlock": "limited", "program": "ok"}
    for what, variables, wrapper in (("root in a container", {}, ["setpriv", *no_rights]),
                                     ("a user in a container", users_own, as_user(*no_rights))):
        examine(what, [*namespace(bind + shm), "prlimit", f"--memlock={MEMLOCK_BYTES}", *wrapper, *docker], variables, capabilities="limited",
                **container)
    # Every folder is read-only, so there is no place for the sockets of a wire. The namespace's only interface decides.
    closed = bind + "mount -o bind,remount,ro / && mount -t tmpfs -o ro tmpfs /run && mount -t tmpfs -o ro tmpfs /dev/shm"
    variables = {"XDG_RUNTIME_DIR": "/nonexistent"}
    network = "ip link set lo up && ip link add d0 type veth peer name d1 && ip link set d1 up && ip addr add 198.18.9.1/24 dev d0 && "
    network += "ip link set d0 up && ip route add default via 198.18.9.2 && "
    examine("a read-only root without a network", [*namespace(closed, ("--mount", "--net")), *as_user()], variables, status=1, program="missing",
            wires="missing", own_address="limited")
    examine("a read-only root with a network", [*namespace(network + closed, ("--mount", "--net")), *as_user()], variables, program="limited",
            wires="missing")
    with_folder = f"{closed} && mount -t tmpfs -o mode=0700,uid={USER} tmpfs /mnt"
    examine("a read-only root with a runtime folder", [*namespace(with_folder), *as_user()], {"XDG_RUNTIME_DIR": "/mnt"}, program="ok", wires="ok")
    globals()["FAULTLINE"] = outside


check_usage()
check_programs()
check_without_installation()
check_info()
check_limits()
if has_roots_rights():
    check_as_root()
else:
    print("not tried: other users, containers and read-only folders need root's rights")
