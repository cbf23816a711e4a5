# SPDX-License-Identifier: BSD-3-Clause
"""The tables of docs/rooms.md, and the tests of meson that they name. scripts/check-rooms and scripts/test read them here."""
import fnmatch
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# The words of a README.md for the table's abbreviations.
USES = {"OS": "the operating system", "DPDK": "DPDK"}
DEFAULT = "default"


def matches(name, pattern):
    return fnmatch.fnmatchcase(name, pattern)


class Room:
    def __init__(self, name, position, contents, may_include, may_use, threads, tests):
        self.name, self.position, self.contents = name, position, contents
        self.may_include, self.may_use, self.threads, self.tests = may_include, may_use, threads, tests

    def allows(self, other):
        return any(matches(other, pattern) for pattern in self.may_include)

    def readme(self):
        return ROOT / self.name / "README.md"

    def readme_lines(self):
        """The lines of the room's README.md that repeat its row, by their beginnings. The tests change too often for a second place."""
        include = ", ".join(f"`{other}`" for other in self.may_include) or "no other room"
        use = ", ".join(USES[word] for word in self.may_use) or "neither DPDK nor the operating system"
        return {"- May include:": include, "- May use:": use, "- Threads:": self.threads}


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def rows_after(text, heading):
    if heading not in text:
        return
    for line in text.split(heading, 1)[1].splitlines()[1:]:
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip().strip("|").split("|")]
        elif line.startswith("#"):
            return


def read_table():
    """(rooms by name, tests of each place that is no room, paths that are larger than usual)"""
    text = (ROOT / "docs/rooms.md").read_text()
    rooms = {}
    for cells in rows_after(text, "# Rooms"):
        if cells[0] == "room":
            continue
        if len(cells) != 6:
            sys.exit(f"check-rooms: docs/rooms.md: the row of {cells[0]} has {len(cells)} cells, not 6")
        name = cells[0].strip("`")
        unknown = set(cells[3].split()) - set(USES)
        if unknown:
            sys.exit(f"check-rooms: docs/rooms.md: the row of {name} has the unknown use {' '.join(sorted(unknown))}")
        rooms[name] = Room(name, len(rooms), cells[1], quoted(cells[2]), cells[3].split(), cells[4], quoted(cells[5]))
    places = {cells[0].strip("`"): quoted(cells[1]) for cells in rows_after(text, "## Tests of other places") if cells[0] != "place"}
    larger = {cells[0].strip("`") for cells in rows_after(text, "## Larger than usual") if cells[0] != "path"}
    return rooms, places, larger


class Test:
    """A test of meson. The name may be a pattern: where a foreach loop makes the names, the text has only their beginning."""

    def __init__(self, name, suites, command=(), depends=()):
        self.name, self.suites, self.command, self.depends = name, suites, list(command), list(depends)

    def is_named_by(self, word):
        """True if a word of the table stands for this test: a name, a pattern of names, or suite:NAME."""
        if word.startswith("suite:"):
            return word.removeprefix("suite:") in self.suites
        if "*" not in self.name:
            return matches(self.name, word)
        mine, other = self.name.split("*")[0], word.split("*")[0]
        return mine.startswith(other) if "*" in word and len(other) < len(mine) else other.startswith(mine)


def introspect(build, what):
    """What `meson introspect` prints, from the file that it reads: starting Meson takes longer than all the rest."""
    return json.loads((pathlib.Path(build) / f"meson-info/intro-{what}.json").read_text())


def tests_of_build(build):
    """What meson knows of a configured build folder."""
    listed = introspect(build, "tests")
    return [Test(test["name"], {suite.split(":")[-1] for suite in test["suite"]}, test["cmd"], test["depends"]) for test in listed]


def test_files():
    return sorted((ROOT / "tests").rglob("meson.build"))


def has_current_tests(build):
    """True if a build folder is configured with tests, and no meson.build is newer than its list."""
    listed = build / "meson-info/intro-tests.json"
    return listed.is_file() and listed.stat().st_size > 2 and not any(path.stat().st_mtime > listed.stat().st_mtime for path in test_files())


def tests_of_text():
    """The tests as far as the text of the meson.build files shows them; suites as one set, since a loop may add them."""
    tests, suites = [], set()
    for path in test_files():
        text = re.sub(r"^\s*#.*", "", path.read_text(), flags=re.MULTILINE)
        for call in re.finditer(r"\btest\(\s*('([^']*)'\s*(\+?)|\w)", text):
            if call[2]:
                tests.append(Test(call[2] + ("*" if call[3] else ""), suites))
            else:  # a variable: each word of the file may be its value
                tests += [Test(word, suites) for word in re.findall(r"'([\w-]+)'", text)]
        for words in re.findall(r"\bsuite\s*:([^\n]*)", text):  # it may be an expression
            suites.update(re.findall(r"'([^']*)'", words))
    return tests


def check_tests(rooms, places, build):
    """The faults of the columns of tests. Without a current build folder, tests in loops are not compared by name."""
    exact = has_current_tests(build)
    tests = tests_of_build(build) if exact else tests_of_text()
    if not tests:
        return []
    faults, named = [], {**{room.name: room.tests for room in rooms.values()}, **places}
    for name, words in named.items():
        if not words:
            faults.append(f"docs/rooms.md: {name} has no tests")
        for word in words:
            if not any(test.is_named_by(word) for test in tests):
                faults.append(f"docs/rooms.md: {name} names the test {word}, which no meson.build has")
        if not (ROOT / name).exists():
            faults.append(f"docs/rooms.md: there is no {name}")
    if not exact:
        return faults
    words = {word for each in named.values() for word in each}
    faults += [f"docs/rooms.md: no row names the test {test.name}" for test in tests if not any(test.is_named_by(word) for word in words)]
    if any(DEFAULT in test.suites for test in tests):
        faults += [f"docs/rooms.md: {room.name} has no test of the suite {DEFAULT}" for room in rooms.values()
                   if not any(DEFAULT in test.suites and test.is_named_by(word) for test in tests for word in room.tests)]
    return faults
