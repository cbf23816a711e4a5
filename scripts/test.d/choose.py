#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Chooses what scripts/test runs. Prints one name a line.
  choose.py lanes [THIRD]              the lanes beside the default tier; those of one third
  choose.py third                      the third of this commit
  choose.py system                     whose turn it is: trixie, forky or archive
  choose.py tests BUILD default        the tests of the suite default
  choose.py tests BUILD rest [THIRD]   the other tests; those of one third
  choose.py tests BUILD room ROOM...   the tests that docs/rooms.md names for rooms or places
  choose.py tests BUILD changed REV    the tests of the files that differ from REV
  choose.py changed REV                the files that differ from REV
  choose.py targets BUILD NAME...      what the tests of these names run or load, as ninja targets; suite:NAME stands for a suite,
                                       and "product" for what is outside of tests/ and of the examples"""
import os
import pathlib
import subprocess
import sys
import zlib

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import rooms as table  # noqa: E402

# The third of each lane. A run of CI takes the default tier and one third, the next one with each commit, so that three commits in a row
# cover everything. The durations are alike: the compilations of two sanitizers are apart, and the guests are beside the short lanes.
THIRDS = {"asan": 0, "fuzz": 0, "tsan": 1, "tidy": 1, "instructions": 1, "mutants": 2, "systems": 2}
# Guests need minutes each: they are together, so that a machine without them loses them at once. All other tests are divided by their name.
SUITE_THIRDS = {"kernel": 2}


def git(*arguments):
    ended = subprocess.run(["git", *arguments], cwd=table.ROOT, capture_output=True, text=True, check=False)
    return ended.stdout.strip() if ended.returncode == 0 else None


def commit_number():
    """The number of commits; in a shallow clone it would always be the same, so there the commit's hash is the number. Without git 0."""
    if git("rev-parse", "--is-shallow-repository") == "true":
        return int(git("rev-parse", "HEAD") or "0", 16)
    return int(git("rev-list", "--count", "HEAD") or 0)


def third_of(test):
    for suite, third in SUITE_THIRDS.items():
        if suite in test.suites:
            return third
    return zlib.crc32(test.name.encode()) % 3


def rest(tests, third=None):
    return [test for test in tests if table.DEFAULT not in test.suites and (third is None or third_of(test) == int(third))]


def changed_files(revision):
    """The files that differ from a revision, with those that git does not know yet. Without that revision (a shallow clone) all files."""
    differ = git("diff", "--name-only", revision) if git("rev-parse", "--verify", f"{revision}^{{commit}}") else git("ls-files")
    others = git("ls-files", "--others", "--exclude-standard")
    return sorted({name for names in (differ, others) for name in (names or "").splitlines()})


def place_of(name, rooms, places):
    """The words of the table for a file: those of the nearest room or place above it. None if there is none."""
    for folder in (name, *map(str, pathlib.PurePosixPath(name).parents)):
        if folder in rooms:
            return rooms[folder].tests
        if folder in places:
            return places[folder]
    return None


def tests_of_file(name, tests, targets):
    """The tests that run a file, or a program that has it as a source."""
    path = str(table.ROOT / name)
    built = {target["id"] for target in targets if any(path in sources.get("sources", []) for sources in target["target_sources"])}
    programs = {file for target in targets if target["id"] in built for file in target["filename"]}
    return [test for test in tests if path in test.command or built & set(test.depends) or programs & set(test.command)]


def named(tests, words):
    return [test for test in tests if any(test.is_named_by(word) for word in words)]


def changed(tests, build, revision):
    """A source of the product has the tests of its room; a test file itself or, as a header, its neighbours; others have their place's, or
    the default tier."""
    rooms, places, _ = table.read_table()
    targets = table.introspect(build, "targets")
    found = []
    for name in changed_files(revision):
        folder = str(pathlib.PurePosixPath(name).parent)
        if name.startswith("tests/") and not name.endswith("meson.build"):
            own = tests_of_file(name, tests, targets)
            if not own:
                own = [test for each in neighbours(folder) for test in tests_of_file(each, tests, targets)]
            if own:
                found += own
                continue
        words = place_of(name, rooms, places)
        found += [test for test in tests if table.DEFAULT in test.suites] if words is None else named(tests, words)
    return found


def neighbours(folder):
    place = table.ROOT / folder
    return sorted(f"{folder}/{path.name}" for path in place.iterdir() if path.is_file()) if place.is_dir() and folder != "tests" else []


def of_rooms(tests, names):
    rooms, places, _ = table.read_table()
    words = []
    for name in (name.rstrip("/") for name in names):
        if name not in rooms and name not in places:
            sys.exit(f"faultline: docs/rooms.md has no room '{name}'; it has {', '.join([*rooms, *places])}")
        words += rooms[name].tests if name in rooms else places[name]
    return named(tests, words)


def is_of_product(target):
    folder = pathlib.Path(target["defined_in"]).parent.relative_to(table.ROOT)
    return target["build_by_default"] and not (folder.is_relative_to("tests") or folder.is_relative_to("apps/examples"))


def targets_of(build, words):
    targets = table.introspect(build, "targets")
    files = {target["id"]: target["filename"] for target in targets}
    wanted = set()
    if "product" in words:
        wanted.update(file for target in targets if is_of_product(target) for file in target["filename"])
    for test in named(table.tests_of_build(build), words):
        for target in test.depends:
            wanted.update(files.get(target, []))
        if test.command[0].startswith(build):
            wanted.add(test.command[0])
    return sorted(os.path.relpath(path, build) for path in wanted)


def chosen_tests(build, kind, arguments):
    tests = table.tests_of_build(build)
    kinds = {"default": lambda: [test for test in tests if table.DEFAULT in test.suites], "rest": lambda: rest(tests, *arguments),
             "room": lambda: of_rooms(tests, arguments), "changed": lambda: changed(tests, build, *arguments)}
    chosen = {test.name for test in kinds[kind]()}
    return [test.name for test in tests if test.name in chosen]


def main():
    what, *arguments = sys.argv[1:] or [""]
    if what == "lanes":
        lines = [lane for lane, third in THIRDS.items() if not arguments or third == int(arguments[0])]
    elif what == "third":
        lines = [commit_number() % 3]
    elif what == "system":
        # Third 2 comes with every third commit, so its own count decides between the two systems and the relocatable archive.
        lines = [("trixie", "forky", "archive")[commit_number() // 3 % 3]]
    elif what == "tests":
        lines = chosen_tests(os.path.realpath(arguments[0]), arguments[1], arguments[2:])
    elif what == "changed":
        lines = changed_files(*arguments)
    elif what == "targets":
        lines = targets_of(os.path.realpath(arguments[0]), arguments[1:])
    else:
        sys.exit(__doc__)
    for line in dict.fromkeys(lines):
        print(line)


main()
