#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A wire is a network interface wherever an unmodified program looks: ip, rdma and ls; getifaddrs, if_nametoindex and their relatives, the
requests of netdevice(7), sysfs, SO_BINDTODEVICE. The host's interfaces stay as they are, and without the wire's the program sees them alone.
  wire_interface_test.py FAULTLINE_RUN"""
import ctypes
import errno
import fcntl
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import time

SIDES = {"a": "198.18.0.1", "b": "198.18.0.2"}
NAME = "wire0"
NETMASK = "255.254.0.0"
SIOCGIFNAME, SIOCGIFCONF, SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCGIFADDR, SIOCGIFBRDADDR = 0x8910, 0x8912, 0x8913, 0x8914, 0x8915, 0x8919
SIOCGIFNETMASK, SIOCGIFMTU, SIOCGIFHWADDR, SIOCGIFINDEX, SIOCETHTOOL = 0x891B, 0x8921, 0x8927, 0x8933, 0x8946
ETHTOOL_GSET, ETHTOOL_GDRVINFO, ETHTOOL_GLINK, ETHTOOL_GLINKSETTINGS = 0x01, 0x03, 0x0A, 0x4C
IFREQ_BYTES = 40
IFF_UP, IFF_RUNNING = 1, 0x40
SYS = pathlib.Path("/sys/class/net")


class Address(ctypes.Structure):
    """ifaddrs."""


Address._fields_ = [("next", ctypes.POINTER(Address)), ("name", ctypes.c_char_p), ("flags", ctypes.c_uint), ("address", ctypes.c_void_p),
                    ("netmask", ctypes.c_void_p), ("broadcast", ctypes.c_void_p), ("data", ctypes.c_void_p)]


def entries_of(family, read):
    """What `read` returns of each entry of getifaddrs(3) with an address of the family, by the interface's name."""
    library = ctypes.CDLL(None, use_errno=True)
    first, found = ctypes.POINTER(Address)(), {}
    assert library.getifaddrs(ctypes.byref(first)) == 0
    at = first
    while at:
        entry = at.contents
        if entry.address and ctypes.c_ushort.from_address(entry.address).value == family:
            found.setdefault(entry.name.decode(), []).append(read(entry))
        at = entry.next
    library.freeifaddrs(first)
    return found


def addresses():
    """The IPv4 addresses and netmasks."""
    return entries_of(socket.AF_INET, lambda entry: [socket.inet_ntoa(ctypes.string_at(place + 4, 4)) for place in (entry.address, entry.netmask)])


def statistics_of_addresses():
    """The first members of struct rtnl_link_stats, which an entry of this family has."""
    names_of_members = ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes")
    return entries_of(socket.AF_PACKET, lambda entry: dict(zip(names_of_members, struct.unpack("4I", ctypes.string_at(entry.data, 16)))))


def request(number, name=NAME, value=b""):
    """The union of the ifreq after the request."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        return fcntl.ioctl(any_socket, number, struct.pack("16s24s", name.encode(), value))[16:]


def number(word):
    return struct.unpack("i", word[:4])[0]


def listed():
    """The names and addresses of SIOCGIFCONF."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("iP", 0, 0)
        whole_bytes = number(fcntl.ioctl(any_socket, SIOCGIFCONF, asked))
        buffer = ctypes.create_string_buffer(whole_bytes)
        used_bytes = number(fcntl.ioctl(any_socket, SIOCGIFCONF, struct.pack("iP", len(buffer), ctypes.addressof(buffer))))
    assert whole_bytes == used_bytes, (whole_bytes, used_bytes)
    entries = [buffer.raw[at:at + IFREQ_BYTES] for at in range(0, used_bytes, IFREQ_BYTES)]
    return {entry[:16].rstrip(b"\0").decode(): socket.inet_ntoa(entry[20:24]) for entry in entries}


def sees(address):
    """In a program on the wire: each way to look finds the interface; prints its index."""
    index = socket.if_nametoindex(NAME)
    assert socket.if_indextoname(index) == NAME
    assert (index, NAME) in socket.if_nameindex() and socket.if_nametoindex("lo") == 1
    assert addresses()[NAME] == [[address, NETMASK]], addresses()
    assert "lo" in addresses()

    mtu = int((SYS / NAME / "mtu").read_text())
    mac = bytes.fromhex((SYS / NAME / "address").read_text().replace(":", ""))
    assert number(request(SIOCGIFINDEX)) == index == int((SYS / NAME / "ifindex").read_text())
    assert request(SIOCGIFADDR)[4:8] == socket.inet_aton(address)
    assert request(SIOCGIFNETMASK)[4:8] == socket.inet_aton(NETMASK)
    assert request(SIOCGIFBRDADDR)[4:8] == socket.inet_aton("198.19.255.255")
    assert number(request(SIOCGIFMTU)) == mtu and mtu >= 4096
    assert request(SIOCGIFHWADDR)[2:8] == mac
    assert number(request(SIOCGIFFLAGS)) & (IFF_UP | IFF_RUNNING) == IFF_UP | IFF_RUNNING
    assert number(request(SIOCGIFMTU, "lo")) == int((SYS / "lo/mtu").read_text())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        named = fcntl.ioctl(any_socket, SIOCGIFNAME, struct.pack("16si20s", b"", index, b""))
    assert named[:16].rstrip(b"\0") == NAME.encode()
    assert listed()[NAME] == address and listed()["lo"] == "127.0.0.1"
    for name, wanted in ((NAME, errno.EPERM), ("no-such-link", errno.ENODEV)):
        try:
            request(SIOCSIFFLAGS, name)
            raise AssertionError(f"{name}: the flags can be set")
        except OSError as error:
            assert error.errno == wanted or (name != NAME and error.errno == errno.EPERM), error

    assert {"lo", NAME} <= set(os.listdir(SYS))
    # sysfs(5): each entry is a link. UCX passes over what is none.
    assert {"lo", NAME} <= {entry.name for entry in os.scandir(SYS) if entry.is_symlink()}
    assert os.readlink(SYS / NAME) == f"../../devices/virtual/net/{NAME}"
    assert os.path.realpath(SYS / NAME / "mtu") == f"/sys/devices/virtual/net/{NAME}/mtu"
    assert pathlib.Path(f"/sys/devices/virtual/net/{NAME}/ifindex").read_text() == f"{index}\n"
    assert (SYS / "lo/ifindex").read_text() == pathlib.Path("/sys/devices/virtual/net/lo/ifindex").read_text() == "1\n"
    assert (SYS / NAME / "operstate").read_text() == "up\n"
    device, = os.listdir(SYS / NAME / "device/infiniband")
    verbs = pathlib.Path("/sys/class/infiniband") / device
    assert os.listdir(verbs / "device/net") == [NAME]
    assert (verbs / "ports/1/gid_attrs/ndevs/0").read_text() == f"{NAME}\n"
    rows = verbs / "ports/1/gid_attrs/ndevs"
    for row in sorted(os.listdir(rows), key=int)[-1:]:
        try:
            (rows / row).read_text()
            raise AssertionError("an empty row has content")
        except OSError as error:
            assert error.errno == errno.EINVAL, error
    folder = os.open(rows, os.O_RDONLY)
    try:
        os.read(folder, 1)
        raise AssertionError("a folder is read as a file")
    except IsADirectoryError:
        os.close(folder)

    check_links(device, verbs)
    check_settings()

    # The interface leads to the wire's addresses.
    with socket.create_server((address, 0)) as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, NAME.encode())
        client.connect(server.getsockname())
        assert client.getsockname()[0] == address
    check_groups(address, index)
    # Programs that this one starts look at its device, whose address it has.
    link, = json.loads(subprocess.run(["ip", "-j", "addr", "show", "dev", NAME], check=True, capture_output=True).stdout)
    assert [one["local"] for one in link["addr_info"] if one["family"] == "inet"] == [address], link
    gid = subprocess.run(["cat", verbs / "ports/1/gids/0"], check=True, capture_output=True, text=True).stdout
    assert gid == (verbs / "ports/1/gids/0").read_text(), gid
    # Or use it, since this one has not.
    used = subprocess.run([sys.executable, os.path.realpath(__file__), "--opens"], input="\n", check=True, capture_output=True, text=True).stdout
    assert used == "opened\nused\n", used
    print(index)


def check_links(device, verbs):
    """The interface and the device lead to each other by links, as programs follow them to find one by the other."""
    there = SYS / NAME / "device/infiniband" / device
    assert there.is_symlink() and os.readlink(there) == str(verbs)
    assert (there / "ports/1/gids/0").read_text() == (verbs / "ports/1/gids/0").read_text()
    back = verbs / "device/net" / NAME
    assert back.is_symlink() and (back / "mtu").read_text() == (SYS / NAME / "mtu").read_text()
    assert os.path.realpath(back / "mtu") == f"/sys/devices/virtual/net/{NAME}/mtu"
    assert os.path.samefile(back, SYS / NAME) and os.path.samefile(back, f"/sys/devices/virtual/net/{NAME}")
    folder = os.open(SYS / NAME, os.O_RDONLY)
    assert os.listdir(os.path.join("/sys/class/net", NAME, "device/net")) == [NAME]
    with open(f"device/infiniband/{device}/node_type", opener=lambda path, flags: os.open(path, flags, dir_fd=folder), encoding="ascii") as file:
        assert file.read() == "1: CA\n"
    os.close(folder)
    # ".." in a folder is of the place where the folder is.
    at = os.open(there, os.O_RDONLY | os.O_DIRECTORY)
    assert sorted(os.listdir(os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=at))) == os.listdir("/sys/class/infiniband")
    os.close(at)


def ethtool(command, form):
    """The answer of a request of SIOCETHTOOL as numbers; `form` begins with the command's."""
    answer = ctypes.create_string_buffer(struct.pack("I", command), 256)
    request(SIOCETHTOOL, value=struct.pack("P", ctypes.addressof(answer)))
    return struct.unpack_from(form, answer.raw)


def check_settings():
    """The speed that programs ask a driver for, as sysfs has it."""
    speed = int((SYS / NAME / "speed").read_text())
    assert speed >= 1000
    # struct ethtool_cmd: speed and speed_hi.
    old = ethtool(ETHTOOL_GSET, "12xH14xH")
    assert old[0] | old[1] << 16 == speed, old
    # struct ethtool_link_settings: speed, duplex, ..., the number of mask words that a caller should have.
    wanted_words = -ethtool(ETHTOOL_GLINKSETTINGS, "15xb")[0]
    answer = ctypes.create_string_buffer(struct.pack("I11xb", ETHTOOL_GLINKSETTINGS, wanted_words), 48 + 12 * wanted_words)
    request(SIOCETHTOOL, value=struct.pack("P", ctypes.addressof(answer)))
    assert struct.unpack_from("4xIB6xb", answer.raw) == (speed, 1, wanted_words), answer.raw
    assert ethtool(ETHTOOL_GDRVINFO, "4x32s")[0].rstrip(b"\0") == b"faultline"
    assert ethtool(ETHTOOL_GLINK, "4xI")[0] == 1


def statistics_of_files():
    return {f"{way}_{what}": int((SYS / NAME / "statistics" / f"{way}_{what}").read_text()) for way in ("rx", "tx") for what in ("bytes", "packets")}


def statistics(least_bytes):
    """Each place has the interface's statistics. Running programs publish them some time after a packet."""
    files = statistics_of_files()
    while min(files["rx_bytes"], files["tx_bytes"]) <= int(least_bytes) or files != statistics_of_files():
        time.sleep(0.05)
        files = statistics_of_files()
    assert min(files["rx_packets"], files["tx_packets"]) >= 20, files
    table = [line.split(":") for line in pathlib.Path("/proc/net/dev").read_text().splitlines() if ":" in line]
    columns = {name.strip(): values.split() for name, values in table}
    assert "lo" in columns
    row = dict(zip(("rx_bytes", "rx_packets", "tx_bytes", "tx_packets"), (int(columns[NAME][at]) for at in (0, 1, 8, 9))))
    assert row == files, (row, files)
    listed_ones = statistics_of_addresses()
    assert listed_ones[NAME] == [files] and "lo" in listed_ones, (listed_ones, files)
    links = json.loads(subprocess.run(["ip", "-j", "-s", "link", "show", NAME], check=True, capture_output=True).stdout)
    assert files == {f"{way}_{what}": links[0]["stats64"][way][what] for way in ("rx", "tx") for what in ("bytes", "packets")}, links


def check_groups(address, index):
    """Multicast by the interface, which programs name by its address or its index."""
    group = "239.18.0.9"
    joins = [(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + word) for word in
             (socket.inet_aton(address), bytes(4) + struct.pack("i", index), socket.inet_aton(address) + struct.pack("i", index))]
    # MCAST_JOIN_GROUP (RFC 3678): struct group_req.
    joins.append((socket.IPPROTO_IP, 42, struct.pack("I4xHH4s120x", index, socket.AF_INET, 0, socket.inet_aton(group))))
    leaves = [socket.inet_aton(address), bytes(4) + struct.pack("i", index)]
    for join in joins:
        for leave in leaves:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as member, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                member.bind((group, 0))
                member.setsockopt(*join)
                sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, leave if len(leave) == 4 else bytes(4) + leave)
                sender.bind((address, 0))
                sender.sendto(b"x", (group, member.getsockname()[1]))
                data, source = member.recvfrom(1, socket.MSG_DONTWAIT)
                assert (data, source[0]) == (b"x", address), source
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as member:
        member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, "ff02::1:9") + struct.pack("i", index))
        member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, struct.pack("i", index))
        try:
            member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, struct.pack("i", index + 1))
            raise AssertionError("an interface that does not exist is taken")
        except OSError as error:
            assert error.errno == errno.ENODEV, error


def opens():
    """Opens the first device; for each line of input makes a protection domain, and prints whether that succeeds."""
    library = ctypes.CDLL("libibverbs.so.1", use_errno=True)
    library.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
    for call in (library.ibv_open_device, library.ibv_alloc_pd):
        call.restype, call.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    context = library.ibv_open_device(library.ibv_get_device_list(None)[0])
    print("opened" if context else "none", flush=True)
    for _ in sys.stdin:
        print("used" if library.ibv_alloc_pd(context) else f"refused: {errno.errorcode[ctypes.get_errno()]}", flush=True)


def names():
    """Prints what a program sees of interfaces."""
    print(sorted(name for _, name in socket.if_nameindex()), sorted(os.listdir(SYS)), sorted(addresses()), sorted(listed()))


def check_ip(on_wire):
    link, = json.loads(on_wire("ip", "-j", "addr", "show", "dev", NAME))
    assert link["operstate"] == "UP" and link["link_type"] == "ether" and link["mtu"] >= 4096, link
    assert [(one["local"], one["prefixlen"]) for one in link["addr_info"] if one["family"] == "inet"] == [(SIDES["a"], 15)], link
    names_of_links = [one["ifname"] for one in json.loads(on_wire("ip", "-j", "link"))]
    assert {"lo", NAME} <= set(names_of_links) and len(set(names_of_links)) == len(names_of_links), names_of_links
    way, = json.loads(on_wire("ip", "-j", "route", "get", SIDES["b"]))
    assert (way["dev"], way["prefsrc"]) == (NAME, SIDES["a"]), way
    routes = json.loads(on_wire("ip", "-j", "route"))
    assert any(one["dst"] == "198.18.0.0/15" and one["dev"] == NAME for one in routes), routes
    print("ok: ip shows the link, its addresses and the way to a peer")


def main(run):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    import lib
    lib.need("ip")
    lib.own_runtime_folder()
    lib.own_network()
    script = [sys.executable, os.path.realpath(__file__)]

    def on_wire(*words, side="a", options=(), **variables):
        return lib.call([run, "--wire", "face", "--side", side, *options, "--", *words], env={**os.environ, **variables}).stdout

    indexes = {side: int(on_wire(*script, "--sees", address, side=side)) for side, address in SIDES.items()}
    assert len(set(indexes.values())) == len(SIDES), indexes
    print("ok: programs find the interface, and each its own index")
    check_ip(on_wire)
    if shutil.which("rdma"):
        link, = json.loads(on_wire("rdma", "-j", "link"))
        assert link["netdev"] == NAME, link
        print("ok: rdma shows the interface of the device")

    if shutil.which("rping"):
        server = lib.start([run, "--wire", "face", "--share", "rping", "-s", "-P", "-S", "4096"])
        lib.await_cm_listener(run, "face", server)
        on_wire("rping", "-c", "-C", "10", "-S", "4096", "-a", "198.18.0.255", side="b")
        # Ten READs and ten WRITEs of 4,096 bytes, and what announces them.
        lib.call([run, "--wire", "face", "--share", *script, "--statistics", "40960"])
        server.end()
        print("ok: the interface has the statistics of its packets, wherever a program looks")

    both = []
    for _ in range(2):
        one = subprocess.Popen([run, "--wire", "face", "--side", "a", *script, "--opens"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        lib.on_exit(one.kill)
        assert one.stdout.readline() == "opened\n"
        both.append(one)
    first, second = both

    def answer(one):
        one.stdin.write("\n")
        one.stdin.flush()
        return one.stdout.readline().strip()
    assert answer(first) == "used"
    refusal = answer(second)
    assert refusal.startswith("refused: "), refusal
    first.kill()
    first.wait()
    assert answer(second) == "used"
    assert f"198.18.0.1 is taken by process {first.pid}" in second.communicate()[1]
    print(f"ok: two programs see a device, and one uses it ({refusal})")

    hosts = lib.call([*script, "--names"]).stdout
    assert NAME in on_wire(*script, "--names") and NAME not in hosts
    assert on_wire(*script, "--names", options=("--no-wire-interface",)) == hosts
    assert on_wire(*script, "--names", FAULTLINE_WIRE_INTERFACE="off") == hosts
    refused = lib.call([run, "--wire", "face", "true"], status=2, env={**os.environ, "FAULTLINE_WIRE_INTERFACE": "of"}).stderr
    assert refused.count("\n") == 1 and '"of" is neither' in refused, refused
    print("ok: without it, a program sees the host's interfaces alone")


if __name__ == "__main__":
    roles = {"--sees": sees, "--opens": opens, "--names": names, "--statistics": statistics}
    if sys.argv[1] in roles:
        roles[sys.argv[1]](*sys.argv[2:])
    else:
        main(sys.argv[1])
