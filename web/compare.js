// compare.js - A, B and B - A side by side: two heads, two texts or two models. The cursor
// is in all of them at once.

let compareAt = [];

// Two texts are told apart by what they say, two models by their names.
function reportName(r) {
  if (page.live) return t(r ? "after" : "before");
  const { title, text } = page.reports[r];
  const [one, two] = page.reports.map((report) => report.text);
  return shown(page.reports.length > 1 && one !== two && text ? `“${whereTheyDiffer(text, text === one ? two : one)}”` : title);
}

// A text from the word before the first that differs: long ones begin alike.
function whereTheyDiffer(text, other) {
  let same = 0;
  while (same < text.length && text[same] === other[same]) same++;
  const before = Array.from(text.slice(0, same)), from = before.slice(0, -1).join("").trimEnd().lastIndexOf(" ") + 1;
  return same > 24 && from > 0 ? `… ${text.slice(from)}` : text;
}

// B, or what is nearest to A: the same head of the other report, a head among its beams, or
// the next head.
function otherHead() {
  if (state.b) return state.b;
  if (page.live && page.reports.length > 1) return { ...state.a, r: 1 };
  const { r, s, l, h } = state.a, other = { r: 1 - r, s, l, h };
  if (page.reports.length > 1 && headExists(other)) return other;
  if (state.extra.length) return state.extra[0];
  const others = allHeads(r).filter((ref) => sameAxes(ref, state.a)), next = others.findIndex((ref) => sameHead(ref, state.a)) + 1;
  return others[next % others.length];
}

function sameShape(a, b) {
  return a.rows === b.rows && a.keys === b.keys;
}

// A: in live mode the report before the edits.
const firstHead = () => (page.live && page.reports.length > 1 && !state.b ? { ...state.a, r: 0 } : state.a);

let lastDifference = {}; // moving the cursor does not change it

function differenceShade(a, b) {
  const key = `${idOf(a.ref)}/${idOf(b.ref)}/${state.valued}/${state.scale}/${theme()}`;
  if (a.remote) return { remote: true, name: key, signed: true, lut: divergingLut(), most: () => 1, valued: state.valued, from: a };
  if (lastDifference.key !== key) lastDifference = { key, shade: { ...makeDifference(a, b), name: key } };
  return lastDifference.shade;
}

function makeDifference(a, b) {
  const from = a.shownCells(state.valued), to = b.shownCells(state.valued), cells = new Float32Array(from.length);
  let most = 0;
  for (let n = 0; n < cells.length; n++) {
    const v = (cells[n] = to[n] - from[n]);
    if (v > most) most = v;
    else if (-v > most) most = -v;
  }
  if ((state.scale === "fixed" || state.scale === "auto") && !state.valued) most = 1;
  return { cells, signed: true, lut: divergingLut(), most: () => most };
}

const NARROW = 560; // maps one below the other

const compareView = {
  tall: (w, h) => (w < NARROW ? Math.max(h, 3 * w) : h),
  draw(p, w, h) {
    compareAt = [];
    const a = firstHead(), b = otherHead();
    if (drawMissing(p, a) || drawMissing(p, b)) return;
    const maps = [mapOf(a), mapOf(b)], shades = maps.map((map) => plainShade(map, state.valued));
    const titles = [a, b].map((ref, n) => `${t(n ? "compareB" : "compareA")}  ${labelOf(ref)}${page.reports.length > 1 ? ` · ${reportName(ref.r)}` : ""}`);
    if (sameShape(...maps)) {
      maps.push(maps[1]);
      shades.push(differenceShade(maps[0], maps[1]));
      titles.push(t("difference"));
    }
    const narrow = w < NARROW, same = maps.length === 3, gap = 12, labels = same && !narrow ? labelWidth(maps[0]) : 0;
    const wide = narrow ? w : (w - labels - gap * (maps.length - 1)) / maps.length, high = narrow ? h / 3 : h;
    let x = 0, y = 0, fit;
    maps.forEach((map, n) => {
      const box = { x, y: y + 22, w: wide + (n ? 0 : labels), h: high - 22 };
      const layout = heatLayout(map, box, { ...state, left: n === 0 || !same || narrow, fit });
      if (same) fit = layout.fit;
      if (narrow) y += high;
      else x += box.w + gap;
      p.text(fitText(titles[n], wide - (narrow ? layout.left : 0) - 8, 13, 600), layout.gx, box.y - 13, { weight: 600 });
      drawHeat(p, layout, shades[n], p.figure ? null : { i: state.i, j: state.j });
      compareAt.push({ ...layout, ref: n === 1 ? b : a, difference: n === 2, b, most: shades[n].most(0) });
    });
  },
  hit(x, y) {
    for (const layout of compareAt) {
      const cell = heatHit(layout, x, y);
      if (cell) return { cell, ref: layout.ref, difference: layout.difference, b: layout.b };
    }
    return null;
  },
  lines({ cell: { i, j } }) {
    const a = mapOf(firstHead()), other = mapOf(otherHead()), lines = [];
    const one = a.cell(i, j);
    lines.push([`A ${cellText(one)}`]);
    if (sameShape(a, other)) {
      const two = other.cell(i, j);
      lines.push([`B ${cellText(two)}`]);
      if (one.v !== undefined && two.v !== undefined) lines.push([make("b", {}, `B − A ${cellText({ v: two.v - one.v, error: one.error + two.error })}`)]);
    }
    lines.push([t("toCell", `“${shown(queryWords(state.a)[i])}”`, `“${shown(keyWords(state.a)[j])}”`)]);
    return lines;
  },
  move(di, dj) { moveCursor(di, dj, compareAt[0]); },
  zoom(factor) { zoomBy(factor, compareAt[0]); },
  pan(dx, dy) { panBy(dx, dy, compareAt[0]); },
  note() {
    const [one, two] = page.live ? [] : page.reports.map((report) => report.text);
    const texts = one && two && one !== two ? `A “${shown(one)}”, B “${shown(two)}”. ` : "";
    return texts + (compareAt.length === 2 ? t("compareShape") : t("compareHint"));
  },
};
