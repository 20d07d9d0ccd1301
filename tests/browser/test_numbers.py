"""test_numbers.py - pages load from disk and show the numbers of the engine."""
import csv
import decimal
import io
import os
import re
import struct
import xml.etree.ElementTree as tree

from suite import HEADS, SVG, check


# ---- loading ---------------------------------------------------------------------------

def test_every_page_loads_offline(s):
    for name in sorted(os.listdir(s.pages)):
        if not name.endswith(".html"):
            continue
        s.open(name[:-5])
        s.each_view(lambda view: None)
        s.quiet()


def test_a_damaged_page_says_so(s):
    with open(os.path.join(s.pages, "patterns.html"), encoding="utf-8") as page:
        text = page.read()
    broken = text.replace('"bytes":', '"bytes":1', 1)
    check(broken != text, "nothing to damage")
    with open(os.path.join(s.pages, "damaged.html"), "w", encoding="utf-8") as page:
        page.write(broken)
    s.page.go(f"file://{s.pages}/damaged.html")
    os.remove(os.path.join(s.pages, "damaged.html"))
    check(s.page.js("document.documentElement.dataset.ready") == "failed", "it opened all the same")
    check("damaged" in s.text("#found"), s.text("#found"))


# ---- numbers ---------------------------------------------------------------------------

def single(number):
    """The nearest float of 32 bits."""
    return struct.unpack("f", struct.pack("f", float(number)))[0]


def test_decoded_weights_equal_the_engine(s):
    for name, head in HEADS.items():
        s.open(name, a=head)
        mode, truth, exact = s.report()["mode"], s.truth(name), 0
        rows = list(csv.DictReader(io.StringIO(s.saved("csv"))))
        check(len(rows) == len(truth) or mode == "top", f"{name}: {len(rows)} weights of {len(truth)}")
        for row in rows:
            true, error = truth[int(row["row"]), int(row["key"])], float(row["error"])
            exact += error == 0
            check(abs(single(row["weight"]) - single(true)) <= error * 1.000001, f"{name}: {row} but {true}")
        check(exact == (0 if mode == "dec" else len(rows)), f"{name}: {exact} exact weights")


def counted_from_0(places):
    """"8 → 2", as people count words, as an index."""
    return [int(place) - 1 for place in places.split(" → ")]


def test_hover_prints_exact_weights(s):
    page, truth = s.open("demo", a=HEADS["demo"]), s.truth("demo")
    box = page.js("(() => { const r = document.querySelector('#view').getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()")
    seen = set()
    for step in range(12):
        page.hover(box[0] + box[2] * (0.12 + 0.05 * step), box[1] + box[3] * (0.3 + 0.05 * step))
        if page.js("document.querySelector('#tip').hidden"):
            continue
        lines = s.texts("#tip div")
        i, j = counted_from_0(lines[-1])
        check(lines[0] == f"{truth[i, j]:.4f}", f"{lines} but {truth[i, j]}")
        seen.add((i, j))
    check(len(seen) >= 5, f"only {seen} were met")


def as_printed(weight, digits=4):
    """A float as the page prints it: so many digits, halves away from zero."""
    return str(decimal.Decimal(single(weight)).quantize(decimal.Decimal(10) ** -digits, decimal.ROUND_HALF_UP))


def test_rounded_pages_print_exact_digits(s):
    """12 x 12 heads x 128 words are kept with four digits: those of the engine, everywhere."""
    page, truth = s.open("large", a=HEADS["large"], i=0, j=0), s.truth("large")
    check(s.report()["mode"] == "dec", "another mode")
    for row in csv.DictReader(io.StringIO(s.saved("csv"))):
        true = truth[int(row["row"]), int(row["key"])]
        check(f"{float(row['weight']):.4f}" == as_printed(true), f"{row} but {true}")
    page.js("document.querySelector('#view').focus()")
    for step in range(40):
        page.key("ArrowRight" if step % 3 else "ArrowDown")
        spoken = s.text("#say")
        i, j = counted_from_0(spoken.split(", ")[-1])
        wanted = as_printed(truth[i, j])
        check(spoken.startswith(f"{wanted}," if float(wanted) else "less than 0.00005,"), f"{spoken} but {truth[i, j]}")


def test_keyboard_speaks_exact_weights(s):
    page, truth = s.open("demo", a=HEADS["demo"], i=0, j=0), s.truth("demo")
    page.js("document.querySelector('#view').focus()")
    place = [0, 0]
    for key, step in (("ArrowDown", (1, 0)), ("ArrowRight", (0, 1)), ("ArrowRight", (0, 1)), ("ArrowLeft", (0, -1)), ("ArrowUp", (-1, 0)), ("ArrowUp", (0, 0))):
        page.key(key)
        place = [place[0] + step[0], place[1] + step[1]]
        spoken = s.text("#say")
        check(spoken.startswith(f"{truth[tuple(place)]:.4f},") and spoken.endswith(f", {place[0] + 1} → {place[1] + 1}"), f"{place}: {spoken}")


def test_picked_words_are_summed(s):
    page, truth = s.open("demo", a=HEADS["demo"]), s.truth("demo")
    page.click_on("#strip button:nth-child(3)")
    page.click_on("#strip button:nth-child(9)", shift=True)
    words = s.report()["reports"][0]["axes"][0]["tokens"]
    sums = {j: truth[2, j] + truth[8, j] for j in range(len(words))}
    best = sorted(sums, key=lambda j: (-sums[j], j))[:10]
    check(s.texts("#top tbody td:nth-child(2)") == [words[j] for j in best], "other words")
    for got, j in zip(s.texts("#top tbody td:nth-child(3)"), best):
        check(abs(float(got) - sums[j]) < 0.00006, f"{words[j]}: {got} but {sums[j]}")
    page.click_on("#gets")
    sums = {i: truth[i, 2] + truth[i, 8] for i in range(len(words))}
    best = max(sums, key=lambda i: (sums[i], -i))
    check(s.texts("#top tbody td:nth-child(2)")[0] == words[best], "seen by: another word")
    page.js("document.querySelector('#view').focus()")
    page.key("Escape")
    check(page.js("document.querySelectorAll('#strip .picked').length") == 0, "Escape leaves words picked")


def test_beams_carry_the_mass(s):
    truth = s.truth("demo")
    for mass in (0.3, 0.7, 0.95):
        s.open("demo", a=HEADS["demo"], view="beams", mass=mass, picked="none")
        expected = 0
        for i in range(13):
            row, kept = sorted((truth[i, j] for j in range(13)), reverse=True), 0
            for weight in row:
                if kept >= mass * sum(row):
                    break
                kept += weight
                expected += 1
        beams = len(tree.fromstring(s.saved("svg")).findall(f".//{SVG}path"))
        check(beams == expected, f"mass {mass}: {beams} beams, expected {expected}")


def test_neurons_add_up_to_scores(s):
    page = s.open("demo", a="0.0.5.2", view="neuron", i=8)
    words = [n.text for n in tree.fromstring(s.saved("svg")).iter(f"{SVG}text")]
    numbers = [float(w) for w in words if re.fullmatch(r"-?\d+\.\d{4}", w or "")]
    scores, weights = numbers[0::2], numbers[1::2]
    check(len(scores) == 13 and abs(sum(weights) - 1) < 0.001, f"{len(scores)} scores, weights {sum(weights)}")
    top = max(range(13), key=lambda j: scores[j])
    check(weights[top] == max(weights), "the largest score has not the largest weight")
    import math
    for j in range(13):
        ratio = math.exp(scores[j] - scores[top])
        check(abs(weights[j] / weights[top] - ratio) < 0.01 * ratio + 0.0005, f"key {j}: {weights[j]} against {ratio}")
    page.js("document.querySelector('#view').focus()")
    page.key("ArrowRight")
    check("i=9" in page.js("location.hash") or page.js("new Promise((r) => setTimeout(() => r(location.hash), 300))").find("i=9") > 0, "right does not go to the next word")


def test_compare_shows_the_difference(s):
    page = s.open("compare", view="compare", a="0.0.2.1", i=3, j=2)
    box = page.js("(() => { const r = document.querySelector('#view').getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()")
    seen = 0
    for share in (0.2, 0.55, 0.85):
        page.hover(box[0] + box[2] * share, box[1] + 170)
        lines = s.texts("#tip div")
        if page.js("document.querySelector('#tip').hidden") or len(lines) < 4:
            continue
        a, b, difference = (float(line.split()[-1].replace("−", "-")) for line in lines[:3])
        check(abs(difference - (b - a)) < 0.00011, str(lines))
        seen += 1
    check(seen >= 2, "the pointer met too few cells")
    check(len(tree.fromstring(s.saved("svg")).findall(f".//{SVG}rect")) > 3 * 13 * 13, "not three maps")
    check(not page.js("document.querySelector('#ramp-difference').hidden"), "the difference has no scale")
    page.click_on("#tab-heat")
    check(page.js("document.querySelector('#ramp-difference').hidden"), "a scale of no difference")
