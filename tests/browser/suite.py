"""suite.py - what the tests of the page share: one browser, one page, the folders, a live server."""
import base64
import csv
import json
import os
import re
import subprocess
import zlib

import browser

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SVG = "{http://www.w3.org/2000/svg}"
VIEWS = ("beams", "heat", "all", "neuron", "compare")
HEADS = {"demo": "0.0.2.1", "causal": "0.0.1.5", "negative": "0.0.1.5", "large": "0.0.3.2", "long": "0.0.1.4"}


class Skip(Exception):
    pass


def check(condition, text):
    if not condition:
        raise AssertionError(text)


class Suite:
    """One browser with one page, and the folders."""

    def __init__(self, pages, shots):
        self.pages, self.shots = os.path.abspath(pages), os.path.abspath(shots)
        os.makedirs(self.shots, exist_ok=True)
        self.browser = browser.Browser(browser.find())
        self.page = self.browser.open()
        self.page.offline()

    def open(self, name, **state):
        """With the map of a head unless told; view="" is what a reader sees first."""
        wanted = {"lang": "en", "theme": "light", "view": "heat", **state}
        words = "&".join(f"{key}={value}" for key, value in wanted.items() if value != "")
        self.page.go(f"file://{self.pages}/{name}.html#{words}")
        check(self.page.js("document.documentElement.dataset.ready") == "yes", f"{name}: {self.text('#found')}")
        return self.page

    def variant(self, name, edit, **state):
        """The page with another report: edit(report, arrays) changes the JSON and the bytes."""
        with open(os.path.join(self.pages, name + ".html"), encoding="utf-8") as file:
            html = file.read()
        (a, json_text), (b, packed) = ((m.start(1), m.group(1)) for m in (re.search(rf'id="{part}"[^>]*>(.*?)</script>', html, re.S) for part in ("report", "arrays")))
        report, arrays = json.loads(json_text), bytearray(zlib.decompress(base64.b64decode(packed), -15))
        edit(report, arrays)
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed_now = base64.b64encode(deflate.compress(bytes(arrays)) + deflate.flush()).decode()
        text = json.dumps(report).replace("<", "\\u003c")
        first, second = sorted([(a, json_text, text), (b, packed, packed_now)])
        html = html[:first[0]] + first[2] + html[first[0] + len(first[1]):second[0]] + second[2] + html[second[0] + len(second[1]):]
        path = os.path.join(self.pages, "variant.html")
        with open(path, "w", encoding="utf-8") as file:
            file.write(html)
        try:
            return self.open("variant", **state)
        finally:
            os.remove(path)

    def views(self):
        """Names of the tabs that the page has."""
        return self.page.js("Array.from(document.querySelectorAll('#tabs button'), (n) => n.dataset.view)")

    def each_view(self, act):
        for view in self.views():
            self.page.js(f"document.querySelector('#tab-{view}').click()")
            self.page.settle()
            act(view)

    def text(self, selector):
        return self.page.js(f"document.querySelector({json.dumps(selector)}).textContent")

    def texts(self, selector):
        return self.page.js(f"Array.from(document.querySelectorAll({json.dumps(selector)}), (n) => n.textContent)")

    def picture(self, selector="#view"):
        return self.page.js(f"document.querySelector({json.dumps(selector)}).toDataURL()")

    def report(self):
        return json.loads(self.text("#report"))

    def saved(self, kind, shift=False):
        """What a click on a save button would write, as text or as base64 of its bytes."""
        self.page.js("""window.saved = new Promise((done) => {
            URL.createObjectURL = (blob) => { done(blob); return "blob:kept"; };
            HTMLAnchorElement.prototype.click = () => {}; }); 0""")
        self.page.click_on(f"#save-{kind}", shift=shift)
        if kind == "png":
            return self.page.js("window.saved.then((b) => b.arrayBuffer()).then((a) => Array.from(new Uint8Array(a.slice(0, 24))))")
        return self.page.js("window.saved.then((b) => b.text())")

    def truth(self, name):
        """The weights that went into a page: {(row, key): weight} of one head."""
        with open(os.path.join(self.pages, name + ".csv"), encoding="utf-8") as lines:
            return {(int(i), int(j)): float(w) for i, j, w in csv.reader(lines)}

    def quiet(self):
        check(not self.page.complaints, f"the page complains: {self.page.complaints}")
        outside = [url for url in self.page.asked if not url.startswith(("file:", "blob:", "data:", "about:"))]
        check(not outside, f"the page loads {outside}")


class Served:
    """A made-up report behind the live server."""

    def __init__(self, *name):
        """The name of a case; "maps" behind it: without a model."""
        program = os.path.join(ROOT, os.environ.get("BUILD", "build"), "tests", "test_serve")
        self.process = subprocess.Popen([program, "--serve", *name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.code = self.process.wait(20)


def open_live(s, served, **state):
    words = "".join(f"&{key}={value}" for key, value in {"lang": "en", "theme": "light", "view": "heat", **state}.items())
    s.page.online()
    s.page.go(served.address + words)
    check(s.page.js("document.documentElement.dataset.ready") == "yes", s.text("#found"))
    return s.page


def only_ours(s, served):
    check(not s.page.complaints, f"the page complains: {s.page.complaints}")
    home = served.address.split("#")[0]
    outside = [url for url in s.page.asked if not url.startswith((home, "about:", "blob:", "data:"))]
    check(not outside, f"the page loads {outside}")


# ---- actions, as scripts of the page ---------------------------------------------------

def click(selector):
    return f"document.querySelector('{selector}').click()"


def press(key):
    return f"document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))"


def enter(selector, value, event):
    return f"(() => {{ const m = document.querySelector('{selector}'); m.value = '{value}'; m.dispatchEvent(new Event('{event}')); }})()"


def timed(act):
    """Milliseconds from an action to the end of the frame that shows it."""
    return ("new Promise((done) => { const t0 = performance.now(); " + act + "; requestAnimationFrame(() => {"
            "const c = new MessageChannel(); c.port1.onmessage = () => done(performance.now() - t0); c.port2.postMessage(0); }); })")
