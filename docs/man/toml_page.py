#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints the manual page faultline.toml(5), in mdoc(7), from the tables of docs/configuration.md. So a key is described in one place.
  toml_page.py CONFIGURATION_MD"""
import pathlib
import re
import sys
import textwrap

WIDTH = 78  # mandoc's lint wants lines of at most 80 bytes

HEAD = r"""
.Dd November 26, 2026
.Dt FAULTLINE.TOML 5
.Os
.Sh NAME
.Nm faultline.toml
.Nd configuration of Faultline devices
.Sh DESCRIPTION
Below a key are its values and its default, and then its meaning.
.Pp
""".lstrip()

TAIL = r"""
.Sh EXAMPLES
One end of a shared-memory link:
.Bd -literal -offset indent
[[device]]
name = "faultline0"
ip = "198.18.0.1/24"
[device.port]
kind = "memif"
role = "server"
socket = "/run/user/1000/faultline.sock"
.Ed
.Sh SEE ALSO
.Xr faultline 1 ,
.Xr faultline-perf 1 ,
.Xr faultline-run 1 ,
.Xr faultline-switch 1 ,
.Xr faultline 7
""".strip("\n")


def escaped(text):
    return text.replace("\\", "\\e")


def inline(text):
    """Markdown's code, links and emphasis as fonts."""
    text = re.sub(r"\[((?:[^\]\[]|\[[^\]]*\])+)\]\([^)]*\)", r"\1", text)
    parts = []
    for number, part in enumerate(text.split("`")):
        if number % 2:
            parts.append(r"\fB" + escaped(part).replace("-", r"\-") + r"\fP")
        else:
            parts.append(re.sub(r"\*\*([^*]+)\*\*", r"\\fI\1\\fP", escaped(part)))
    return "".join(parts)


def lines_of(text):
    """Lines of text: a new one for each sentence, none too long, none that looks like a request."""
    lines = []
    for sentence in re.split(r"(?<=[.!?])\s+", inline(" ".join(text.split()))):
        lines += textwrap.wrap(sentence, WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    return [r"\&" + line if line[0] in ".'" else line for line in lines if line]


def row(cells):
    """A key: its name, its values, its meaning."""
    yield f".It Ic {escaped(cells[0].strip('`'))}"
    yield from lines_of(cells[1].rstrip(".") + ".")
    yield ".Pp"
    meaning = cells[2]
    yield from lines_of(meaning[:1].upper() + meaning[1:].rstrip(".") + ".")


def body(text):
    kind = None  # of the open list: "keys" or "items"
    begun = None
    paragraph = []
    after_heading = True

    def flush():
        nonlocal paragraph, after_heading
        if paragraph and not after_heading:
            yield ".Pp"
        yield from lines_of(" ".join(paragraph))
        after_heading = after_heading and not paragraph
        paragraph = []

    def close():
        nonlocal kind
        if kind:
            yield ".El"
        kind = None

    for line in text.splitlines()[1:] + [""]:
        if line.startswith("```"):
            begun = not begun
            continue
        if line.startswith("## "):
            yield from flush()
            yield from close()
            # \& after a bracket, which would be a delimiter (mdoc(7)).
            yield f".Ss {escaped(line[3:].strip('`'))}" + r"\&"
            after_heading = True
        elif line.startswith("|"):
            yield from flush()
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
            if len(cells) != 3 or cells[0] in ("key",) or cells[0].startswith("---"):
                continue
            if kind != "keys":
                yield from close()
                yield ".Bl -tag -width Ds"
                kind = "keys"
            yield from row(cells)
        elif line.startswith("- "):
            yield from flush()
            if kind != "items":
                yield from close()
                yield ".Bl -bullet"
                kind = "items"
            yield ".It"
            paragraph, after_heading = [line[2:]], True
        elif line.startswith("  ") and kind == "items":
            paragraph.append(line)
        elif line.strip():
            if kind and not paragraph:
                yield from close()
                after_heading = False
            paragraph.append(line)
        else:
            yield from flush()
    yield from close()


def page(text):
    return HEAD + "\n".join(body(text)) + "\n" + TAIL


print(page(pathlib.Path(sys.argv[1]).read_text()))
