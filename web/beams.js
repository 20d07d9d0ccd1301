// beams.js - two rows of words and beams between them, one colour per head. Each word's
// beams are its largest weights up to a share of the mass, so that long texts stay legible.
//
// Words are in two lines where they fit, else in two columns that scroll.

const MAX_BEAMS = 64; // of one word: more are illegible, and slow

const edges = new Map(); // head, mass, kind of weights and row to a list of keys

function edgesOf(ref, i) {
  const map = mapOf(ref), key = `${idOf(ref)}/${state.mass}/${state.valued}/${i}`;
  let list = edges.get(key);
  if (list) return list;
  list = topMass(map.shownRow(i, state.valued), map.seen(i), state.mass).slice(0, MAX_BEAMS);
  if (edges.size > 20000) edges.clear();
  if (!map.remote || map.remote.has(i)) edges.set(key, list);
  return list;
}

const beamHeads = () => [state.a, ...state.extra].filter((ref) => !isAbsent(ref) && mapOf(ref).stored);

// Layout of words: { x, y } of each, the size of its box, and whether lines are horizontal.
function beamLayout(w, h) {
  const queries = shownWords(queryWords(state.a)), keys = shownWords(keyWords(state.a));
  const natural = (words, size) => words.reduce((sum, word) => sum + textWidth(word, size) + size, 0);
  const fits = (size) => Math.max(natural(queries, size), natural(keys, size)) <= w;
  const size = [24, 20, 17, 14].find(fits);
  if (size && Math.max(queries.length, keys.length) <= 60) return beamRows(queries, keys, w, h, size);
  return beamColumns(queries, keys, w, h, 14);
}

const MOST_TALL = 700; // beams that climb farther are hard to follow

function beamRows(queries, keys, w, h, size) {
  const tall = Math.min(h, MOST_TALL), low = tall - 27 - 5 * beamHeads().length, line = (words, y) => { // below: strips and a title
    const width = words.reduce((sum, word) => sum + textWidth(word, size), 0);
    const gap = Math.min(2.6 * size, (w - width) / words.length);
    let x = (w - width - gap * (words.length - 1)) / 2;
    return words.map((word) => {
      const wide = textWidth(word, size), place = { word, x, y, w: wide, mid: x + wide / 2 };
      x += wide + gap;
      return place;
    });
  };
  return { across: true, size, rows: line(queries, 34), keys: line(keys, low), top: 46, bottom: low - 14, height: tall };
}

function beamColumns(queries, keys, w, h, size) {
  const most = Math.max(queries.length, keys.length), top = 20, step = Math.max(22, Math.min(38, Math.floor((h - top) / most)));
  const count = Math.max(1, Math.floor((h - top) / step));
  const first = Math.max(0, Math.min(state.scroll, most - count));
  const wide = Math.min(w * 0.3, 190), left = Math.max(0, (w - 700) / 2), right = Math.min(w, left + 700);
  const column = (words, x, align) => words.map((word, n) => ({ word, x, y: top + 12 + (n - first) * step, w: wide, align }));
  return {
    across: false, size, step, count, first, most, top, height: h,
    rows: column(queries, left + wide, "right"), keys: column(keys, right - wide, "left"), left: left + wide + 12, right: right - wide - 12, wide,
  };
}

const visible = (layout, n) => layout.across || (n >= layout.first && n < layout.first + layout.count);

function beamPath(p, layout, i, j, colour, width, alpha, shift) {
  const a = layout.rows[i], b = layout.keys[j];
  if (layout.across) {
    const mid = (layout.top + layout.bottom) / 2;
    p.curve(a.mid + shift, layout.top, a.mid + shift, mid, b.mid + shift, mid, b.mid + shift, layout.bottom, colour, width, alpha);
  } else {
    const mid = (layout.left + layout.right) / 2;
    p.curve(layout.left, a.y + shift, mid, a.y + shift, mid, b.y + shift, layout.right, b.y + shift, colour, width, alpha);
  }
}

// Which rows are drawn: picked ones, those under the pointer, or all.
function beamFocus() {
  const hover = beamsView.hover;
  if (hover) return hover.side === "q" ? { rows: new Set([hover.n]) } : { keys: new Set([hover.n]) };
  if (state.picked.length) return state.seen ? { keys: new Set(state.picked) } : { rows: new Set(state.picked) };
  return {};
}

function drawBeams(p, layout, focus) {
  const heads = beamHeads(), quiet = focus.rows || focus.keys;
  heads.forEach((ref, n) => {
    const map = mapOf(ref), most = state.valued ? map.largest(true) : 1;
    const shift = (n - (heads.length - 1) / 2) * Math.min(5, 24 / heads.length), colour = headColour(n);
    for (let i = 0; i < map.rows; i++) {
      const answers = stackOf(ref).share && isUnknown(queryWords(ref), i) ? 0 : shareOf(ref, i);
      const counts = 0.12 + 0.88 * answers; // rows it does not answer for are faded
      if (!visible(layout, i) && (!focus.keys || map.remote)) continue;
      if (focus.rows && !focus.rows.has(i)) continue;
      const row = map.shownRow(i, state.valued);
      for (const j of edgesOf(ref, i)) {
        if (focus.keys && !focus.keys.has(j)) continue;
        const share = Math.min(1, row[j] / most);
        beamPath(p, layout, i, j, colour, 0.8 + 6 * share, ((quiet ? 0.3 : 0.12) + 0.65 * share) * counts, shift);
      }
    }
  });
}

// Under a word: one strip per head, as dark as its weight from or to the focus.
function stripOf(layout, focus, side, n) {
  return beamHeads().map((ref, k) => {
    const map = mapOf(ref), most = state.valued ? map.largest(true) : 1;
    let sum = 0;
    if (side === "k" && focus.rows) for (const i of focus.rows) sum += n < map.seen(i) ? map.shownRow(i, state.valued)[n] : 0;
    if (side === "q" && focus.keys) for (const j of focus.keys) sum += j < map.seen(n) ? map.shownRow(n, state.valued)[j] : 0;
    return { colour: headColour(k), alpha: Math.min(1, Math.sqrt(sum / most)) };
  });
}

function drawBeamWords(p, layout, focus) {
  for (const [side, places] of [["q", layout.rows], ["k", layout.keys]]) {
    const own = side === "q" ? focus.rows : focus.keys, other = side === "q" ? focus.keys : focus.rows;
    places.forEach((place, n) => {
      if (!visible(layout, n)) return;
      if (other) drawStrips(p, layout, place, stripOf(layout, focus, side, n), side);
      const weight = own?.has(n) ? 650 : 400;
      if (layout.across) p.text(place.word, place.mid, place.y, { size: layout.size, align: "center", weight });
      else p.text(fitText(place.word, place.w - 8, layout.size), place.x, place.y, { size: layout.size, align: place.align, weight });
    });
  }
}

function drawStrips(p, layout, place, strips, side) {
  strips.forEach(({ colour, alpha }, n) => {
    if (alpha < 0.04) return;
    if (layout.across) p.rect(place.x - 3, side === "q" ? place.y - 16 - 5 * n : place.y + 13 + 5 * n, place.w + 6, 4, colour, alpha);
    else p.rect(side === "q" ? place.x + 2 + 5 * n : place.x - 6 - 5 * n, place.y - 9, 4, 18, colour, alpha);
  });
}

let beamsAt = null;

const beamsView = {
  hover: null,
  tall(w, h) { // no more than the words need
    const layout = queryWords(state.a).length ? beamLayout(w, h) : null;
    return layout ? Math.min(h, layout.across ? MOST_TALL : layout.top + layout.most * layout.step) : h;
  },
  draw(p, w, h) {
    beamsAt = null;
    if (drawMissing(p, state.a)) return;
    if (!mapOf(state.a).rows || !mapOf(state.a).keys) {
      p.text(t("noWords"), 0, 20, { fill: css("--quiet") });
      return;
    }
    beamsAt = beamLayout(w, h);
    const focus = beamFocus();
    drawBeams(p, beamsAt, focus);
    drawBeamWords(p, beamsAt, focus);
    const [one, two] = [beamsAt.rows[0], beamsAt.keys[0]], style = { size: 11.5, fill: css("--quiet") };
    p.text(t("looks"), beamsAt.across ? 0 : one.x, 9, { ...style, align: one.align ?? "left" });
    p.text(t("lookedAt"), beamsAt.across ? 0 : two.x, beamsAt.across ? beamsAt.height - 6 : 9, style);
  },
  hit(x, y) {
    if (!beamsAt) return null;
    for (const [side, places] of [["q", beamsAt.rows], ["k", beamsAt.keys]])
      for (let n = 0; n < places.length; n++) {
        const place = places[n];
        if (!visible(beamsAt, n)) continue;
        const x0 = beamsAt.across ? place.x : place.align === "right" ? place.x - place.w : place.x;
        if (x >= x0 - 5 && x <= x0 + place.w + 5 && Math.abs(y - place.y) <= 12) return { word: { side, n } };
      }
    return null;
  },
  move(di, dj) {
    const n = Math.max(0, Math.min(queryWords(state.a).length - 1, state.i + (di || dj)));
    const scroll = beamsAt && !beamsAt.across ? Math.min(Math.max(beamsAt.first, n - beamsAt.count + 1), n) : 0;
    this.hover = { side: "q", n };
    set({ i: n, scroll });
    say(wordSentence("q", n));
  },
  pan(dx, dy) {
    if (!beamsAt || beamsAt.across) return;
    set({ scroll: Math.max(0, Math.min(beamsAt.most - beamsAt.count, state.scroll + Math.sign(dy) * Math.max(1, Math.round(Math.abs(dy) / beamsAt.step)))) });
  },
  note: () => `${t(page.mode === "top" ? "beamsKept" : "beamsNote", percent(state.mass))} ${keyWords(state.a).length > MAX_BEAMS ? `${t("beamsMost", MAX_BEAMS)} ` : ""}${t("chipsHelp")}`,
};

// The three largest weights of a word, for every head among the beams.
function wordLines(side, n) {
  const word = (side === "q" ? queryWords : keyWords)(state.a)[n];
  const lines = [[make("b", {}, shown(word)), ` ${side === "q" ? t("gives") : t("gets")}`]];
  for (const ref of beamHeads()) {
    const best = topPartners(ref, [n], side === "k").slice(0, 3);
    lines.push([`${labelOf(ref)}: `, best.map((x) => `${shown(x.word)} ${cellText(x.cell)}`).join(", ")]);
  }
  return lines;
}

const wordSentence = (side, n) => wordLines(side, n).map((line) => line.map((x) => x.textContent ?? x).join("")).join("; ");

// Partners of words by summed weight: { n, word, cell }, largest first.
function topPartners(ref, words, seen) {
  const map = mapOf(ref), partner = seen ? queryWords(ref) : keyWords(ref), sums = [];
  if (seen) map.remote?.columns(words);
  for (let n = 0; n < partner.length; n++) {
    let v = 0, error = 0, known = false, below = 0, digits;
    for (const w of words) {
      const cell = seen ? map.cell(n, w) : map.cell(w, n);
      if (cell.below !== undefined) below += cell.below;
      if (cell.v === undefined) continue;
      known = true;
      v += cell.v;
      error += cell.error;
      if (words.length === 1) digits = cell.digits;
    }
    if (known) sums.push({ n, word: partner[n], cell: { v, error: error + below, digits } });
  }
  return sums.sort((x, y) => y.cell.v - x.cell.v || x.n - y.n);
}
