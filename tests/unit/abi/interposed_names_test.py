#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares stack/abi/interpose/names.def with what the libraries export, their map files and the pages, and then shows that each
comparison fails if a name is missing or one too many.
  interposed_names_test.py SOURCES LIBFAULTLINE LIBIBVERBS"""
import pathlib
import re
import subprocess
import sys

SOURCES = pathlib.Path(sys.argv[1])
ROW = re.compile(r'^INTERPOSED\((\w+), (\w+), (\w+), "([^"]+)"\)$', re.MULTILINE)
# The rest of the libraries' names; mult_to_ and mbps_to_ are rdma-core's own without the prefix.
OWN = re.compile(r"_?ibv_|faultline_|mult_to_ibv_rate$|mbps_to_ibv_rate$")


class Lists:
    """Each list of interposed names, read once. A check compares two of them."""

    def __init__(self):
        text = (SOURCES / "stack/abi/interpose/names.def").read_text()
        rows = ROW.findall(text)
        assert len(rows) == len(re.findall(r"^INTERPOSED\(", text, re.MULTILINE)), "names.def has a row of another form"
        self.both = {name for name, library, _, _ in rows if library == "both"}
        self.all = {name for name, library, _, _ in rows if library in ("both", "dropin")}
        self.memory = {name for name, _, guard, _ in rows if guard == "memory"}
        self.files = {(name, file) for name, _, _, file in rows}
        self.dropin_only = self.all - self.both
        assert len(rows) == len(self.all), "names.def has a name twice, or an unknown library"
        assert {guard for _, _, guard, _ in rows} == {"memory", "signals", "none"}, "names.def has an unknown guard"
        self.map = names_of_map("stack/verbs/libfaultline.map")
        self.dropin_map = names_of_map("stack/abi/verbs/libibverbs.map")
        self.library = exports(sys.argv[2])
        self.dropin = exports(sys.argv[3])
        self.page, self.page_dropin_only = table_of_dropin_page()
        self.paging_page = table_of_paging_page()
        self.defined = definitions()


def names_of_map(path):
    text = re.sub(r"/\*.*?\*/", "", (SOURCES / path).read_text(), flags=re.DOTALL)
    return {name for name in re.findall(r"^\s+(\w+);", text, re.MULTILINE) if not OWN.match(name)}


def exports(library):
    """The names that the library exports without a version, besides its own."""
    lines = subprocess.check_output(["readelf", "-W", "--dyn-syms", library], text=True).splitlines()
    symbols = [cells for cells in map(str.split, lines) if len(cells) == 8 and cells[0].rstrip(":").isdigit()]
    return {cells[7] for cells in symbols if cells[6] not in ("UND", "ABS") and "@" not in cells[7] and not OWN.match(cells[7])}


def table(path, heading):
    text = (SOURCES / path).read_text().split(heading, 1)[1].split("\n## ", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")]


def table_of_dropin_page():
    rows = table("docs/design/dropin.md", "## Interposed names")
    named = {(name, file.strip("`")) for names, file, _ in rows for name in re.findall(r"`(\w+)`", names)}
    return named, {name for names, _, purpose in rows if "drop-in only" in purpose for name in re.findall(r"`(\w+)`", names)}


def table_of_paging_page():
    """Names of calls that a hook detects. `munmap` stands for each variant of the name."""
    rows = table("docs/on-demand-paging.md", "## What the program may do")
    return {name for calls, detected, _ in rows if "hook" in detected for name in re.findall(r"`(\w+)(?:\([^`]*\))?`", calls)}


def definitions():
    """The names that sources in stack/abi define, with their files."""
    found = set()
    for path in (SOURCES / "stack/abi").glob("*/*.cpp"):
        text = path.read_text()
        names = re.findall(r'\b(?:FAULTLINE_STANDS_BEFORE|FAULTLINE_CALL|FAULTLINE_JUMP|asm)\((?:\w+, )?\s*"(\w+)"\)', text)
        names += re.findall(r"^FAULTLINE_CALL [^(]*?(\w+)\(", text, re.MULTILINE)
        names += re.findall(r'visibility\("default"\)(?:, noreturn)?\)\) \w+ (\w+)\(', text)
        found |= {(name, str(path.relative_to(SOURCES))) for name in names if not OWN.match(name)}
    return found


def faults(lists):
    """A line for each difference."""
    def compare(what, listed, found):
        for name in sorted(listed - found):
            yield f"{what} lacks {name}"
        for name in sorted(found - listed):
            yield f"{what} has {name}, which names.def does not list there"

    yield from compare("the sources", lists.files, lists.defined)
    yield from compare("libfaultline.map", lists.both, lists.map)
    yield from compare("libfaultline.so", lists.both, lists.library)
    yield from compare("the drop-in", lists.all, lists.dropin)
    yield from compare("docs/design/dropin.md", lists.files, lists.page)
    yield from compare("docs/design/dropin.md, as drop-in only,", lists.dropin_only, lists.page_dropin_only)
    yield from compare("docs/on-demand-paging.md", {name.removesuffix("64") for name in lists.memory}, lists.paging_page)
    # A node of the map would give the name a version.
    yield from (f"libibverbs.map has {name}" for name in sorted(lists.all & lists.dropin_map))


def without_one(lists, attribute):
    setattr(lists, attribute, set(sorted(getattr(lists, attribute))[1:]))


def with_one_more(lists, attribute):
    some = min(getattr(lists, attribute))
    setattr(lists, attribute, getattr(lists, attribute) | {"other" if isinstance(some, str) else ("other", some[1])})


def main():
    found = list(faults(Lists()))
    print("\n".join(f"FAILED: {line}" for line in found) or "ok: the lists agree")
    if found:
        return 1
    lists = Lists()
    lists.dropin_map = {"munmap"}
    survivors = [] if list(faults(lists)) else ["dropin_map"]
    compared = ("files", "defined", "both", "map", "library", "all", "dropin", "page", "dropin_only", "page_dropin_only", "memory", "paging_page")
    for attribute in compared:
        for change in (without_one, with_one_more):
            lists = Lists()
            change(lists, attribute)
            if not list(faults(lists)):
                survivors.append(f"{attribute} {change.__name__}")
    print(f"FAILED: no comparison notices: {', '.join(survivors)}" if survivors else "ok: each comparison can fail")
    return 1 if survivors else 0


sys.exit(main())
