"""test_live.py - the page behind the live server."""
import json
import os

from suite import ROOT, Served, check, click, only_ours, open_live, press, timed


def test_live_ablation(s):
    with Served("demo") as served:
        page = open_live(s, served)
        check(s.text("#live-edits") == "Nothing is changed.", s.text("#live-edits"))
        page.click_on("#live-zero")
        page.until("document.querySelector('#live-edits button')", "the change")
        page.until("document.querySelector('#report-choice').options.length === 2", "two reports")
        check("1-1 zero" in s.text("#live-edits"), s.text("#live-edits"))
        check(len(s.texts("#live-changed button")) > 0, "no head is said to have changed")
        page.click_on("#tab-compare")
        page.screenshot(os.path.join(s.shots, "live-compare.png"))
        page.click_on("#live-changed button")
        page.js("(() => { const g = document.querySelector('#live-gate'); for (const at of [0.9, 0.7, 0.5]) { g.value = at; g.dispatchEvent(new Event('input')); } g.dispatchEvent(new Event('change')); })()")
        page.until("document.querySelectorAll('#live-edits button').length === 2", "the gate")
        check("× 0.5" in s.text("#live-edits"), s.text("#live-edits"))
        page.click_on("#strip button:nth-child(4)")
        page.click_on("#live-mask")
        page.until("document.querySelectorAll('#live-edits button').length === 3", "the mask")
        word = s.text("#strip button:nth-child(4)")
        check(s.text("#live-mask") == f"Unmask “{word}”", s.text("#live-mask"))
        page.click_on("#live-frozen")
        page.until("document.querySelector('#live-frozen').checked && document.querySelector('#live-note').textContent.startsWith('answered')", "frozen")
        page.click_on("#live-save")
        page.until("document.querySelector('#live-note').textContent.includes('plan-3.json')", "the plan")
        for left in (3, 2, 1, 0):
            page.click_on("#live-undo")
            page.until(f"document.querySelectorAll('#live-edits button').length === {left}", f"undo to {left}")
        page.until("document.querySelector('#report-choice').options.length === 1", "one report")
        check(page.js("document.querySelector('#live-save').disabled"), "a plan of nothing can be saved")
        page.click_on("#live-mean")
        page.until("!document.querySelector('#live-save').disabled", "a plan of a mean alone")
        page.until("decodeURIComponent(location.hash).includes('mean')", "the change in the address")
        page.go(page.js("location.href"))
        check("mean" in s.text("#live-edits"), f"after a reload: {s.text('#live-edits')}")
        token = page.js("/token=[0-9a-f]+/.exec(location.hash)[0]")
        for odd in ("%7B", "3", "null", '{"edits":7}', '{"text":[]}'):
            page.go(served.address.split("#")[0] + "#live=" + odd.replace('"', "%22") + "&" + token)
            check(s.text("#live-edits") == "Nothing is changed.", f"{odd}: {s.text('#live-edits')}")
        page.go(f"{served.address.split('#')[0]}#lang=en&{token}")
        page.screenshot(os.path.join(s.shots, "live.png"))
        only_ours(s, served)
    s.page.offline()
    check(served.code == 0, f"the server ended with {served.code}")


def test_live_beams_stay(s):
    """Heads that were added to the beams stay there when something is edited."""
    with Served("demo") as served:
        page = open_live(s, served, view="beams", a="0.0.1.2", extra="0.0.1.4_0.0.2.1")
        before = s.texts("#chips button")
        check(len(before) == 3, f"{before}")
        page.click_on("#live-zero")
        page.until("document.querySelector('#live-edits button')", "the edit")
        page.until("document.querySelector('#live-note').textContent.startsWith('answered')", "the answer")
        check(s.texts("#chips button") == before, f"{before} became {s.texts('#chips button')}")
    s.page.offline()


def drag(page, selector, values):
    page.js(f"(() => {{ const g = document.querySelector('{selector}'); for (const at of {values}) {{ g.value = at; g.dispatchEvent(new Event('input')); }} g.dispatchEvent(new Event('change')); }})()")


def test_live_surgery(s):
    """Heads are measured and ranked, the least pruned, compared, undone, and saved as a plan."""
    with Served("demo", "model") as served:
        page = open_live(s, served)
        page.click_on("#surgery summary")
        check(page.js("document.querySelector('#surgery-count').disabled"), "pruning before anything is measured")
        page.click_on("#surgery-measure")
        page.until("!document.querySelector('#surgery-count').disabled", "importance")
        check(page.js("document.querySelector('#metric').value") == "worth", "the grid is not coloured by it")
        check("this text" in s.text("#surgery-note"), s.text("#surgery-note"))
        check(any("rank" in text for text in s.texts("#numbers th")), f"no rank: {s.texts('#numbers th')}")
        heads = page.js("Number(document.querySelector('#surgery-count').max)")
        check(heads == 16, f"{heads} heads can be pruned, the pointer among them")
        drag(page, "#surgery-count", [1, 3, 6])
        page.until("document.querySelector('#surgery-table tbody td:nth-child(3)')?.textContent === '10'", "six heads off")
        check(s.texts("#live-edits button") == ["6 least important zero ×"], s.texts("#live-edits button"))
        check("answers moved" in s.text("#surgery-table"), s.text("#surgery-table"))
        page.click_on("#surgery-weights")
        check(page.js("document.querySelector('#tab-compare').getAttribute('aria-selected')") == "true", "not side by side")
        page.screenshot(os.path.join(s.shots, "live-surgery.png"))
        page.click_on("#live-save")
        page.until("document.querySelector('#surgery-command code')", "the command")
        check(s.text("#surgery-command code").startswith("polyhead prune pronouns --plan /tmp/test_serve."), s.text("#surgery-command"))
        page.click_on("#live-undo")
        page.until("document.querySelector('#surgery-count').value === '0' && document.querySelector('#surgery-table').hidden", "one undo for the drag")
        page.click_on("#live-redo")
        page.until("document.querySelector('#surgery-count').value === '6'", "redo")
        page.click_on("#surgery-measure")
        page.until("!document.querySelector('#surgery-measure').disabled", "importance of those that are left")
        check(page.js("document.querySelector('#surgery-count').value") == "6", "pruned heads are not the least")
        page.js("(() => { const m = document.querySelector('#surgery-on'); m.value = 'data'; m.dispatchEvent(new Event('change')); })()")
        page.click_on("#surgery-measure")
        page.until("document.querySelector('#surgery-note').textContent.includes('passes')", "progress")
        page.click_on("#zoom-in")  # the page goes on meanwhile
        page.click_on("#live-undo")
        page.until("document.querySelector('#surgery-count').value === '0'", "a run while heads are measured")
        page.click_on("#surgery-cancel")
        page.until("document.querySelector('#surgery-note').textContent === 'cancelled'", "cancelled")
        page.click_on("#live-redo")
        page.until("!document.querySelector('#surgery-compare').disabled", "redo")
        page.click_on("#surgery-compare")
        page.until("document.querySelector('#surgery-table').textContent.includes('400 texts')", "compared on the data")
        for width, theme, lang in ((390, "dark", "zh"), (768, "light", "en"), (1280, "dark", "en"), (1920, "light", "zh")):
            page.resize(width, 900)
            for key in ("lang", "theme"):
                want = lang if key == "lang" else theme
                if page.js(f"document.documentElement.{'lang.slice(0, 2)' if key == 'lang' else 'dataset.theme'}") != want:
                    page.js(f"document.querySelector('#{key}-button').click()")
            page.settle()
            check(page.js("document.documentElement.scrollWidth - innerWidth") <= 0, f"{width} px: too wide")
            page.screenshot(os.path.join(s.shots, f"live-surgery-{width}.png"))
        page.resize(1440, 900)
        check("最不重要" in s.text("#surgery"), "not in Chinese")
        only_ours(s, served)
    s.page.offline()
    check(served.code == 0, f"the server ended with {served.code}")


ANSWERED = "document.querySelector('#live-note').textContent.startsWith('answered')"
GOLDEN = os.path.join(ROOT, "tests", "golden")


def golden(text, name):
    return Served(text, "checkpoint", os.path.join(GOLDEN, "checkpoints", name))


def test_live_words(s):
    """Tokens are joined to words and taken apart again, on both texts, with heads off."""
    with golden("of a sentence", "t5") as served:
        page = open_live(s, served)
        check(not page.js("document.querySelector('#live-file').files.length || !document.querySelector('#live-choose').hidden"), "a file for a text")
        tokens = len(s.texts("#strip button"))
        page.click_on("#live-words")
        page.until(f"document.querySelectorAll('#strip button').length < {tokens} && {ANSWERED}", "words")
        check("sentence" in s.texts("#strip button"), s.texts("#strip button"))
        check("neuron" not in s.views(), "vectors of words")
        page.click_on("#live-zero")
        page.until(f"document.querySelectorAll('#live-edits button').length === 1 && {ANSWERED}", "the edit")
        check("sentence" in s.texts("#strip button"), "tokens again with an edit")
        page.js("document.querySelector('#live-target').value = 'a target text'")
        page.click_on("#live-run")
        page.js("(() => { const m = document.querySelector('#stack'); m.value = 1; m.dispatchEvent(new Event('change')); })()")
        page.until("Array.from(document.querySelectorAll('#strip button'), (n) => n.textContent).includes('target')", "the decoder's text")
        page.until("decodeURIComponent(location.hash).includes('a target text')", "the address")
        page.screenshot(os.path.join(s.shots, "live-words.png"))
        page.go(page.js("location.href"))
        check(page.js("document.querySelector('#live-words').checked") and page.js("document.querySelector('#live-target').value") == "a target text", "lost by a reload")
        page.click_on("#live-words")
        page.until(f"!document.querySelector('#live-words').checked && {ANSWERED}", "tokens again")
        check("target" not in s.texts("#strip button"), s.texts("#strip button"))
        page.click_on("#live-undo")
        page.until("document.querySelector('#live-words').checked", "undo")
        only_ours(s, served)
    s.page.offline()
    check(served.code == 0, f"the server ended with {served.code}")


def test_live_picture(s):
    """Patches, heads off, other pictures, files that are none, undo back to the first."""
    pictures = os.path.join(GOLDEN, "pictures")
    answers = "Array.from(document.querySelectorAll('#outcomes td:last-child'), (n) => n.textContent).join()"
    name = "document.querySelector('#subtitle').textContent"
    with golden(os.path.join(pictures, "rgb8.png"), "vit") as served:
        page = open_live(s, served)
        check(page.js("document.querySelectorAll('.patches button').length") == 9, "no patches")
        check(not page.js("document.querySelector('#live-text').offsetParent || document.querySelector('#live-words').offsetParent"), "a text for a picture")
        first = page.js(answers)
        page.click_on("#live-zero")
        page.until(f"document.querySelectorAll('#live-edits button').length === 1 && {ANSWERED}", "the edit")
        check("→" in s.text("#outcome-title"), s.text("#outcome-title"))
        page.click_on(".patches button:nth-of-type(5)")
        check("r2c2" in s.text("#top-title"), s.text("#top-title"))
        page.choose_file("#live-file", os.path.join(pictures, "jpeg444.jpg"))
        page.until(f"{name}.includes('jpeg444.jpg') && {ANSWERED}", "another picture")
        check("zero" in s.text("#live-edits"), s.text("#live-edits"))
        page.choose_file("#live-file", os.path.join(pictures, "make.py"))
        page.until("document.querySelector('#live-note').textContent.includes('make.py is no picture')", "the sentence")
        page.until(f"{name}.includes('jpeg444.jpg')", "the picture before")
        page.click_on("#live-undo")
        page.until(f"{name}.includes('rgb8.png')", "undo")
        page.click_on("#live-redo")
        page.until(f"{name}.includes('jpeg444.jpg')", "redo, which sends it again")
        for width, theme in ((390, "dark"), (1440, "light")):
            page.resize(width, 900)
            if page.js("document.documentElement.dataset.theme") != theme:
                page.js("document.querySelector('#theme-button').click()")
            page.settle()
            check(page.js("document.documentElement.scrollWidth - innerWidth") <= 0, f"{width} px: too wide")
            page.screenshot(os.path.join(s.shots, f"live-picture-{width}.png"))
        page.click_on("#live-undo")
        page.click_on("#live-undo")
        page.until(f"{name}.includes('rgb8.png') && {answers} === {json.dumps(first)}", "what was there first")
        outside = [line for line in page.complaints if "422" not in line]
        check(not outside, f"the page complains: {outside}")
    s.page.offline()
    check(served.code == 0, f"the server ended with {served.code}")


def test_live_without_measuring(s):
    with Served("demo") as served:
        open_live(s, served)
        check(s.page.js("document.querySelector('#surgery').hidden"), "heads that cannot be measured")
    s.page.offline()


def test_live_refusal_is_said(s):
    with Served("demo") as served:
        page = open_live(s, served)
        page.js("document.querySelector('#live-text').value = 'refuse'")
        page.click_on("#live-run")
        page.until("document.querySelector('#live-note').textContent.includes('the text says so')", "the sentence")
        check(page.js("document.querySelector('#view').width") > 100, "the picture is gone")
        page.js("document.querySelector('#live-text').value = 'The animal again'")
        page.click_on("#live-run")
        page.until("document.querySelector('#live-note').textContent.startsWith('answered')", "the next run")
    s.page.offline()


def test_live_without_token(s):
    with Served("demo") as served:
        s.page.online()
        s.page.go(served.address.split("#")[0])
        check(s.page.js("document.documentElement.dataset.ready") == "failed", "it works without a token")
        check("Forbidden" in s.text("#found"), s.text("#found"))
    s.page.offline()


def test_live_4096_words(s):
    with Served("longest") as served:
        page = open_live(s, served)
        for view in ("beams", "all", "compare", "heat"):
            before = s.picture()
            page.click_on(f"#tab-{view}")
            page.until(f"document.querySelector('#view').toDataURL() !== {json.dumps(before)}", view)
        page.js("document.querySelector('#view').focus()")
        page.key("ArrowUp")
        page.until("(() => { const n = document.querySelectorAll('#top tbody tr'); return n.length === 10 && !n[0].textContent.includes('…'); })()", "exact weights of a row")
        times = {}
        for name, act in (("zoom", click("#zoom-in")), ("next head", press("]")), ("seen by", click("#gets")), ("beams", click("#tab-beams"))):
            times[name] = page.js(timed(act))
        print("    measured, ms: " + ", ".join(f"{name} {ms:.0f}" for name, ms in times.items()))
        page.screenshot(os.path.join(s.shots, "live-4096.png"))
        only_ours(s, served)
        page.js("document.querySelector('#live-text').value = 'refuse'")
        page.click_on("#live-run")
        page.until("document.querySelector('#live-note').textContent.includes('the text says so')", "the refusal")
        page.js("document.querySelector('#view').focus()")
        page.key("]")
        page.until("(() => { const n = document.querySelectorAll('#top tbody tr'); return n.length === 10 && !n[0].textContent.includes('…'); })()", "weights after a refusal")
    s.page.offline()
