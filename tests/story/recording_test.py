#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The page of a real recording in headless Chromium: two devices of one program on a ring, with losses, page faults and RNR NAKs, recorded by
`faultline run --record`. The page has the program's connections, control calls, work requests and faults, and writes nothing to the console.
  recording_test.py FAULTLINE CONVERSATION"""
import json
import os
import pathlib
import sys

import chromium
from chromium import lib
from page_checks import becomes, check, middle, pixels, shown

FAULTLINE, CONVERSATION = (os.path.realpath(path) for path in sys.argv[1:3])
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
    command = [FAULTLINE, "run", "--config", config, "--record", folder / "run.rec", "--record-size", "8", CONVERSATION, config]
    lib.start(command, name="conversation").succeed()
    files = sorted(folder.glob("run.rec*"))
    check(f"a recording of each device: {files}", len(files) == 2)
    return files


def story_of(file):
    return json.loads(lib.call([FAULTLINE, "story", "--json", file]).stdout)


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
    becomes("connections", lambda: browser.ask("document.querySelectorAll('[data-connection]').length") == QPS)
    becomes("acknowledged PSNs", lambda: pixels(browser, "psn", "--ack") > 20)
    becomes("findings", lambda: browser.ask("document.querySelectorAll('.finding').length") == len(story["findings"]) > 0)
    for chip in [CONTROL, WAIT]:
        becomes(f"a chip of class {chip}", lambda: not browser.ask(f"document.querySelector('[data-class=\"{chip}\"]').hidden"))
    traffic = shown(browser)
    browser.click(*middle(browser, "#zoom-all"))
    becomes("control calls are before the traffic", lambda: shown(browser) > traffic)
    browser.click(*middle(browser, ".finding"))
    while browser.ask("document.getElementById('ladder-note').textContent"):
        browser.key("+")
        browser.settle()
    becomes("arrows", lambda: pixels(browser, "ladder", "--sent") > 20)
    browser.key("0")


def count(browser):
    return browser.ask("document.getElementById('search-count').textContent")


def search(browser, words):
    browser.click(*middle(browser, "#search"))
    browser.ask("document.getElementById('search').select()")
    browser.type(words)


def try_search(browser):
    browser.click(*middle(browser, "[data-connection='1']"))
    search(browser, "modify QP")
    becomes("the state changes of the connection's QP", lambda: count(browser) == "3 found")
    for to in ["INIT", "RTR", "RTS"]:
        browser.key("Enter")
        becomes(f"the change to {to}", lambda: browser.ask("nameOf(view.selected)").endswith(f" to {to}"))
    becomes("its row is selected", lambda: browser.ask("document.querySelector('tr[aria-selected=true]')?.dataset.event") == str(browser.ask("view.selected")))
    for words in ["register on demand", "open device"]:
        search(browser, words)
        becomes(f"one {words}", lambda: count(browser) == "1 found")
    search(browser, "posted waits for page")
    becomes("waits for pages", lambda: (found := count(browser)) != "1 found" and found.endswith(" found") and found != "none found")
    browser.ask("document.getElementById('search').value = ''; findMatches()")


def try_tables(browser, story):
    browser.click(*middle(browser, "[data-table=controls]"))
    becomes("control calls", lambda: browser.ask("document.querySelectorAll('#rows tbody tr').length") == len(story["controls"]))
    becomes("their text", lambda: "RESET to INIT" in browser.ask("document.getElementById('rows').textContent"))
    browser.ask("document.querySelector('#rows tbody tr:last-child').click()")
    browser.settle()
    last = story["controls"][-1]
    becomes("a row shows its call", lambda: browser.ask(f"view.begin <= {last['begin_ns']} && view.end >= {last['end_ns']} && view.connection === {last['connection']}"))
    becomes("its mark on the ladder", lambda: pixels(browser, "ladder", "--control") > 20)
    browser.click(*middle(browser, "[data-table=requests]"))
    becomes("work requests", lambda: browser.ask("document.querySelectorAll('#rows tbody tr').length") == len(story["requests"]))
    browser.click(*middle(browser, "#rows tbody tr"))
    browser.settle()
    first = story["requests"][0]
    becomes("a row shows its work request", lambda: browser.ask(f"view.begin <= {first['begin_ns']} && view.end >= {first['completed_ns']}"))
    becomes("the wait on the ladder", lambda: pixels(browser, "ladder", "--wait") > 20)
    becomes("the wait beside PSNs", lambda: pixels(browser, "psn", "--wait") > 20)
    browser.click(*middle(browser, f"[data-class='{WAIT}']"))
    browser.settle()
    becomes("a click on the class hides the waits", lambda: pixels(browser, "psn", "--wait") < 20)
    browser.click(*middle(browser, f"[data-class='{WAIT}']"))
    browser.click(*middle(browser, "[data-table=faults]"))
    becomes("faults", lambda: browser.ask("document.querySelectorAll('#rows tbody tr').length") == len(story["faults"]))
    whole = browser.ask("story.duration_ns")
    browser.click(*middle(browser, "#rows tbody tr"))
    becomes("a fault's row shows its time", lambda: shown(browser) < whole)


def main():
    if chromium.find() is None:
        lib.skip("chromium is not installed")
    folder = lib.own_runtime_folder()
    files = record(folder)
    for file in files:
        check_story(story_of(file))
    page = folder / "page.html"
    lib.call([FAULTLINE, "story", files[0], "-o", page])
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
