#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The pages of the tree: README.md is short, and each link to a file, and to a heading of a page, has its target.
  pages_test.py ROOT"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1]).resolve()
MOST_README_LINES = 100
faults = []


def prose(text):
    """The text without its code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def check_links(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists():
            faults.append(f"{page.relative_to(ROOT)}: there is no {target}")
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            faults.append(f"{page.relative_to(ROOT)}: {name or 'the page'} has no heading for #{anchor}")


pages = [page for top in ("*.md", "docs/**/*.md", "apps/**/*.md", "stack/**/*.md", "odp/**/*.md", "pmd_glue/**/*.md", "tests/**/*.md")
         for page in ROOT.glob(top)]
for one in pages:
    check_links(one)
lines = len((ROOT / "README.md").read_text().splitlines())
if lines > MOST_README_LINES:
    faults.append(f"README.md: {lines} lines, more than {MOST_README_LINES}")
print("\n".join(faults) or f"ok: {len(pages)} pages")
sys.exit(1 if faults else 0)
