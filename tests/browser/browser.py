"""browser.py - drives a headless Chromium over the DevTools protocol.

The protocol runs over two pipes (descriptors 3 and 4 of the browser): no port, no
websocket, nothing but Python's own library. Every page is opened with the network off;
whatever it says on its console, throws or requests is collected.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PATIENCE = 40  # seconds without a word from the browser
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find():
    """The path of a browser, or None."""
    wanted = os.environ.get("POLYHEAD_BROWSER")
    return next((path for path in map(shutil.which, [wanted] if wanted else NAMES) if path), None)


class Browser:
    """One browser process with a profile of its own."""

    def __init__(self, path):
        self.profile = tempfile.mkdtemp(prefix="polyhead-browser-")
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()
        command = [path, "--headless=new", "--remote-debugging-pipe", "--no-first-run",
                   "--no-default-browser-check", "--disable-background-networking", "--disable-sync",
                   "--disable-component-update", "--disable-extensions", "--disable-gpu",
                   "--hide-scrollbars", "--force-color-profile=srgb", "--mute-audio",
                   "--disable-dev-shm-usage", "--user-data-dir=" + self.profile, "about:blank"]
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # as root it refuses to start with one

        def place_pipes():  # away from 3 and 4 first: one may be the other's number
            low, high = os.dup(to_read), os.dup(to_write)
            while low in (3, 4):
                low = os.dup(low)
            while high in (3, 4):
                high = os.dup(high)
            os.dup2(low, 3)
            os.dup2(high, 4)

        self.log = open(os.path.join(self.profile, "log"), "wb")
        self.process = subprocess.Popen(command, preexec_fn=place_pipes, close_fds=False,
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        os.close(to_read)
        os.close(to_write)
        self.rest = b""
        self.number = 0
        self.pages = {}

    def read(self):
        while b"\0" not in self.rest:
            if not select.select([self.from_browser], [], [], PATIENCE)[0]:
                raise RuntimeError(f"no answer from the browser for {PATIENCE} s")
            piece = os.read(self.from_browser, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has gone: " + self.last_words())
            self.rest += piece
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)

    def last_words(self):
        with open(os.path.join(self.profile, "log"), errors="replace") as log:
            return log.read()[-600:]

    def call(self, method, session=None, **params):
        self.number += 1
        wanted = self.number
        message = {"id": wanted, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to_browser, data):]
        while True:
            answer = self.read()
            if answer.get("id") == wanted:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error'].get('message')}")
                return answer["result"]
            page = self.pages.get(answer.get("sessionId"))
            if page and "method" in answer:
                page.event(answer["method"], answer.get("params", {}))

    def open(self, width=1440, height=900, ratio=1):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        self.pages[session] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(domain + ".enable")
        page.resize(width, height, ratio)
        return page

    def close(self):
        try:
            self.call("Browser.close")
        except (RuntimeError, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)
        self.log.close()
        shutil.rmtree(self.profile, ignore_errors=True)


class Page:
    """One tab."""

    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target
        self.complaints = []  # console errors and warnings, exceptions
        self.asked = []       # addresses it wanted

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def event(self, method, params):
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append("console: " + json.dumps(params["args"])[:300])
        elif method == "Runtime.exceptionThrown":
            detail = params["exceptionDetails"]
            self.complaints.append("exception: " + str(detail.get("exception", {}).get("description", detail["text"]))[:500])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append("log: " + params["entry"]["text"][:300])
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])

    def resize(self, width, height, ratio=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=ratio, mobile=False)

    def offline(self):
        self.call("Network.emulateNetworkConditions", offline=True, latency=0,
                  downloadThroughput=0, uploadThroughput=0)

    def online(self):
        self.call("Network.emulateNetworkConditions", offline=False, latency=0,
                  downloadThroughput=-1, uploadThroughput=-1)

    def go(self, url):
        self.asked, self.complaints = [], []
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        self.until("document.documentElement?.dataset.ready", "the page to be ready")
        self.settle()

    def js(self, expression):
        """The value of an expression; promises are waited for."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True, userGesture=True)
        if "exceptionDetails" in result:
            detail = result["exceptionDetails"]
            raise RuntimeError(detail.get("exception", {}).get("description", detail["text"]))
        return result["result"].get("value")

    def until(self, expression, what, seconds=20):
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            if self.js(f"Boolean({expression})"):
                return
            time.sleep(0.02)
        raise RuntimeError(f"waited {seconds} s for {what}: {self.complaints[-3:]}")

    def settle(self):
        """Two frames: what was requested is drawn."""
        self.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def hover(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.settle()

    def click(self, x, y, shift=False, count=1):
        common = {"button": "left", "clickCount": count, "modifiers": 8 if shift else 0}
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, **common)
        self.mouse("mouseReleased", x, y, **common)
        self.settle()

    def click_on(self, selector, shift=False):
        self.click(*self.middle(selector), shift=shift)

    def middle(self, selector):
        box = self.js(f"(() => {{ const n = document.querySelector({json.dumps(selector)}); n.scrollIntoView({{block: 'nearest'}});"
                      "const r = n.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        return box

    def key(self, key, shift=False):
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, " ": 32, "ArrowLeft": 37, "ArrowUp": 38,
                 "ArrowRight": 39, "ArrowDown": 40, "PageUp": 33, "PageDown": 34}
        event = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper())), "modifiers": 8 if shift else 0}
        if len(key) == 1:
            event["text"] = key
        elif key == "Enter":
            event["text"] = "\r"
        self.call("Input.dispatchKeyEvent", type="keyDown", **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **{k: v for k, v in event.items() if k != "text"})
        self.settle()

    def choose_file(self, selector, path):
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[path])

    def type(self, text):
        self.call("Input.insertText", text=text)
        self.settle()

    def screenshot(self, path, full=False):
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        with open(path, "wb") as out:
            out.write(base64.b64decode(shot["data"]))
