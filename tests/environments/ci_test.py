#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""configs/ci: the steps of the GitHub action and of the GitLab snippet in a clean environment, as an ordinary user where this is root; the
container's commands, the CDI edits and the pod as far as namespaces go; all manifests against their schemas. The archive is made from what
`meson install` gives.
  ci_test.py BUILD_DIR LOAD_PROFILE PART
PART is one of: schemas, github, gitlab, containers."""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # tests
import lib  # noqa: E402
from docker_profile import has_roots_rights  # noqa: E402
from lib import free_port, skip  # noqa: E402

try:
    import jsonschema
    import yaml
except ImportError as missing:
    skip(f"{missing}: python3-yaml and python3-jsonschema have it")

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD, LOAD_PROFILE = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
CI = SOURCE / "configs/ci"
SCHEMAS = SOURCE / "tests/data/schemas"
# A user for each part that owns no process of this machine, so that its wires are its own.
USER = lib.own_user()
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
# Two programs of one step; the second begins when the first listens.
MEETING = 'FAULTLINE_WIRE=$FAULTLINE_WIRE,side=a ibv_rc_pingpong -g 0 -c -n 200 -p "$PORT" & server=$!; port=$(printf ":%04X [0:]*0000 0A" "$PORT"); ' \
    'while kill -0 $server && ! grep -qhi "$port" /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done; ' \
    'ibv_rc_pingpong -g 0 -c -n 200 -p "$PORT" 198.18.0.1 && wait $server'


def fail(what, ended=None):
    lib.fail(what + (f": status {ended.returncode}\n{ended.stdout}{ended.stderr}" if ended else ""))


def run(words, variables, folder, wrapper=()):
    """In an environment of these variables alone."""
    return subprocess.run([str(word) for word in [*wrapper, *words]], env=variables, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=lib.LIMIT_S, check=False)


def version():
    return re.search(r"version: '([^']+)'", (SOURCE / "meson.build").read_text())[1]


def install(folder):
    """The tree of an archive: faultline-VERSION-linux-ARCH/{bin,lib,share}."""
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", folder / "root"], stdout=subprocess.DEVNULL, check=True)
    options = json.loads(subprocess.check_output(["meson", "introspect", "--buildoptions", BUILD]))
    values = {option["name"]: option["value"] for option in options}
    tree = folder / f"faultline-{version()}-{os.uname().machine}"
    (folder / "root" / values["prefix"].lstrip("/")).rename(tree)
    if not (tree / "lib/faultline").exists():
        (tree / "lib/faultline").symlink_to(os.path.relpath(tree / values["libdir"] / "faultline", tree / "lib"))
    return tree


def pack(tree):
    archive = tree.with_name(f"{tree.name}.tar.gz")
    with tarfile.open(archive, "w:gz", compresslevel=1) as file:
        file.add(tree, tree.name)
    archive.chmod(0o644)
    return archive


class Runner:
    """What GitHub's runner gives to the steps of a job: docs.github.com/actions, "Workflow commands"."""

    def __init__(self, folder):
        self.folder = folder
        self.files = {name: folder / name for name in ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        self.workspace = folder / "workspace"
        for path in (self.workspace, folder / "temp", folder / "home"):
            path.mkdir()
        for path in self.files.values():
            path.touch()
        self.wrapper = []
        if has_roots_rights():
            self.wrapper = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
            for path in (folder, *folder.rglob("*")):
                os.chown(path, USER, USER)

    def variables(self):
        found = {"PATH": SYSTEM_PATH, "HOME": str(self.folder / "home"), "RUNNER_TEMP": str(self.folder / "temp"), "CI": "true",
                 "GITHUB_WORKSPACE": str(self.workspace)}
        found |= {name: str(path) for name, path in self.files.items()}
        for line in self.files["GITHUB_ENV"].read_text().splitlines():
            name, _, value = line.partition("=")
            found[name] = value
        paths = self.files["GITHUB_PATH"].read_text().split()
        return found | {"PATH": ":".join([*reversed(paths), SYSTEM_PATH])}

    def step(self, script, variables=None):
        file = self.folder / "temp/step.sh"
        file.write_text(script)
        file.chmod(0o755)
        return run(["bash", "--noprofile", "--norc", "-eo", "pipefail", file], self.variables() | (variables or {}), self.workspace, self.wrapper)

    def action(self, action, inputs):
        """All steps, until one fails; returns the last."""
        values = {name: facts.get("default", "") for name, facts in action["inputs"].items()} | inputs
        for step in action["runs"]["steps"]:
            variables = {name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: values[found[1]], value)
                         for name, value in step.get("env", {}).items()}
            assert "${{" not in step["run"], "an expression in a script would be code of the caller's"
            ended = self.step(step["run"], variables)
            if ended.returncode != 0:
                return ended
        return ended


def check_schemas(_folder):
    for manifest, schema in (("github/action.yml", "github_action"), ("gitlab.yml", "gitlab"), ("cdi.yaml", "cdi"), ("pod.yaml", "pod")):
        content = yaml.safe_load((CI / manifest).read_text())
        rules = json.loads((SCHEMAS / f"{schema}.json").read_text())
        jsonschema.Draft7Validator.check_schema(rules)
        jsonschema.validate(content, rules)
        print(f"ok: {manifest}")
    for file in CI.rglob("*"):
        if file.is_file() and re.search(r"\bsudo\b|privileged: true|/dev/infiniband", file.read_text()):
            fail(f"{file.name} asks for a privilege")
    lines = re.sub(r"\\\n", " ", (CI / "Containerfile").read_text()).splitlines()
    words = [line.split()[0] for line in lines if line and not line.startswith("#")]
    if words[0] != "FROM" or not {"ARG", "ADD", "ENV", "USER", "ENTRYPOINT"} <= set(words):
        fail(f"the Containerfile's instructions: {words}")
    for line in lines:
        if line.startswith(("ENTRYPOINT", "CMD")):
            json.loads(line.split(maxsplit=1)[1])
    print("ok: Containerfile")


def check_github(folder):
    archive = pack(install(folder))
    action = yaml.safe_load((CI / "github/action.yml").read_text())

    def fresh(name):
        (folder / name).mkdir()
        return Runner(folder / name)

    runner = fresh("job")
    ended = runner.action(action, {"archive": str(archive), "sha256": subprocess.check_output(["sha256sum", archive], text=True).split()[0]})
    if ended.returncode != 0 or ended.stderr:
        fail("the action", ended)
    if "verbs programs run here" not in runner.files["GITHUB_STEP_SUMMARY"].read_text():
        fail("the action's summary", ended)
    ended = runner.step("ibv_devinfo")
    if ended.returncode != 0 or "faultline0" not in ended.stdout or "PORT_ACTIVE" not in ended.stdout:
        fail("a later step", ended)
    ended = runner.step("ibv_devinfo -v | grep -F 'GID[  0]'")
    if not re.search(r"::ffff:198\.1[89]\.", ended.stdout):
        fail("the GID of a later step", ended)
    ended = runner.step(f"sh -c {shlex.quote(MEETING)}", {"PORT": str(free_port())})
    if ended.returncode != 0:
        fail("two programs of a later step", ended)
    # What the steps of others are written in.
    for command in ("python3 -c \"import subprocess; print(subprocess.run(['ibv_devices'], capture_output=True, text=True).stdout)\"",
                    "make -f - <<< 'all: ; @ibv_devices'", "node -e \"console.log(require('child_process').execSync('ibv_devices') + '')\""):
        if shutil.which(command.split()[0], path=SYSTEM_PATH) is None:
            print(f"not tried: {command.split()[0]} is not installed")
            continue
        ended = runner.step(command)
        if ended.returncode != 0 or "faultline0" not in ended.stdout or ended.stderr:
            fail(f"a child of {command.split()[0]}", ended)
    print("ok: later steps and their children")

    share = fresh("share")
    ended = share.action(action, {"archive": str(archive), "devices": "--wire shared --share"})
    if ended.returncode != 0 or "FAULTLINE_WIRE=shared,share\n" not in share.files["GITHUB_ENV"].read_text():
        fail("other devices", ended)
    for name, inputs, reason in (("missing", {"archive": "/nonexistent.tar.gz"}, "does not exist"),
                                 ("other", {"archive": str(archive), "sha256": "0" * 64}, "another checksum"),
                                 ("wire", {"archive": str(archive), "devices": "--wire a/b"}, "a/b")):
        ended = fresh(name).action(action, inputs)
        if ended.returncode != 2 or ended.stderr.count("\n") != 1 or reason not in ended.stderr:
            fail(f"the mistake {name}", ended)
    print("ok: mistakes")


def check_gitlab(folder):
    archive = pack(install(folder))
    job = yaml.safe_load((CI / "gitlab.yml").read_text())[".faultline"]
    (folder / "job").mkdir()
    runner = Runner(folder / "job")
    variables = {"PATH": SYSTEM_PATH, "HOME": str(runner.folder / "home"), "CI_PROJECT_DIR": str(runner.workspace), "PORT": str(free_port())}
    variables |= job["variables"] | {"FAULTLINE_ARCHIVE": str(archive)}
    # GitLab's runner concatenates both lists, for bash or for sh.
    for shell in ("bash", "sh"):
        script = "\n".join(["set -e", *job["before_script"], "ibv_devinfo", f"sh -c {shlex.quote(MEETING)}"])
        ended = run([shell, "-c", script], variables, runner.workspace, runner.wrapper)
        if ended.returncode != 0 or "PORT_ACTIVE" not in ended.stdout or ended.stderr:
            fail(f"the GitLab job in {shell}", ended)
        print(f"ok: a job in {shell}")


def in_container(tree, edits="true", shared="", profile="docker"):
    """Words that start a command as a container engine does: namespaces, a read-only root, an ordinary user, the default seccomp profile."""
    script = f"mount -t tmpfs tmpfs /mnt && mkdir /mnt/source /mnt/build && mount --bind {SOURCE} /mnt/source && mount --bind {BUILD} /mnt/build && "
    script += "mount -t tmpfs tmpfs /opt && mkdir /opt/faultline && "
    script += f"mount --bind {tree} /opt/faultline && mount -o bind,remount,ro /opt/faultline && {edits} && "
    script += f"mount {shared or '-t tmpfs -o mode=1777 tmpfs'} /tmp && mount -t tmpfs -o ro tmpfs /run && mount -t tmpfs -o mode=1777,size=64m tmpfs /dev/shm && "
    script += "mount -o bind,remount,ro / && mount -t proc proc /proc && exec \"$@\""
    load = pathlib.Path("/mnt/build") / LOAD_PROFILE.relative_to(BUILD)
    return ["unshare", "--mount", "--pid", "--fork", "--ipc", "--uts", "--propagation", "private", "sh", "-c", script, "sh", "prlimit", f"--memlock={64 << 10}",
            "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all",
            load, f"/mnt/source/tests/data/seccomp/{profile}.json"]


def image_variables():
    found = {"HOME": "/"}
    for line in (CI / "Containerfile").read_text().splitlines():
        if line.startswith("ENV "):
            name, _, value = line[4:].partition("=")
            found[name] = value
    return found


def check_containers(folder):
    if not has_roots_rights():
        skip("namespaces with another root take root and its capabilities")
    tree = install(folder)
    lines = (CI / "Containerfile").read_text().splitlines()
    command = [word for line in lines if line.startswith(("ENTRYPOINT", "CMD")) for word in json.loads(line.split(maxsplit=1)[1])]
    ended = run(command, image_variables(), "/", in_container(tree))
    if ended.returncode != 0 or "PORT_ACTIVE" not in ended.stdout or ended.stderr.count("\n") > 1:
        fail("the image's command", ended)
    print("ok: the image's command")

    specification = yaml.safe_load((CI / "cdi.yaml").read_text())
    edits = specification["containerEdits"]
    assert [mount["hostPath"] for mount in edits["mounts"]] == ["/opt/faultline"] == [mount["containerPath"] for mount in edits["mounts"]]
    network = ["unshare", "--net", "sh", "-c", "ip link set lo up && ip link add d0 type veth peer name d1 && ip link set d1 up && "
               "ip addr add 198.18.9.1/24 dev d0 && ip link set d0 up && ip route add default via 198.18.9.2 && exec \"$@\"", "sh"]
    for device in specification["devices"]:
        # Of the container's program alone, not of what makes the container.
        variables = ["env", *edits["env"], *device["containerEdits"]["env"]]
        ended = run([*variables, "ibv_devinfo", "-v"], {"PATH": f"{SYSTEM_PATH}:/usr/sbin:/sbin", "HOME": "/"}, "/", [*network, *in_container(tree)])
        address = r"198\.18\.9\.1\b" if device["name"] == "udp" else r"198\.1[89]\."
        if ended.returncode != 0 or "PORT_ACTIVE" not in ended.stdout or not re.search(f"::ffff:{address}", ended.stdout):
            fail(f"the CDI device {device['name']}", ended)
        print(f"ok: the CDI device {device['name']}")

    pod = yaml.safe_load((CI / "pod.yaml").read_text())
    # The kubelet makes an emptyDir that all may write.
    shared = folder / "emptydir"
    shared.mkdir()
    shared.chmod(0o777)
    programs = [subprocess.Popen([*map(str, in_container(tree, shared=f"--bind {shared}")), *container["command"], *container["args"]], env=image_variables(),
                                 cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for container in pod["spec"]["containers"]]
    for container, program in zip(pod["spec"]["containers"], programs):
        try:
            output, errors = program.communicate(timeout=lib.LIMIT_S)
        except subprocess.TimeoutExpired:
            for one in programs:
                one.kill()
            fail(f"the pod's {container['name']}: no end in {lib.LIMIT_S} s")
        if program.returncode != 0 or "65536" not in output:
            fail(f"the pod's {container['name']}: status {program.returncode}\n{output}{errors}")
    print("ok: the pod's containers")


PARTS = {"schemas": check_schemas, "github": check_github, "gitlab": check_gitlab, "containers": check_containers}


def main():
    for name in ("ibv_rc_pingpong", "ibv_devinfo", "ib_write_bw", "setpriv"):
        if shutil.which(name) is None:
            skip(f"{name} is not installed")
    with tempfile.TemporaryDirectory(prefix="fl-ci-", dir="/var/tmp", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        PARTS[sys.argv[3]](pathlib.Path(folder))


main()
