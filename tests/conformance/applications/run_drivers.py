#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the drivers of applications, one after the other, and writes their rows as a table.
  run_drivers.py BUILD_DIRECTORY [NAME...]
The table is written to BUILD_DIRECTORY/applications.md, and into docs/applications.md if all drivers ran. Exits with status 1 if a row
FAILED, and 2 for a name without a driver.
"""
import datetime
import os
import re
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
DOCUMENT = os.path.join(HERE, "../../../docs/applications.md")
BEGIN, END = "<!-- table: scripts/conformance applications -->", "<!-- end of table -->"
# In the order of the table, with the time limit of each in minutes.
DRIVERS = {"tools": 10, "fio": 30, "qperf": 20, "rsockets": 20, "iser": 30, "migration": 40, "shmem": 20, "ucx_perftest": 40, "rpma": 30,
           "fabtests": 90, "ucx_gtest": 180}
ROW = re.compile(r"(ok|trick|own fault|limit|FAILED|SKIPPED): (.*)")


def run(name, build):
    """The rows of a driver; each is printed when it is known."""
    environment = dict(os.environ, FAULTLINE_APPLICATIONS_CACHE=f"{build}/applications")
    command = [sys.executable, f"{HERE}/{name}.py", f"{build}/apps/faultline-run"]
    process = subprocess.Popen(["timeout", "--kill-after=30", f"{DRIVERS[name]}m", *command], env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, text=True, errors="replace")
    rows = []
    try:
        for line in process.stdout:
            print(line, end="", flush=True)
            found = ROW.match(line)
            if found:
                cells = [cell.strip() for cell in found.group(2).split(" | ")]
                rows.append([cells[0], found.group(1), *(cells[1:] + ["", ""])[:2]])
            elif line.startswith("SKIPPED: "):
                rows.append([name, "SKIPPED", line.removeprefix("SKIPPED: ").strip(), ""])
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        status = process.wait()
    if status == 124:
        rows.append([name, "FAILED", f"did not end in {DRIVERS[name]} minutes", ""])
    elif status not in (0, 77) and not any(row[1] == "FAILED" for row in rows):
        rows.append([name, "FAILED", f"the driver ended with status {status}", ""])
    if len(rows) == 1 and status == 77 and not rows[0][2]:
        rows[0] = [name, "SKIPPED", rows[0][0], ""]
    return rows


def main():
    build = os.path.realpath(sys.argv[1])
    names = sys.argv[2:] or list(DRIVERS)
    unknown = [name for name in names if name not in DRIVERS]
    if unknown:
        print(f"faultline: no application is called {unknown[0]}; there are {', '.join(DRIVERS)}", file=sys.stderr)
        sys.exit(2)
    # The running driver ends by its own pipe and its namespaces; then the lane ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    rows = []
    for name in names:
        print(f"== {name}", flush=True)
        rows += run(name, build)
    table = "| application | result | figure | beside TCP |\n|---|---|---|---|\n"
    table += "".join("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |\n" for row in rows)
    with open(f"{build}/applications.md", "w") as file:
        file.write(table)
    if not sys.argv[2:]:
        with open(DOCUMENT) as file:
            text = file.read()
        day = datetime.date.today().isoformat()
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        with open(DOCUMENT, "w") as file:
            file.write(f"{before}{BEGIN}\nLast run: {day}.\n\n{table}{END}{after}")
    counts = {result: sum(row[1] == result for row in rows) for result in ("ok", "trick", "own fault", "limit", "FAILED", "SKIPPED")}
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    print(f"The table is in {build}/applications.md")
    sys.exit(1 if counts["FAILED"] else 0)


main()
