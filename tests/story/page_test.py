#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The page of `faultline story` in headless Chromium: its elements, what mouse and keys do, that it writes nothing to the console and
loads nothing.   page_test.py FAULTLINE DATA_FOLDER"""
import pathlib
import subprocess
import sys
import tempfile

import chromium
from page_checks import check, middle, pixels, shown

SKIPPED = 77
FAULTLINE, DATA = sys.argv[1], pathlib.Path(sys.argv[2])


def try_elements(browser):
    check("title", browser.ask("document.title") == "seq_nak_send.pcap – Faultline story")
    check("a finding", browser.ask("document.querySelector('.finding b').textContent") == "go-back-N storm")
    check("one connection", browser.ask("document.querySelectorAll('[data-connection]').length") == 1)
    check("the PSNs that were sent", pixels(browser, "psn", "--sent") > 200)
    check("the PSNs that were sent again", pixels(browser, "psn", "--retransmitted") > 200)
    check("arrows", pixels(browser, "ladder", "--sent") > 200)
    check("rows of events", browser.ask("document.querySelectorAll('#rows tbody tr[data-event]').length") > 5)
    check("the heading", "160 events" in browser.ask("document.getElementById('facts').textContent"))


def try_zoom(browser):
    whole = shown(browser)
    browser.mouse("mouseWheel", *middle(browser, "#psn"), deltaX=0, deltaY=-400)
    zoomed = shown(browser)
    check("the wheel zooms in", zoomed < whole * 0.8)
    begin = browser.ask("view.begin")
    x, y = middle(browser, "#psn")
    browser.drag((x, y), (x + 80, y))
    browser.settle()
    check("a drag moves the window", browser.ask("view.begin") < begin and abs(shown(browser) - zoomed) < 1)
    browser.click(*middle(browser, "#zoom-all"))
    check("All shows all", shown(browser) == whole)
    x, y, width, height = browser.box("#overview")
    # A drag that begins within the window of the whole time selects a part.
    browser.drag((x + width * 0.4, y + height / 2), (x + width * 0.6, y + height / 2))
    check("a drag in the strip selects", 0.1 * whole < shown(browser) < 0.3 * whole)
    browser.key("0")
    check("the key 0 shows all", shown(browser) == whole)
    browser.key("+")
    check("the key + zooms in", shown(browser) < whole)
    browser.key("0")


def try_search(browser):
    browser.click(*middle(browser, "#search"))
    browser.type("NAK sequence")
    check("two NAKs", browser.ask("document.getElementById('search-count').textContent") == "2 found")
    browser.key("Enter")
    browser.settle()
    check("Enter selects the first", browser.ask("nameOf(view.selected)") == "NAK: PSN sequence error")
    first = browser.ask("view.selected")
    browser.key("Enter")
    browser.settle()
    check("and then the second", browser.ask("view.selected") > first)
    check("its row is selected", browser.ask("document.querySelector('tr[aria-selected=true]').dataset.event") == str(browser.ask("view.selected")))
    browser.ask("document.getElementById('search').select()")
    browser.type("nothing like this")
    check("none", browser.ask("document.getElementById('search-count').textContent") == "none found")


def try_tables(browser):
    browser.click(*middle(browser, "[data-table=stalls]"))
    check("stalls", browser.ask("document.querySelectorAll('#rows tbody tr').length") == 3)
    whole = shown(browser)
    browser.click(*middle(browser, "#rows tbody tr"))
    check("a stall's row shows its time", shown(browser) < whole)
    browser.click(*middle(browser, "[data-table=ends]"))
    check("counts", "158" in browser.ask("document.getElementById('rows').textContent"))
    browser.click(*middle(browser, "[data-table=faults]"))
    check("no faults", "No page fault" in browser.ask("document.getElementById('rows').textContent"))
    browser.click(*middle(browser, "[data-table=events]"))
    browser.click(*middle(browser, "#zoom-all"))
    browser.settle()
    browser.click(*middle(browser, "[data-class='6']"))
    browser.settle()
    check("a class is hidden", pixels(browser, "ladder", "--retransmitted") < 2000 and "sent before" not in
          browser.ask("document.getElementById('rows').textContent"))
    browser.click(*middle(browser, "[data-class='6']"))
    browser.settle()


def try_point(browser):
    x, y, _, _ = browser.box("#psn")
    dx, dy = browser.ask("(() => { const i = view.order[5]; return [psnPane.xOf(events.time[i]), psnPane.bands[0].y(events.psn[i])]; })()")
    browser.mouse("mouseMoved", x + dx, y + dy)
    check("a tip", browser.ask("!document.getElementById('tip').hidden") and "SEND" in browser.ask("document.getElementById('tip').textContent"))
    browser.click(x + dx, y + dy)
    browser.settle()
    check("a click selects", browser.ask("view.selected") >= 0)


def main():
    if chromium.find() is None:
        print("not tried: chromium is not installed")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder, chromium.Browser() as browser:
        for name in ["seq_nak_send", "cm_rping", "v_rnr_nak", "ud_send", "rc_read"]:
            page = pathlib.Path(folder) / f"{name}.html"
            subprocess.run([FAULTLINE, "story", DATA / f"{name}.pcap", "-o", page], check=True, stdout=subprocess.DEVNULL, timeout=60)
            browser.open(page)
            check(f"{name}: arrows", pixels(browser, "ladder", "--sent") > 20)
            if name != "seq_nak_send":
                continue
            for step in [try_elements, try_zoom, try_search, try_tables, try_point]:
                step(browser)
        check(f"the console is empty: {browser.errors}", not browser.errors)
        check(f"nothing is loaded: {browser.requests}", all(url.startswith(("file://", "data:")) for url in browser.requests))
    print("ok")


main()
