"""A headless Chromium, spoken to over its debugging pipe: enough of the protocol to open, click, type and look."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.state import patience

NAMES = ("chromium", "chromium-browser", "google-chrome")
KEYS = {"Enter": 13, "Tab": 9, " ": 32, "ArrowDown": 40, "ArrowUp": 38, "ArrowRight": 39, "ArrowLeft": 37}


def executable():
    """The path of a Chromium, or None."""
    return next((found for found in map(shutil.which, NAMES) if found), None)


class Chromium:
    """One browser, one page at a time. `errors` gathers what the console complains about, `requests` what is asked."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="pgbb-chromium-")
        read_ours, write_theirs = os.pipe()
        read_theirs, write_ours = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--disable-background-networking", "--disable-extensions", f"--user-data-dir={self.folder}",
                   "--remote-debugging-pipe", "about:blank"]  # fmt: skip
        line = f'exec "$0" "$@" 3<&{read_theirs} 4>&{write_theirs}'
        self.process = subprocess.Popen(
            ["bash", "-c", line, executable(), *options],
            pass_fds=(read_theirs, write_theirs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(read_theirs)
        os.close(write_theirs)
        self.read, self.write, self.buffer, self.number, self.session = read_ours, write_ours, b"", 0, None
        self.errors, self.requests, self.events = [], [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.offline()

    def offline(self):
        self.call(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write, data) :]
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._event(answer)

    def _next(self):
        while b"\0" not in self.buffer:
            part = os.read(self.read, 1 << 20)
            if not part:
                raise RuntimeError("Chromium ended.")
            self.buffer += part
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def _event(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        self.events.append(method)
        if method == "Runtime.exceptionThrown":
            self.errors.append(parameters["exceptionDetails"].get("exception", {}).get("description", str(parameters)))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(str(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def open(self, path, width=1100, height=900, phone=False, dark=False):
        """Load a file, and wait until it has drawn."""
        self.errors, self.requests, self.events = [], [], []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media="", features=features)
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        end = time.monotonic() + patience(60)
        while not self.value("document.readyState === 'complete' && location.protocol === 'file:'"):
            if time.monotonic() > end:
                raise RuntimeError("the page did not load.")
            time.sleep(0.02)
        return self

    def value(self, expression):
        """What an expression of JavaScript gives; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", str(answer)))
        return answer["result"].get("value")

    def settle(self):
        """Wait for two frames, so that what an event asked for is drawn."""
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def text(self, selector):
        return self.value(f"document.querySelector({json.dumps(selector)}).textContent")

    def focus(self, selector):
        self.value(f"document.querySelector({json.dumps(selector)}).focus()")

    def click(self, selector):
        """Press the mouse in the middle of an element."""
        box = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'});"
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)
        self.settle()

    def key(self, name, modifiers=0):
        text = {"Enter": "\r", " ": " "}.get(name, "")
        common = {"key": name, "code": "Space" if name == " " else name, "windowsVirtualKeyCode": KEYS[name]}
        kind = "keyDown" if text else "rawKeyDown"
        self.call("Input.dispatchKeyEvent", type=kind, text=text, modifiers=modifiers, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", modifiers=modifiers, **common)
        self.settle()

    def type(self, selector, text):
        """Replace the content of a field from the keyboard."""
        self.focus(selector)
        self.value(f"document.querySelector({json.dumps(selector)}).select()")
        self.call("Input.insertText", text=text)
        self.settle()

    def downloads(self, folder):
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder), eventsEnabled=False)

    def screenshot(self, path, full=True):
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        Path(path).write_bytes(base64.b64decode(image["data"]))

    def pdf(self, path):
        Path(path).write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"]))

    def close(self):
        os.close(self.write)
        os.close(self.read)
        self.process.terminate()
        self.process.wait(timeout=patience(60))
        shutil.rmtree(self.folder, ignore_errors=True)
