#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The page of a real recording in headless Chromium: two devices of one program on a ring, with losses, page faults and RNR NAKs, recorded by
`faultline run --record`. The page has the program's connections, control calls, work requests and faults, and writes nothing to the console.
  recording_test.py FAULTLINE CONVERSATION"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import chromium
from page_checks import check, middle, pixels, shown

SKIPPED = 77
FAULTLINE, CONVERSATION = (os.path.realpath(path) for path in sys.argv[1:3])
LIMIT_S = 150
# Of tests/interop/seeing/conversation.cpp: QPs of an end, and their SENDs, WRITEs and READs.
QPS, REQUESTS = 4, 4 * 3 * 150
DEVICE = '''[[device]]
name = "told{number}"
ip = "198.18.0.{number}/24"
[device.port]
kind = "ring"
wire = "w0"
side = "{side}"
[device.chaos]
direction = "rx"
loss = 0.01
reorder = 0.01
seed = {number}
'''
CONTROL, WAIT = 11, 12


def record(folder):
    """The recording of the first device."""
    config = folder / "ring.toml"
    config.write_text("".join(DEVICE.format(number=number, side=side) for number, side in [(1, "a"), (2, "b")]), encoding="utf-8")
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    command = [FAULTLINE, "run", "--config", config, "--record", folder / "run.rec", "--record-size", "8", CONVERSATION, config]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LIMIT_S)
    files = sorted(folder.glob("run.rec*"))
    check(f"a recording of each device: {files}", len(files) == 2)
    return files


def story_of(file):
    return json.loads(subprocess.run([FAULTLINE, "story", "--json", file], check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout)


def check_story(story):
    check("a connection for each QP", len(story["connections"]) == QPS)
    check(f"each work request once: {story['work_requests']}", story["work_requests"] == REQUESTS)
    for request in story["requests"]:
        times = [request[name] for name in ["begin_ns", "first_packet_ns", "acknowledged_ns", "completed_ns"]]
        check(f"post, packet, acknowledgement, completion: {times}", None not in times and times == sorted(times))
    reasons = {request["waited_for"] for request in story["requests"]}
    check(f"work requests waited for receives and pages: {reasons}", "page" in reasons and reasons & {"credit", "receiver"})
    calls = [control["call"] for control in story["controls"]]
    for call, count in {"open device": 1, "create CQ": 1, "register MR": 1, "create QP": QPS, "modify QP": 3 * QPS}.items():
        check(f"{call}: {calls}", calls.count(call) == count)
    check("no call failed", all(control["error"] == 0 for control in story["controls"]))
    states = [(one["from"], one["to"]) for one in story["controls"] if one["call"] == "modify QP" and one["connection"] == 0]
    check(f"states: {states}", states == [("RESET", "INIT"), ("INIT", "RTR"), ("RTR", "RTS")])
    region = next(one for one in story["controls"] if one["call"] == "register MR")
    check(f"a region: {region}", region["length_bytes"] == QPS * 4 * 32 * 1024 and region["lkey"] != 0 and "on demand" in region["text"])
    check("page faults", len(story["faults"]) > 10)
    check("losses", sum(end["retransmitted_packets"] for one in story["connections"] for end in one["ends"]) > 0)


def try_elements(browser, story):
    check("connections", browser.ask("document.querySelectorAll('[data-connection]').length") == QPS)
    check("acknowledged PSNs", pixels(browser, "psn", "--ack") > 20)
    check("findings", browser.ask("document.querySelectorAll('.finding').length") == len(story["findings"]) > 0)
    for chip in [CONTROL, WAIT]:
        check(f"a chip of class {chip}", not browser.ask(f"document.querySelector('[data-class=\"{chip}\"]').hidden"))
    traffic = shown(browser)
    browser.click(*middle(browser, "#zoom-all"))
    check("control calls are before the traffic", shown(browser) > traffic)
    browser.click(*middle(browser, ".finding"))
    while browser.ask("document.getElementById('ladder-note').textContent"):
        browser.key("+")
        browser.settle()
    check("arrows", pixels(browser, "ladder", "--sent") > 20)
    browser.key("0")


def search(browser, words):
    browser.click(*middle(browser, "#search"))
    browser.ask("document.getElementById('search').select()")
    browser.type(words)
    browser.settle()
    return browser.ask("document.getElementById('search-count').textContent")


def try_search(browser):
    browser.click(*middle(browser, "[data-connection='1']"))
    found = search(browser, "modify QP")
    check(f"the state changes of the connection's QP: {found}", found == "3 found")
    for to in ["INIT", "RTR", "RTS"]:
        browser.key("Enter")
        browser.settle()
        check(f"the change to {to}", browser.ask("nameOf(view.selected)").endswith(f" to {to}"))
    check("its row is selected", browser.ask("document.querySelector('tr[aria-selected=true]').dataset.event") == str(browser.ask("view.selected")))
    check("the region", search(browser, "register on demand") == "1 found")
    check("the opening of the device", search(browser, "open device") == "1 found")
    check("waits for pages", search(browser, "posted waits for page") != "none found")
    browser.ask("document.getElementById('search').value = ''; findMatches()")


def try_tables(browser, story):
    browser.click(*middle(browser, "[data-table=controls]"))
    check("control calls", browser.ask("document.querySelectorAll('#rows tbody tr').length") == len(story["controls"]))
    check("their text", "RESET to INIT" in browser.ask("document.getElementById('rows').textContent"))
    browser.ask("document.querySelector('#rows tbody tr:last-child').click()")
    browser.settle()
    last = story["controls"][-1]
    check("a row shows its call", browser.ask(f"view.begin <= {last['begin_ns']} && view.end >= {last['end_ns']} && view.connection === {last['connection']}"))
    check("its mark on the ladder", pixels(browser, "ladder", "--control") > 20)
    browser.click(*middle(browser, "[data-table=requests]"))
    check("work requests", browser.ask("document.querySelectorAll('#rows tbody tr').length") == len(story["requests"]))
    browser.click(*middle(browser, "#rows tbody tr"))
    browser.settle()
    first = story["requests"][0]
    check("a row shows its work request", browser.ask(f"view.begin <= {first['begin_ns']} && view.end >= {first['completed_ns']}"))
    check("the wait on the ladder", pixels(browser, "ladder", "--wait") > 20)
    check("the wait beside PSNs", pixels(browser, "psn", "--wait") > 20)
    browser.click(*middle(browser, f"[data-class='{WAIT}']"))
    browser.settle()
    check("a click on the class hides the waits", pixels(browser, "psn", "--wait") < 20)
    browser.click(*middle(browser, f"[data-class='{WAIT}']"))
    browser.click(*middle(browser, "[data-table=faults]"))
    check("faults", browser.ask("document.querySelectorAll('#rows tbody tr').length") == len(story["faults"]))
    whole = browser.ask("story.duration_ns")
    browser.click(*middle(browser, "#rows tbody tr"))
    check("a fault's row shows its time", shown(browser) < whole)


def main():
    if chromium.find() is None:
        print("not tried: chromium is not installed")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory(prefix="faultline-told-") as name:
        folder = pathlib.Path(name)
        files = record(folder)
        for file in files:
            check_story(story_of(file))
        page = folder / "page.html"
        subprocess.run([FAULTLINE, "story", files[0], "-o", page], check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S)
        story = story_of(files[0])
        with chromium.Browser() as browser:
            browser.open(page)
            try_elements(browser, story)
            try_search(browser)
            try_tables(browser, story)
            check(f"the console is empty: {browser.errors}", not browser.errors)
            check(f"nothing is loaded: {browser.requests}", all(url.startswith(("file://", "data:")) for url in browser.requests))
    print("ok")


main()
