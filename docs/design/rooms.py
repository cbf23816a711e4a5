#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws docs/design/rooms.svg: the rooms in groups, the threads that run in each group, and the main includes.
  docs/design/rooms.py            writes the picture
  docs/design/rooms.py --check    exit status 1 if the picture in the tree differs
The rooms are those of docs/rooms.md: a room that no group has, or an arrow that the table does not allow, is an error."""
import fnmatch
import pathlib
import re
import sys
from xml.sax.saxutils import escape

HERE = pathlib.Path(__file__).resolve().parent
PICTURE = HERE / "rooms.svg"
TABLE = HERE.parent / "rooms.md"

# name: (color, where it comes from)
THREADS = {
    "program": ("#4477aa", "program threads: verbs calls"),
    "engine": ("#cc3311", "engine thread: holds a core's TurnLock"),
    "pager": ("#228833", "pager threads, one leader at a time; prefetcher"),
    "monitor": ("#aa3377", "invalidation monitor: userfaultfd events"),
    "progress": ("#ee7733", "progress thread: drives idle engines, checks ports"),
    "service": ("#009988", "CM service thread, one a device; rdma_cm workers"),
    "interrupt": ("#777777", "EAL's interrupt thread: memif handshakes"),
    "own": ("#222222", "the one thread of another process"),
}

# group: (x, y, width, height, heading, rooms, threads)
GROUPS = {
    "program": (20, 20, 340, 70, "verbs programs; rdma_cm programs", ["(unmodified binaries)"], ["program"]),
    "apps": (380, 20, 340, 70, "apps/", ["apps/perf", "apps/perf/*", "apps/run", "apps/sim", "apps/sim/*", "apps/faultline", "apps/faultline/*", "apps/examples", "apps/command_line"], ["program", "own"]),
    "switch": (740, 20, 200, 70, "faultline-switch", ["apps/switch", "apps/switch/uplink"], ["own"]),
    "abi": (20, 125, 340, 95, "stack/abi/: drop-in library, interposition",
            ["stack/abi/interpose", "stack/abi/interfaces", "stack/abi/tree", "stack/abi/interface_calls", "stack/abi/netlink", "stack/abi/files", "stack/abi/sockets", "stack/abi/rdma_cm",
             "stack/abi/verbs"],
            ["program", "service"]),
    "cm": (380, 125, 160, 95, "stack/cm", ["stack/cm"], ["program", "service"]),
    "verbs": (20, 255, 520, 95, "stack/verbs/: the verbs API",
              ["stack/include/faultline", "stack/verbs/objects", "stack/verbs/device", "stack/verbs/completion",
               "stack/verbs/post", "stack/verbs/memory", "stack/verbs/queue_pair", "stack/verbs/trouble"], ["program"]),
    "glue": (560, 125, 380, 225, "pmd_glue/: devices, poll loops, ports (DPDK)",
             ["pmd_glue/device", "pmd_glue/capture", "pmd_glue/engine", "pmd_glue/status", "pmd_glue/trouble", "pmd_glue/ports", "pmd_glue/ports/host", "pmd_glue/ports/nic", "pmd_glue/ports/udp", "pmd_glue/memif",
              "pmd_glue/direct", "pmd_glue/eal", "pmd_glue/config", "pmd_glue/wires", "pmd_glue/link"], ["program", "engine", "progress", "interrupt"]),
    "transport": (20, 385, 700, 95, "stack/transport/: the sans-I/O core",
                  ["stack/transport/core", "stack/transport/rc", "stack/transport/uc", "stack/transport/ud",
                   "stack/transport/gsi", "stack/transport/context", "stack/transport/congestion", "stack/transport/qp",
                   "stack/transport/shared"],
                  ["engine"]),
    "chaos": (740, 385, 200, 95, "stack/chaos, trouble: fault injection", ["stack/chaos", "stack/trouble"], ["engine"]),
    "odp": (20, 515, 920, 95, "odp/: on-demand paging",
            ["odp", "odp/pager", "odp/pins", "odp/invalidation", "odp/copy", "odp/copy/*", "odp/mappings", "odp/regions"],
            ["program", "engine", "pager", "monitor"]),
    "wire": (20, 645, 450, 80, "stack/wire/: packet formats (pure functions)",
             ["stack/wire/packet", "stack/wire/packet/*", "stack/wire/mad", "stack/wire/link"], ["engine"]),
    "base": (490, 645, 450, 80, "stack/base/: OS tools for every room; stack/status, record", ["stack/base", "stack/base/process", "stack/toml", "stack/status", "stack/record"],
             ["program", "engine", "pager"]),
}

# from, to, x, dashed: "includes"; a dashed arrow joins at link time or through a socket.
ARROWS = [
    ("program", "abi", 190, 1), ("apps", "verbs", 550, 2), ("switch", "glue", 840, 0),
    ("abi", "verbs", 190, 0), ("cm", "verbs", 460, 0),
    ("verbs", "transport", 280, 0), ("glue", "transport", 640, 0), ("glue", "chaos", 840, 0),
    ("transport", "odp", 280, 0), ("chaos", "odp", 840, 0),
    ("odp", "base", 715, 0),
    ("transport", "wire", 0, 3),
]


def rooms_of_table():
    rooms = {}
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and cells[0].startswith("`"):
            rooms[cells[0].strip("`")] = re.findall(r"`([^`]+)`", cells[2])
    return rooms


def members(group, rooms):
    patterns = GROUPS[group][5]
    return [room for room in rooms if any(fnmatch.fnmatchcase(room, pattern) for pattern in patterns)]


def check(rooms):
    drawn = {room for group in GROUPS for room in members(group, rooms)}
    if missing := set(rooms) - drawn:
        sys.exit(f"rooms.py: no group has {sorted(missing)}")
    for start, end, _, kind in ARROWS:
        if kind == 1:
            continue
        targets = members(end, rooms)
        if not any(fnmatch.fnmatchcase(target, pattern) for room in members(start, rooms) for pattern in rooms[room]
                   for target in targets):
            sys.exit(f"rooms.py: docs/rooms.md has no include of {start} in {end}")


def text(x, y, words, size=12, weight="normal", color="#222222", anchor="start"):
    return (f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" fill="{color}" '
            f'text-anchor="{anchor}">{escape(words)}</text>')


def lines_of(names, width):
    room, lines = width / 6.7, [""]
    for name in names:
        if len(lines[-1]) + len(name) + 2 > room:
            lines.append("")
        lines[-1] += (", " if lines[-1] else "") + name
    return lines


def draw_group(group):
    x, y, width, height, heading, rooms, threads = GROUPS[group]
    parts = [f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="#f7f7f2" stroke="#555555"/>',
             text(x + 10, y + 18, heading, 13, "bold")]
    prefix = heading.split(":")[0]
    short = [room[len(prefix):] if room.startswith(prefix) else room for room in rooms]
    for number, line in enumerate(lines_of(short, width - 30)):
        parts.append(text(x + 10, y + 37 + 16 * number, line))
    for number, thread in enumerate(threads):
        parts.append(f'<circle cx="{x + width - 14 - 18 * (len(threads) - 1 - number)}" cy="{y + height - 13}" r="6" '
                     f'fill="{THREADS[thread][0]}"><title>{escape(THREADS[thread][1])}</title></circle>')
    return parts


def draw_arrow(start, end, at, kind):
    x1, y1, w1, h1 = GROUPS[start][:4]
    x2, y2, w2, h2 = GROUPS[end][:4]
    dash = ' stroke-dasharray="5 4"' if kind == 1 else ""
    if kind == 2:  # from above, past the groups between
        path = f"M {at} {y1 + h1} V {y2 - 14} H {x2 + w2 - 20} V {y2 - 3}"
    elif kind == 3:  # along the left edge
        path = f"M {x1} {y1 + h1 / 2} H 8 V {y2 + h2 / 2} H {x2 - 3}"
    else:
        path = f"M {at} {y1 + h1} V {y2 - 3}"
    return f'<path d="{path}" fill="none" stroke="#333333"{dash} marker-end="url(#arrow)"/>'


def picture():
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 860" font-family="sans-serif">',
             "<!-- Written by docs/design/rooms.py -->",
             '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
             '<path d="M 0 0 L 8 4 L 0 8 z" fill="#333333"/></marker></defs>',
             '<rect width="960" height="860" fill="white"/>']
    parts += [draw_arrow(*arrow) for arrow in ARROWS]
    for group in GROUPS:
        parts += draw_group(group)
    for number, (color, words) in enumerate(THREADS.values()):
        x, y = 34 + 470 * (number % 2), 752 + 22 * (number // 2)
        parts += [f'<circle cx="{x}" cy="{y - 4}" r="6" fill="{color}"/>', text(x + 14, y, words)]
    parts.append(text(20, 846, "Arrow: a group includes headers of another. Dashed: at run time. Every group may include "
                      "stack/base; stack/verbs and pmd_glue meet at link time.", 11, color="#555555"))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def main():
    check(rooms_of_table())
    drawn = picture()
    if sys.argv[1:] == ["--check"]:
        sys.exit(PICTURE.read_text() != drawn)
    PICTURE.write_text(drawn)


main()
