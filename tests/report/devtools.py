"""Headless Chromium with the network cut, driven through the DevTools protocol over a pipe; standard library only."""
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

TIMEOUT = 30  # seconds for one answer
COMPLAINTS = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed")


class BrowserError(Exception):
    pass


class Browser:
    """One page. `events` are all messages that were no answer, in order."""

    def __init__(self):
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if program is None:
            raise BrowserError("Chromium, which the test of reports needs, was not found: run tools/setup --test")
        self.folder = tempfile.mkdtemp(prefix="renorm-browser-")
        self.events = []
        self.number = 0
        self.session = None
        self.unread = b""
        self.process = self._start(program)
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.send(domain + ".enable")
        self.send("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

    def _start(self, program):
        command = [
            program, "--headless", "--remote-debugging-pipe", "--user-data-dir=" + self.folder, "--no-first-run",
            "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-extensions",
            "--disable-component-update", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND",
        ]
        if os.geteuid() == 0:
            command.append("--no-sandbox")
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        # The browser reads from 3 and writes to 4. High copies first: either may be one of the two already.
        high_in, high_out = os.dup2(to_browser, 60), os.dup2(from_browser, 61)

        def at_three_and_four():
            os.dup2(high_in, 3)
            os.dup2(high_out, 4)

        with open(os.path.join(self.folder, "stderr"), "wb") as log:
            process = subprocess.Popen(command, preexec_fn=at_three_and_four, close_fds=False, stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log, env={**os.environ, "HOME": self.folder})
        for descriptor in [to_browser, from_browser, high_in, high_out]:
            os.close(descriptor)
        return process

    def _receive(self, deadline):
        """The next message, or None at the deadline."""
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.read_end], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                return None
            chunk = os.read(self.read_end, 1 << 20)
            if not chunk:
                with open(os.path.join(self.folder, "stderr"), errors="replace") as log:
                    raise BrowserError("Chromium ended: " + log.read()[-2000:])
            self.unread += chunk
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def send(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_end, data):]
        deadline = time.monotonic() + TIMEOUT
        while True:
            answer = self._receive(deadline)
            if answer is None:
                raise BrowserError("no answer to %s within %d s" % (method, TIMEOUT))
            if answer.get("id") != self.number:
                self.events.append(answer)
            elif "error" in answer:
                raise BrowserError("%s: %s" % (method, answer["error"]["message"]))
            else:
                return answer["result"]

    def open(self, path, width=1200, height=900, dark=False, scale=1, phone=False, script=True):
        """Loads the file anew; returns when it is drawn or, without scripts, loaded."""
        self.events.clear()
        self.send("Emulation.setScriptExecutionDisabled", value=not script)
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=phone)
        self.send("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.set_dark(dark)
        self.send("Page.navigate", url="file://" + os.path.abspath(path))
        deadline = time.monotonic() + TIMEOUT
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            message = self._receive(deadline)
            if message is None:
                raise BrowserError("%s was not loaded within %d s" % (path, TIMEOUT))
            self.events.append(message)
        if script:
            self.settle()

    def set_dark(self, dark):
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def settle(self):
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def evaluate(self, expression):
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError("%s: %s" % (expression, answer["exceptionDetails"]))
        return answer["result"].get("value")

    def mouse(self, kind, x, y, clicks=1):
        held = 0 if kind in ("mouseMoved", "mouseReleased") else 1
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=held, clickCount=clicks)

    def key(self, key, **more):
        for kind in ["keyDown", "keyUp"]:
            self.send("Input.dispatchKeyEvent", type=kind, key=key, **more)
        self.settle()

    def drag(self, x, y, to_x, to_y):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y)
        for part in [0.3, 0.6, 1.0]:
            self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x + (to_x - x) * part, y=y + (to_y - y) * part,
                      button="left", buttons=1)
        self.mouse("mouseReleased", to_x, to_y)
        self.settle()

    def complaints(self):
        """What the console said, what was thrown, and every request but that of the page itself and of data in it."""
        found = []
        for event in self.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method in COMPLAINTS:
                found.append((method, json.dumps(parameters)[:600]))
            elif method == "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                own = url == parameters.get("documentURL") and url.startswith("file:")
                if not own and not url.startswith("data:"):
                    found.append((method, url))
        return found

    def close(self):
        try:
            self.session = None
            self.send("Browser.close")
            self.process.wait(10)
        except (BrowserError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        shutil.rmtree(self.folder, ignore_errors=True)
