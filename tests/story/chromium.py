# SPDX-License-Identifier: BSD-3-Clause
"""Headless Chromium through its debugging pipe (--remote-debugging-pipe: JSON messages that end with a NUL, on descriptors 3 and 4)."""
import base64
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # tests
import lib  # noqa: E402

PATIENCE_S = lib.LIMIT_S


def find():
    """The browser's program, or None."""
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


class Browser:
    """One page. `errors` has what the page wrote to its console and each exception."""

    def __init__(self, width=1440, height=900):
        self.folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        self.errors, self.number, self.buffer, self.events = [], 0, b"", []
        from_browser, browser_writes = os.pipe()
        browser_reads, to_browser = os.pipe()
        self.read_end, self.write_end = from_browser, to_browser

        def place():
            # Above 4 first, so that neither is overwritten.
            first, second = os.dup2(browser_reads, 30), os.dup2(browser_writes, 31)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(
            [find(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run",
             f"--user-data-dir={self.folder.name}", f"--window-size={width},{height}", "--remote-debugging-pipe"],
            preexec_fn=place, close_fds=False, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        lib.on_exit(self.kill)
        os.close(browser_reads)
        os.close(browser_writes)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Its other processes write to the folder until the browser has ended them. They stay after a SIGKILL of the first.
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(PATIENCE_S)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            pass
        self.kill()
        os.close(self.read_end)
        os.close(self.write_end)
        self.folder.cleanup()

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    session = None
    requests = ()

    def _message(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_end], [], [], max(0, deadline - time.monotonic()))
            part = os.read(self.read_end, 1 << 20) if ready else b""
            if not part:
                raise TimeoutError("chromium does not answer")
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.errors.append(f"console.{params['type']}: {params['args']}")
        elif method == "Runtime.exceptionThrown":
            self.errors.append(f"exception: {params['exceptionDetails']}")
        elif method == "Log.entryAdded":
            self.errors.append(f"log: {params['entry']['level']}: {params['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests = (*self.requests, params["request"]["url"])

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._message(deadline)
            if answer.get("id") != self.number:
                self._note(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                return answer["result"]

    def ask(self, expression):
        """The value of a script's expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression):
        deadline = time.monotonic() + PATIENCE_S
        while not (value := self.ask(expression)):
            if time.monotonic() > deadline:
                raise TimeoutError(expression)
            time.sleep(0.02)
        return value

    def open(self, file):
        """Opens a story and returns the milliseconds until it was drawn."""
        self.call("Page.navigate", url=pathlib.Path(file).resolve().as_uri())
        return int(self.wait("document.body && document.body.dataset.ready"))

    def settle(self):
        """Waits until what was requested is drawn."""
        self.ask("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        for kind in ["mousePressed", "mouseReleased"]:
            self.mouse(kind, x, y, button="left", clickCount=1)

    def drag(self, begin, end):
        self.mouse("mousePressed", *begin, button="left", clickCount=1)
        for part in [0.3, 0.7, 1]:
            self.mouse("mouseMoved", *(a + (b - a) * part for a, b in zip(begin, end)), button="left", buttons=1)
        self.mouse("mouseReleased", *end, button="left", clickCount=1)

    def key(self, key):
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = {"Enter": 13}.get(key, 0)
        for kind in ["keyDown", "keyUp"]:
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, text=text if kind == "keyDown" else "")

    def type(self, text):
        self.call("Input.insertText", text=text)

    def box(self, selector):
        """x, y, width and height of an element."""
        return self.ask(f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; }})()")

    def picture(self, file):
        pathlib.Path(file).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
