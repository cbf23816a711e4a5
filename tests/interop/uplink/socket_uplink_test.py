#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests faultline-switch --uplink udp: programs that share the host's own addresses. Two network namespaces, joined by a veth pair, are two
hosts. Root makes them; the switches and the programs have no capability and are not root.

  socket_uplink_test.py FAULTLINE_RUN
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from uplink_lab import end_run, has_sent, lib, sh

NOBODY = 65534  # Debian's user without a special purpose
SPACES = [f"uplinkudp-{os.getpid()}-{side}" for side in "ab"]
VETHS = [f"vu{os.getpid()}{side}" for side in "ab"]
IPV4 = ["198.18.0.1", "198.18.0.2"]
IPV6 = ["2001:2::1", "2001:2::2"]
CHECK_ICRCS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../e2e/udp/check_icrcs.py")
NO_RIGHTS = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all",
             "--no-new-privs")


# A datagram to a port of no protocol is the last one of a capture.
LAST, LAST_PORT = b"the capture ends here", "4790"


class Lab:
    def __init__(self, folder, faultline_run):
        self.folder = folder
        os.chmod(folder, 0o755)
        built = os.path.dirname(os.path.realpath(faultline_run))
        # In a folder that the user may read: the build's may be root's.
        for source, target in (("faultline-run", "bin"), ("faultline-switch", "bin"), ("../stack/abi/libibverbs.so.1", "stack/abi"),
                               ("../libfaultline.so.0", ".")):
            os.makedirs(f"{folder}/{target}", exist_ok=True)
            shutil.copy(f"{built}/{source}", f"{folder}/{target}")
        self.run = f"{folder}/bin/faultline-run"
        self.switch = f"{folder}/bin/faultline-switch"
        self.user_folder = f"{folder}/user"
        os.mkdir(self.user_folder, 0o700)
        os.chown(self.user_folder, NOBODY, NOBODY)
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=self.user_folder, HOME=self.user_folder, LD_LIBRARY_PATH=folder)
        self.started = []

    def make(self):
        for space in SPACES:
            sh("ip", "netns", "add", space)
        sh("ip", "link", "add", VETHS[0], "netns", SPACES[0], "mtu", "4500", "type", "veth", "peer", "name", VETHS[1], "netns", SPACES[1],
           "mtu", "4500")
        for side in (0, 1):
            self.ip(side, "link", "set", "lo", "up")
            self.add_addresses(side)
            self.ip(side, "link", "set", VETHS[side], "up")
        self.add_default_routes()

    def add_default_routes(self):
        self.ip(1, "route", "replace", "default", "via", IPV4[0])
        self.ip(1, "-6", "route", "replace", "default", "via", IPV6[0])

    def ip(self, side, *words):
        sh("ip", "-n", SPACES[side], *words)

    def add_addresses(self, side):
        self.ip(side, "addr", "replace", IPV4[side] + "/24", "dev", VETHS[side])
        self.ip(side, "addr", "replace", IPV6[side] + "/64", "dev", VETHS[side], "nodad")

    def send_last(self):
        send = f"import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto({LAST!r}, ({IPV4[0]!r}, {LAST_PORT}))"
        lib.call(self.as_user(1, "/usr/bin/python3", "-c", send))

    def as_user(self, side, *command):
        return ["ip", "netns", "exec", SPACES[side], *NO_RIGHTS, *command]

    def start(self, name, side, *command, as_root=False):
        words = ["ip", "netns", "exec", SPACES[side], *command] if as_root else self.as_user(side, *command)
        with open(os.path.join(self.folder, name + ".out"), "a", encoding="utf-8") as file:
            process = subprocess.Popen(words, env=self.environment, stdout=file, stderr=subprocess.STDOUT)
        self.started.append(process)
        return process

    def call(self, side, *command):
        return subprocess.run(self.as_user(side, *command), env=self.environment, capture_output=True, text=True, timeout=lib.LIMIT_S, check=False)

    def output(self, name):
        with open(os.path.join(self.folder, name + ".out"), encoding="utf-8") as file:
            return file.read()

    def start_switch(self, side):
        # One names its addresses, the other takes those of the default routes.
        uplink = f"udp:{IPV4[0]},{IPV6[0]}" if side == 0 else "udp"
        process = self.start(f"switch{side}", side, self.switch, "--wire", f"up{side}", "--uplink", uplink, "--log", "info")
        lib.await_that(lambda: self.process_of_switch(side) == process.pid, "the switch starts", process)
        return process

    def status(self, side):
        asked = self.call(side, self.switch, "--status", f"up{side}", "--json")
        return json.loads(asked.stdout) if asked.returncode == 0 else None

    def process_of_switch(self, side):
        status = self.status(side)
        return status["pid"] if status else 0

    def seats(self, side):
        return sorted((seat["pid"], seat["seat"], seat["ip"], seat["first_qpn"]) for seat in self.status(side)["seats"])

    def on_wire(self, side, *command):
        return [self.run, "--wire", f"up{side}", "--no-wire-sockets", "--", *command]

    def program(self, name, side, *command):
        return self.start(name, side, *self.on_wire(side, *command))

    def await_listener(self, port):
        """Waits until the program that was started last listens at the TCP port."""
        lib.await_port(port, self.started[-1])

    def await_cm_listener(self, side, process):
        """Waits until a program of the side's wire listens for connections of rdma_cm."""
        def listening():
            asked = self.call(side, *self.on_wire(side, "rdma", "-j", "res", "show", "cm_id"))
            return asked.returncode == 0 and asked.stdout.strip() and \
                any(one.get("pid") == process.pid and one.get("state") == "LISTEN" for one in json.loads(asked.stdout))
        lib.await_that(listening, "a program listens for rdma_cm", process)

    def end(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
        for space in SPACES:
            sh("ip", "netns", "del", space, check=False)


def end_well(lab, processes):
    for name, process in processes.items():
        assert process.wait(timeout=lib.LIMIT_S) == 0, f"{name}: {lab.output(name)[-600:]}"


def expect_no_rights(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        status = file.read()
    assert re.search(rf"^Uid:\s+{NOBODY}\s+{NOBODY}\s+{NOBODY}\s+{NOBODY}$", status, re.MULTILINE), status
    assert len(re.findall(r"^Cap(?:Inh|Prm|Eff|Bnd|Amb):\s+0+$", status, re.MULTILINE)) == 5, status


def expect_two_pairs(lab, name, family, writes):
    """Two programs of one host against two of the other, at once: perftest, whose connection parameters go over TCP, and rping, whose
    connection manager's messages are routed by service and communication ID."""
    addresses, gid_index = (IPV4, 0) if family == 4 else (IPV6, 1)
    perftest = [*writes, "-F", "-x", str(gid_index), "-u", "18", "-p", "18600"]
    rping = ["rping", "-v", "-V", "-S", "4096", "-C", "300", "-a", addresses[0], "-p", "18601"]
    pairs = {f"{name}-perftest-server": lab.program(f"{name}-perftest-server", 0, *perftest)}
    lab.await_listener(18600)
    pairs[f"{name}-rping-server"] = lab.program(f"{name}-rping-server", 0, *rping, "-s")
    lab.await_cm_listener(0, pairs[f"{name}-rping-server"])
    lib.expect(len(lab.status(0)["seats"]) == 2, "both servers are attached")
    pairs[f"{name}-perftest-client"] = lab.program(f"{name}-perftest-client", 1, *perftest, IPV4[0])
    pairs[f"{name}-rping-client"] = lab.program(f"{name}-rping-client", 1, *rping, "-c")
    end_well(lab, {key: pairs[key] for key in sorted(pairs, key=lambda key: "server" in key)})
    assert "mismatch" not in lab.output(f"{name}-rping-client"), lab.output(f"{name}-rping-client")
    print(f"ok: IPv{family}: {' '.join(writes)} and rping at once")


def expect_icrcs(lab):
    """Without offloads the veth pair carries the packets of a train one by one, and the receiver gets them so."""
    if shutil.which("ethtool") is None or shutil.which("tcpdump") is None:
        print("SKIPPED: the ICRCs on the link: ethtool or tcpdump is not installed")
        return
    for side in (0, 1):
        sh("ip", "netns", "exec", SPACES[side], "ethtool", "-K", VETHS[side], "tx-udp-segmentation", "off", "gro", "off")
    path = os.path.join(lab.folder, "link.pcap")
    capture = lab.start("tcpdump", 0, "tcpdump", "-q", "--immediate-mode", "-B", "65536", "-i", VETHS[0], "-s", "10000", "-U", "-w", path, "udp", "port", "4791", "or", "udp", "port", LAST_PORT, as_root=True)
    lib.await_that(lambda: os.path.exists(path) and os.path.getsize(path) > 0, "the capture begins")
    expect_two_pairs(lab, "single-4", 4, ["ib_write_bw", "-s", "65536", "-n", "100"])
    expect_two_pairs(lab, "single-6", 6, ["ib_read_bw", "-s", "65536", "-n", "100"])
    lab.send_last()
    lib.await_that(lambda: LAST in pathlib.Path(path).read_bytes(), "the capture has the last datagram", capture)
    capture.terminate()
    capture.wait(timeout=lib.LIMIT_S)
    checked = sh(sys.executable, CHECK_ICRCS, path, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    print("ok: single packets of a train: " + checked.stdout.strip())
    for side in (0, 1):
        sh("ip", "netns", "exec", SPACES[side], "ethtool", "-K", VETHS[side], "tx-udp-segmentation", "on", "gro", "on")


def expect_direct_link(lab):
    """Two programs under one address of one host reach each other."""
    for family, gid_index in ((4, 0), (6, 1)):
        words = ["ib_write_bw", "-F", "-s", "65536", "-n", "500", "-x", str(gid_index), "-u", "18", "-p", "18602"]
        server = lab.program(f"near-server-{family}", 0, *words)
        lab.await_listener(18602)
        client = lab.program(f"near-client-{family}", 0, *words, IPV4[0])
        end_well(lab, {f"near-client-{family}": client, f"near-server-{family}": server})
    print("ok: two programs of one host under its address")


def expect_description(lab):
    """The device has the host's addresses and no other one, and it belongs to the host's interface."""
    for side in (0, 1):
        info = lab.call(side, *lab.on_wire(side, "ibv_devinfo", "-v")).stdout
        for index, address in enumerate((f"::ffff:{IPV4[side]}", IPV6[side])):
            assert re.search(rf"GID\[\s*{index}\].*{address}", info), info
        assert not re.search(r"GID\[\s*2\]", info), info
        assert "max_mtu:\t\t4096" in info and "state:\t\t\tPORT_ACTIVE" in info, info
        folder = "/sys/class/infiniband/faultline0/ports/1/gid_attrs/ndevs"
        names = lab.call(side, *lab.on_wire(side, "cat", f"{folder}/0", f"{folder}/1"))
        assert names.stdout.split() == [VETHS[side]] * 2, names
    print("ok: the device has the host's addresses, interface and MTU")


def expect_groups(lab):
    """Two programs of one host are members of a group; a program of the other host sends to it."""
    if shutil.which("mckey") is None:
        print("SKIPPED: groups: mckey is not installed")
        return
    for family, addresses, group in ((4, IPV4, "239.18.0.9"), (6, IPV6, "ff1e::1809")):
        members = {f"member-{family}-{number}": lab.program(f"member-{family}-{number}", 0, "stdbuf", "-oL", "mckey", "-m", group, "-b", addresses[0])
                   for number in (1, 2)}
        lib.await_that(lambda: all("receiving data transfers" in lab.output(name) for name in members), "two programs join")
        sender = lab.program(f"sender-{family}", 1, "mckey", "-s", "-m", group, "-b", addresses[1])
        end_well(lab, {f"sender-{family}": sender, **members})
    print("ok: programs of one host are in a group, one of the other host sends to it")


def expect_refusals(lab):
    def lines_of(done):
        return [line for line in done.stderr.splitlines() if line and "waits for UDP port" not in line]

    # Each is one line that names the address, and the switch as the way.
    second = lab.call(0, lab.switch, "--wire", "second", "--uplink", f"udp:{IPV4[0]}")
    assert second.returncode == 2 and len(lines_of(second)) == 1, second
    assert f"waits for UDP port 4791 of {IPV4[0]}" in second.stderr, second
    # A program opens the port with its first object.
    alone = lab.call(0, lab.run, "--udp", "--ip", IPV6[0], "--", "ibv_rc_pingpong", "-g", "0")
    assert alone.returncode != 0, alone
    for done, address in ((second, IPV4[0]), (alone, IPV6[0])):
        line = next(line for line in lines_of(done) if "another process has UDP port 4791" in line)
        assert f"of {address} " in line and f"faultline-switch --wire NAME --uplink udp:{address}," in line, line
    for words, part in ((["--ip", "198.18.0.1/24"], "--uplink udp:198.18.0.1"), (["--exception", "tap:x"], "leave it out")):
        done = lab.call(0, lab.switch, "--wire", "second", "--uplink", "udp:198.18.0.1", *words)
        assert done.returncode == 2 and len(lines_of(done)) == 1 and part in done.stderr, done
    done = lab.call(0, lab.switch, "--wire", "second", "--uplink", "udp")
    assert done.returncode == 2 and "the host has no default route" in done.stderr, done
    print("ok: a second switch or process on an address gets one line")


def expect_events(lab):
    if shutil.which("ibv_asyncwatch") is None:
        print("SKIPPED: the port's events: ibv_asyncwatch is not installed")
        return
    watch = lab.program("events", 0, "stdbuf", "-oL", "ibv_asyncwatch", "-d", "faultline0")
    lib.await_that(lambda: lab.seats(0), "the program attaches")

    def count(event):
        return lab.output("events").count(event)

    def leads_to(event, change):
        before = count(event)
        change()
        lib.await_that(lambda: count(event) > before, event, watch)

    def down():
        lab.ip(0, "link", "set", VETHS[0], "down")

    def up():
        lab.ip(0, "link", "set", VETHS[0], "up")
        # The kernel has removed the address of IPv6.
        lab.add_addresses(0)
        lab.add_default_routes()

    # The device starts when the program first waits for an event: a change before that has none, so that the test makes another one.
    def tried():
        down()
        lib.await_that(lambda: not lab.status(0)["uplink"]["up"], "the status has the uplink's state")
        if count("IBV_EVENT_PORT_ERR"):
            return True
        up()
        lib.await_that(lambda: lab.status(0)["uplink"]["up"], "the status has the uplink's state")
        return False
    lib.await_that(tried, "an event reports that the interface went down", watch)
    leads_to("IBV_EVENT_PORT_ACTIVE", up)
    leads_to("IBV_EVENT_PORT_ERR", lambda: lab.ip(0, "addr", "del", IPV4[0] + "/24", "dev", VETHS[0]))
    leads_to("IBV_EVENT_PORT_ACTIVE", lambda: lab.add_addresses(0))
    watch.kill()
    watch.wait()
    print("ok: events of the interface and the address")


def pings(lab):
    numbers = re.findall(r"rdma-ping-([0-9]+)", lab.output("kept-rping-client"))
    return int(numbers[-1]) if numbers else 0


def expect_replacement(lab, switches):
    """Kills one switch under load, and ends the other by SIGTERM. The programs keep their seats, QPNs and connections."""
    # The time-outs outlast the time without a switch, also on a busy machine. The run is ended when the switches are replaced.
    writes = ["ib_write_bw", "-F", "-s", "65536", "-q", "2", "-u", "19", "-D", "3600", "-x", "0", "-p", "18603"]
    rping = ["stdbuf", "-oL", "rping", "-v", "-V", "-S", "4096", "-C", "10000000", "-a", IPV6[0], "-p", "18604"]
    server = lab.program("kept-server", 0, *writes)
    lab.await_listener(18603)
    rpings = [lab.program("kept-rping-server", 0, *rping, "-s")]
    lab.await_cm_listener(0, rpings[0])
    lib.expect(len(lab.seats(0)) == 2, "two servers are attached")
    rpings.append(lab.program("kept-rping-client", 1, *rping, "-c"))
    client = lab.program("kept-client", 1, *writes, IPV4[0])
    lib.await_that(lambda: has_sent(lab.status(1), client) and pings(lab) > 20, "traffic")
    for side, end in ((1, "kill"), (0, "terminate")):
        before = lab.seats(side)
        assert len(before) == 2, before
        old = switches[side]
        getattr(old, end)()
        # It starts at once, and waits for the old one's end.
        switches[side] = lab.start_switch(side)
        old.wait(timeout=lib.LIMIT_S)
        lib.await_that(lambda: lab.seats(side) == before, "all programs have their seats again")
        pinged = pings(lab)
        lib.await_that(lambda: has_sent(lab.status(1), client) and pings(lab) > pinged + 20, "traffic goes on")
        print(f"ok: {end}: the programs have their seats and QPNs again, and traffic goes on")
    end_run(client)
    end_well(lab, {"kept-client": client, "kept-server": server})
    for process in rpings:
        assert process.poll() is None, "rping has ended"
        process.kill()
        process.wait()
    assert "mismatch" not in lab.output("kept-rping-client") + lab.output("kept-rping-server")
    print(f"ok: ib_write_bw ends right, and rping has verified {pings(lab)} pings")


def run(lab):
    lab.make()
    switches = [lab.start_switch(side) for side in (0, 1)]
    for process in switches:
        expect_no_rights(process)
    expect_description(lab)
    expect_two_pairs(lab, "write-4", 4, ["ib_write_bw", "-s", "65536", "-n", "1000"])
    expect_two_pairs(lab, "read-6", 6, ["ib_read_bw", "-s", "65536", "-n", "500"])
    expect_two_pairs(lab, "ud-4", 4, ["ib_send_bw", "-s", "2048", "-n", "500", "-c", "UD"])
    expect_direct_link(lab)
    expect_groups(lab)
    for side in (0, 1):
        uplink = lab.status(side)["uplink"]
        assert uplink["port"] == f"udp:{IPV4[side]},{IPV6[side]}" and uplink["up"] and uplink["mtu"] == 4500, uplink
        assert uplink["received_frames"] > 1000 and uplink["sent_frames"] > 100, uplink
    print("ok: the switches report their uplinks")
    expect_icrcs(lab)
    expect_refusals(lab)
    expect_events(lab)
    expect_replacement(lab, switches)
    for side, process in enumerate(switches):
        process.terminate()
        assert process.wait(timeout=lib.LIMIT_S) == 0, lab.output(f"switch{side}")


def main():
    lib.need_root("for network namespaces")
    lib.need("ib_write_bw", "rping", "ibv_devinfo", "ibv_rc_pingpong", "ip", "rdma", "setpriv", "stdbuf")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        lab = Lab(folder, sys.argv[1])
        lib.on_exit(lab.end)
        try:
            run(lab)
        except BaseException as error:
            if not isinstance(error, SystemExit) or error.code:
                print(f"FAILED: {error}", getattr(error, "stderr", ""))
                for name in sorted(os.listdir(folder)):
                    if name.endswith(".out"):
                        with contextlib.suppress(OSError):
                            print(f"--- {name}: {lab.output(name[:-4])[-400:]}", flush=True)
            raise
        finally:
            lab.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
