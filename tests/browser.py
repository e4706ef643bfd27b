"""A headless Chromium that takes commands through a pipe (Chrome DevTools Protocol)."""

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
WIDE, PHONE = (1400, 900), (390, 844)


def program():
    """The path of a Chromium, or None."""
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


class Tab:
    """A page, and the messages on its console."""

    def __init__(self, browser, session):
        self._browser = browser
        self._session = session
        self.complaints = []

    def call(self, method, **parameters):
        return self._browser.call(method, self._session, **parameters)

    def evaluate(self, script):
        """The value of an expression in the page, awaited."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def open(self, address):
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def wait(self, condition, seconds=20):
        """Polls until an expression is true in the page."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.evaluate(f"Boolean({condition})"):
                return
            self._browser.listen(0.1)
        text = self.evaluate("document.body.innerText")
        raise AssertionError(f"not so within {seconds} s: {condition}\n{text}\n{self.complaints}")

    def look(self, size, dark=False):
        """Gives the page this size, and light or dark colours."""
        width, height = size
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=size == PHONE)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path):
        """Returns a picture of the whole page."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def press(self, key):
        """A key of the keyboard, by its name in the DOM."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **text)

    def type(self, text):
        self.call("Input.insertText", text=text)


class Browser:
    """A separate browser process, without a profile."""

    def __init__(self, folder):
        commands, answers = os.pipe(), os.pipe()
        command = f"exec {program()} --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --remote-debugging-pipe " \
                  f"--no-first-run --disable-extensions --user-data-dir={folder} about:blank 3<&{commands[0]} 4>&{answers[1]}"
        self._process = subprocess.Popen(["bash", "-c", command], pass_fds=(commands[0], answers[1]),
                                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands[0])
        os.close(answers[1])
        self._out, self._in, self._rest = commands[1], answers[0], b""
        self._numbers = itertools.count(1)
        self._answers, self._tabs = {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError, AssertionError):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def tab(self):
        """A new tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self._tabs[session] = Tab(self, session)
        for domain in ("Page", "Runtime", "Log"):
            tab.call(f"{domain}.enable")
        return tab

    def call(self, method, session=None, **parameters):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while number not in self._answers:
            assert time.monotonic() < deadline, f"Chromium does not answer to {method}"
            self.listen(1)
        answer = self._answers.pop(number)
        assert "error" not in answer, answer
        return answer["result"]

    def listen(self, seconds):
        """Processes the messages of the browser. Waits for them for at most `seconds`."""
        if not select.select([self._in], [], [], seconds)[0]:
            return
        data = os.read(self._in, 1 << 20)
        assert data, "Chromium has ended"
        *messages, self._rest = (self._rest + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            elif message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded") and message.get("sessionId") in self._tabs:
                self._tabs[message["sessionId"]].complaints.append(message["params"])
