"""Drives a headless Chromium over its debugging pipe: no driver, no port, no package besides the browser."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find():
    """The browser's path, or None. DEFT_CHROMIUM names another one."""
    names = [os.environ.get("DEFT_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    return next((path for name in names if name and (path := shutil.which(name))), None)


class Chromium:
    """One browser with one page. `problems`: what the console says, uncaught exceptions, requests to any host."""

    def __init__(self, path):
        self.profile = tempfile.mkdtemp()
        read_end, self.to_browser = os.pipe()
        self.from_browser, write_end = os.pipe()
        wrapper = 'exec "$@" 3<&%d 4>&%d' % (read_end, write_end)
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                 "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe",
                 f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen(["bash", "-c", wrapper, "bash", path, *flags], pass_fds=(read_end, write_end),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read_end)
        os.close(write_end)
        self.pending, self.events, self.problems, self.last_id = b"", [], [], 0
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, **parameters):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.last_id:
                assert "error" not in answer, f"{method}: {answer}"
                return answer["result"]

    def receive(self, timeout=60):
        end = time.monotonic() + timeout
        while b"\0" not in self.pending:
            ready, _, _ = select.select([self.from_browser], [], [], max(0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self.from_browser, 1 << 20)
            assert data, "the browser went away"
            self.pending += data
        first, _, self.pending = self.pending.partition(b"\0")
        message = json.loads(first)
        self.note(message.get("method"), message.get("params", {}))
        return message

    def note(self, method, parameters):
        if not method:
            return
        self.events.append(method)
        if method == "Runtime.exceptionThrown":
            thrown = parameters["exceptionDetails"].get("exception", {})
            self.problems.append(thrown.get("description", str(parameters)))
        elif method == "Log.entryAdded":
            self.problems.append(parameters["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.problems.append(str(parameters["args"]))
        elif method == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            if not url.startswith(("file:", "data:", "about:")):
                self.problems.append("request to " + url)

    def show(self, path, width=1280, height=900, dark=False, scripts=True):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.media("screen", dark)
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.events.clear()
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        while "Page.loadEventFired" not in self.events:
            self.receive()
        if scripts:
            self.frames()

    def frames(self):
        """Waits for two frames: what was asked for is drawn, what follows from it has happened."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def media(self, media, dark=False):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key, text=""):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, text=text if kind == "keyDown" else "",
                      windowsVirtualKeyCode={"Enter": 13, "Tab": 9, " ": 32}.get(key, 0))

    def screenshot(self, path):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16000), "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def pdf(self, path, dark=False):
        self.media("print", dark)
        data = self.call("Page.printToPDF", preferCSSPageSize=True, paperWidth=8.27, paperHeight=11.69)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
