#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""scripts/check-rooms reports each kind of difference between docs/rooms.md and a tree, and writes the README.md of a room.
  check_rooms_test.py"""
import os
import pathlib
import shutil
import subprocess
import tempfile

os.environ.pop("FAULTLINE_BUILD_DIR", None)
SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
TABLE = """# Rooms

| room | what it has | may include | may use | threads | tests |
|---|---|---|---|---|---|
| `stack/base` | tools | | OS | any | `base` |
| `stack/wire` | frames | `stack/base` | | engine, pager | `wire-*` |

## Tests of other places

| place | tests |
|---|---|
| `scripts` | `suite:tools` |

## Larger than usual
"""
MESON = """project('small')
program = find_program('true')
test('base', program, suite: ['unit', 'default'])
foreach kind : ['frame', 'mad']
  test('wire-' + kind, program, suite: ['unit', 'default'])
endforeach
test('lint', program, suite: 'tools')
"""
README = """# stack/wire

Frames.

- Begin with `frame.hpp`: a frame.
- May include: `stack/base`
- May use: neither DPDK nor the operating system
- Threads: engine, pager
"""


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def make_tree(tree):
    write(tree / "docs/rooms.md", TABLE)
    write(tree / "stack/base/clock.hpp", "#include <chrono>\n")
    write(tree / "stack/base/README.md", "# stack/base\n\nTools.\n\n- Begin with `clock.hpp`: the clock.\n"
          "- May include: no other room\n- May use: the operating system\n- Threads: any\n")
    write(tree / "stack/wire/frame.hpp", '#include "stack/base/clock.hpp"\n')
    write(tree / "stack/wire/README.md", README)
    (tree / "scripts").mkdir()
    shutil.copy(SOURCE / "scripts/check-rooms", tree / "scripts/check-rooms")
    shutil.copy(SOURCE / "scripts/common.sh", tree / "scripts/common.sh")
    shutil.copytree(SOURCE / "scripts/test.d", tree / "scripts/test.d", ignore=shutil.ignore_patterns("__pycache__"))
    write(tree / "tests/meson.build", MESON)
    subprocess.run(["git", "init", "--quiet", tree], check=True)


def check(tree, *options):
    subprocess.run(["git", "-C", tree, "add", "--all"], check=True)
    return subprocess.run([tree / "scripts/check-rooms", *options], capture_output=True, text=True, check=False)


def expect_fault(name, damage, fault):
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder)
        make_tree(tree)
        damage(tree)
        result = check(tree)
        assert result.returncode == 1 and fault in result.stdout, f"{name}: status {result.returncode}: {result.stdout}{result.stderr}"
    print(f"ok: {name}")


def replace(path, old, new):
    def damage(tree):
        text = (tree / path).read_text()
        assert old in text, f"{path} has no {old!r}"
        (tree / path).write_text(text.replace(old, new))
    return damage


def test_faults():
    readme = "stack/wire/README.md"
    expect_fault("a room without README.md", lambda tree: (tree / readme).unlink(), f"{readme}: there is none")
    expect_fault("other permitted includes", replace(readme, "`stack/base`", "`stack/cm`"), "in its line '- May include:'")
    expect_fault("no line of the includes", replace(readme, "- May include: `stack/base`\n", ""), "in its line '- May include:'")
    expect_fault("other permitted uses", replace(readme, "neither DPDK nor the", "the"), "in its line '- May use:'")
    expect_fault("other threads", replace(readme, "engine, pager", "engine"), "in its line '- Threads:'")
    expect_fault("two lines of threads", replace(readme, "- Threads:", "- Threads: any\n- Threads:"), "in its line '- Threads:'")
    expect_fault("a changed row", replace("docs/rooms.md", "engine, pager", "engine"), "in its line '- Threads:'")
    expect_fault("no file to begin with", replace(readme, "- Begin with `frame.hpp`: a frame.\n", ""), "needs one line")
    expect_fault("a missing file to begin with", replace(readme, "frame.hpp", "packet.hpp"), "which does not exist")
    expect_fault("a room without a row", lambda tree: write(tree / "stack/cm/state.hpp", ""), "no row for stack/cm")
    expect_fault("a row without a room", replace("docs/rooms.md", "`stack/wire`", "`stack/cm`"), "no folder stack/cm")
    expect_fault("an include against the table", lambda tree: write(tree / "stack/base/log.hpp", '#include "stack/wire/frame.hpp"\n'),
                 "does not allow stack/base to include stack/wire")
    expect_fault("a clock in a room without one", lambda tree: write(tree / "stack/wire/time.hpp", "#include <chrono>\n"),
                 "does not allow stack/wire to use the operating system")


def test_tests():
    """First by the text of meson.build, then by what Meson knows of a configured build folder."""
    expect_fault("a room without tests", replace("docs/rooms.md", "any | `base` |", "any | |"), "stack/base has no tests")
    expect_fault("a test that does not exist", replace("docs/rooms.md", "`base` |\n| `stack/wire", "`bass` |\n| `stack/wire"), "the test bass, which no")
    expect_fault("a pattern of no test", replace("docs/rooms.md", "`wire-*`", "`wine-*`"), "the test wine-*, which no")
    expect_fault("a suite that does not exist", replace("docs/rooms.md", "suite:tools", "suite:fools"), "suite:fools, which no")
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder)
        make_tree(tree)
        shutil.copy(tree / "tests/meson.build", tree / "meson.build")
        (tree / ".gitignore").write_text("/build\n__pycache__\n")
        subprocess.run(["meson", "setup", tree / "build/plain", tree], check=True, stdout=subprocess.DEVNULL)
        assert check(tree).returncode == 0, check(tree).stdout
        for name, old, new, fault in (
                ("a test of a loop", "`wire-*`", "`wire-frame`", "no row names the test wire-mad"),
                ("a test of a loop that does not exist", "`wire-*`", "`wire-frame` `wire-mid`", "the test wire-mid, which no"),
                ("a suite", "`suite:tools`", "`wire-mad`", "no row names the test lint"),
                ("the default tier", "any | `base` |", "any | `lint` |", "stack/base has no test of the suite default")):
            page = (tree / "docs/rooms.md").read_text()
            replace("docs/rooms.md", old, new)(tree)
            result = check(tree)
            assert result.returncode == 1 and fault in result.stdout, f"{name}: {result.stdout}{result.stderr}"
            (tree / "docs/rooms.md").write_text(page)
            print(f"ok: {name}, by the build folder")


def test_written_pages():
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder)
        make_tree(tree)
        assert check(tree).returncode == 0, check(tree).stdout
        replace("docs/rooms.md", "engine, pager", "engine")(tree)
        assert check(tree, "--write-readmes").returncode == 0
        assert (tree / "stack/wire/README.md").read_text() == README.replace("engine, pager", "engine")
        (tree / "stack/base/README.md").unlink()
        assert check(tree, "--write-readmes").returncode == 0
        begun = (tree / "stack/base/README.md").read_text()
        assert begun.startswith("# stack/base\n\nTools.\n") and begun.endswith("- Threads: any\n"), begun
        assert "needs one line '- Begin with" in check(tree).stdout, "a page that was only begun passes"
    print("ok: --write-readmes")


def test_sizes():
    expect_fault("a long file", lambda tree: write(tree / "stack/wire/long.hpp", "\n" * 601), "601 lines")
    expect_fault("many files", lambda tree: [write(tree / f"data/{number}.py", "") for number in range(26)], "data: 26 files")


test_faults()
test_tests()
test_sizes()
test_written_pages()
