"""test_first.py - what a reader sees first, and what it tells: beams of one word, answers that lead to their
head, words that are not known, maps that can be read, figures for papers."""
import base64
import json
import os
import re
import xml.etree.ElementTree as tree

from suite import SVG, Served, check, enter, open_live


def view_of(page):
    return page.js("document.querySelector('[role=tab][aria-selected=true]').id")


def boxes(page, *selectors):
    """Where elements are on the screen."""
    return page.js(f"{json.dumps(selectors)}.map((q) => {{ const r = document.querySelector(q).getBoundingClientRect(); return [r.x, r.y, r.width, r.height].map(Math.round); }})")


# ---- the first screen ------------------------------------------------------------------

def test_first_screen_is_the_beams_of_it(s):
    page = s.open("demo", view="")
    check(view_of(page) == "tab-beams", f"it opens on {view_of(page)}")
    check(s.texts("#strip .picked") == ["it"], f"picked: {s.texts('#strip .picked')}")
    above = page.js("(() => { const top = document.querySelector('#view').getBoundingClientRect().top; return Array.from(document.querySelectorAll('main input, main select'), (n) => [n.id, n.offsetParent && n.getBoundingClientRect()]).filter(([, r]) => r && r.bottom <= top).map(([id]) => id); })()")
    check(not above, f"before the picture stand {above}")
    s.open("long", view="")
    check(view_of(page) == "tab-heat", "a long text opens as a map")
    s.open("picture", view="")
    check(view_of(page) == "tab-heat", "a picture opens as a map")


def with_encoder(report, _):
    """A second stack over the same words: its heads 1 and 4 have the role of the answer about "it", 1 looks where it does."""
    one = report["reports"][0]
    one["outcomes"][0]["relation"] = "prev"
    one["stacks"].append({**one["stacks"][0], "name": "encoder", "role": [1, 2, 3, 1]})
    del one["stacks"][1]["share"]


def test_first_beams_are_of_several_heads(s):
    """The answer, and the heads of its role that look at the same word; other heads of that role do not."""
    page = s.variant("answers", with_encoder, view="")
    chips = s.texts("#chips button")
    check([chip.split(" · ")[0] for chip in chips] == ["links 1-1", "encoder 1-1"], f"{chips}")
    stacks = {line.split(",")[0] for line in s.saved("csv").strip().split("\n")[1:]}
    check(stacks == {"links", "encoder"}, f"{stacks}")
    page.key("]")
    check(s.texts("#strip .picked") == ["it"], "another head drops the picked word")
    page.js("document.querySelector('#stack').value = 1; document.querySelector('#stack').dispatchEvent(new Event('change'))")
    page.settle()
    check("encoder" in s.text("#card-title"), s.text("#card-title"))
    check("heads" not in s.text("#found").split(";")[0].replace("8 heads", ""), f"the legend counts roles already: {s.text('#found')}")


def test_compare_opens_with_another_head(s):
    def alone(report, _):
        with_encoder(report, _)
        stack = report["reports"][0]["stacks"][0]
        stack.update({key: value[:len(value) // 4] for key, value in stack.items() if isinstance(value, list)}, heads=1, kvHeads=1)
    s.variant("answers", alone, view="compare")
    titles = [n.text for n in tree.fromstring(s.saved("svg")).iter(f"{SVG}text") if (n.text or "")[:3] in ("A  ", "B  ")]
    check(titles == ["A  links 1-1", "B  encoder 1-1"], f"{titles}")


def test_compare_on_a_phone(s):
    """One map below the other."""
    s.page.resize(390, 844)
    page = s.open("demo", view="compare", a="0.0.5.2", b="0.0.1.1")
    page.screenshot(os.path.join(s.shots, "compare-390.png"), full=True)
    titles = [n for n in tree.fromstring(s.saved("svg")).iter(f"{SVG}text") if (n.text or "")[:2] in ("A ", "B ")]
    places = [tuple(map(float, re.findall(r"[\d.]+", n.get("transform"))[:2])) for n in titles]
    wide = boxes(page, "#view")[0][2]
    s.page.resize(1440, 900)
    check(len(places) == 3 and len({x for x, _ in places}) == 1, f"not below each other: {places}")
    check(all(low - high >= wide - 1 for (_, high), (_, low) in zip(places, places[1:])), f"maps of a phone are {wide} px wide: {places}")


def test_words_in_columns_have_titles(s):
    s.page.resize(390, 844)
    s.open("demo", view="beams")
    texts = {n.text for n in tree.fromstring(s.saved("svg")).iter(f"{SVG}text")}
    s.page.resize(1440, 900)
    check({"looks", "is looked at"} <= texts, f"{texts}")


def test_answers_lead_to_their_head(s):
    page = s.open("answers", view="")
    check("Head 1" in s.text("#card-title"), f"“it” is answered by head 1, not {s.text('#card-title')}")
    page.click_on("#outcomes tr:nth-child(2) button")
    check("Head 2" in s.text("#card-title"), f"“was” is answered by head 2, not {s.text('#card-title')}")
    check(s.texts("#strip .picked") == ["was"], "the row of the answer is not picked")
    address = page.js("new Promise((done) => setTimeout(() => done(location.hash), 300))")
    check("i=9" in address and "j=10" in address, f"not the cell that gave the answer: {address}")
    check(page.js("document.querySelector('#outcomes tr:nth-child(2) button').getAttribute('aria-current')") == "true", "the answer is not marked")
    s.open("demo")
    check(not s.texts("#outcomes button"), "answers that no head gives can be clicked")


def test_answers_fit_their_card(s):
    """The number of an answer is not pushed out, however long its words and relation are."""
    def lengthen(report, _):
        for x in report["reports"][0]["outcomes"]:
            x.update(text="determiners -> somewhere", relation="determiner")
    for width in (390, 1280, 1440, 1920):
        s.page.resize(width, 900)
        page = s.variant("answers", lengthen, view="")
        out = page.js("(() => { const card = document.querySelector('.card').getBoundingClientRect().right; return Math.max(...Array.from(document.querySelectorAll('#outcomes td:last-child'), (n) => n.getBoundingClientRect().right)) - card; })()")
        s.page.resize(1440, 900)
        check(out <= 0.5, f"{width} px: {out} px beyond the card")


def test_rows_of_other_heads_are_faded(s):
    page = s.open("answers", a="0.0.0.0")
    check("Faded rows" in s.text("#key-note"), s.text("#key-note"))
    veils = [float(n.get("fill-opacity")) for n in tree.fromstring(s.saved("svg")).iter(f"{SVG}rect") if n.get("fill-opacity")]
    check(len([v for v in veils if v > 0.7]) == 9 and len([v for v in veils if v < 0.1]) == 4, f"13 rows, 4 of this head: {veils}")

    def alone(report, _):
        stack = report["reports"][0]["stacks"][0]
        stack.update({key: value[:len(value) // 4] for key, value in stack.items() if isinstance(value, list)}, heads=1, kvHeads=1)
        stack["share"] = [1] * 13
    s.variant("answers", alone, a="0.0.0.0")
    check("Faded rows" not in s.text("#key-note"), "one head alone answers for every row")
    page = s.open("answers", a="0.0.0.1", view="beams", picked="none")
    strong = {n.get("stroke-opacity") for n in tree.fromstring(s.saved("svg")).iter(f"{SVG}path")}
    check(max(map(float, strong)) > 4 * min(map(float, strong)), "beams of rows it does not answer for are as strong")
    page.js("document.querySelector('#tab-heat').click()")
    page.settle()
    page.js("document.querySelector('#view').focus()")
    page.key("ArrowDown")
    check("for the answer about" in s.text("#say"), s.text("#say"))


def test_unknown_words_are_marked(s):
    page = s.open("answers")
    check(s.texts("#strip .unknown") == ["street?"], f"{s.texts('#strip .unknown')}")
    check("street" in s.text("#left-out") and not page.js("document.querySelector('#left-out').hidden"), s.text("#left-out"))
    drawn = {n.text for n in tree.fromstring(s.saved("svg")).iter(f"{SVG}text")}
    check("street?" in drawn, "the map does not mark it")

    def silence(report, _):
        one = report["reports"][0]
        one["outcomes"], one["axes"][0]["unknown"] = [], [1] * 13
    s.variant("answers", silence, view="beams", a="0.0.0.0", picked="none")
    check("No answer" in s.text("#outcome-note"), f"{s.text('#outcome-title')}: {s.text('#outcome-note')}")
    strong = [float(n.get("stroke-opacity")) for n in tree.fromstring(s.saved("svg")).iter(f"{SVG}path")]
    check(strong and max(strong) < 0.2, f"beams of unknown words are as strong as answers: {strong}")
    s.open("demo")
    check(not s.texts("#strip .unknown"), "known words are marked")


def test_two_reports_open_side_by_side(s):
    page = s.open("compare", view="")
    check(view_of(page) == "tab-compare", f"it opens on {view_of(page)}")
    texts = [report["text"] or report["title"] for report in s.report()["reports"]]
    names = s.texts("#report-choice option")
    check(len(names) == 2 and names[0] != names[1], f"{names} of {texts}")

    def rename(report, _):
        report["reports"][1]["text"] = "The dog slept."
    s.variant("compare", rename, view="")
    check("The dog slept." in s.texts("#report-choice option")[1], f"{s.texts('#report-choice option')}")
    check("The dog slept." in "".join(n.text or "" for n in tree.fromstring(s.saved("svg")).iter(f"{SVG}text")), "the picture does not name the text")


def test_colour_by_number_where_labels_are_few(s):
    page = s.open("demo")
    check(page.js("document.querySelector('#metric').value") == "role", "labels of most heads are not shown")

    def strip(report, _):
        report["reports"][0]["stacks"][0]["role"] = [0] * 48
    s.variant("demo", strip)
    check(page.js("document.querySelector('#metric').value") == "confidence", "no label anywhere, and still coloured by label")


def test_relations_are_names(s):
    heads = 0

    def rename(report, _):
        nonlocal heads
        first = report["reports"][0]
        first["roles"][1] = {"glyph": "p", "key": "pronoun", "name": "pronoun links", "help": "rule"}
        first["stacks"][0]["why"] = ["link pronoun 0.64 >= 0.10" if role == 1 else "" for role in first["stacks"][0]["role"]]
        heads = first["stacks"][0]["role"].count(1)
    page = s.variant("demo", rename)
    check(any("pronoun links" in line for line in s.texts("#legend li")), f"{s.texts('#legend li')}")
    for text in ("pronoun", "link"):
        page.js(enter("#filter", text, "input"))
        page.settle()
        check(s.text("#filter-note") == f"{heads} of 48 heads", f"{text}: {s.text('#filter-note')}")


def test_contributions_are_measures(s):
    """Each head's share of what its layer writes: in the card, the grid and the filter."""
    def add(report, _):
        report["reports"][0]["stacks"][0]["contribution"] = [0.3 if n % 8 == 2 else 0.1 for n in range(48)]
    page = s.variant("demo", add, a="0.0.1.2", metric="contribution")
    check("share of its layer0.3000" in "".join(s.texts("#numbers tbody tr")), f"{s.texts('#numbers tbody tr')}")
    check(page.js("document.querySelector('#metric').value") == "contribution", "the grid cannot be coloured by it")
    page.js(enter("#filter", "contribution>0.2", "input"))
    page.settle()
    check(s.text("#filter-note") == "6 of 48 heads", s.text("#filter-note"))
    s.quiet()


def test_heads_of_a_layer_differ(s):
    """Beside all heads: the mean Jensen-Shannon divergence of every layer, from the weights of the page."""
    import math
    s.open("patterns", view="all")
    drawn = [n.text for n in tree.fromstring(s.saved("svg")).iter(f"{SVG}text")]
    values = [float(text) for text in drawn if re.fullmatch(r"0\.\d{3}", text or "")]
    heads = {}
    for h in range(8):
        page = s.open("patterns", a=f"0.0.0.{h}")
        rows = [line.split(",") for line in s.saved("csv").strip().split("\n")[1:]]
        heads[h] = {(int(r[3]), int(r[4])): float(r[7]) for r in rows}
    total = 0
    for a in range(8):
        for b in range(a):
            for place, p in heads[a].items():
                q = heads[b][place]
                m = (p + q) / 2
                total += sum(0.5 * x * math.log(x / m) for x in (p, q) if x > 0) / 9 / 28
    check(len(values) == 1 and abs(values[0] - total) < 0.0006, f"{values}, expected {total}")
    check(page is not None, "no page")


def test_circuits_of_a_head(s):
    def add(report, _):
        report["reports"][0]["stacks"][0]["circuit"] = ["it > animal; was > too\nanimal: tired, street"] + [""] * 47
    page = s.variant("demo", add, a="0.0.0.0")
    check(s.texts("#circuit dd") == ["it → animal; was → too", "animal: tired, street"], f"{s.texts('#circuit dd')}")
    page.key("]")
    check(page.js("document.querySelector('#circuit-box').hidden"), "a head without circuits shows some")


# ---- reading a map ---------------------------------------------------------------------

def test_help_says_how_to_read_a_map(s):
    page = s.open("demo", i=8, j=1)
    page.js("document.querySelector('#help-button').click()")
    text = s.text("#help")
    check("Rows look at columns" in text and "“it”" in text and "“animal”" in text, text[:300])
    s.open("demo")
    drawn = " ".join(n.text or "" for n in tree.fromstring(s.saved("svg")).iter(f"{SVG}text"))
    check("the word that looks" in drawn and "the word it looks at" in drawn, "axes have no titles")


def test_ties_are_said_to_be_ties(s):
    """Weights that are equal as far as they are stored have no invented order."""
    def level(report, arrays):  # row 3 of one head: 99 at key 5, 7 elsewhere, in units of the last digit
        at = report["reports"][0]["stacks"][0]["maps"][4] + 128 * 4 * 2 + 128
        for j in range(128):
            arrays[at + 3 * 128 + j], arrays[at + 128 * 128 + 3 * 128 + j] = (99 if j == 5 else 7), 0
    page = s.variant("large", level, a="0.0.0.4", i=3, j=8)
    ranks = s.texts("#top tbody td:first-child")
    check(ranks[:3] == ["1", "=2", "=2"], f"{ranks}")
    page.js("document.querySelector('#view').focus()")
    for expected in ("ranks 2 to 128 of 128", "ranks 2 to 128 of 128", "rank 1 of 128"):
        page.key("ArrowLeft")
        check(expected in s.text("#say"), f"{s.text('#say')}, expected {expected}")


def test_broad_heads_of_long_texts_have_texture(s):
    """512 weights of about 0.002 each: on a scale to 1 they would all be white."""
    s.open("long")
    report = s.report()["reports"][0]
    stack, broad = report["stacks"][0], [role["key"] for role in report["roles"]].index("broad")
    head = next(n for n in range(5, 144) if stack["role"][n] == broad and stack["maps"][n] >= 0)
    page = s.open("long", a=f"0.0.{head // 12}.{head % 12}")
    shades = page.js("(() => { const c = document.querySelector('#view'), { data } = c.getContext('2d').getImageData(c.width / 3, c.height / 3, c.width / 4, c.height / 3);"
                     "const n = data.length / 4, seen = {}; for (let at = 0; at < n; at++) { const key = data.slice(4 * at, 4 * at + 3).join(); seen[key] = (seen[key] ?? 0) + 1 / n; }"
                     "return Object.entries(seen).sort((a, b) => b[1] - a[1]); })()")
    check(len(shades) > 10 and int(shades[0][0].split(",")[0]) < 240, f"{len(shades)} colours, most of all {shades[0]}")
    check("dark is" in s.text("#key-note"), s.text("#key-note"))
    page.screenshot(os.path.join(s.shots, "broad-512.png"))


# ---- figures ---------------------------------------------------------------------------

def test_figures_are_for_papers(s):
    page = s.open("demo", theme="dark", a="0.0.5.2", i=8)
    shown = page.js("document.documentElement.dataset.theme")
    root = tree.fromstring(s.saved("svg"))
    texts = [n.text for n in root.iter(f"{SVG}text")]
    check(root.find(f"{SVG}rect").get("fill") == "#ffffff", "the background is not light")
    check(any("Layer 6 · Head 3" in (text or "") for text in texts), "the head is not named")
    check({"0", "0.25", "1"} <= set(texts), "there is no colour bar")
    accent = page.js("(() => { document.documentElement.dataset.theme = 'light'; const c = getComputedStyle(document.documentElement).getPropertyValue('--accent').trim(); document.documentElement.dataset.theme = 'dark'; return c; })()")
    cursor = [n for n in root.iter(f"{SVG}rect") if n.get("stroke") == accent]
    check(not cursor and shown == "dark" and page.js("document.documentElement.dataset.theme") == "dark", "the cursor is drawn, or the page changed")
    dark = tree.fromstring(s.saved("svg", shift=True))
    check(dark.find(f"{SVG}rect").get("fill") == "#11141a", "with Shift it is not as shown")


def test_maps_of_a_deep_model_are_legible(s):
    """All heads of 30 layers: the picture is as tall as they need, the window scrolls."""
    def deepen(report, _):
        stack = report["reports"][0]["stacks"][0]
        stack.update({key: value * 5 for key, value in stack.items() if isinstance(value, list)}, layers=30, norms=-1)
    page = s.variant("demo", deepen, view="all")
    check(boxes(page, "#view")[0][3] >= 30 * 48, f"{boxes(page, '#view')}")
    page.screenshot(os.path.join(s.shots, "deep.png"), full=True)
    s.quiet()


def test_all_heads_figure_is_small(s):
    s.open("long", view="all")
    text = s.saved("svg")
    root = tree.fromstring(text)
    check(len(text) < 1 << 20, f"{len(text)} bytes")
    check(len(list(root.iter(f"{SVG}image"))) == 144, "not an image for each head")


def test_csv_of_what_is_shown(s):
    page = s.open("demo", view="all")
    lines = s.saved("csv").strip().split("\n")
    check(len(lines) == 49 and lines[0].startswith("stack,layer,head,role,prev"), lines[0])
    page.js("document.querySelector('#tab-compare').click()")
    page.settle()
    lines = s.saved("csv").strip().split("\n")
    check(lines[0] == "row,key,row_word,key_word,a,b,difference" and len(lines) == 1 + 13 * 13, lines[0])
    for line in lines[1:20]:
        a, b, difference = map(float, line.split(",")[-3:])
        check(difference == b - a, line)
    s.open("demo", view="neuron", a="0.0.5.2", i=8)
    lines = s.saved("csv").strip().split("\n")
    check(len(lines) == 1 + 13 * 32, f"{len(lines)} lines")
    s.open("demo", view="beams", a="0.0.5.2", extra="0.0.1.1")
    heads = {tuple(line.split(",")[1:3]) for line in s.saved("csv").strip().split("\n")[1:]}
    check(heads == {("5", "2"), ("1", "1")}, f"{heads}")


def test_printed_page_has_its_bars(s):
    page = s.open("demo")
    page.call("Emulation.setEmulatedMedia", media="print")
    left = page.js("[...document.querySelectorAll('input, select, [role=tab], textarea')].filter((n) => n.offsetParent).map((n) => n.id)")
    kept = page.js("[...document.querySelectorAll('.meter b')].every((n) => getComputedStyle(n).printColorAdjust === 'exact')")
    data = base64.b64decode(page.call("Page.printToPDF", printBackground=False)["data"])
    page.call("Emulation.setEmulatedMedia", media="")
    check(kept, "bars are left out where backgrounds are")
    check(not left, f"controls on paper: {left}")
    check(data[:5] == b"%PDF-", "nothing was printed")


# ---- live ------------------------------------------------------------------------------

def test_live_opens_where_something_happens(s):
    with Served("answers") as served:
        page = open_live(s, served, view="")
        check("Head 4" in s.text("#card-title"), f"head 4 matters most, it opens on {s.text('#card-title')}")
        check("Head 4" in s.text("#live-hint") and "0.4000" in s.text("#live-hint"), s.text("#live-hint"))
        check(page.js("document.querySelector('#live-go').disabled"), "it is here already")
        page.key("[")
        page.click_on("#live-go")
        check("Head 4" in s.text("#card-title"), "the hint does not lead there")
        bare = page.js("[...document.querySelectorAll('#live button, #live textarea, #live label')].filter((n) => n.offsetParent && !n.title && !n.closest('ul') && n.id !== 'live-go').map((n) => n.id)")
        check(not bare, f"without a tooltip: {bare}")
        page.screenshot(os.path.join(s.shots, "live-first.png"))
    s.page.offline()


def test_live_undo_and_redo(s):
    edits = "document.querySelectorAll('#live-edits button').length"
    with Served("demo") as served:
        page = open_live(s, served)
        check(page.js("document.querySelector('#live-undo').disabled && document.querySelector('#live-redo').disabled"), "nothing to undo")
        page.click_on("#live-on")
        check(page.js("document.querySelector('#live-undo').disabled"), "a change of nothing can be undone")
        page.click_on("#live-zero")
        page.until(f"{edits} === 1", "the edit")
        page.js("(() => { const g = document.querySelector('#live-gate'); for (const at of [0.5, 0]) { g.value = at; g.dispatchEvent(new Event('input')); } g.dispatchEvent(new Event('change')); })()")
        page.until("document.querySelector('#live-note').textContent.startsWith('answered')", "the gate")
        page.js("document.querySelector('#view').focus()")
        for key, shift, left in (("z", False, 1), ("z", False, 0), ("z", True, 1), ("y", False, 1)):
            page.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=ord(key.upper()), modifiers=10 if shift else 2)
            page.until(f"document.querySelector('#live-note').textContent.startsWith('answered') && {edits} === {left}", f"Ctrl-{key} {shift}: {left} edits")
        page.until("document.querySelector('#live-redo').disabled", "all redone")
        page.click_on("#live-undo")
        page.until("document.querySelector('#live-redo').disabled === false", "something to make again")
        page.click_on("#live-redo")
        page.until(f"{edits} === 1", "redone")
    s.page.offline()


def test_nothing_moves_under_the_mouse(s):
    watched = ("#view", "#grid", "#live-zero", "#live-mask", "#live-undo", "#live-save", "#strip button:nth-child(4)", "#gives", "#clear", "#save-csv")
    with Served("demo") as served:
        page = open_live(s, served)
        before = boxes(page, *watched)
        page.click_on("#live-zero")
        page.until("document.querySelector('#live-changed button')", "the change")
        check(boxes(page, *watched) == before, f"an edit moves things: {before} {boxes(page, *watched)}")
        page.click_on("#strip button:nth-child(4)")
        check(boxes(page, *watched) == before, f"a picked word moves things: {before} {boxes(page, *watched)}")
        page.key("]")
        check(boxes(page, *watched) == before, f"another head moves things: {before} {boxes(page, *watched)}")
    s.page.offline()


def test_maps_alone_have_no_controls_of_a_model(s):
    with Served("demo", "maps") as served:
        page = open_live(s, served)
        check(page.js("document.querySelector('#live').offsetParent === null"), "there are controls that need a model")
        check(page.js("document.querySelector('#view').width") > 100, "no picture")
    s.page.offline()
    s.open("causal", view="neuron")  # maps without queries and keys
    check("neuron" not in s.views() and view_of(page) == "tab-heat", f"{s.views()}")


# ---- sizes -----------------------------------------------------------------------------

def test_no_empty_band(s):
    """Beams reach the end of their canvas, however tall the window is."""
    for width, height in ((768, 1024), (1280, 800), (1920, 1080), (1920, 1400)):
        s.page.resize(width, height)
        page = s.open("answers", view="")
        empty = page.js("""(() => { const c = document.querySelector('#view'), { width: w, height: h } = c, d = c.getContext('2d').getImageData(0, 0, w, h).data;
            let y = h - 1;
            const same = (n, m) => d[n] === d[m] && d[n + 1] === d[m + 1] && d[n + 2] === d[m + 2];
            for (; y > 0; y--) { let x = 1; while (x < w && same(4 * (y * w + x), 4 * y * w)) x++; if (x < w) break; }
            return h - y; })()""")
        s.page.resize(1440, 900)
        check(empty < 60, f"{width} x {height}: {empty} px below the beams are empty")


def test_roles_that_share_a_colour(s):
    """There are 12 colours: the 13th role has the first and a bar, in the grid and in the legend, which says so."""
    def extend(report, _):
        one = report["reports"][0]
        one["roles"] += [{"glyph": "z", "key": f"role{n}", "name": f"role {n}", "help": ""} for n in range(len(one["roles"]), 26)]
        one["stacks"][0]["role"][:3] = [1, 13, 25]
    page = s.variant("demo", extend)
    marks = page.js("Array.from(document.querySelectorAll('#legend i'), (n) => [getComputedStyle(n).backgroundColor, n.style.boxShadow])")
    looks = [tuple(mark) for mark in marks]
    check(len(set(looks)) == len(looks), f"two roles look the same: {looks}")
    check(sum(1 for look in looks if look[1]) == 2, f"bars: {looks}")
    check("A bar tells" in s.text("#legend"), s.text("#legend"))
    s.open("demo")
    check("A bar tells" not in s.text("#legend"), "a legend of bars that are not there")


def test_five_sizes(s):
    """Screenshots to look at; nothing is cut off, the picture has its place."""
    for width, height in ((390, 844), (768, 1024), (1280, 800), (1440, 900), (1920, 1080)):
        s.page.resize(width, height)
        for theme in ("light", "dark"):
            for name, lang in (("answers", "en"), ("chinese", "zh")):
                page = s.open(name, view="", theme=theme, lang=lang)
                page.screenshot(os.path.join(s.shots, f"size-{width}-{theme}-{lang}.png"))
                over = page.js("document.documentElement.scrollWidth - innerWidth")
                view = boxes(page, "#view")[0]
                check(over <= 0, f"{width} px: {over} px too wide")
                check(view[1] < height / 3, f"{width} px: the picture begins at {view[1]}")
                check(view[2] > (0.9 if width < 760 else 0.5) * width, f"{width} px: the picture is {view[2]} wide")
    s.page.resize(1440, 900)
    s.quiet()
