# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of the page of `faultline story` ask of a browser."""
import sys

from chromium import lib


def becomes(what, condition):
    """Waits until the condition holds: the page does the work of a click or a key in a later frame."""
    lib.await_that(condition, what)


def check(what, is_true):
    if not is_true:
        sys.exit(f"FAILED: {what}")


def pixels(browser, canvas, color):
    """Pixels of a canvas in the colour of a CSS variable."""
    return browser.ask(f"""(() => {{
      const from = document.getElementById("{canvas}"), copy = new OffscreenCanvas(from.width, from.height);
      const context = copy.getContext("2d", {{willReadFrequently: true}});
      context.drawImage(from, 0, 0);
      const data = context.getImageData(0, 0, copy.width, copy.height).data;
      const hex = getComputedStyle(document.documentElement).getPropertyValue("{color}").trim();
      const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
      let count = 0;
      for (let i = 0; i < data.length; i += 4) count += data[i] === r && data[i + 1] === g && data[i + 2] === b && data[i + 3] === 255;
      return count;
    }})()""")


def shown(browser):
    browser.settle()
    return browser.ask("view.end - view.begin")


def middle(browser, selector):
    x, y, width, height = browser.box(selector)
    return x + width / 2, y + height / 2
