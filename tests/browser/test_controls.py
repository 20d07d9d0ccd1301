"""test_controls.py - what filters, keys, buttons and saving do; words that look like code stay words."""
import os
import re
import xml.etree.ElementTree as tree

from suite import HEADS, ROOT, SVG, VIEWS, check


# ---- what the controls do --------------------------------------------------------------

def test_filter_line(s):
    page = s.open("demo")
    report = s.report()["reports"][0]
    stack, keys, roles = report["stacks"][0], [m["key"] for m in report["metrics"]], [r["key"] for r in report["roles"]]
    heads = [{"layer": n // 8 + 1, "head": n % 8 + 1, "role": roles[stack["role"][n]],
              **dict(zip(keys, stack["scores"][n * len(keys):]))} for n in range(48)]
    cases = {
        "prev>0.5 & layer<3": lambda h: h["prev"] > 0.5 and h["layer"] < 3,
        "broad | (first >= .6 & head != 3)": lambda h: h["role"] == "broad" or (h["first"] >= 0.6 and h["head"] != 3),
        "!prev & !next & confidence<1e0": lambda h: h["role"] not in ("prev", "next") and h["confidence"] < 1,
        "LAYER = 2": lambda h: h["layer"] == 2,
        "": None,
    }
    page.js("document.querySelector('#filter').focus()")
    for text, rule in cases.items():
        page.js("document.querySelector('#filter').select()")
        page.call("Input.insertText", text=text) if text else page.key("Delete")
        page.settle()
        if rule:
            check(s.text("#filter-note") == f"{sum(map(rule, heads))} of 48 heads", f"{text}: {s.text('#filter-note')}")
            check(page.js("document.querySelector('#filter').getAttribute('aria-invalid')") is None, text)
    for text, words in (("prev>", "missing"), ("nonsense>1", "nonsense"), ("prev>0.5 )", ")"), ("(prev", ")"), ("prev ¤ 1", "¤"), ("layer", "missing"), ("<script>", "<")):
        page.js("document.querySelector('#filter').select()")
        page.type(text)
        check(page.js("document.querySelector('#filter').getAttribute('aria-invalid')") == "true", f"{text} passes")
        check(words in s.text("#filter-note"), f"{text}: {s.text('#filter-note')}")
    s.quiet()


def test_language(s):
    page = s.open("demo")
    page.click_on("#lang-button")
    check(page.js("document.documentElement.lang") == "zh-Hans", "the language of the page is not set")
    for text in s.texts("[data-t]") + s.texts("#tabs button"):
        check(re.search(r"[\u4e00-\u9fff]", text), f"not translated: {text}")
    s.page.screenshot(os.path.join(s.shots, "chinese.png"))
    page.click_on("#lang-button")
    check(s.text("#heads-title") == "Heads", "no way back")
    with open(os.path.join(ROOT, "web/words.js"), encoding="utf-8") as source:
        en, zh = re.search(r"\n  en: \{(.*?)\n  \},\n  zh: \{(.*?)\n  \},\n", source.read(), re.S).groups()
    keys = [set(re.findall(r"(\w+): \"", part)) for part in (en, zh)]
    check(keys[0] == keys[1], f"only in one language: {keys[0] ^ keys[1]}")


def test_picture(s):
    """The strip is the picture, with a button over each patch."""
    page = s.open("picture")
    report = s.report()["reports"][0]
    tokens, first = report["axes"][0]["tokens"], report["picture"]["first"]
    check(len(s.texts(".patches button")) == len(tokens) - first, "not a button for each patch")
    check(len(s.texts("#strip > button")) == first, "class tokens are not before the picture")
    pixel = page.js("document.querySelector('.patches canvas').getContext('2d').getImageData(0, 0, 1, 1).data.join()")
    check(pixel == "200,100,50,255", f"the first pixel is {pixel}")
    check(s.text("#top-title") == f"Where “{tokens[0]}” looks", s.text("#top-title"))
    page.click_on(".patches button:nth-of-type(6)")
    check(s.text("#picked") == f"1 word: {tokens[first + 5]}", s.text("#picked"))
    check(page.js("Boolean(document.querySelector('.patches button:nth-of-type(6).picked'))"), "the patch is not picked")
    page.key("ArrowRight")
    check(page.js("document.activeElement.textContent") == tokens[first + 6], "the arrow does not reach the next patch")
    shown = page.js("[...document.querySelectorAll('.patches button')].some((b) => b.style.background.startsWith('rgb'))")
    check(shown, "no patch is coloured")
    rollout = report["picture"]["rollout"]
    check(len(rollout) == len(tokens) and abs(sum(rollout) - 1) < 1e-5, f"rollout of {len(rollout)} tokens, sum {sum(rollout)}")
    colours = "[...document.querySelectorAll('.patches button')].map((b) => b.style.background).join()"
    one = page.js(colours)
    page.click_on(".rollout input")
    check(page.js(colours) != one, "rollout has the colours of one head")
    page.click_on(".rollout input")
    check(page.js(colours) == one, "without rollout the head's colours are not back")
    s.page.screenshot(os.path.join(s.shots, "picture.png"))
    s.quiet()


def test_theme(s):
    page = s.open("demo", theme="light")
    light = s.picture()
    page.click_on("#theme-button")
    check(page.js("document.documentElement.dataset.theme") == "dark" and s.picture() != light, "nothing became dark")
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    page.go(f"file://{s.pages}/demo.html")
    page.call("Emulation.setEmulatedMedia", features=[])
    check(page.js("document.documentElement.dataset.theme") == "dark", "the system's wish is not followed")


def test_state_is_in_the_address(s):
    page = s.open("demo", view="")
    page.click_on("#tab-heat")
    page.click_on("#strip button:nth-child(5)")
    page.js("document.querySelector('#view').focus()")
    page.key("]")
    page.key("PageDown")
    page.hover(5, 5)
    picture, hash_text = s.picture(), page.js("new Promise((done) => setTimeout(() => done(location.hash), 400))")
    check("view=heat" in hash_text and "a=0.0.1.1" in hash_text and "picked=4" in hash_text, hash_text)
    page.go(f"file://{s.pages}/demo.html{hash_text}")
    check(s.picture() == picture, "the same address draws another picture")
    for junk in ("a=9.9.9.9&view=none&picked=1e9.-4.x&mass=7&zoom=-1&i=99999999", "a=%ff&filter=%E0%A4%A&&==&a&b=NaN"):
        page.go(f"file://{s.pages}/demo.html#{junk}")
        check(page.js("document.documentElement.dataset.ready") == "yes", f"{junk}: {s.text('#found')}")
        s.quiet()


def test_keys(s):
    page = s.open("demo")
    page.js("document.querySelector('#view').focus()")
    for number, view in enumerate(VIEWS, 1):
        page.key(str(number))
        check(page.js("document.querySelector('[role=tab][aria-selected=true]').id") == f"tab-{view}", f"{number} is not {view}")
    page.key("1")
    before = s.text("#card-title")
    page.key("]")
    check(s.text("#card-title") != before, "] does not move")
    page.key("[")
    check(s.text("#card-title") == before, "[ does not move back")
    page.key("/")
    check(page.js("document.activeElement.id") == "find", "/ does not find")
    page.type("street")
    check(page.js("document.querySelector('#strip .found').textContent") == "street", "not found")
    page.key("Escape")
    check(page.js("document.activeElement.id") == "view", "Escape does not leave the field")
    page.key("f")
    check(page.js("document.activeElement.id") == "filter", "f does not filter")
    page.key("Escape")
    page.key("v")
    check(page.js("document.querySelector('#value').checked"), "v does not weight")
    page.key("c")
    check(page.js("document.querySelector('#tab-compare').getAttribute('aria-selected')") == "true", "c does not compare")
    page.key("?")
    check(page.js("document.querySelector('#help').open"), "? does not help")
    for metric in s.report()["reports"][0]["metrics"]:
        check(metric["help"] in s.text("#help"), f"no definition of {metric['key']}")
    page.screenshot(os.path.join(s.shots, "help.png"))
    page.key("Escape")
    check(not page.js("document.querySelector('#help').open"), "the help stays")
    picture = s.picture()
    page.key("+")
    check(s.picture() != picture, "+ does not zoom")
    s.quiet()


def test_tab_reaches_every_control(s):
    page = s.open("demo")
    wanted = set(page.js("Array.from(document.querySelectorAll('button, input, select, canvas'))"
                         ".filter((n) => n.tabIndex >= 0 && n.offsetParent && !n.disabled).map((n) => n.id || n.dataset.n)"))
    page.js("document.activeElement.blur()")
    met = set()
    for _ in range(60):
        page.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", windowsVirtualKeyCode=9)
        met.add(page.js("document.activeElement.id || document.activeElement.dataset.n"))
    check(wanted <= met, f"Tab does not reach {wanted - met}")


def test_all_heads_opens_one(s):
    page = s.open("demo", view="all")
    x, y = page.middle("#view")
    page.hover(x, y)
    label = s.texts("#tip div")[0]
    page.click(x, y)
    layer, head = re.match(r"(\d+)-(\d+)", label).groups()
    check(s.text("#card-title") == f"Layer {layer} · Head {head}", f"{label}: {s.text('#card-title')}")
    page.click(x, y, count=2)
    check(page.js("document.querySelector('#tab-heat').getAttribute('aria-selected')") == "true", "a double click does not open it")
    page.js("document.querySelector('#grid').focus()")
    page.key("ArrowUp")
    check(s.text("#card-title") == f"Layer {int(layer) - 1} · Head {head}", "the grid does not follow the keys")


def test_shift_click_adds_beams(s):
    page = s.open("demo", view="beams")
    box = page.js("(() => { const r = document.querySelector('#grid').getBoundingClientRect(); return [r.x, r.y]; })()")
    for n in range(1, 10):
        page.click(box[0] + 26 + 30 * (n % 8) + 15, box[1] + 18 + 30 * (n // 8) + 15, shift=True)
    chips = s.texts("#chips button")
    check(len(chips) == 8, f"{len(chips)} heads, at most 8")
    colours = page.js("Array.from(document.querySelectorAll('#chips i'), (n) => n.style.backgroundColor)")
    check(len(set(colours)) == 8, "two heads share a colour")
    page.screenshot(os.path.join(s.shots, "beams-many.png"))


def test_value_weighted(s):
    page = s.open("demo", a="0.0.0.3")
    plain = s.picture()
    page.click_on("#value")
    check(s.picture() != plain, "nothing changed")
    check("value" in s.text("#key-note"), s.text("#key-note"))


def test_negative_weights(s):
    s.open("negative", a=HEADS["negative"])
    check(min(s.truth("negative").values()) < -0.1, "nothing negative to show")
    colours = {n.get("fill") for n in tree.fromstring(s.saved("svg")).iter(f"{SVG}rect")}
    warm = [c for c in colours if re.fullmatch("#[0-9a-f]{6}", c or "") and int(c[1:3], 16) > int(c[5:7], 16) + 40]
    check(warm, "negative weights have no colour of their own")
    s.quiet()


def test_cross_attention(s):
    page = s.open("cross", a="0.2.0.0")
    check("3 × 5" in s.text("#subtitle"), s.text("#subtitle"))
    check(len(s.texts("#strip button")) == 3, "rows are not the target's words")
    page.click_on("#gets")
    check(len(s.texts("#strip button")) == 5, "keys are not the source's words")
    for view in s.views():
        page.click_on(f"#tab-{view}")
    s.quiet()


def test_pruned_and_grouped(s):
    page = s.open("grouped", a="0.0.0.5")
    check("groups of 4" in s.text("#subtitle"), s.text("#subtitle"))
    for view in s.views():
        page.click_on(f"#tab-{view}")
        s.quiet()
    check(page.js("document.querySelector('#save-csv').disabled"), "a head that is not there has numbers")


# ---- saving ----------------------------------------------------------------------------

def test_svg(s):
    for name in ("demo", "hostile", "chinese", "causal"):
        def one(view):
            root = tree.fromstring(s.saved("svg"))
            check(root.tag == f"{SVG}svg" and float(root.get("width")) > 300, f"{name} {view}: no picture")
            if view in ("heat", "beams"):
                drawn = {n.text for n in root.iter(f"{SVG}text")}
                words = {n for n in s.texts("#strip button") if len(n) < 12}
                check(words <= drawn, f"{name} {view}: {words - drawn} is missing")
        s.open(name)
        s.each_view(one)
    s.quiet()


def test_png(s):
    def one(view):
        head = s.saved("png")
        check(head[:8] == [137, 80, 78, 71, 13, 10, 26, 10], f"{view}: no PNG")
        check(int.from_bytes(bytes(head[16:20]), "big") > 1000, f"{view}: too small")
    s.open("demo")
    s.each_view(one)


# ---- hostile words ---------------------------------------------------------------------

def test_hostile_words_stay_words(s):
    page = s.open("hostile")
    words = s.texts("#strip button")
    check(words[0] == "</script>" and words[2] == "<img src=x onerror=alert(1)>", str(words))
    check(page.js("document.querySelectorAll('img, iframe, object').length") == 0, "a word became an element")
    check(page.js("document.scripts.length") == 3, "a word became a script")
    everything = page.js("document.body.innerText")
    check(not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028]", everything), "a control character is shown raw")
    check(words[7] == "‹202E›right‹202C›" and words[8].startswith("bad\ufffd"), str(words[7:9]))
    for view in s.views():
        page.click_on(f"#tab-{view}")
        page.hover(*page.middle("#view"))
    s.quiet()
