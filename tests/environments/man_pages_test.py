#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The manual pages: each option of a program's --help is in its page and the other way round, each key of the configuration is in
faultline.toml(5), and the formatters have no complaint.
  man_pages_test.py MAN_FOLDER TOML_PAGE CONFIGURATION_MD PROGRAM..."""
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # tests
import lib  # noqa: E402

MAN, TOML_PAGE, CONFIGURATION = (pathlib.Path(path) for path in sys.argv[1:4])
PROGRAMS = [pathlib.Path(path) for path in sys.argv[4:]]
# Helps of a program beside its own.
FURTHER = {"faultline": [["info"], ["doctor"], ["export"], ["top"], ["story"], ["replay"], ["explore"], ["trouble"]], "faultline-perf": [["--"]]}
faults = []


def helped(program):
    """The options that the program lists, without their dashes."""
    options = set()
    for words in [[], *FURTHER.get(program.name, [])]:
        text = subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=True, timeout=lib.LIMIT_S).stdout
        for line in re.findall(r"^ +(-[^ ]+)", text, re.MULTILINE):
            options |= {option.lstrip("-") for option in line.split(",")}
    return options


def documented(page):
    """The options that have an entry in the page."""
    entries = re.findall(r"^\.It Fl (.*)$", page.read_text(), re.MULTILINE)
    return {option.lstrip("-") for entry in entries for option in re.findall(r"^-?[\w-]+|(?<=, )-?[\w-]+", entry)}


def compare(what, there, listed):
    faults.extend(f"{what}: lacks {name}" for name in sorted(listed - there))
    faults.extend(f"{what}: has {name}, which does not exist" for name in sorted(there - listed))


def check_format(page):
    tools = [["mandoc", "-Tlint", page], ["man", "-l", "--warnings=all", page]]
    for words in tools:
        if shutil.which(words[0]) is None:
            print(f"not tried: {words[0]} is not installed")
            continue
        ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=lib.LIMIT_S, stdin=subprocess.DEVNULL)
        text = ended.stdout + ended.stderr if words[0] == "mandoc" else ended.stderr
        # Its database has the installed pages alone.
        lines = [line for line in text.splitlines() if "referenced manual not found" not in line and "mandoc.db" not in line]
        faults.extend(f"{page.name}: {line}" for line in lines)


for one in PROGRAMS:
    compare(f"{one.name}.1", documented(MAN / f"{one.name}.1"), helped(one))
keys = re.findall(r"^\| `([a-z_]+)` \|", CONFIGURATION.read_text(), re.MULTILINE)
found = re.findall(r"^\.It Ic (\S+)$", TOML_PAGE.read_text(), re.MULTILINE)
if keys != found or len(keys) < 70:
    faults.append(f"{TOML_PAGE.name}: has the keys {found}, not {keys}")
for one in [*sorted(MAN.glob("*.[157]")), TOML_PAGE]:
    check_format(one)
print("\n".join(faults) or "ok")
sys.exit(1 if faults else 0)
