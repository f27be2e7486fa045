# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, over the DevTools protocol on two pipes: no driver, no port, no package beside the browser."""
import base64
import itertools
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 60  # seconds; a busy machine takes long to start a browser


def program():
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Browser:
    """One page of a browser with a profile of its own, which goes with it."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="npugraphd-browser-")
        down_read, self.down = os.pipe()
        self.up, up_write = os.pipe()
        # The browser reads commands on descriptor 3 and writes answers on 4.
        flags = ["--headless", "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "--no-first-run", "--disable-gpu",
                 "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync",
                 "--force-color-profile=srgb", "--hide-scrollbars", *(["--no-sandbox"] if os.getuid() == 0 else [])]
        self.process = subprocess.Popen(["sh", "-c", f'exec "$@" 3<&{down_read} 4>&{up_write}', "sh", program(), *flags, "about:blank"],
                                        pass_fds=(down_read, up_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(down_read)
        os.close(up_write)
        self.ids, self.buffer, self.events, self.session = itertools.count(1), b"", [], None
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def close(self):
        self.process.terminate()
        self.process.wait()
        os.close(self.down)
        os.close(self.up)
        shutil.rmtree(self.profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def receive(self, end):
        while b"\0" not in self.buffer:
            if not select.select([self.up], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.up, 1 << 20)
            if not piece:
                raise ConnectionError("the browser has ended")
            self.buffer += piece
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def command(self, method, **params):
        number = next(self.ids)
        text = json.dumps({"id": number, "method": method, "params": params, **({"sessionId": self.session} if self.session else {})})
        data = text.encode() + b"\0"
        while data:
            data = data[os.write(self.down, data):]
        end = time.monotonic() + PATIENCE
        while True:
            message = self.receive(end)
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            self.events.append(message)

    def complaints(self):
        """What the page did wrong so far: exceptions, and errors that the browser logged, such as a refused script."""
        self.evaluate("0")
        found = [e["params"]["exceptionDetails"]["exception"].get("description", "?") for e in self.events if e["method"] == "Runtime.exceptionThrown"]
        return found + [e["params"]["entry"]["text"] for e in self.events if e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error"]

    def evaluate(self, expression):
        result = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']['exception'].get('description')}")
        return result["result"].get("value")

    def until(self, what, expression):
        end = time.monotonic() + PATIENCE
        while True:
            value = self.evaluate(expression)
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"did not happen in time: {what}")
            time.sleep(0.05)

    def size(self, width, height, dark=False):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                                                             {"name": "prefers-reduced-motion", "value": "reduce"}])

    def open(self, url):
        self.command("Page.navigate", url=url)

    def key(self, key, text=None):
        for kind in ("keyDown", "keyUp"):
            self.command("Input.dispatchKeyEvent", type=kind, key=key, **({"text": text} if text and kind == "keyDown" else {}))

    def screenshot(self, path, whole=False):
        pathlib.Path(path).write_bytes(base64.b64decode(self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]))
