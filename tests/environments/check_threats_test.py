#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""scripts/check-threats reports each kind of wrong test name in docs/threats.md and docs/security.md.
  check_threats_test.py"""
import os
import pathlib
import shutil
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
THREATS = """# Threats
A test is named `program: Suite.Test`, or `meson: name`.

| reference | tested here by |
|---|---|
| one | `unit: Parse.ALength`, fuzz target `core_fuzz` |
| two | `meson: hostile`, and `plain_text` beside it |
"""
SECURITY = """# Security
- Keys are drawn at random: `unit: Keys.AreDistinct`.

| what | tested by |
|---|---|
| three | `unit: Parse.EachOpcode` |
"""
LISTED = """Parse.
  ALength
Table/Parse.
  EachOpcode/0  # GetParam() = 1
Keys.
  AreDistinct
"""


def write(path, text, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def make_tree(tree):
    write(tree / "docs/threats.md", THREATS)
    write(tree / "docs/security.md", SECURITY)
    write(tree / "tests/fuzz/core_fuzz.cpp", "")
    write(tree / "build/tests/unit", f"#!/bin/sh\ncat <<'END'\n{LISTED}END\n", 0o755)
    # The build folder is no real one: this program stands for Meson.
    write(tree / "bin/meson", "#!/bin/sh\necho '[{\"name\": \"hostile\"}]'\n", 0o755)
    (tree / "scripts").mkdir()
    shutil.copy(SOURCE / "scripts/check-threats", tree / "scripts/check-threats")


def expect(name, page, old, new, fault):
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder)
        make_tree(tree)
        text = (tree / page).read_text()
        assert old in text, f"{page} has no {old!r}"
        (tree / page).write_text(text.replace(old, new))
        result = subprocess.run([tree / "scripts/check-threats", tree / "build"], capture_output=True, text=True, check=False,
                                env=dict(os.environ, PATH=f"{tree}/bin:{os.environ['PATH']}"))
        status = 1 if fault else 0
        assert result.returncode == status and fault in result.stdout, f"{name}: status {result.returncode}: {result.stdout}{result.stderr}"
    print(f"ok: {name}")


THREATS_PAGE, SECURITY_PAGE = "docs/threats.md", "docs/security.md"
expect("right names", THREATS_PAGE, "one", "1", "")
expect("a test that does not exist", THREATS_PAGE, "Parse.ALength", "Parse.AWidth", "does not exist: unit: Parse.AWidth")
expect("a program that does not exist", THREATS_PAGE, "unit: Parse", "other: Parse", "does not exist: other: Parse.ALength")
expect("a script that does not exist", THREATS_PAGE, "meson: hostile", "meson: friendly", "does not exist: meson: friendly")
expect("a fuzz target that does not exist", THREATS_PAGE, "core_fuzz", "link_fuzz", "does not exist: link_fuzz")
expect("a test without its program", THREATS_PAGE, "fuzz target `core_fuzz`", "`Keys.AreDistinct`", "without its program: Keys.AreDistinct")
expect("a wrong test in a list", SECURITY_PAGE, "Keys.AreDistinct", "Keys.AreEqual", "does not exist: unit: Keys.AreEqual")
expect("a row without a test", SECURITY_PAGE, "`unit: Parse.EachOpcode`", "an example", "names no test in this row")
