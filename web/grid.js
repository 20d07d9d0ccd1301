// grid.js - all heads of a stack: small cells with label and colour at the left, and
// thumbnails of all maps as a view of their own.

let passes = () => true; // the filter line, as a function of a head

function headsOf({ r, s }) {
  const { layers, heads } = page.reports[r].stacks[s];
  return Array.from({ length: layers * heads }, (_, n) => ({ r, s, l: Math.floor(n / heads), h: n % heads }));
}

const allHeads = (r) => page.reports[r].stacks.flatMap((_, n) => headsOf({ r, s: n }));

// Layout of cells in a box, all stacks of the report below each other: numbers of layers at
// the left, of heads on top, the name of a stack above where there are several. Layers that
// would have cells smaller than `least` are broken into lines.
function gridLayout(r, width, height, most, least, gap) {
  const { stacks } = page.reports[r], left = 30, head = stacks.length > 1 ? 38 : 18;
  const wide = Math.max(...stacks.map((stack) => stack.heads)), linesOf = (stack) => Math.ceil(stack.heads / across);
  const fit = () => Math.min(most, Math.floor((width - left) / across), Math.floor((height - head * stacks.length) / stacks.reduce((sum, stack) => sum + stack.layers * linesOf(stack), 0)));
  let across = wide, cell = fit(), top = 0;
  if ((width - left) / wide < least) {
    const sizes = Array.from({ length: wide }, (_, n) => ((across = n + 1), fit()));
    cell = Math.max(...sizes);
    across = sizes.lastIndexOf(cell) + 1;
  }
  cell = Math.max(across < wide ? least : 4, cell);
  const parts = stacks.map((stack, n) => {
    top += head;
    const part = { r, s: n, stack, left, top, lines: linesOf(stack) };
    top += cell * stack.layers * part.lines + (n < stacks.length - 1 ? 4 : 0);
    return part;
  });
  return { parts, cell, across, gap: cell > 12 ? gap : cell > 6 ? 1 : 0, width: left + cell * across, height: top };
}

function gridHit(layout, x, y) {
  for (const { r, s: n, stack, left, top, lines } of layout?.parts ?? []) {
    const column = Math.floor((x - left) / layout.cell), line = Math.floor((y - top) / layout.cell);
    const l = Math.floor(line / lines), h = (line % lines) * layout.across + column;
    if (column >= 0 && column < layout.across && line >= 0 && h < stack.heads && l < stack.layers) return { r, s: n, l, h };
  }
  return null;
}

// The box of one head.
function cellBox(layout, ref) {
  const { left, top, lines } = layout.parts[ref.s], { cell, gap, across } = layout;
  const line = ref.l * lines + Math.floor(ref.h / across);
  return { x: left + (ref.h % across) * cell + gap / 2, y: top + line * cell + gap / 2, size: cell - gap };
}

function drawGridLabels(p, layout) {
  const { cell, across } = layout, step = Math.max(1, Math.ceil(15 / cell)), fill = css("--quiet");
  for (const { stack, left, top, lines } of layout.parts) {
    if (layout.parts.length > 1) p.text(said(stack.name), left, top - 28, { size: 12, weight: 600, fill });
    for (let h = 0; h < Math.min(across, stack.heads); h += step) p.text(String(h + 1), left + (h + 0.5) * cell, top - 8, { size: 11, align: "center", fill });
    for (let n = 0; n < stack.layers * lines; n += step) // a continued line starts with the index of its head
      p.text(n % lines ? `+${(n % lines) * across}` : String(n / lines + 1), left - 7, top + (n + 0.5) * cell, { size: 11, align: "right", fill });
    if (lines === 1) drawGroups(p, stack, left, top, cell);
  }
}

// Heads that share keys have one frame.
function drawGroups(p, stack, left, top, cell) {
  const size = stack.heads / stack.kvHeads;
  if (size <= 1) return;
  for (let l = 0; l < stack.layers; l++)
    for (let g = 0; g < stack.kvHeads; g++) p.frame(left + g * size * cell, top + l * cell, size * cell, cell, css("--quiet"));
}

function drawMarks(p, layout) {
  const marks = [[state.a, css("--accent"), 2.5]];
  if (state.view === "compare" && state.b) marks.push([state.b, headColour(1), 2.5]);
  if (state.view === "beams") state.extra.forEach((ref, n) => marks.push([ref, headColour(n + 1), 2]));
  for (const [ref, colour, width] of marks) {
    if (ref.r !== state.a.r) continue;
    const { x, y, size } = cellBox(layout, ref);
    p.frame(x - 0.5, y - 0.5, size + 1, size + 1, colour, width);
  }
}

// ---- the grid at the left ------------------------------------------------------------

let gridAt = null;

function metricRange(m) {
  let most = 0;
  for (const ref of allHeads(state.a.r)) most = Math.max(most, scoreOf(ref, m) || 0);
  const { own, key } = page.reports[state.a.r].metrics[m];
  return most > 1 || (most > 0 && own && key !== "contribution") ? most : 1;
}

function drawGrid() {
  const canvas = $("grid"), others = [state.view, state.b ? idOf(state.b) : "", ...state.extra.map(idOf)];
  if (!changed("grid", idOf(state.a), others, state.metric, state.filter, space.grid, JSON.stringify(live.edits))) return;
  gridAt = gridLayout(state.a.r, space.grid, 640, 30, 12, 2);
  canvas.style.width = `${gridAt.width}px`;
  canvas.style.height = `${gridAt.height}px`;
  canvas.setAttribute("aria-label", t("gridLabel", shapesOf(page.reports[state.a.r]).join(", ")));
  const p = openCanvas(canvas, gridAt.width, gridAt.height);
  const metrics = page.reports[state.a.r].metrics, m = metrics.findIndex((x) => x.key === state.metric);
  const most = m >= 0 ? metricRange(m) : 1;
  drawGridLabels(p, gridAt);
  for (const ref of allHeads(state.a.r)) drawGridCell(p, ref, m, most);
  drawMarks(p, gridAt);
  drawLegend(m, most);
}

function drawGridCell(p, ref, m, most) {
  const { x, y, size } = cellBox(gridAt, ref);
  if (isAbsent(ref)) {
    p.path([[x + 3, y + 3], [x + size - 3, y + size - 3]], css("--line"));
    return;
  }
  const roles = page.reports[ref.r].roles, index = roles.indexOf(roleOf(ref));
  const fill = m >= 0 ? rampColour(scoreOf(ref, m), most) : roleTint(index);
  const alpha = passes(ref) ? 1 : 0.16;
  p.rect(x, y, size, size, fill, alpha);
  if (m < 0) drawRoleBars(p, x, y, size, index, alpha);
  if (m >= 0 && !dark) p.frame(x + 0.5, y + 0.5, size - 1, size - 1, css("--line"));
  if (editOf(ref)) p.path([[x + 2, y + size - 2], [x + size - 2, y + 2]], css("--warn"), 2);
  if (size < 13 || alpha < 1) return;
  const ranked = m >= 0 && page.reports[ref.r].metrics[m].key === "worth", letter = ranked ? String(worthRank(ref) || "") : roleOf(ref).glyph;
  p.text(letter, x + size / 2, y + size / 2 + 0.5, { size: Math.min(13, size * (letter.length > 2 ? 0.42 : 0.55)), weight: 600, align: "center", fill: m >= 0 ? inkOn(fill) : roleInk(index) });
}

function drawRoleBars(p, x, y, size, index, alpha = 1) {
  const { below, above } = roleBars(index), thick = size > 20 ? 3 : 2;
  if (below) p.rect(x, y + size - thick, size, thick, roleInk(index), alpha);
  if (above) p.rect(x, y, size, thick, roleInk(index), alpha);
}

function roleMark(role, index) {
  const mark = make("i", {}, role.glyph), { below, above } = roleBars(index), ink = roleInk(index);
  mark.style.background = roleTint(index);
  mark.style.color = ink;
  mark.style.boxShadow = [below && `inset 0 -2px ${ink}`, above && `inset 0 2px ${ink}`].filter(Boolean).join(", ");
  return mark;
}

function drawLegend(m, most) {
  const list = $("legend"), report = page.reports[state.a.r];
  list.replaceChildren();
  if (m >= 0) {
    const ramp = make("canvas", { role: "img", "aria-label": t("rampLabel") });
    drawRamp(ramp, most, false);
    list.append(make("li", { class: "wide", title: helpOf(report.metrics[m]) }, ramp));
    if (report.metrics[m].key === "worth") list.append(make("li", { class: "wide" }, t("ranksNote")));
    return;
  }
  const counts = report.roles.map(() => 0);
  for (const ref of allHeads(state.a.r)) if (!isAbsent(ref)) counts[report.roles.indexOf(roleOf(ref))]++;
  report.roles.forEach((role, n) => {
    if (!counts[n]) return;
    list.append(make("li", { title: ruleOf(role) }, roleMark(role, n), make("span", {}, `${n ? nameOf(role) : t("noRole")} ${counts[n]}`)));
  });
  if (counts.some((count, n) => count && (roleBars(n).below || roleBars(n).above))) list.append(make("li", { class: "wide" }, t("barsNote")));
}

// ---- thumbnails ----------------------------------------------------------------------

// All thumbnails of a report in one image, for the current theme and scale: creating a
// canvas for each would take longer than drawing them.
let atlas = {};

// A figure of many heads has smaller maps: a cell is the largest of 2 x 2.
const MOST_FIGURE_CELLS = 200000;

function halved({ w, h, scale, cells }) {
  const wide = Math.ceil(w / 2), tall = Math.ceil(h / 2), out = new Uint8Array(wide * tall);
  for (let n = 0; n < w * h; n++) {
    const to = (Math.floor(n / w) >> 1) * wide + ((n % w) >> 1);
    out[to] = Math.max(out[to], cells[n]);
  }
  return { w: wide, h: tall, scale, cells: out };
}

function thumbImage(ref, out, small) {
  const whole = thumbOf(ref), thumb = small ? halved(whole) : whole, most = state.scale === "fixed" || (state.scale === "auto" && thumb.scale >= PALE) ? 1 : thumb.scale * (state.scale === "auto" ? HEADROOM : 1), colours = new Uint32Array(256);
  for (let n = 0; n < 256; n++) colours[n] = rampWords()[levelOf((thumb.scale * n) / 255, most)];
  for (let i = 0, n = 0; i < thumb.h; i++)
    for (let j = 0, at = out.at + i * out.w; j < thumb.w; j++, n++) out.words[at + j] = colours[thumb.cells[n]];
  return { x: out.at % out.w, y: Math.floor(out.at / out.w), w: thumb.w, h: thumb.h };
}

function makeAtlas(r, figure) {
  const heads = allHeads(r).filter((ref) => !isAbsent(ref)), across = Math.ceil(Math.sqrt(heads.length)) || 1;
  const side = Math.max(page.side || SIDE, 1), w = across * side, h = Math.ceil(heads.length / across) * side || 1;
  const image = { w, h, rgba: new Uint8ClampedArray(4 * w * h) }, words = new Uint32Array(image.rgba.buffer), parts = new Map();
  const small = figure && heads.length * side * side > MOST_FIGURE_CELLS;
  heads.forEach((ref, n) => parts.set(idOf(ref), { of: image, ...thumbImage(ref, { words, w, at: Math.floor(n / across) * side * w + (n % across) * side }, small) }));
  return parts;
}

// The thumbnail of a head: a part of an image.
function tintedThumb(ref, figure) {
  const key = `${ref.r}/${theme()}/${state.scale}/${figure}`;
  if (atlas.key !== key) atlas = { key, parts: makeAtlas(ref.r, figure) };
  return atlas.parts.get(idOf(ref));
}

// ---- how far heads of a layer differ -------------------------------------------------

const MOST_DIFFERENCES = 4e7; // pairs x weights: more would take seconds
const differences = new Map(); // report and stack to a list, one per layer

// Jensen-Shannon divergence of two rows, in nats.
function divergenceOf(a, b, from, to) {
  let sum = 0;
  for (let n = from; n < to; n++) {
    const m = (a[n] + b[n]) / 2;
    if (a[n] > 0) sum += 0.5 * a[n] * Math.log(a[n] / m);
    if (b[n] > 0) sum += 0.5 * b[n] * Math.log(b[n] / m);
  }
  return Math.max(0, sum);
}

// The mean over pairs of heads and rows; null where weights are not all here.
function layerDifference(r, s, l) {
  const maps = headsOf({ r, s }).filter((ref) => ref.l === l && !isAbsent(ref)).map((ref) => new HeadMap(ref));
  if (maps.length < 2 || !maps[0].rows) return null;
  const { rows, keys } = maps[0], cells = maps.map((map) => map.dense());
  let sum = 0;
  for (let a = 0; a < maps.length; a++)
    for (let b = 0; b < a; b++)
      for (let i = 0; i < rows; i++) sum += divergenceOf(cells[a], cells[b], i * keys, (i + 1) * keys);
  return sum / rows / ((maps.length * (maps.length - 1)) / 2);
}

function differencesOf(r, s) {
  const key = `${r}.${s}`, { heads, layers } = page.reports[r].stacks[s], one = new HeadMap({ r, s, l: 0, h: 0 });
  if (page.mode === "top" || page.mode === "live" || (layers * heads * heads * one.rows * one.keys) / 2 > MOST_DIFFERENCES) return null;
  if (!differences.has(key)) differences.set(key, Array.from({ length: layers }, (_, l) => layerDifference(r, s, l)));
  return differences.get(key);
}

const DIFFER = 120; // width of the bars

function drawDifferences(p, layout) {
  const from = layout.width + 16;
  for (const { r, s, stack, top, lines } of layout.parts) {
    const values = differencesOf(r, s);
    if (!values?.some((v) => v !== null)) continue;
    const most = Math.max(...values);
    p.text(t("differ"), from, top - 8, { size: 11, fill: css("--quiet") });
    for (let l = 0; l < stack.layers; l++) {
      if (values[l] === null) continue;
      const y = top + (l + 0.5) * lines * layout.cell;
      p.rect(from, y - 4, (values[l] / most) * (DIFFER - 56), 8, css("--accent"));
      p.text(values[l].toFixed(3), from + DIFFER - 50, y, { size: 11, fill: css("--quiet") });
    }
  }
}

let allAt = null;

const besideMaps = (w) => (w > 500 ? DIFFER + 16 : 0);
const LEGIBLE = 48; // a map of a deep model; the window scrolls then

const allView = {
  tall(w, h) {
    const { stacks } = page.reports[state.a.r], across = Math.max(...stacks.map((stack) => stack.heads));
    const cell = Math.min(LEGIBLE, Math.floor((w - besideMaps(w) - 30) / across));
    return cell < 28 ? h : Math.max(h, stacks.reduce((sum, stack) => sum + 38 + cell * stack.layers, 8));
  },
  draw(p, w, h) {
    const room = besideMaps(w);
    allAt = gridLayout(state.a.r, w - room, h, 150, 28, 6);
    if (room) drawDifferences(p, allAt);
    drawGridLabels(p, allAt);
    for (const ref of allHeads(state.a.r)) this.drawHead(p, ref);
    if (!p.figure) drawMarks(p, allAt);
  },
  drawHead(p, ref) {
    const { x, y, size } = cellBox(allAt, ref);
    if (isAbsent(ref)) {
      p.path([[x + 4, y + 4], [x + size - 4, y + size - 4]], css("--line"));
      return;
    }
    const thumb = tintedThumb(ref, Boolean(p.figure));
    if (thumb.w && thumb.h) p.image(thumb, x, y, size, size);
    if (!passes(ref)) p.rect(x, y, size, size, css("--paper"), 0.82);
    p.frame(x - 0.5, y - 0.5, size + 1, size + 1, css("--line"));
    const roles = page.reports[ref.r].roles, index = roles.indexOf(roleOf(ref));
    if (index <= 0 || size < 52 || !passes(ref)) return; // the letter would hide a small map; the grid has it
    p.rect(x, y, 14, 14, roleTint(index));
    drawRoleBars(p, x, y, 14, index);
    p.text(roleOf(ref).glyph, x + 7, y + 7.5, { size: 10, weight: 600, align: "center", fill: roleInk(index) });
  },
  hit: (x, y) => ({ head: gridHit(allAt, x, y) }),
  move(di, dj) { moveHead(di, dj); },
  note: () => t("legendZero") + (state.scale === "auto" && allHeads(state.a.r).some((ref) => !isAbsent(ref) && thumbOf(ref).scale < PALE) ? ` · ${t("paleHeads", PALE)}` : ""),
};

// ---- choosing heads ------------------------------------------------------------------

// Beyond the last layer of a stack comes the first of the next.
function moveHead(dl, dh) {
  const { stacks } = page.reports[state.a.r], a = { ...state.a, l: state.a.l + dl, h: state.a.h + dh };
  if (a.l < 0 && a.s > 0) a.l = stacks[--a.s].layers - 1;
  else if (a.l >= stacks[a.s].layers && a.s < stacks.length - 1) [a.s, a.l] = [a.s + 1, 0];
  a.l = Math.max(0, Math.min(stacks[a.s].layers - 1, a.l));
  a.h = Math.max(0, Math.min(stacks[a.s].heads - 1, a.h));
  chooseHead(a);
}

function chooseHead(ref) {
  const whole = sameAxes(ref, state.a) ? {} : { zoom: 1, x: 0, y: 0, scroll: 0, picked: [] };
  set({ a: ref, before: state.a, ...whole });
  say(`${titleOf(ref)}, ${nameOf(roleOf(ref)) || t("noRole")}`);
}

// Shift: among the beams one more, elsewhere the other side of the comparison.
function addHead(ref) {
  if (state.view !== "beams") {
    set({ b: ref, view: "compare" });
    return;
  }
  if (sameHead(ref, state.a)) return;
  const others = state.extra.filter((x) => !sameHead(x, ref));
  if (others.length === state.extra.length) others.push(ref);
  set({ extra: others.slice(-(MAX_HEADS - 1)) });
}

function headTip(ref) {
  const lines = [[make("b", {}, labelOf(ref)), ` ${roleOf(ref).key === "none" ? "" : nameOf(roleOf(ref))}`]];
  const metrics = page.reports[ref.r].metrics, m = metrics.findIndex((x) => x.key === state.metric);
  if (isAbsent(ref)) lines.push([t("absent")]);
  if (m >= 0) lines.push([`${nameOf(metrics[m])} ${number(scoreOf(ref, m))}`]);
  if (rankText(ref)) lines.push([`${t("worth")}: ${rankText(ref)}`]);
  const why = stackOf(ref).why?.[indexOf(ref)];
  if (why) lines.push([reasonOf(why)]);
  return lines;
}
