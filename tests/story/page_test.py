#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The page of `faultline story` in headless Chromium: its elements, what mouse and keys do, that it writes nothing to the console and
loads nothing.   page_test.py FAULTLINE DATA_FOLDER"""
import pathlib
import sys

import chromium
from chromium import lib
from page_checks import becomes, check, middle, pixels, shown

FAULTLINE, DATA = sys.argv[1], pathlib.Path(sys.argv[2])


def try_elements(browser):
    becomes("title", lambda: browser.ask("document.title") == "seq_nak_send.pcap – Faultline story")
    becomes("a finding", lambda: browser.ask("document.querySelector('.finding b').textContent") == "go-back-N storm")
    becomes("one connection", lambda: browser.ask("document.querySelectorAll('[data-connection]').length") == 1)
    becomes("the PSNs that were sent", lambda: pixels(browser, "psn", "--sent") > 200)
    becomes("the PSNs that were sent again", lambda: pixels(browser, "psn", "--retransmitted") > 200)
    becomes("arrows", lambda: pixels(browser, "ladder", "--sent") > 200)
    becomes("rows of events", lambda: browser.ask("document.querySelectorAll('#rows tbody tr[data-event]').length") > 5)
    becomes("the heading", lambda: "160 events" in browser.ask("document.getElementById('facts').textContent"))


def try_zoom(browser):
    whole = shown(browser)
    browser.mouse("mouseWheel", *middle(browser, "#psn"), deltaX=0, deltaY=-400)
    becomes("the wheel zooms in", lambda: shown(browser) < whole * 0.8)
    zoomed = shown(browser)
    begin = browser.ask("view.begin")
    x, y = middle(browser, "#psn")
    browser.drag((x, y), (x + 80, y))
    browser.settle()
    becomes("a drag moves the window", lambda: browser.ask("view.begin") < begin and abs(shown(browser) - zoomed) < 1)
    browser.click(*middle(browser, "#zoom-all"))
    becomes("All shows all", lambda: shown(browser) == whole)
    x, y, width, height = browser.box("#overview")
    # A drag that begins within the window of the whole time selects a part.
    browser.drag((x + width * 0.4, y + height / 2), (x + width * 0.6, y + height / 2))
    becomes("a drag in the strip selects", lambda: 0.1 * whole < shown(browser) < 0.3 * whole)
    browser.key("0")
    becomes("the key 0 shows all", lambda: shown(browser) == whole)
    browser.key("+")
    becomes("the key + zooms in", lambda: shown(browser) < whole)
    browser.key("0")


def try_search(browser):
    browser.click(*middle(browser, "#search"))
    browser.type("NAK sequence")
    becomes("two NAKs", lambda: browser.ask("document.getElementById('search-count').textContent") == "2 found")
    browser.key("Enter")
    browser.settle()
    becomes("Enter selects the first", lambda: browser.ask("nameOf(view.selected)") == "NAK: PSN sequence error")
    first = browser.ask("view.selected")
    browser.key("Enter")
    browser.settle()
    becomes("and then the second", lambda: browser.ask("view.selected") > first)
    becomes("its row is selected", lambda: browser.ask("document.querySelector('tr[aria-selected=true]')?.dataset.event") == str(browser.ask("view.selected")))
    browser.ask("document.getElementById('search').select()")
    browser.type("nothing like this")
    becomes("none", lambda: browser.ask("document.getElementById('search-count').textContent") == "none found")


def try_tables(browser):
    browser.click(*middle(browser, "[data-table=stalls]"))
    becomes("stalls", lambda: browser.ask("document.querySelectorAll('#rows tbody tr').length") == 3)
    whole = shown(browser)
    browser.click(*middle(browser, "#rows tbody tr"))
    becomes("a stall's row shows its time", lambda: shown(browser) < whole)
    browser.click(*middle(browser, "[data-table=ends]"))
    becomes("counts", lambda: "158" in browser.ask("document.getElementById('rows').textContent"))
    browser.click(*middle(browser, "[data-table=faults]"))
    becomes("no faults", lambda: "No page fault" in browser.ask("document.getElementById('rows').textContent"))
    browser.click(*middle(browser, "[data-table=events]"))
    browser.click(*middle(browser, "#zoom-all"))
    browser.settle()
    browser.click(*middle(browser, "[data-class='6']"))
    browser.settle()
    becomes("a class is hidden", lambda: pixels(browser, "ladder", "--retransmitted") < 2000 and "sent before" not in
          browser.ask("document.getElementById('rows').textContent"))
    browser.click(*middle(browser, "[data-class='6']"))
    browser.settle()


def try_point(browser):
    x, y, _, _ = browser.box("#psn")
    dx, dy = browser.ask("(() => { const i = view.order[5]; return [psnPane.xOf(events.time[i]), psnPane.bands[0].y(events.psn[i])]; })()")
    browser.mouse("mouseMoved", x + dx, y + dy)
    becomes("a tip", lambda: browser.ask("!document.getElementById('tip').hidden") and "SEND" in browser.ask("document.getElementById('tip').textContent"))
    browser.click(x + dx, y + dy)
    browser.settle()
    becomes("a click selects", lambda: browser.ask("view.selected") >= 0)


def main():
    if chromium.find() is None:
        lib.skip("chromium is not installed")
    folder = lib.own_folder()
    with chromium.Browser() as browser:
        for name in ["seq_nak_send", "cm_rping", "v_rnr_nak", "ud_send", "rc_read"]:
            page = folder / f"{name}.html"
            lib.call([FAULTLINE, "story", DATA / f"{name}.pcap", "-o", page])
            browser.open(page)
            becomes(f"{name}: arrows", lambda: pixels(browser, "ladder", "--sent") > 20)
            if name != "seq_nak_send":
                continue
            for step in [try_elements, try_zoom, try_search, try_tables, try_point]:
                step(browser)
        check(f"the console is empty: {browser.errors}", not browser.errors)
        check(f"nothing is loaded: {browser.requests}", all(url.startswith(("file://", "data:")) for url in browser.requests))
    print("ok")


main()
